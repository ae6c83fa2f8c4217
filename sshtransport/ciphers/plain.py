"""No cipher: the packets before the first NEWKEYS (RFC 4253, section 6). An ordinary cipher object."""

from __future__ import annotations

from .base import MAC, CipherSpec, length_in_clear

__all__ = ("NONE", "PlainOpener", "PlainSealer")


class PlainSealer:
    """Sends packets as they are."""

    __slots__ = ()
    block_size = 8
    length_aligned = True

    def seal(self, seq: int, head: bytes, body: bytes, /) -> bytes:
        return head + body


class PlainOpener:
    """Takes packets as they are."""

    __slots__ = ()
    head_size = 4
    block_size = 8
    length_aligned = True
    tag_size = 0

    length = length_in_clear

    def open(self, seq: int, frame: memoryview, /) -> bytes:
        return bytes(frame[4:])


def _make_sealer(key: bytes, iv: bytes, mac: MAC | None) -> PlainSealer:
    return PlainSealer()


def _make_opener(key: bytes, iv: bytes, mac: MAC | None) -> PlainOpener:
    return PlainOpener()


#: Not registered: it cannot be negotiated, only be what a connection starts with.
NONE = CipherSpec("none", 0, 0, False, None, _make_sealer, _make_opener)
