"""What a server lets strangers and users cost it (design section 5), and the door that counts strangers."""

from __future__ import annotations

import ipaddress
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from ..constants import CHANNELS_MAX, MAX_BUFFERED, PENDING_OPENS_MAX, REMOTE_FORWARDS_MAX
from ..errors import LocalError

__all__ = ("FrontDoor", "ServerLimits", "client_address")

_COUNTS: Final = (
    "max_startups",
    "max_startups_per_address",
    "max_auth_tries",
    "max_key_queries",
    "max_channels",
    "max_pending_opens",
    "max_buffered",
)
_SECONDS_MAX: Final = 1e9


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerLimits:
    """The limits of a server; validated when made.

    Args:
        login_grace: seconds from the accepted connection to a successful login, over all phases.
        max_startups: connections that are not logged in yet, at once; further ones are closed.
        max_startups_per_address: the same for one client address (IPv6: for a /64 network).
        max_auth_tries: failed attempts in one connection; the last one ends it.
        max_key_queries: refused questions whether a key would do; the last one ends the connection.
        max_channels: channels that a client has open at once.
        max_pending_opens: channel opens of a client that wait for an answer.
        max_remote_forwards: ports that a client has listened on at once.
        max_buffered: bytes received and not read, over all channels of a connection.
        idle_timeout: seconds without any packet of a logged-in client until it is disconnected;
            None is for ever.
        on_refused: called with the client's address (None where it has none) and the name of the
            limit for each connection that is closed at the door.

    Raises:
        LocalError: a value is out of range.
    """

    login_grace: float = 120.0
    max_startups: int = 100
    max_startups_per_address: int = 10
    max_auth_tries: int = 6
    max_key_queries: int = 20
    max_channels: int = CHANNELS_MAX
    max_pending_opens: int = PENDING_OPENS_MAX
    max_remote_forwards: int = REMOTE_FORWARDS_MAX
    max_buffered: int = MAX_BUFFERED
    idle_timeout: float | None = None
    on_refused: Callable[[str | None, str], object] | None = None

    def __post_init__(self) -> None:
        for name in _COUNTS:
            _check_count(name, getattr(self, name), 1)
        _check_count("max_remote_forwards", self.max_remote_forwards, 0)
        _check_seconds("login_grace", self.login_grace)
        if self.idle_timeout is not None:
            _check_seconds("idle_timeout", self.idle_timeout)
        if self.on_refused is not None and not callable(self.on_refused):
            raise LocalError("on_refused must be a function of an address and a limit's name")


def _check_count(name: str, value: Any, least: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value < 2**40:
        raise LocalError(f"{name} must be a whole number from {least} on, not {value!r}")


def _check_seconds(name: str, value: Any) -> None:
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value <= _SECONDS_MAX:
        raise LocalError(f"{name} must be a positive number of seconds, not {value!r}")


def client_address(peername: Any) -> tuple[str | None, int | None]:
    """Address and port from a socket's peer name; (None, None) for anything but IP.

    An IPv4 client of an IPv6 socket has its IPv4 address; a zone ("%eth0") is left out.
    """
    if not isinstance(peername, tuple) or len(peername) < 2:
        return None, None
    try:
        address = ipaddress.ip_address(str(peername[0]).partition("%")[0])
    except ValueError:
        return None, None
    mapped = getattr(address, "ipv4_mapped", None)
    return str(mapped or address), peername[1]


def _network(address: str | None) -> str | None:
    """What counts as one client: an IPv4 address, or the /64 that one IPv6 customer has at least."""
    if address is None or ":" not in address:
        return address
    return str(ipaddress.ip_network((address, 64), strict=False))


class FrontDoor:
    """Counts the connections that are not logged in yet. All counts go back to zero."""

    def __init__(self, limits: ServerLimits) -> None:
        self._limits = limits
        self._networks: Counter[str] = Counter()
        self.inside = 0

    @property
    def networks(self) -> int:
        """How many client networks are counted now."""
        return len(self._networks)

    def enter(self, address: str | None) -> str | None:
        """Count a new connection; or the name of the limit that keeps it out."""
        network = _network(address)
        if self.inside >= self._limits.max_startups:
            return "max_startups"
        if network is not None:
            if self._networks[network] >= self._limits.max_startups_per_address:
                return "max_startups_per_address"
            self._networks[network] += 1
        self.inside += 1
        return None

    def leave(self, address: str | None) -> None:
        """A connection that entered has logged in, or ended."""
        network = _network(address)
        self.inside -= 1
        if network is not None:
            self._networks[network] -= 1
            if not self._networks[network]:
                del self._networks[network]
