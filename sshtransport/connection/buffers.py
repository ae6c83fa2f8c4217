"""The two queues of a channel: what came in and is not read, what waits to go out.

Both join small pieces: a peer, or a caller, that moves single bytes must not cost an object each.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from ..constants import MAX_PACKET_SIZE
from ..wire import Buffer
from .events import ChannelReadable

__all__ = ("CONTROL", "MERGE_BELOW", "Inbox", "Outbox")

#: Received chunks below this are appended to a small one before them. An object per chunk costs
#: about 40 bytes, so that a window of single bytes would cost 40 windows.
MERGE_BELOW: Final = 256
_MERGED_MAX: Final = 4096
_READ_JOIN_BELOW: Final = 8192  # copying chunks of this size costs more than another call
_WRITE_JOIN_BELOW: Final = 4096

#: In place of the stream's number: a whole message.
CONTROL: Final = -1


class Inbox:
    """The unread bytes of one stream. ``size`` counts them.

    ``notified`` is set while the reader knows that there are some: ``event`` went out when it was
    set. :meth:`Connection.receive` appends to ``chunks`` itself, for speed.
    """

    __slots__ = ("_offset", "chunks", "event", "notified", "size")

    def __init__(self, event: ChannelReadable) -> None:
        self.chunks: deque[bytes | bytearray] = deque()
        self.size = 0
        self.notified = False
        self.event = event
        self._offset = 0  # bytes of the first chunk that were read already

    def add(self, data: bytes) -> None:
        """Store a chunk, joined to the one before where both are small."""
        chunks = self.chunks
        self.size += len(data)
        if chunks and len(data) < MERGE_BELOW:
            last = chunks[-1]
            if isinstance(last, bytearray):
                if len(last) < _MERGED_MAX:
                    last += data
                    return
            elif len(last) < MERGE_BELOW:
                chunks[-1] = bytearray(last) + data
                return
        chunks.append(data)

    def take(self, limit: int) -> bytes:
        """Up to ``limit`` bytes: one large chunk, uncopied where it fits whole, or several small ones."""
        chunks = self.chunks
        if not chunks:
            return b""
        first = chunks[0]
        offset = self._offset
        left = len(first) - offset
        if left <= limit and not offset and (len(chunks) == 1 or left >= _READ_JOIN_BELOW):
            chunks.popleft()  # the common case, for speed
            self.size -= left
            return first if type(first) is bytes else bytes(first)
        if left > limit:
            self._offset = offset + limit
            self.size -= limit
            return bytes(first[offset : offset + limit])
        chunks.popleft()
        if offset:
            first = first[offset:]
            self._offset = 0
        if chunks and left < _READ_JOIN_BELOW:
            pieces = [first]
            while chunks and len(chunks[0]) < _READ_JOIN_BELOW and left + len(chunks[0]) <= limit:
                left += len(chunks[0])
                pieces.append(chunks.popleft())
            first = b"".join(pieces)
        self.size -= left
        return bytes(first)

    def clear(self) -> int:
        """Throw everything away; returns how much that was."""
        dropped = self.size
        self.chunks.clear()
        self.size = self._offset = 0
        self.notified = False
        return dropped


class Outbox:
    """Data and whole messages in the order in which they must leave. ``size`` counts the data bytes."""

    __slots__ = ("_items", "_offset", "_tail", "size")

    def __init__(self) -> None:
        self._items: deque[tuple[int, Buffer]] = deque()
        self._offset = 0  # bytes of the first item that left already
        self._tail: bytearray | None = None  # the last item, if small writes may still be joined to it
        self.size = 0

    def __bool__(self) -> bool:
        return bool(self._items)

    def ready(self, window: int) -> bool:
        """Whether the first item may leave: messages need no window."""
        return bool(self._items) and (window > 0 or self._items[0][0] == CONTROL)

    def add(self, stream: int, data: bytes | memoryview) -> None:
        """Queue data. Bytes and read-only views are kept as they are, other memory is copied."""
        size = len(data)
        self.size += size
        if size < _WRITE_JOIN_BELOW:
            if self._tail is not None and len(self._tail) < MAX_PACKET_SIZE and self._items[-1][0] == stream:
                self._tail += data
                return
            self._tail = bytearray(data)
            self._items.append((stream, self._tail))
            return
        self._tail = None
        if isinstance(data, memoryview) and not data.readonly:
            data = bytes(data)
        self._items.append((stream, data))

    def add_message(self, payload: bytes) -> None:
        """Queue a message that must not overtake the data before it."""
        self._tail = None
        self._items.append((CONTROL, payload))

    def take(self, limit: int) -> tuple[int, Buffer]:
        """The next message, or the next at most ``limit`` bytes of data with their stream."""
        stream, data = self._items[0]
        if stream == CONTROL:
            self._items.popleft()
            return stream, data
        if data is self._tail:
            self._tail = None  # a view of it goes out: it must not grow any more
        offset = self._offset
        size = len(data) - offset
        if size > limit:
            size = limit
            self._offset = offset + size
            data = memoryview(data)[offset : offset + size]
        else:
            self._items.popleft()
            if offset:
                self._offset = 0
                data = memoryview(data)[offset:]
        self.size -= size
        return stream, data

    def clear(self) -> None:
        """Throw everything away."""
        self._items.clear()
        self._tail = None
        self._offset = self.size = 0
