"""What every user of a link can say about it: addresses, algorithms, counters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..keys import PublicKey
from ..negotiation import Algorithms
from .protocol import Link

__all__ = ("ConnectionInfo", "LinkUser")


@dataclass(frozen=True, slots=True)
class ConnectionInfo:
    """What is known about a connection; counters are of this moment. ``host_key`` is the server's."""

    role: str
    algorithms: Algorithms | None
    strict_kex: bool
    local_ident: bytes
    peer_ident: bytes | None
    session_id: bytes | None
    host_key: PublicKey | None
    peer_extensions: dict[str, bytes]
    local_address: Any
    peer_address: Any
    bytes_sent: int
    bytes_received: int
    packets_sent: int
    packets_received: int
    rekeys: int


class LinkUser:
    """Base of connections and packet streams."""

    def __init__(self, link: Link) -> None:
        self.link = link
        self._local_address: Any = None
        self._peer_address: Any = None

    @property
    def info(self) -> ConnectionInfo:
        """Algorithms, identifications, keys and counters."""
        core = self.link.core
        return ConnectionInfo(
            core.role,
            core.algorithms,
            core.strict_kex,
            core.ident,
            core.peer_ident,
            core.session_id,
            PublicKey.from_blob(core.host_key, rsa_min_bits=core.config.rsa_min_bits) if core.host_key else None,
            dict(core.peer_extensions),
            self._local_address,
            self._peer_address,
            core.bytes_sent,
            core.bytes_received,
            core.packets_sent,
            core.packets_received,
            core.rekeys,
        )

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """As ``asyncio.BaseTransport.get_extra_info``: "socket", "sockname", "peername"; also "connection"."""
        if name == "connection":
            return self
        known = {"sockname": self._local_address, "peername": self._peer_address}
        if name in known:
            return known[name]
        transport = self.link.transport
        return default if transport is None else transport.get_extra_info(name, default)

    def is_closed(self) -> bool:
        """Whether the connection has ended."""
        return not self.link.is_open

    def remember_addresses(self) -> None:
        """Note the socket's addresses while there is one."""
        transport = self.link.transport
        if transport is not None:
            self._local_address = transport.get_extra_info("sockname")
            self._peer_address = transport.get_extra_info("peername")
