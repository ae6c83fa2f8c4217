"""Transport messages (RFC 4253, sections 7 and 11; RFC 8308): encode and decode.

Decoders take the whole payload with its message number and raise ProtocolError for anything short,
malformed or followed by trailing bytes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from .constants import (
    EXT_INFO_MAX_ENTRIES,
    MSG_DEBUG,
    MSG_DISCONNECT,
    MSG_EXT_INFO,
    MSG_IGNORE,
    MSG_KEXINIT,
    MSG_NEWKEYS,
    MSG_PING,
    MSG_PONG,
    MSG_SERVICE_ACCEPT,
    MSG_SERVICE_REQUEST,
    MSG_UNIMPLEMENTED,
    PAYLOAD_SEND_MAX,
)
from .errors import ProtocolError
from .wire import Buffer, Reader, boolean, byte, name_list, string, text, uint32, visible

__all__ = (
    "NEWKEYS",
    "KexInit",
    "NameList",
    "Names",
    "debug",
    "decode_debug",
    "decode_disconnect",
    "decode_ext_info",
    "decode_ping",
    "decode_service",
    "decode_unimplemented",
    "disconnect",
    "ext_info",
    "ignore",
    "ping",
    "pong",
    "service_accept",
    "service_request",
    "unimplemented",
)

NEWKEYS = byte(MSG_NEWKEYS)


class NameList:
    """A name-list where it lies in the peer's message: a name becomes an object only when it is looked at.

    35,000 bytes of one-letter names would otherwise cost a server half a megabyte before login.
    Empty names are skipped: libssh 0.10.6 sends a trailing comma.
    """

    __slots__ = ("_data", "_end", "_start")

    def __init__(self, data: bytes, start: int, end: int) -> None:
        self._data = data
        self._start = start
        self._end = end

    def __iter__(self) -> Iterator[str]:
        data, start, end = self._data, self._start, self._end
        while start < end:
            stop = data.find(b",", start, end)
            if stop < 0:
                stop = end
            if stop > start:
                yield data[start:stop].decode("ascii")
            start = stop + 1

    def __contains__(self, name: str) -> bool:
        """Whether the name stands between two commas or ends of the list."""
        wanted, data, pos, end = name.encode("ascii"), self._data, self._start, self._end
        while wanted and (pos := data.find(wanted, pos, end)) >= 0:
            after = pos + len(wanted)
            starts = pos == self._start or data[pos - 1] == _COMMA
            if starts and (after == end or data[after] == _COMMA):
                return True
            pos = after  # a name holds no comma, so none can start inside what was found
        return False

    def __repr__(self) -> str:
        return f"<NameList {visible(self._data[self._start : self._end], 200)!r}>"


_COMMA = ord(",")

Names = tuple[str, ...] | NameList


@dataclass(frozen=True, slots=True)
class KexInit:
    """SSH_MSG_KEXINIT (RFC 4253, section 7.1): ten name-lists between a cookie and a flag."""

    cookie: bytes
    kex: Names
    host_key: Names
    cipher_c2s: Names
    cipher_s2c: Names
    mac_c2s: Names
    mac_s2c: Names
    compression_c2s: Names = ("none",)
    compression_s2c: Names = ("none",)
    languages_c2s: Names = ()
    languages_s2c: Names = ()
    first_kex_packet_follows: bool = False

    @property
    def lists(self) -> tuple[Names, ...]:
        """The ten lists, in the order of the message."""
        return (
            self.kex,
            self.host_key,
            self.cipher_c2s,
            self.cipher_s2c,
            self.mac_c2s,
            self.mac_s2c,
            self.compression_c2s,
            self.compression_s2c,
            self.languages_c2s,
            self.languages_s2c,
        )

    def encode(self) -> bytes:
        lists = b"".join(map(name_list, self.lists))
        return byte(MSG_KEXINIT) + self.cookie + lists + boolean(self.first_kex_packet_follows) + uint32(0)

    @classmethod
    def decode(cls, payload: bytes) -> KexInit:
        """The reserved field is ignored, as RFC 4253 leaves it open; trailing bytes are refused."""
        reader = Reader(payload, 1)
        cookie = reader.raw(16)
        lists = []
        for _ in range(10):
            size = reader.uint32()
            start = reader.skip(size)
            if not payload[start : start + size].isascii():
                raise ProtocolError("name is not US-ASCII")
            lists.append(NameList(payload, start, start + size))
        follows = reader.boolean()
        reader.uint32()
        reader.end()
        return cls(*(cookie, *lists, follows))  # type: ignore[arg-type]


def disconnect(reason: int, description: str) -> bytes:
    """What has no UTF-8 form becomes ``?``: no text may keep a connection from ending."""
    return byte(MSG_DISCONNECT) + uint32(reason) + string(description.encode("utf-8", "replace")) + string(b"")


def decode_disconnect(payload: Buffer) -> tuple[int, str]:
    """Reason and escaped description. A damaged one is a disconnect all the same: it ends here anyway."""
    reader = Reader(payload, 1)
    try:
        reason = reader.uint32()
        return reason, visible(reader.string())
    except ProtocolError:
        return 2, "(malformed DISCONNECT)"


def ignore(data: bytes = b"") -> bytes:
    return byte(MSG_IGNORE) + string(data)


def unimplemented(sequence: int) -> bytes:
    return byte(MSG_UNIMPLEMENTED) + uint32(sequence)


def decode_unimplemented(payload: Buffer) -> int:
    reader = Reader(payload, 1)
    sequence = reader.uint32()
    reader.end()
    return sequence


def debug(always_display: bool, message: str) -> bytes:
    return byte(MSG_DEBUG) + boolean(always_display) + text(message) + string(b"")


def decode_debug(payload: Buffer) -> tuple[bool, str]:
    reader = Reader(payload, 1)
    shown = reader.boolean()
    message = visible(reader.string())
    reader.string()
    reader.end()
    return shown, message


def service_request(name: bytes) -> bytes:
    return byte(MSG_SERVICE_REQUEST) + string(name)


def service_accept(name: bytes) -> bytes:
    return byte(MSG_SERVICE_ACCEPT) + string(name)


def decode_service(payload: Buffer) -> bytes:
    """The service name of a SERVICE_REQUEST or SERVICE_ACCEPT."""
    reader = Reader(payload, 1)
    name = reader.string()
    reader.end()
    return name


def ext_info(extensions: Mapping[str, bytes]) -> bytes:
    entries = b"".join(text(name) + string(value) for name, value in extensions.items())
    return byte(MSG_EXT_INFO) + uint32(len(extensions)) + entries


def decode_ext_info(payload: Buffer, room: float = math.inf) -> dict[str, bytes]:
    """RFC 8308, section 2.3: values are opaque and may hold NULs; the order says nothing.

    ``room`` bounds the memory of what is kept; extensions beyond it are read and dropped.
    """
    reader = Reader(payload, 1)
    count = reader.uint32()
    if count > EXT_INFO_MAX_ENTRIES:
        raise ProtocolError("too many extensions", limit=EXT_INFO_MAX_ENTRIES)
    if count * 8 > reader.remaining:
        raise ProtocolError("truncated EXT_INFO")
    extensions = {}
    for _ in range(count):
        name, value = reader.text(), reader.string()
        room -= len(name) + len(value) + 200  # two objects and a place in the table
        if room >= 0:
            extensions[name] = value
    reader.end()
    return extensions


def ping(data: bytes) -> bytes:
    return byte(MSG_PING) + string(data)


def pong(data: bytes) -> bytes:
    return byte(MSG_PONG) + string(data)


def decode_ping(payload: Buffer) -> bytes:
    """The data of a PING or PONG (OpenSSH PROTOCOL, section 1.8): no more than can be sent back."""
    reader = Reader(payload, 1)
    data = reader.string(PAYLOAD_SEND_MAX - 5)
    reader.end()
    return data
