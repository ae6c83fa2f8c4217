"""What the sans-IO transport tells its user, besides payloads.

Payloads are plain ``bytes``: an event object per packet would cost more than the packet
(design section 6). Events are rare, so they are small slotted classes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from .errors import DisconnectReason, SSHError

__all__ = (
    "DebugReceived",
    "Disconnected",
    "Event",
    "ExtInfoReceived",
    "HostKeyOffered",
    "IdentificationReceived",
    "KeysChanged",
    "UnimplementedReceived",
)


@dataclass(slots=True)
class Event:
    """Base of all events."""


@dataclass(slots=True)
class IdentificationReceived(Event):
    """The peer's identification line, without CR LF (RFC 4253, section 4.2)."""

    ident: bytes


@dataclass(slots=True)
class HostKeyOffered(Event):
    """The server proved that it holds this host key; is it the right one?

    Nothing more is parsed until ``accept_host_key()`` or ``reject_host_key()`` is called.
    ``host_key`` is the public key blob (RFC 4253, section 6.6), ``algorithm`` the negotiated
    signature algorithm, ``first`` False in a rekey that brought another key.
    """

    algorithm: str
    host_key: bytes
    first: bool


@dataclass(slots=True)
class KeysChanged(Event):
    """A key exchange is complete: both NEWKEYS have passed (RFC 4253, section 7.3).

    ``first`` is True for the exchange that opened the connection.
    """

    first: bool


@dataclass(slots=True)
class ExtInfoReceived(Event):
    """The peer's EXT_INFO (RFC 8308, section 2.3): names to opaque values."""

    extensions: Mapping[str, bytes]


@dataclass(slots=True)
class DebugReceived(Event):
    """SSH_MSG_DEBUG (RFC 4253, section 11.3); ``text`` has its control characters escaped."""

    always_display: bool
    text: str


@dataclass(slots=True)
class UnimplementedReceived(Event):
    """The peer did not understand our packet number ``sequence`` (RFC 4253, section 11.4)."""

    sequence: int


@dataclass(slots=True)
class Disconnected(Event):
    """The end; nothing follows. Comes exactly once.

    ``reason`` and ``description`` are those of the DISCONNECT that was sent or received;
    ``error`` is the cause, or None when the local side asked for the end.
    """

    reason: DisconnectReason | int
    description: str
    error: SSHError | None
