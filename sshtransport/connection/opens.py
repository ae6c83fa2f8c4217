"""The type-specific part of CHANNEL_OPEN (RFC 4254, section 7.2; OpenSSH PROTOCOL, section 2.4), and its refusal."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import ClassVar, Final, Self

from ..constants import MSG_CHANNEL_OPEN_FAILURE
from ..errors import LocalError, OpenFailureReason
from ..wire import Reader, byte, text, uint32
from .requests import host_text, path_text, port_number

__all__ = (
    "CHANNEL_TARGETS",
    "SESSION",
    "ChannelTarget",
    "DirectStreamLocal",
    "DirectTCPIP",
    "ForwardedStreamLocal",
    "ForwardedTCPIP",
    "decode_open",
    "encode_open",
    "refusal",
)

SESSION: Final = "session"


class ChannelTarget:
    """Base of the payloads; ``TYPE`` is the channel type they belong to."""

    __slots__ = ()
    TYPE: ClassVar[str] = ""

    def _encode(self) -> bytes:
        raise NotImplementedError

    @classmethod
    def _decode(cls, reader: Reader) -> Self:
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class _Endpoints(ChannelTarget):
    host: str
    port: int
    originator: str = "127.0.0.1"
    originator_port: int = 0

    def _encode(self) -> bytes:
        return text(self.host) + uint32(self.port) + text(self.originator) + uint32(self.originator_port)

    @classmethod
    def _decode(cls, reader: Reader) -> Self:
        return cls(host_text(reader), port_number(reader), host_text(reader), reader.uint32())


class DirectTCPIP(_Endpoints):
    """Connect to ``host``, ``port`` for somebody at ``originator``, ``originator_port``.

    The originator is what the peer says it is; its port is any 32-bit number.
    """

    __slots__ = ()
    TYPE: ClassVar[str] = "direct-tcpip"


class ForwardedTCPIP(_Endpoints):
    """Somebody at the originator's address connected to the forwarded ``host``, ``port``."""

    __slots__ = ()
    TYPE: ClassVar[str] = "forwarded-tcpip"


@dataclass(frozen=True, slots=True)
class DirectStreamLocal(ChannelTarget):
    """Connect to a Unix socket."""

    TYPE: ClassVar[str] = "direct-streamlocal@openssh.com"
    path: str

    def _encode(self) -> bytes:
        return text(self.path) + text("") + uint32(0)

    @classmethod
    def _decode(cls, reader: Reader) -> Self:
        target = cls(path_text(reader))
        reader.string()  # reserved, as is the number
        reader.uint32()
        return target


@dataclass(frozen=True, slots=True)
class ForwardedStreamLocal(ChannelTarget):
    """Somebody connected to the forwarded Unix socket."""

    TYPE: ClassVar[str] = "forwarded-streamlocal@openssh.com"
    path: str

    def _encode(self) -> bytes:
        return text(self.path) + text("")

    @classmethod
    def _decode(cls, reader: Reader) -> Self:
        target = cls(path_text(reader))
        reader.string()  # reserved
        return target


CHANNEL_TARGETS: Final[Mapping[str, type[ChannelTarget]]] = MappingProxyType(
    {kind.TYPE: kind for kind in (DirectTCPIP, ForwardedTCPIP, DirectStreamLocal, ForwardedStreamLocal)}
)


def encode_open(target: ChannelTarget) -> tuple[str, bytes]:
    """The arguments of :meth:`Connection.open_channel`; LocalError for a value out of range."""
    try:
        return target.TYPE, target._encode()
    except (struct.error, UnicodeEncodeError) as error:
        raise LocalError(f"{target.TYPE} open cannot be encoded: {error}") from error


def decode_open(channel_type: str, extra: bytes) -> ChannelTarget | None:
    """The typed payload, or None for a session and for types this package has no class for.

    Raises ProtocolError for a payload that does not fit its type; a session's must be empty.
    """
    kind = CHANNEL_TARGETS.get(channel_type)
    if kind is None and channel_type != SESSION:
        return None
    reader = Reader(extra)
    target = kind._decode(reader) if kind is not None else None
    reader.end()
    return target


def refusal(peer_number: int, reason: OpenFailureReason, description: str) -> bytes:
    """An OPEN_FAILURE payload (RFC 4254, section 5.1)."""
    head = byte(MSG_CHANNEL_OPEN_FAILURE) + uint32(peer_number) + uint32(reason)
    return head + text(description) + text("")
