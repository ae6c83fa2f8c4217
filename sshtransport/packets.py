"""The binary packet protocol (RFC 4253, section 6): framing, padding, sequence numbers, counters.

Theory of operation. A :class:`PacketWriter` turns payloads into frames, a :class:`PacketReader`
turns received bytes into payloads; each holds the cipher object of its direction and is told at
NEWKEYS to change it. Everything about frames is here and nowhere else.

Reading. ``feed`` gets a view of freshly received bytes, which stays valid until ``read`` has
returned None. Whole frames are opened where they lie. What is left of an incomplete frame moves to
a private buffer that grows with arrival, up to exactly the frame's size; the length that sets that
size has been bounded before. The order of trust is fixed: bound the length, wait for the whole
frame, verify its tag (the opener does, before it decrypts), bound the padding. Only then is the
payload's number looked at, and the caller's table decides whether it is just passed on.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable
from struct import Struct
from typing import Any

from .ciphers import Opener, Sealer
from .ciphers.base import length_in_clear
from .ciphers.plain import PlainOpener, PlainSealer
from .constants import (
    PACKET_LENGTH_MAX_EARLY,
    PACKET_LENGTH_MIN,
    PADDING_MIN,
    PAYLOAD_SEND_MAX,
    SEQUENCE_MODULUS,
)
from .errors import LocalError, ProtocolError
from .wire import Buffer

__all__ = ("PacketReader", "PacketWriter", "PaddingPool", "payload_too_large")


def payload_too_large(size: int) -> LocalError:
    """The error for a payload beyond PAYLOAD_SEND_MAX, whatever the cipher will be when it leaves."""
    return LocalError(f"payload of {size} bytes does not fit a packet; the most is {PAYLOAD_SEND_MAX}")


_NOTHING = memoryview(b"")
_UINT32 = Struct(">I").unpack_from
_PADDING_BYTE = tuple(bytes((size,)) for size in range(256))


class PaddingPool:
    """Random padding, drawn from its source in blocks: a call for each packet costs six times as much.

    Padding only: cookies and keys never come from here. After a fork the child drops what is left.
    """

    __slots__ = ("__weakref__", "_block", "_left", "_pos", "_source")

    def __init__(self, source: Callable[[int], bytes] = os.urandom, block: int = 1024) -> None:
        self._source = source
        self._block = block
        self._left = b""
        self._pos = 0
        _pools.add(self)

    def take(self, size: int) -> bytes:
        """``size`` bytes, at most 255."""
        start = self._pos
        end = start + size
        if end > len(self._left):
            self._left = self._source(self._block)
            if len(self._left) < self._block:  # short padding would make frames that nobody can read
                raise LocalError(f"the source of padding gave {len(self._left)} bytes instead of {self._block}")
            start, end = 0, size
        self._pos = end
        return self._left[start:end]

    def drop(self) -> None:
        """Forget the bytes in stock."""
        self._left = b""
        self._pos = 0


_pools: weakref.WeakSet[PaddingPool] = weakref.WeakSet()


def _drop_pools() -> None:
    for pool in _pools:
        pool.drop()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_drop_pools)


class PacketWriter:
    """Payloads in, frames out.

    ``sequence`` is the number of the next packet, ``packets`` and ``total`` count packets and
    bytes since the start, ``pending`` is the bytes waiting in ``take``.
    """

    __slots__ = (
        "_aligned",
        "_block",
        "_frames",
        "_padding",
        "_seal",
        "keyed",
        "packets",
        "pending",
        "sequence",
        "total",
    )

    def __init__(self, padding: PaddingPool) -> None:
        self._padding = padding.take
        self._frames: list[bytes] = []
        self.sequence = 0
        self.packets = 0
        self.total = 0
        self.pending = 0
        self.keyed = False
        self._install(PlainSealer())

    def _install(self, sealer: Sealer) -> None:
        self._seal = sealer.seal
        self._block = sealer.block_size
        self._aligned = 5 if sealer.length_aligned else 1  # what counts beside the payload

    def change(self, sealer: Sealer, *, reset: bool) -> None:
        """Own NEWKEYS has been written: everything from here on uses ``sealer`` (RFC 4253, section 7.3)."""
        self._install(sealer)
        self.keyed = True
        if reset:
            self.sequence = 0

    def write(self, payload: bytes, data: Buffer = b"") -> None:
        """Seal one packet with the payload ``payload + data``.

        Raises:
            LocalError: the frame might be larger than every peer must accept (35,000 bytes).
            ProtocolError: the sequence number would wrap in the first key exchange; only answers
                to the peer can have brought it there.
        """
        block = self._block
        size = len(payload) + len(data)
        if size > PAYLOAD_SEND_MAX:
            raise payload_too_large(size)
        padding = block - (size + self._aligned) % block
        if padding < PADDING_MIN:
            padding += block
        body = b"".join((_PADDING_BYTE[padding], payload, data, self._padding(padding)))
        sequence = self.sequence
        if sequence == SEQUENCE_MODULUS - 1:
            if not self.keyed:
                raise ProtocolError("sequence number would wrap in the first key exchange")
            self.sequence = 0
        else:
            self.sequence = sequence + 1
        frame = self._seal(sequence, len(body).to_bytes(4, "big"), body)
        self._frames.append(frame)
        self.packets += 1
        size = len(frame)
        self.total += size
        self.pending += size

    def write_raw(self, data: bytes) -> None:
        """The identification line: bytes that are no packet."""
        self._frames.append(data)
        self.pending += len(data)

    def take(self) -> bytes:
        """All frames written since the last call, joined."""
        frames = self.take_frames()
        return frames[0] if len(frames) == 1 else b"".join(frames)

    def take_frames(self) -> list[bytes]:
        """The same as they are."""
        frames, self._frames = self._frames, []
        self.pending = 0
        return frames


class PacketReader:
    """Received bytes in, payloads out.

    ``sequence`` is the number of the next packet, ``packets`` and ``total`` count packets and
    bytes of whole frames since the start, ``length_max`` bounds packet_length.
    """

    __slots__ = (
        "_aligned",
        "_around",
        "_block",
        "_end",
        "_frame_known",
        "_head_size",
        "_in_clear",
        "_length",
        "_need",
        "_open",
        "_partial",
        "_pos",
        "_view",
        "keyed",
        "length_max",
        "packets",
        "sequence",
        "total",
    )

    def __init__(self) -> None:
        self._view = _NOTHING
        self._pos = self._end = 0
        self._partial: bytearray | None = None
        self._need = 0  # bytes the partial buffer waits for
        self._frame_known = False  # whether they are the whole frame, or just what tells its size
        self.sequence = 0
        self.packets = 0
        self.total = 0
        self.length_max = PACKET_LENGTH_MAX_EARLY
        self.keyed = False
        self._install(PlainOpener())

    def _install(self, opener: Opener) -> None:
        self._length = opener.length
        self._open = opener.open
        self._head_size = opener.head_size
        self._block = opener.block_size
        self._aligned = 4 if opener.length_aligned else 0
        self._around = 4 + opener.tag_size  # bytes of a frame that packet_length does not count
        # A call and two objects a packet, for what can be seen from here.
        self._in_clear = getattr(type(opener), "length", None) is length_in_clear

    def change(self, opener: Opener, *, reset: bool) -> None:
        """The peer's NEWKEYS has been read: the next byte belongs to ``opener``."""
        self._install(opener)
        self.keyed = True
        if reset:
            self.sequence = 0

    def feed(self, view: memoryview) -> None:
        """Give the bytes to read next; the view must stay valid until ``read`` returns None."""
        self._view = view
        self._pos = 0
        self._end = len(view)

    def drop(self) -> None:
        """Nothing will be read any more: let go of the view and of what was kept."""
        self._view = _NOTHING
        self._pos = self._end = 0
        self._partial = None

    def rest(self) -> bytes:
        """Give back what has not been read: used when reading must pause."""
        rest = bytes(self._view[self._pos : self._end])
        self._view = _NOTHING
        self._pos = self._end = 0
        return rest

    def read(self, deliver: bytes, items: list[Any]) -> bytes | None:
        """Append payloads to ``items`` while ``deliver[number]`` is true.

        Returns the first other payload, to be dealt with before the next call, or None when the
        bytes are used up.

        Raises:
            ProtocolError: a length, a padding or a payload is out of bounds.
            IntegrityError: a tag does not verify.
        """
        view = self._view
        end = self._end
        head_size = self._head_size
        in_clear = self._in_clear
        open_frame = self._open
        while True:
            if self._partial is None:
                pos = self._pos
                have = end - pos
                if not have:  # most reads end with a whole frame
                    self._view = _NOTHING
                    self._pos = self._end = 0
                    return None
                if have < head_size:
                    self._keep(head_size, False)
                    return None
                if in_clear:
                    (length,) = _UINT32(view, pos)
                else:
                    length = self._length(self.sequence, view[pos : pos + head_size])
                if not PACKET_LENGTH_MIN <= length <= self.length_max or (length + self._aligned) % self._block:
                    raise self._bad_length(length)
                total = length + self._around
                if have < total:
                    self._keep(total, True)
                    return None
                frame = view[pos : pos + total]
                self._pos = pos + total
            else:
                frame = self._fill()
                if not frame:
                    return None
                total = len(frame)
            sequence = self.sequence
            body = open_frame(sequence, frame)
            frame = _NOTHING  # a large one must not live on beside its copies
            padding = body[0]
            size = len(body) - padding
            if padding < PADDING_MIN or size < 2:
                raise ProtocolError(f"padding of {padding} bytes in a packet of {len(body)}")
            if sequence == SEQUENCE_MODULUS - 1:
                if not self.keyed:
                    raise ProtocolError("sequence number wrapped in the first key exchange")
                self.sequence = 0
            else:
                self.sequence = sequence + 1
            self.packets += 1
            self.total += total
            payload = body[1:size]
            if not deliver[payload[0]]:
                return payload
            items.append(payload)

    def _bad_length(self, length: int) -> ProtocolError:
        if not PACKET_LENGTH_MIN <= length <= self.length_max:
            return ProtocolError(f"packet_length {length} out of bounds", limit=self.length_max)
        return ProtocolError(f"packet_length {length} is not a multiple of the block size")

    def _keep(self, need: int, frame_known: bool) -> None:
        """Move the rest of the view to a private buffer."""
        self._partial = bytearray(self._view[self._pos : self._end])
        self._need = need
        self._frame_known = frame_known
        self._view = _NOTHING
        self._pos = self._end = 0

    def _fill(self) -> memoryview:
        """Complete the partial frame from the view and give it; nothing when more bytes are needed."""
        partial = self._partial
        assert partial is not None
        while True:
            pos = self._pos
            take = min(self._need - len(partial), self._end - pos)
            partial += self._view[pos : pos + take]
            self._pos = pos + take
            if len(partial) < self._need:
                self._view = _NOTHING
                self._pos = self._end = 0
                return _NOTHING
            if self._frame_known:
                self._partial = None
                return memoryview(partial)
            length = self._length(self.sequence, memoryview(partial)[: self._head_size])
            if not PACKET_LENGTH_MIN <= length <= self.length_max or (length + self._aligned) % self._block:
                raise self._bad_length(length)
            self._need = length + self._around
            self._frame_known = True
