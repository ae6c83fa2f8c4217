"""Channel requests (RFC 4254, sections 5.4 and 6) and global requests (section 4), typed.

Decoding raises :class:`ProtocolError` for a short field or trailing bytes; encoding raises
:class:`LocalError` for a value that does not fit its field. Text is UTF-8 with surrogate escapes:
what the peer sent can be got back byte for byte, and wants :func:`sshtransport.wire.visible`
before it is shown.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import ClassVar, Final, Self

from ..errors import LocalError, ProtocolError
from ..wire import Reader, boolean, string, text, uint32

__all__ = (
    "CLIENT_REQUESTS",
    "GLOBAL_REQUESTS",
    "SERVER_REQUESTS",
    "Break",
    "CancelStreamLocalForward",
    "CancelTCPIPForward",
    "ChannelRequest",
    "Env",
    "Exec",
    "ExitSignal",
    "ExitStatus",
    "GlobalRequest",
    "PtyRequest",
    "Shell",
    "Signal",
    "StreamLocalForward",
    "Subsystem",
    "TCPIPForward",
    "UnknownRequest",
    "WindowChange",
    "decode_forwarded_port",
    "decode_global",
    "decode_request",
    "encode_global",
    "encode_request",
    "host_text",
    "path_text",
    "port_number",
)

_TTY_OP_END: Final = 0
_TTY_OP_UNDEFINED: Final = 160  # from here on the arguments' sizes are unknown: parsing stops
_MODE: Final = struct.Struct(">BI")
_NO_MODES: Final[Mapping[int, int]] = MappingProxyType({})


class ChannelRequest:
    """Base of the requests; ``TYPE`` is the name on the wire."""

    __slots__ = ()
    TYPE: ClassVar[str] = ""

    def _encode(self) -> bytes:
        return b""

    @classmethod
    def _decode(cls, reader: Reader) -> Self:
        return cls()


# --- from the client -------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class Exec(ChannelRequest):
    """Run a command (section 6.5). Commands are bytes: the RFC gives them no encoding."""

    TYPE: ClassVar[str] = "exec"
    command: bytes

    def _encode(self) -> bytes:
        return string(self.command)

    @classmethod
    def _decode(cls, reader: Reader) -> Self:
        return cls(reader.string())


@dataclass(frozen=True, slots=True)
class Shell(ChannelRequest):
    """Start the user's shell (section 6.5)."""

    TYPE: ClassVar[str] = "shell"


@dataclass(frozen=True, slots=True)
class Subsystem(ChannelRequest):
    """Start a subsystem such as sftp (section 6.5)."""

    TYPE: ClassVar[str] = "subsystem"
    name: str

    def _encode(self) -> bytes:
        return text(self.name)

    @classmethod
    def _decode(cls, reader: Reader) -> Self:
        return cls(reader.text())


@dataclass(frozen=True, slots=True)
class Env(ChannelRequest):
    """Set an environment variable for what is started later (section 6.4)."""

    TYPE: ClassVar[str] = "env"
    name: str
    value: bytes = field(repr=False)

    def _encode(self) -> bytes:
        return text(self.name) + string(self.value)

    @classmethod
    def _decode(cls, reader: Reader) -> Self:
        return cls(reader.text(), reader.string())


@dataclass(frozen=True, slots=True)
class PtyRequest(ChannelRequest):
    """Allocate a terminal (section 6.2).

    Sizes are in characters and pixels, zero means unknown; ``modes`` maps the opcodes of
    section 8 to their values.
    """

    TYPE: ClassVar[str] = "pty-req"
    term: str
    columns: int
    rows: int
    pixel_width: int = 0
    pixel_height: int = 0
    modes: Mapping[int, int] = field(default_factory=lambda: _NO_MODES)

    def _encode(self) -> bytes:
        sizes = struct.pack(">IIII", self.columns, self.rows, self.pixel_width, self.pixel_height)
        return text(self.term) + sizes + string(_encode_modes(self.modes))

    @classmethod
    def _decode(cls, reader: Reader) -> Self:
        term = reader.text()
        columns, rows, width, height = (reader.uint32() for _ in range(4))
        return cls(term, columns, rows, width, height, _decode_modes(reader.string()))


def _encode_modes(modes: Mapping[int, int]) -> bytes:
    for opcode in modes:
        if not _TTY_OP_END < opcode < _TTY_OP_UNDEFINED:
            raise LocalError(f"terminal mode {opcode} cannot be sent: opcodes with a value are 1 to 159")
    return b"".join(_MODE.pack(opcode, value) for opcode, value in modes.items()) + bytes([_TTY_OP_END])


def _decode_modes(data: bytes) -> dict[int, int]:
    """Read the pairs up to the end mark, an opcode of unknown shape, or the end of the string."""
    modes: dict[int, int] = {}
    reader = Reader(data)
    while reader.remaining:
        opcode = reader.byte()
        if opcode == _TTY_OP_END or opcode >= _TTY_OP_UNDEFINED:
            break
        modes[opcode] = reader.uint32()
    return modes


@dataclass(frozen=True, slots=True)
class WindowChange(ChannelRequest):
    """The terminal has another size (section 6.7)."""

    TYPE: ClassVar[str] = "window-change"
    columns: int
    rows: int
    pixel_width: int = 0
    pixel_height: int = 0

    def _encode(self) -> bytes:
        return struct.pack(">IIII", self.columns, self.rows, self.pixel_width, self.pixel_height)

    @classmethod
    def _decode(cls, reader: Reader) -> Self:
        return cls(reader.uint32(), reader.uint32(), reader.uint32(), reader.uint32())


@dataclass(frozen=True, slots=True)
class Signal(ChannelRequest):
    """Deliver a signal (section 6.9); ``name`` is without "SIG"."""

    TYPE: ClassVar[str] = "signal"
    name: str

    def _encode(self) -> bytes:
        return text(self.name)

    @classmethod
    def _decode(cls, reader: Reader) -> Self:
        return cls(reader.text())


@dataclass(frozen=True, slots=True)
class Break(ChannelRequest):
    """Send a break of ``length`` milliseconds, 0 for the default (RFC 4335)."""

    TYPE: ClassVar[str] = "break"
    length: int

    def _encode(self) -> bytes:
        return uint32(self.length)

    @classmethod
    def _decode(cls, reader: Reader) -> Self:
        return cls(reader.uint32())


# --- from the server -------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class ExitStatus(ChannelRequest):
    """The command ended with this status (section 6.10)."""

    TYPE: ClassVar[str] = "exit-status"
    status: int

    def _encode(self) -> bytes:
        return uint32(self.status)

    @classmethod
    def _decode(cls, reader: Reader) -> Self:
        return cls(reader.uint32())


@dataclass(frozen=True, slots=True)
class ExitSignal(ChannelRequest):
    """The command was ended by a signal (section 6.10); ``name`` is without "SIG"."""

    TYPE: ClassVar[str] = "exit-signal"
    name: str
    core_dumped: bool = False
    message: str = ""
    language: str = ""

    def _encode(self) -> bytes:
        return text(self.name) + boolean(self.core_dumped) + text(self.message) + text(self.language)

    @classmethod
    def _decode(cls, reader: Reader) -> Self:
        return cls(reader.text(), reader.boolean(), reader.text(), reader.text())


@dataclass(frozen=True, slots=True)
class UnknownRequest(ChannelRequest):
    """A request this package has no class for; ``data`` is everything after want_reply."""

    name: str
    data: bytes = b""

    def _encode(self) -> bytes:
        return self.data


def _table(*kinds: type[ChannelRequest]) -> Mapping[str, type[ChannelRequest]]:
    return MappingProxyType({kind.TYPE: kind for kind in kinds})


#: What a client may ask of a server on a session channel, and the other way round.
CLIENT_REQUESTS: Final = _table(Exec, Shell, Subsystem, Env, PtyRequest, WindowChange, Signal, Break)
SERVER_REQUESTS: Final = _table(ExitStatus, ExitSignal)


def encode_request(request: ChannelRequest) -> tuple[str, bytes]:
    """The request's name and the bytes after want_reply."""
    name = request.name if isinstance(request, UnknownRequest) else request.TYPE
    if not name.isascii():
        raise LocalError("a request name is US-ASCII")
    try:
        return name, request._encode()
    except (struct.error, UnicodeEncodeError) as error:
        raise LocalError(f"{name} request cannot be encoded: {error}") from error


def decode_request(name: str, data: bytes, known: Mapping[str, type[ChannelRequest]]) -> ChannelRequest:
    """The typed request where ``known`` has the name, else an :class:`UnknownRequest`."""
    kind = known.get(name)
    if kind is None:
        return UnknownRequest(name, data)
    reader = Reader(data)
    request = kind._decode(reader)
    reader.end()
    return request


# --- global requests -------------------------------------------------------------------------------
def port_number(reader: Reader) -> int:
    """A TCP port: the field has 32 bits, the port 16."""
    port = reader.uint32()
    if port > 0xFFFF:
        raise ProtocolError("port number out of range")
    return port


def host_text(reader: Reader) -> str:
    """A host name or address. No resolver takes a NUL, so none gets that far."""
    value = reader.text()
    if "\0" in value:
        raise ProtocolError("NUL in a host name")
    return value


def path_text(reader: Reader) -> str:
    """A socket path, for which the same holds."""
    value = reader.text()
    if "\0" in value:
        raise ProtocolError("NUL in a path")
    return value


class GlobalRequest:
    """Base of the global requests; ``TYPE`` is the name on the wire."""

    __slots__ = ()
    TYPE: ClassVar[str] = ""

    def _encode(self) -> bytes:
        raise NotImplementedError

    @classmethod
    def _decode(cls, reader: Reader) -> Self:
        raise NotImplementedError


# Requests that look alike share a private base, never each other: ``isinstance(request, TCPIPForward)``
# must not be true of a cancel.
@dataclass(frozen=True, slots=True)
class _HostPort(GlobalRequest):
    host: str
    port: int

    def _encode(self) -> bytes:
        return text(self.host) + uint32(self.port)

    @classmethod
    def _decode(cls, reader: Reader) -> Self:
        return cls(host_text(reader), port_number(reader))


@dataclass(frozen=True, slots=True)
class _Path(GlobalRequest):
    path: str

    def _encode(self) -> bytes:
        return text(self.path)

    @classmethod
    def _decode(cls, reader: Reader) -> Self:
        return cls(path_text(reader))


class TCPIPForward(_HostPort):
    """Listen for connections and bring them back (section 7.1); port 0 lets the server choose."""

    __slots__ = ()
    TYPE: ClassVar[str] = "tcpip-forward"


class CancelTCPIPForward(_HostPort):
    """Stop listening (section 7.1): the host as requested, the port as allocated."""

    __slots__ = ()
    TYPE: ClassVar[str] = "cancel-tcpip-forward"


class StreamLocalForward(_Path):
    """The same for a Unix socket (OpenSSH PROTOCOL, section 2.4)."""

    __slots__ = ()
    TYPE: ClassVar[str] = "streamlocal-forward@openssh.com"


class CancelStreamLocalForward(_Path):
    """Stop listening on a Unix socket."""

    __slots__ = ()
    TYPE: ClassVar[str] = "cancel-streamlocal-forward@openssh.com"


GLOBAL_REQUESTS: Final[Mapping[str, type[GlobalRequest]]] = MappingProxyType(
    {kind.TYPE: kind for kind in (TCPIPForward, CancelTCPIPForward, StreamLocalForward, CancelStreamLocalForward)}
)


def encode_global(request: GlobalRequest) -> tuple[str, bytes]:
    """The request's name and the bytes after want_reply."""
    try:
        return request.TYPE, request._encode()
    except (struct.error, UnicodeEncodeError) as error:
        raise LocalError(f"{request.TYPE} request cannot be encoded: {error}") from error


def decode_global(name: str, data: bytes) -> GlobalRequest | None:
    """The typed request, or None where this package has no class for the name."""
    kind = GLOBAL_REQUESTS.get(name)
    if kind is None:
        return None
    reader = Reader(data)
    request = kind._decode(reader)
    reader.end()
    return request


def decode_forwarded_port(data: bytes) -> int:
    """The port in the reply to a :class:`TCPIPForward` for port 0 (section 7.1)."""
    reader = Reader(data)
    port = port_number(reader)
    reader.end()
    return port
