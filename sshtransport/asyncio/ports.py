"""ChannelPort: a channel as coroutines see it. Futures for what may be waited for, nothing else.

Data stays in the channel (``connection/channel.py``) until somebody reads it, and reading is what
gives the peer its window back: a slow reader keeps the peer's window shut.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING

from ..connection import Channel, ChannelRequest
from ..constants import CHANNEL_HIGH_WATER
from ..errors import ConnectionLost, LocalError, OpenFailureReason, SSHError

if TYPE_CHECKING:
    from .connection import SSHConnection

__all__ = ("ChannelPort",)


class ChannelPort:
    """One channel of a connection. ``closed`` is true once the peer's CLOSE has come, or the connection ended."""

    __slots__ = (
        "_close_waiters",
        "_drain_waiters",
        "_readers",
        "_replies",
        "channel",
        "closed",
        "connection",
        "opened",
    )

    def __init__(self, connection: SSHConnection, channel: Channel) -> None:
        self.connection = connection
        self.channel = channel
        self.closed = False
        self.opened: asyncio.Future[None] | None = None
        self._readers: list[asyncio.Future[None] | None] = [None, None]
        self._drain_waiters: list[asyncio.Future[None]] = []
        self._close_waiters: list[asyncio.Future[None]] = []
        self._replies: deque[asyncio.Future[bool]] = deque()

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        return self.connection.link.loop

    # --- what the connection tells ------------------------------------------------------------------

    def readable(self, stream: int) -> None:
        """Data or the end of them have come."""
        waiter = self._readers[stream]
        if waiter is not None:
            self._readers[stream] = None
            if not waiter.done():
                waiter.set_result(None)

    def ended_input(self) -> None:
        self.readable(0)
        self.readable(1)

    def writable(self) -> None:
        """The output queue is short again, or will never be."""
        _wake(self._drain_waiters)

    def replied(self, success: bool) -> None:
        """The peer answered our oldest request."""
        while self._replies:
            waiter = self._replies.popleft()
            if not waiter.done():
                waiter.set_result(success)
            return

    def close_received(self) -> None:
        """The peer's CLOSE, or the end of the connection: nobody waits any longer."""
        self.closed = True
        self.ended_input()
        self.writable()
        while self._replies:
            self.replied(False)
        _wake(self._close_waiters)

    def open_answered(self, error: SSHError | None) -> None:
        """Our open was confirmed, refused, or is lost."""
        waiter, self.opened = self.opened, None
        if waiter is not None and not waiter.done():
            if error is None:
                waiter.set_result(None)
            else:
                waiter.set_exception(error)

    # --- what coroutines ask ------------------------------------------------------------------------

    def read(self, limit: int, stream: int) -> bytes:
        """What has come, up to ``limit`` bytes; b"" when nothing is there now."""
        data = self.channel.read(limit, stream)
        link = self.connection.link
        if link.output.pending:
            link.flush_soon()  # the window we have just given back
        return data

    def at_end(self) -> bool:
        """No more data can come. Raises ConnectionLost when the connection ended before the stream did."""
        if self.channel.read_closed:
            return True
        if not self.connection.link.is_open:
            raise self.connection.link.lost()
        return self.closed

    async def wait_readable(self, stream: int) -> None:
        """Until ``readable`` is called for the stream."""
        if self._readers[stream] is not None:
            raise LocalError("another coroutine is reading from this stream already")
        link = self.connection.link
        waiter = self._readers[stream] = link.loop.create_future()
        if link.flush_handle is not None:
            link.flush_now()  # an answer may depend on what was just written
        try:
            await waiter
        finally:
            if self._readers[stream] is waiter:
                self._readers[stream] = None

    async def wait_any(self) -> None:
        """Until ``readable`` is called for one of the two streams."""
        if self._readers[0] is not None or self._readers[1] is not None:
            raise LocalError("another coroutine is reading from this process already")
        waiter: asyncio.Future[None] = self.loop.create_future()
        self._readers[0] = self._readers[1] = waiter
        self.connection.link.flush_now()
        try:
            await waiter
        finally:
            self._readers[0] = self._readers[1] = None

    async def drain(self) -> None:
        """Until the output queue is short.

        Raises:
            ConnectionLost: the channel or the connection is closed.
        """
        channel, link = self.channel, self.connection.link
        link.settle()
        while channel.queued > CHANNEL_HIGH_WATER and not self.closed and link.is_open:
            waiter: asyncio.Future[None] = self.loop.create_future()
            self._drain_waiters.append(waiter)
            try:
                await waiter
            finally:
                if waiter in self._drain_waiters:
                    self._drain_waiters.remove(waiter)
        if not link.is_open:
            raise link.lost()
        if self.closed:
            raise ConnectionLost("the channel was closed by the peer", phase="connection")

    def write(self, data: bytes | bytearray | memoryview, stream: int) -> None:
        """Queue or send data; dropped when the peer closed the channel, as ``drain`` will say."""
        if self.closed or not self.connection.link.is_open:
            return
        self.channel.write(data, stream)
        self.connection.link.flush_written()

    def request(self, request: ChannelRequest) -> None:
        """Send a request without asking for an answer; dropped when the channel is closed."""
        if not self.closed and self.connection.link.is_open:
            self.channel.request(request)
            self.connection.link.flush_soon()

    def ask(self, request: ChannelRequest) -> asyncio.Future[bool]:
        """Send a request; the future tells whether the peer granted it."""
        waiter: asyncio.Future[bool] = self.loop.create_future()
        if self.closed or not self.connection.link.is_open:
            waiter.set_result(False)
            return waiter
        self.channel.request(request, want_reply=True)
        self._replies.append(waiter)
        self.connection.link.flush_soon()
        return waiter

    def write_eof(self) -> None:
        if self.channel.can_write and self.connection.link.is_open:
            self.channel.send_eof()
            self.connection.link.flush_soon()

    def close(self) -> None:
        """Send CLOSE behind what is queued, once; what is unread is dropped."""
        if self.connection.link.is_open:
            self.channel.close()
            self.connection.link.flush_soon()

    async def wait_closed(self) -> None:
        """Until the peer's CLOSE has come or the connection is over."""
        while not self.closed:
            waiter: asyncio.Future[None] = self.loop.create_future()
            self._close_waiters.append(waiter)
            try:
                await waiter
            finally:
                if waiter in self._close_waiters:
                    self._close_waiters.remove(waiter)

    async def leave(self, timeout: float) -> None:
        """CLOSE, and wait for the peer's for at most ``timeout`` seconds."""
        self.close()
        self.connection.link.settle()
        if not self.closed:
            try:
                async with asyncio.timeout(timeout):
                    await self.wait_closed()
            except TimeoutError:
                pass  # the channel stays half closed until the peer answers or the connection ends

    def refuse(self, reason: OpenFailureReason, description: str) -> None:
        """Refuse the peer's open."""
        self.channel.refuse(reason, description)
        self.connection.link.flush_soon()


def _wake(waiters: list[asyncio.Future[None]]) -> None:
    for waiter in waiters:
        if not waiter.done():
            waiter.set_result(None)
    waiters.clear()
