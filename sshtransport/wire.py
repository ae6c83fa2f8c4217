"""The data types of RFC 4251, section 5: encode, and a bounded reader for cold messages.

Hot messages (CHANNEL_DATA and its kin) use prebuilt ``struct.Struct`` objects at their place of
use instead of a :class:`Reader`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable

from .errors import ProtocolError

__all__ = (
    "Buffer",
    "Reader",
    "boolean",
    "byte",
    "mpint",
    "name_list",
    "string",
    "text",
    "uint32",
    "uint64",
    "visible",
)

Buffer = bytes | bytearray | memoryview

_U32 = struct.Struct(">I")
_U64 = struct.Struct(">Q")

uint32 = _U32.pack
uint64 = _U64.pack


def byte(value: int) -> bytes:
    """One octet."""
    return value.to_bytes(1, "big")


def boolean(value: bool) -> bytes:
    """A boolean: only 0 and 1 are written."""
    return b"\x01" if value else b"\x00"


def string(value: Buffer) -> bytes:
    """A length-prefixed byte string."""
    return _U32.pack(len(value)) + value


def text(value: str) -> bytes:
    """A string of UTF-8 text; surrogate escapes give back the bytes they stand for."""
    return string(value.encode("utf-8", "surrogateescape"))


def name_list(names: Iterable[str]) -> bytes:
    """A comma-separated list of ASCII names."""
    return string(",".join(names).encode("ascii"))


def mpint(value: int) -> bytes:
    """A multiple-precision integer, minimal, for values >= 0."""
    if value < 0:
        raise ValueError("negative mpint")
    # bit_length() // 8 + 1 leaves room for the sign bit; zero is the empty string.
    return string(value.to_bytes(value.bit_length() // 8 + 1, "big") if value else b"")


def visible(value: str | Buffer, limit: int = 1024, keep: str = "") -> str:
    """Peer text made safe for logs and exceptions: control characters are escaped, the length cut.

    Tab, CR and LF are escaped too: one message stays one line (RFC 4251, section 9.2). ``keep``
    names characters to let through all the same, for text that is shown on several lines.
    """
    if not isinstance(value, str):
        value = bytes(value[: limit * 4]).decode("utf-8", "backslashreplace")
    shown = "".join(
        c if c.isprintable() or c in keep else c.encode("unicode_escape", "surrogatepass").decode("ascii")
        for c in value[:limit]
    )
    return shown + "..." if len(value) > limit else shown


class Reader:
    """A cursor over one message. Every short or malformed field raises :class:`ProtocolError`."""

    __slots__ = ("_data", "_end", "_pos")

    def __init__(self, data: Buffer, pos: int = 0) -> None:
        self._data = data
        self._pos = pos
        self._end = len(data)

    @property
    def remaining(self) -> int:
        """Bytes not read yet."""
        return self._end - self._pos

    def _take(self, size: int) -> int:
        start = self._pos
        if size > self._end - start:
            raise ProtocolError("truncated message")
        self._pos = start + size
        return start

    def skip(self, size: int) -> int:
        """Pass over ``size`` bytes; returns where they start in the message."""
        return self._take(size)

    def byte(self) -> int:
        return self._data[self._take(1)]

    def boolean(self) -> bool:
        """Any non-zero octet reads as true."""
        return self._data[self._take(1)] != 0

    def uint32(self) -> int:
        start = self._pos
        if self._end - start < 4:
            raise ProtocolError("truncated message")
        self._pos = start + 4
        return _U32.unpack_from(self._data, start)[0]  # type: ignore[no-any-return]

    def uint64(self) -> int:
        return _U64.unpack_from(self._data, self._take(8))[0]  # type: ignore[no-any-return]

    def raw(self, size: int) -> bytes:
        """``size`` bytes without a length prefix."""
        start = self._take(size)
        return bytes(self._data[start : start + size])

    def string(self, limit: int | None = None) -> bytes:
        """A length-prefixed string of at most ``limit`` bytes."""
        start = self._pos + 4  # most of every message are strings: no calls
        if start > self._end:
            raise ProtocolError("truncated message")
        (size,) = _U32.unpack_from(self._data, start - 4)
        if limit is not None and size > limit:
            raise ProtocolError("string too long", limit=limit)
        end = start + size
        if end > self._end:
            raise ProtocolError("truncated message")
        self._pos = end
        return bytes(self._data[start:end])

    def text(self, limit: int | None = None) -> str:
        """A string of UTF-8 text; undecodable bytes become surrogate escapes."""
        return self.string(limit).decode("utf-8", "surrogateescape")

    def ascii(self, limit: int | None = None) -> str:
        """A string of US-ASCII, for names."""
        try:
            return self.string(limit).decode("ascii")
        except UnicodeDecodeError:
            raise ProtocolError("name is not US-ASCII") from None

    def mpint(self) -> int:
        """A non-negative mpint; surplus leading zeros are accepted, negative values are not."""
        value = self.string()
        if value and value[0] & 0x80:
            raise ProtocolError("negative mpint")
        return int.from_bytes(value, "big")

    def name_list(self) -> tuple[str, ...]:
        """A name-list. Empty names are skipped: libssh 0.10.6 sends a trailing comma."""
        names = self.ascii()
        return tuple(name for name in names.split(",") if name) if names else ()

    def rest(self) -> bytes:
        """All that is left."""
        start = self._pos
        self._pos = self._end
        return bytes(self._data[start:])

    def end(self) -> None:
        """Raise unless everything was read."""
        if self._pos != self._end:
            raise ProtocolError("trailing bytes in message")
