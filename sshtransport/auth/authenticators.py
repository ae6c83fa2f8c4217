"""Who may log in and what they may do then: the answers of an authenticator, and two ready ones.

An authenticator is any object with some of ``check_public_key(username, key, info)``,
``check_password(username, password, info)`` and ``check_keyboard_interactive(username, ask,
info)``. A check answers True, a :class:`Grant` or :data:`PARTIAL_SUCCESS`; everything else refuses.
"""

from __future__ import annotations

import hmac
import logging
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from types import MappingProxyType
from typing import Final

from ..errors import KeyFileError, LocalError
from ..keys import AuthorizedKeyList, ForwardRule, KeyOptions, PublicKey, SkippedLine
from .messages import encoded

__all__ = (
    "PARTIAL_SUCCESS",
    "AuthInfo",
    "AuthorizedKeys",
    "Grant",
    "PartialSuccess",
    "Passwords",
    "verdict_of",
)

_logger = logging.getLogger("sshtransport.auth")

_NO_KEYS: Final = AuthorizedKeyList((), (), ())


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """A login with limits; as it stands, one without.

    ``force_command`` replaces whatever the client asks to run ("" is a command, None is no limit).
    ``permit_open`` and ``permit_listen`` narrow forwarding from and to the client to the given
    targets; None leaves all that ``permit_port_forwarding`` allows. ``environment`` is added to
    what the client sets, and wins over it. A permission here never grants what the server itself
    does not offer.
    """

    force_command: str | None = None
    permit_pty: bool = True
    permit_port_forwarding: bool = True
    permit_agent_forwarding: bool = True
    permit_x11_forwarding: bool = True
    permit_user_rc: bool = True
    permit_open: Sequence[ForwardRule] | None = None
    permit_listen: Sequence[ForwardRule] | None = None
    environment: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        # Copies: what was granted does not change under a running connection.
        for name in ("permit_open", "permit_listen"):
            rules = getattr(self, name)
            object.__setattr__(self, name, None if rules is None else tuple(rules))
        object.__setattr__(self, "environment", MappingProxyType(dict(self.environment)))

    @classmethod
    def from_options(cls, options: KeyOptions) -> Grant:
        """What the options of an authorized_keys line leave (``from=`` and ``expiry-time=`` concern the login only)."""
        return cls(
            force_command=options.command,
            permit_pty=options.permit_pty,
            permit_port_forwarding=options.permit_port_forwarding,
            permit_agent_forwarding=options.permit_agent_forwarding,
            permit_x11_forwarding=options.permit_x11_forwarding,
            permit_user_rc=options.permit_user_rc,
            permit_open=options.permit_open,
            permit_listen=options.permit_listen,
            environment=options.environment,
        )

    def allows_open(self, host: str, port: int) -> bool:
        """Whether the client may have a connection to this target opened (direct-tcpip)."""
        return self.permit_port_forwarding and _permits(self.permit_open, host, port)

    def allows_listen(self, host: str, port: int) -> bool:
        """Whether the client may have this address listened on (tcpip-forward)."""
        return self.permit_port_forwarding and _permits(self.permit_listen, host, port)


def _permits(rules: Sequence[ForwardRule] | None, host: str, port: int) -> bool:
    return rules is None or any(rule.allows(host, port) for rule in rules)


class PartialSuccess(Enum):
    """Type of :data:`PARTIAL_SUCCESS`."""

    PARTIAL_SUCCESS = "partial success"


#: The answer "right, and another method is needed as well" (RFC 4252, section 5.1).
PARTIAL_SUCCESS: Final = PartialSuccess.PARTIAL_SUCCESS


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthInfo:
    """What a check knows besides the name and the proof.

    ``now`` is the POSIX time of the attempt. ``peer_address`` is the client's IP address as text,
    None when it came another way (a Unix socket). ``completed`` lists the methods already answered
    with PARTIAL_SUCCESS in this login, in order: a second factor must look there before it says
    True. ``connection`` is the server's object for the connection.
    """

    now: float
    peer_address: str | None = None
    peer_port: int | None = None
    completed: tuple[str, ...] = ()
    connection: object = field(default=None, repr=False)


def verdict_of(answer: object) -> Grant | PartialSuccess | None:
    """What the answer of a check means: True is a Grant without limits, None a refusal.

    Only True itself counts; other true values are as much of a refusal as None (known bugs, M 162).
    """
    if answer is True:
        return Grant()
    return answer if isinstance(answer, Grant | PartialSuccess) else None


class AuthorizedKeys:
    """Lets the keys of an authorized_keys file in, each with the limits of its line.

    ``source`` is a path, or a sequence of lines. A file is looked at before each check and read
    again when it changed: to take a line out is to revoke its key. While the file is gone or
    cannot be read, nobody is let in. The keys are good for every user name, unless ``usernames``
    says for which.

    Raises KeyFileError when the file cannot be read at first, or a line holds a line end.
    """

    def __init__(
        self,
        source: str | os.PathLike[str] | Sequence[str],
        *,
        usernames: Iterable[str] | None = None,
    ) -> None:
        if isinstance(usernames, str):
            raise LocalError("usernames is a collection of names, not one name")
        self._usernames = None if usernames is None else frozenset(usernames)
        self._seen: tuple[int, ...] | None = None  # the file's state when it was read, once that can be trusted
        self._readable = True
        self._list = _NO_KEYS
        self._path: str | None = None
        if isinstance(source, str | os.PathLike):
            self._path = os.path.expanduser(os.fspath(source))
            self._read(self._path, 0.0)
        else:
            self._use(AuthorizedKeyList.from_text(_joined(source)))

    @property
    def skipped(self) -> tuple[SkippedLine, ...]:
        """The lines that could not be used when the keys were last read, and why."""
        return self._list.skipped

    def check_public_key(self, username: str, key: PublicKey, info: AuthInfo) -> Grant | None:
        """The limits of the first line that lets ``key`` in now and from there, or None."""
        if self._path is not None:
            self._refresh(self._path, info.now)
        entry = self._list.find(key, info.peer_address, info.now)
        if entry is None or not (self._usernames is None or username in self._usernames):
            return None
        return Grant.from_options(entry.options)

    def _refresh(self, path: str, now: float) -> None:
        try:
            if self._seen is None or self._seen != _state(os.stat(path)):
                self._read(path, now)
            self._readable = True
        except (OSError, KeyFileError) as error:
            self._seen = None
            self._list = _NO_KEYS
            if self._readable:
                _logger.warning("no authorized keys while they cannot be read: %s", error)
            self._readable = False

    def _read(self, path: str, now: float) -> None:
        try:
            before = os.stat(path)  # before reading: a change meanwhile is seen next time
        except (OSError, ValueError) as error:
            raise KeyFileError(f"{path}: {getattr(error, 'strerror', None) or 'invalid path'}", path=path) from error
        self._use(AuthorizedKeyList.load(path))
        # Two changes within one tick of the file system's clock look like one: a file as young as
        # that is read again.
        self._seen = _state(before) if now - before.st_mtime > 1.0 else None

    def _use(self, keys: AuthorizedKeyList) -> None:
        if keys.skipped != self._list.skipped:
            for line in keys.skipped:
                _logger.warning("%s, line %d is not used: %s", line.path or "authorized keys", line.line, line.reason)
        self._list = keys


def _state(stat: os.stat_result) -> tuple[int, ...]:
    return (stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns)


def _joined(lines: Sequence[str]) -> str:
    """One text of the lines; an entry cannot smuggle in a second line without its options."""
    stripped = [line.removesuffix("\n").removesuffix("\r") for line in lines]
    for number, line in enumerate(stripped, 1):
        if "\n" in line:
            raise KeyFileError("an authorized_keys line has a line end in it", line=number)
    return "\n".join(stripped)


class Passwords:
    """Lets users in who know their password. ``passwords`` maps user names to passwords.

    Only keyed digests are kept, and compared in constant time; an unknown name costs the same work as
    a known one. LocalError for an empty password.
    """

    def __init__(self, passwords: Mapping[str, str]) -> None:
        if not all(passwords.values()):
            raise LocalError("an empty password lets everybody in")
        self._key = os.urandom(32)
        self._digests = {user: self._digest(encoded(password, "a password")) for user, password in passwords.items()}
        self._nobody = os.urandom(32)  # no digest that anybody could hit

    def check_password(self, username: str, password: str, info: AuthInfo) -> bool:
        """Whether this is the user's password."""
        digest = self._digest(encoded(password, "a password"))
        return hmac.compare_digest(digest, self._digests.get(username, self._nobody))

    def _digest(self, password: bytes) -> bytes:
        return hmac.digest(self._key, password, "sha256")
