"""SSHConnection: what a client's and a server's connection have in common, after and during login."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from time import perf_counter
from typing import Any

from ..connection import (
    ChannelClosed,
    ChannelEOFReceived,
    ChannelEvent,
    ChannelOpened,
    ChannelOpenFailed,
    ChannelOpenRequested,
    ChannelReadable,
    ChannelReplied,
    ChannelRequestReceived,
    ChannelWritable,
    Connection,
    ConnectionEvent,
    GlobalReplied,
    GlobalRequestReceived,
    PongReceived,
)
from ..constants import EXT_PING
from ..errors import (
    ChannelOpenError,
    ConnectionLost,
    DisconnectReason,
    LocalError,
    OpenFailureReason,
    SSHError,
)
from ..events import Event
from ..messages import ping
from .base import LinkUser
from .ports import ChannelPort
from .protocol import Link

__all__ = ("SSHConnection",)

_KEEPALIVE = "keepalive@openssh.com"


class SSHConnection(LinkUser):
    """One SSH connection. ``closed`` connections raise ConnectionLost from whatever is asked of them."""

    def __init__(self, link: Link) -> None:
        super().__init__(link)
        link.owner = self
        self.mux: Connection | None = None
        self._ports: dict[int, ChannelPort] = {}
        self._globals: dict[object, asyncio.Future[tuple[bool, bytes]]] = {}
        self._pongs: dict[bytes, asyncio.Future[None]] = {}
        self._keepalive_timer: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._at_end: list[Callable[[], None]] = []
        self._unanswered = 0
        self._asked_at = 0.0  # when the last keepalive left

    # --- what the application asks ------------------------------------------------------------------

    async def rekey(self) -> None:
        """Change the keys now, and wait until that is done (RFC 4253, section 9)."""
        self._check_open()
        self.link.core.rekey()
        self.link.settle()
        await self.link.wait_keys()

    async def ping(self) -> float:
        """Seconds for a round trip through the peer's SSH implementation.

        With PING where the peer knows it (OpenSSH PROTOCOL, section 1.8), else with a global
        request that every peer answers.
        """
        self._check_open()
        start = perf_counter()  # uvloop's clock counts whole milliseconds
        if EXT_PING in self.link.core.peer_extensions:
            token = os.urandom(16)
            waiter = self._pongs[token] = self.link.loop.create_future()
            self.link.core.send(ping(token))
            self.link.settle()
            try:
                await waiter
            finally:
                self._pongs.pop(token, None)
        else:
            await self.global_request(_KEEPALIVE)
        return perf_counter() - start

    async def global_request(self, name: str, data: bytes = b"") -> tuple[bool, bytes]:
        """Send a global request and wait for its answer (RFC 4254, section 4)."""
        mux = self._check_open()
        token = mux.global_request(name, data)
        waiter = self._globals[token] = self.link.loop.create_future()
        self.link.settle()
        try:
            result: tuple[bool, bytes] = await waiter
            return result
        finally:
            self._globals.pop(token, None)

    def close(
        self, reason: int = DisconnectReason.BY_APPLICATION, description: str = "closed by the application"
    ) -> None:
        """Send DISCONNECT and close; what is queued in channels is lost. Returns at once."""
        self.link.close(reason, description)

    def abort(self) -> None:
        """Close the socket without a word."""
        self.link.abort()

    async def wait_closed(self) -> None:
        """Until the socket is closed."""
        await self.link.wait_closed()

    def _check_open(self) -> Connection:
        if not self.link.is_open:
            raise self.link.lost()
        if self.mux is None:
            raise LocalError("not before login")
        return self.mux

    # --- channels -------------------------------------------------------------------------------------

    async def open_port(self, channel_type: str, extra: bytes = b"") -> ChannelPort:
        """Open a channel; when this is cancelled, a late confirmation is answered with CLOSE.

        Raises:
            ChannelOpenError: the peer refused.
            ConnectionLost: the connection is over.
        """
        mux = self._check_open()
        channel = mux.open_channel(channel_type, extra)
        port = self._ports[channel.number] = ChannelPort(self, channel)
        waiter = port.opened = self.link.loop.create_future()
        self.link.flush_soon()
        try:
            await waiter
        except asyncio.CancelledError:
            port.opened = None
            if self.link.is_open:
                channel.close()  # at once, or when the confirmation comes
                self.link.flush_soon()
            raise
        return port

    def keep(self, task: asyncio.Task[None]) -> None:
        """Hold a task that belongs to this connection, and cancel it when the connection ends."""
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def at_end(self, call: Callable[[], None]) -> None:
        """Have ``call`` called when the connection ends."""
        self._at_end.append(call)

    def start_connection(self, mux: Connection) -> None:
        """Login is done: messages go to the connection protocol from here on."""
        self.mux = mux
        self.link.receive = mux.receive
        self.link.waiting = mux.waiting

    def happened(self, event: Event) -> None:
        """What a message of the connection protocol means for us."""
        if event.__class__ is ChannelReadable:
            port = self._ports.get(event.channel.number)
            if port is not None:
                port.readable(event.stream)
        elif isinstance(event, ChannelEvent):
            if isinstance(event, ChannelOpenRequested):
                self.open_requested(event)
                return
            port = self._ports.get(event.channel.number)
            if port is not None:
                _PORT_EVENTS[type(event)](self, port, event)
        elif isinstance(event, GlobalReplied):
            waiter = self._globals.pop(event.token, None)
            if waiter is not None and not waiter.done():
                waiter.set_result((event.success, event.data))
        elif isinstance(event, GlobalRequestReceived):
            self.global_requested(event)
        elif isinstance(event, PongReceived):
            answered = self._pongs.pop(event.data, None)
            if answered is not None and not answered.done():
                answered.set_result(None)

    def _on_opened(self, port: ChannelPort, event: ConnectionEvent) -> None:
        port.open_answered(None)

    def _on_open_failed(self, port: ChannelPort, event: ConnectionEvent) -> None:
        assert isinstance(event, ChannelOpenFailed)
        self._ports.pop(port.channel.number, None)
        port.open_answered(ChannelOpenError(event.reason, event.description))

    def _on_eof(self, port: ChannelPort, event: ConnectionEvent) -> None:
        port.ended_input()

    def _on_writable(self, port: ChannelPort, event: ConnectionEvent) -> None:
        port.writable()

    def _on_replied(self, port: ChannelPort, event: ConnectionEvent) -> None:
        assert isinstance(event, ChannelReplied)
        port.replied(event.success)

    def _on_request(self, port: ChannelPort, event: ConnectionEvent) -> None:
        assert isinstance(event, ChannelRequestReceived)
        self.channel_requested(port, event)

    def _on_closed(self, port: ChannelPort, event: ConnectionEvent) -> None:
        self._ports.pop(port.channel.number, None)
        port.close_received()
        self.channel_closed(port)

    # --- for the roles to say -------------------------------------------------------------------------

    def open_requested(self, event: ChannelOpenRequested) -> None:
        """The peer wants a channel."""
        event.channel.refuse(OpenFailureReason.UNKNOWN_CHANNEL_TYPE, "unknown channel type")

    def channel_requested(self, port: ChannelPort, event: ChannelRequestReceived) -> None:
        """A request on one of our channels."""
        if event.want_reply:
            port.channel.reply(False)

    def channel_closed(self, port: ChannelPort) -> None:
        """The peer closed a channel."""

    def global_requested(self, event: GlobalRequestReceived) -> None:
        """A global request that was announced with ``handle_global``."""
        assert self.mux is not None
        if event.want_reply:
            self.mux.reply_global(False)

    # --- LinkOwner --------------------------------------------------------------------------------------

    def noticed(self, event: Event) -> None:
        """Events of the transport; the roles look at those they need."""

    def pump(self) -> bool:
        mux = self.mux
        if mux is None:
            return False
        for event in mux.pump():
            port = self._ports.get(event.channel.number)
            if port is not None:
                port.writable()
        return self.link.output.pending > 0

    def ended(self, error: SSHError) -> None:
        if self._keepalive_timer is not None:
            self._keepalive_timer.cancel()
        if self.mux is not None:
            self.mux.lost()
        ports, self._ports = self._ports, {}
        for port in ports.values():
            port.open_answered(self.link.lost())
            port.close_received()
            self.channel_closed(port)
        waiters: list[asyncio.Future[Any]] = [*self._globals.values(), *self._pongs.values()]
        for waiter in waiters:
            if not waiter.done():
                waiter.set_exception(self.link.lost())
        self._globals.clear()
        self._pongs.clear()
        for call in self._at_end:
            call()
        for task in self._tasks:
            task.cancel()

    # --- keepalive --------------------------------------------------------------------------------------

    def start_keepalive(self, interval: float, count: int) -> None:
        """Ask the peer for a sign of life after ``interval`` silent seconds; give up after ``count`` of them.

        Any packet counts as one. Nothing is sent before login (known bugs, H 106).
        """
        self._keepalive_timer = self.link.loop.call_later(interval, self._keepalive_due, interval, count)

    def _keepalive_due(self, interval: float, count: int) -> None:
        loop = self.link.loop
        now, silent = loop.time(), self.link.silence
        wait = interval
        if now - silent >= self._asked_at:  # an answer comes right behind its question, long before the next look
            self._unanswered = 0
        if silent < interval * 0.99:
            wait = interval - silent
        elif self._unanswered >= count:
            self.link.fail(
                ConnectionLost(f"no sign of life from the peer for {silent:.1f} seconds", phase="connection")
            )
            return
        elif not self.link.core.rekeying and self.mux is not None:
            self._unanswered += 1
            self._asked_at = now
            self.mux.global_request(_KEEPALIVE)
            self.link.settle()
        if self.link.is_open:
            self._keepalive_timer = loop.call_later(wait, self._keepalive_due, interval, count)


_PORT_EVENTS: dict[type[ConnectionEvent], Callable[[SSHConnection, ChannelPort, ConnectionEvent], None]] = {
    ChannelOpened: SSHConnection._on_opened,
    ChannelOpenFailed: SSHConnection._on_open_failed,
    ChannelEOFReceived: SSHConnection._on_eof,
    ChannelWritable: SSHConnection._on_writable,
    ChannelReplied: SSHConnection._on_replied,
    ChannelRequestReceived: SSHConnection._on_request,
    ChannelClosed: SSHConnection._on_closed,
}
