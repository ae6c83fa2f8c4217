"""Which requests a session channel of a server takes, and when (RFC 4254, sections 6.2 to 6.9)."""

from __future__ import annotations

from typing import Final

from ..constants import ENV_MAX, ENV_SIZE_MAX
from .requests import Break, ChannelRequest, Env, Exec, PtyRequest, Shell, Signal, Subsystem, WindowChange

__all__ = ("SessionRules",)

_STARTS: Final = (Exec, Shell, Subsystem)
_NEEDS_START: Final = (WindowChange, Signal, Break)


class SessionRules:
    """Exactly one start may succeed; the environment and the terminal come before it, the rest after."""

    __slots__ = ("_env_count", "_env_size", "_has_pty", "_started")

    def __init__(self) -> None:
        self._started = False
        self._has_pty = False
        self._env_count = 0
        self._env_size = 0

    def admit(self, request: ChannelRequest) -> bool:
        """Whether the application gets to see the request; if not, it fails.

        A start counts from here on, not from its reply: whatever comes in between comes after it.
        """
        if isinstance(request, _NEEDS_START):
            return self._started
        if self._started:
            return False
        if isinstance(request, _STARTS):
            self._started = True
        elif isinstance(request, Env):
            return self._admit_env(request)
        elif isinstance(request, PtyRequest):
            if self._has_pty:
                return False
            self._has_pty = True
        return True

    def refused(self, request: object) -> None:
        """The application refused what was admitted: another one may come."""
        if isinstance(request, _STARTS):
            self._started = False
        elif isinstance(request, PtyRequest):
            self._has_pty = False

    def _admit_env(self, request: Env) -> bool:
        size = self._env_size + len(request.name.encode("utf-8", "surrogateescape")) + len(request.value)
        if self._env_count >= ENV_MAX or size > ENV_SIZE_MAX:
            return False
        self._env_count += 1
        self._env_size = size
        return True
