"""What the channels of one connection have in common: the sink, the window budget, the turn to send."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Literal

from ..constants import PENDING_REPLIES_MAX, WINDOW_FLOOR
from ..errors import LocalError, ProtocolError
from ..sink import PacketSink

if TYPE_CHECKING:
    from .channel import Channel

__all__ = ("ReplyQueue", "Role", "Shared")

Role = Literal["client", "server"]


class Shared:
    """State that both :class:`Connection` and its channels work on.

    ``pending`` holds the channels whose output waits for the sink; while it is not empty, the next
    :meth:`Connection.pump` is due, and nobody overtakes.
    """

    __slots__ = (
        "channels",
        "floor",
        "is_client",
        "lingering",
        "max_buffered",
        "max_packet_size",
        "pending",
        "sink",
        "window_size",
    )

    def __init__(
        self, role: Role, sink: PacketSink, *, window_size: int, max_packet_size: int, max_buffered: int | None
    ) -> None:
        self.is_client = role == "client"
        self.sink = sink
        self.window_size = window_size
        self.max_packet_size = max_packet_size
        self.max_buffered = max_buffered
        self.floor = min(WINDOW_FLOOR, window_size)
        self.channels: dict[int, Channel] = {}
        #: Channels of the peer that are over but not read out: they go on counting as channels,
        #: or data could be piled up without bound by closing and opening.
        self.lingering: set[Channel] = set()
        self.pending: deque[Channel] = deque()

    def grantable(self, outstanding: int) -> int:
        """How much window a channel that already holds ``outstanding`` bytes may get.

        Up to a whole window, less when ``max_buffered`` is near, but always enough to bring the
        channel to 64 KiB: so the sum stays below ``max_buffered`` + 64 KiB a channel. Can be
        negative for a channel above what it may have now.
        """
        wanted = self.window_size - outstanding
        if self.max_buffered is None:
            return wanted
        return min(wanted, max(self.max_buffered - self.reserved(), self.floor - outstanding))

    def reserved(self) -> int:
        """What the peer may still send plus what was received and not read, over all channels."""
        # Added up when a window is granted, every MiB or so, and not kept with every packet.
        return sum(c._outstanding() for c in self.channels.values()) + sum(c._outstanding() for c in self.lingering)


class ReplyQueue:
    """Replies carry no number: they must leave in the order of the requests (RFC 4254, sections 4 and 5.4).

    So one that is known at once still waits for those that the application owes.
    """

    __slots__ = ("_entries", "_send")

    def __init__(self, send: Callable[[bytes], None]) -> None:
        self._send = send
        self._entries: list[tuple[object, bytes | None]] = []  # the request, or the reply that waits behind one

    def owe(self, request: object) -> None:
        """Note a request that the application answers with :meth:`settle`."""
        self._add(request, None)

    def answer(self, payload: bytes) -> None:
        """Answer a request at once, or right after those before it."""
        if self._entries:
            self._add(None, payload)
        else:
            self._send(payload)

    def settle(self, payload: bytes) -> object:
        """Answer the oldest owed request, which is returned; LocalError if there is none."""
        if not self._entries:
            raise LocalError("no request waits for a reply")
        request, _ = self._entries.pop(0)  # the first one is always owed: others left at once
        self._send(payload)
        while self._entries:
            ready = self._entries[0][1]
            if ready is None:
                break
            del self._entries[0]
            self._send(ready)
        return request

    def _add(self, request: object, payload: bytes | None) -> None:
        if len(self._entries) >= PENDING_REPLIES_MAX:
            raise ProtocolError("too many requests without a reply", limit=PENDING_REPLIES_MAX)
        self._entries.append((request, payload))
