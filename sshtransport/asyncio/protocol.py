"""Link: one SSHTransport on one asyncio transport. Feed, deliver, flush, and the timers of a connection.

Every turn is the same: bytes received go into the core, the payloads and events that come out go to
the link's owner, and what the core has to send is written in one piece. While the socket takes no
more, nothing is taken from the core either: channels stop sending (``congested``), and replies that
pile up there are counted and bounded.
"""

from __future__ import annotations

import asyncio
import socket
import weakref
from collections.abc import Callable, Sized
from contextlib import suppress
from typing import Protocol, cast

from ..errors import ConnectionLost, HandshakeTimeout, LocalError, ProtocolError, RemoteError, SSHError
from ..events import Disconnected, Event, KeysChanged
from ..gates import Phase
from ..transport import Item, SSHTransport
from .moderation import MODERATED_ABOVE, ReadModerator

__all__ = ("Link", "LinkOwner", "loop_arena")

_ARENA_SIZE = 512 * 1024
_WRITE_HIGH_WATER = 256 * 1024
_CLOSE_TIMEOUT = 5.0  # seconds for the last bytes to leave

_CLOSED = Phase.CLOSED  # reading a member off its class costs 130 ns on CPython 3.11

_arenas: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, memoryview] = weakref.WeakKeyDictionary()


def loop_arena(loop: asyncio.AbstractEventLoop) -> memoryview:
    """The receive buffer that all connections of a loop share: a read and its parsing are one step."""
    arena = _arenas.get(loop)
    if arena is None:
        arena = _arenas[loop] = memoryview(bytearray(_ARENA_SIZE))
    return arena


class LinkOwner(Protocol):
    """What a link calls, always from the loop."""

    def noticed(self, event: Event) -> None:
        """An event of the transport, ``Disconnected`` excepted."""

    def happened(self, event: Event) -> None:
        """What ``Link.receive`` returned for a payload."""

    def pump(self) -> bool:
        """More can be sent: hand it to the core. True when something may have been handed over."""

    def ended(self, error: SSHError) -> None:
        """The connection is over; ``error`` is the first cause. Comes once."""


class Link(asyncio.BufferedProtocol):
    """The asyncio protocol under every connection.

    ``receive`` is called with each payload and is set by the owner; what it returns goes to
    ``owner.happened``. ``waiting``, also set by the owner, is not empty while ``owner.pump`` could
    do anything. ``error`` is the first cause of the end, None before.
    """

    def __init__(self, core: SSHTransport, loop: asyncio.AbstractEventLoop) -> None:
        self.core = core
        self.loop = loop
        self.owner: LinkOwner | None = None
        self.receive: Callable[[bytes], Event | None] = self._unexpected
        self.waiting: Sized = ()
        self.output = core.output
        self.error: SSHError | None = None
        self.transport: asyncio.Transport | None = None
        self._last_received = self.loop.time()
        self._seen = -1  # the core's ``transitions`` that were attended to
        self._closed: asyncio.Future[None] = loop.create_future()
        self.flush_handle: asyncio.Handle | None = None
        self._rekey_timer: asyncio.TimerHandle | None = None
        self._deadline_timer: asyncio.TimerHandle | None = None
        self._close_timer: asyncio.TimerHandle | None = None
        self._reading = True
        self._gathers = False
        self._fresh = True  # nothing was written since something came, or since the last flush of a turn
        self._moderator: ReadModerator | None = None
        self.holds_input = False  # set by ``hold_input``
        self._key_waiters: list[asyncio.Future[None]] = []

    # --- asyncio.BufferedProtocol -------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.transport.set_write_buffer_limits(_WRITE_HIGH_WATER)
        sock = transport.get_extra_info("socket")
        if sock is not None and sock.family in (socket.AF_INET, socket.AF_INET6):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._moderator = ReadModerator.of(self.loop, sock)
        # asyncio's own writelines joins up to 3.11, and knows no high-water mark in some later ones (CVE-2024-12254);
        # uvloop's does neither, and keeps the whole of what is joined for it until the last byte has left.
        self._gathers = type(transport).__module__.startswith("uvloop")
        self.settle()

    def get_buffer(self, sizehint: int) -> memoryview:
        return self.core.get_buffer(sizehint)

    def buffer_updated(self, nbytes: int) -> None:
        self._last_received = self.loop.time()
        self._fresh = True
        if nbytes > MODERATED_ABOVE and self._moderator is not None:
            self._moderator.count(nbytes)
        self._deliver(self.core.buffer_updated(nbytes))

    def eof_received(self) -> bool:
        self._deliver(self.core.receive_eof())
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        transport, self.transport = self.transport, None
        if exc is not None and transport is not None:
            self._read_rest(transport)
        if self.error is None:
            lost = ConnectionLost(f"connection lost during {self.core.phase}", phase=str(self.core.phase))
            lost.__cause__ = exc
            self._end(lost)
        self.core.receive_eof()
        self._stop_timers()
        if self._moderator is not None:
            self._moderator.stop()
            self._moderator = None
        if self._close_timer is not None:
            self._close_timer.cancel()
        if not self._closed.done():
            self._closed.set_result(None)

    def _read_rest(self, transport: asyncio.Transport) -> None:
        """A write that failed ends a transport at once, though the peer's DISCONNECT may lie there unread."""
        sock = transport.get_extra_info("socket")
        with suppress(OSError), socket.fromfd(sock.fileno(), sock.family, sock.type) as rest:
            rest.setblocking(False)
            while self.error is None and self.core.want_read and (size := rest.recv_into(self.get_buffer(-1))):
                self.buffer_updated(size)

    def pause_writing(self) -> None:
        self.core.congested = True

    def resume_writing(self) -> None:
        self.core.congested = False
        if self.owner is not None and not self.core.can_send_data:
            self.owner.pump()  # before login nothing is handed over, but somebody may wait to send
        self.settle()

    # --- in -----------------------------------------------------------------------------------------

    def _unexpected(self, payload: bytes) -> Event | None:
        raise ProtocolError(f"message {payload[0]} came too early")

    def _deliver(self, items: list[Item]) -> None:
        """Hand over what came, then send what came of it."""
        failed = False
        for item in items:
            if item.__class__ is bytes:
                if failed:
                    continue
                try:
                    if (event := self.receive(item)) is not None and self.owner is not None:
                        self.owner.happened(event)
                except RemoteError as error:
                    self.core.fail(error)
                    failed = True  # the end may be among these items already: it must not be missed
                except LocalError:
                    # The core reads a whole batch before we see its first item: when the last one was
                    # the peer's DISCONNECT, nothing that the others ask for can be answered any more.
                    if self.core.phase is not Phase.CLOSED:
                        raise
            else:
                self._notice(cast(Event, item))
        self.settle()

    def settle(self) -> None:
        """Deal with what has changed in the core, and write what there is, as long as the socket takes it."""
        core = self.core
        if core.transitions != self._seen:
            self._attend()
        if self.output.pending or self.waiting:
            self._write_out()
            if core.transitions != self._seen:
                self._attend()

    def _attend(self) -> None:
        """The core has passed into another state: whether to read, and for how long, may be other than it was."""
        core = self.core
        while core.transitions != self._seen:
            self._seen = core.transitions
            for event in core.take_events():
                self._notice(cast(Event, event))
        if self.transport is None:
            return
        rekeying = core.rekeying
        if rekeying:
            self._watch_rekey()
        # A rekey needs the peer's messages whatever the owner has enough of.
        wanted = core.want_read and (rekeying or not self.holds_input)
        if wanted is not self._reading:
            self._switch_reading(self.transport, wanted)

    def hold_input(self, hold: bool) -> None:
        """The owner has enough for now, or no longer; takes effect with the next ``settle``."""
        if hold is not self.holds_input:
            self.holds_input = hold
            self._seen = -1

    @property
    def silence(self) -> float:
        """Seconds since anything came."""
        return self.loop.time() - self._last_received

    def _notice(self, event: Event) -> None:
        if isinstance(event, Disconnected):
            self._end(event.error or ConnectionLost(event.description or "closed here"))
            return
        if isinstance(event, KeysChanged):
            self._keys_changed()
        if self.owner is not None:
            self.owner.noticed(event)
        if isinstance(event, KeysChanged):
            self.flush_soon()

    def verdict(self, items: list[Item]) -> None:
        """What came of ``accept_host_key`` or ``reject_host_key``."""
        self._deliver(items)

    # --- out ----------------------------------------------------------------------------------------

    def flush_written(self) -> None:
        """Data were written: what answers the peer leaves at once, all else with the turn of the loop."""
        if self._fresh:
            self._fresh = False
            self.settle()
        else:
            self.flush_soon()

    def flush_soon(self) -> None:
        """Flush in this turn of the loop, after what else it does: small writes leave together."""
        if self.flush_handle is None:
            self.flush_handle = self.loop.call_soon(self._flush_later)

    def flush_now(self) -> None:
        """Flush what ``flush_soon`` would: before a coroutine goes to sleep, half a turn earlier."""
        if self.flush_handle is not None:
            self.flush_handle.cancel()
            self._flush_later()

    def _flush_later(self) -> None:
        self.flush_handle = None
        self._fresh = True
        self.settle()

    def _write_out(self) -> None:
        transport, core, owner = self.transport, self.core, self.owner
        while transport is not None and not core.congested:
            self._write_all(transport)
            if owner is None or not self.waiting or core.congested or not core.can_send_data or not owner.pump():
                break

    def _write_all(self, transport: asyncio.Transport) -> None:
        frames = self.core.frames_to_send()
        if len(frames) == 1:
            transport.write(frames[0])
        elif frames and self._gathers:
            transport.writelines(frames)
        elif frames:
            transport.write(b"".join(frames))

    def _switch_reading(self, transport: asyncio.Transport, wanted: bool) -> None:
        self._reading = wanted
        if transport.is_closing():
            return
        if self._reading:
            transport.resume_reading()
        else:
            transport.pause_reading()

    # --- timers -------------------------------------------------------------------------------------

    async def wait_keys(self) -> None:
        """Until no key exchange is running.

        Raises:
            ConnectionLost: the connection ended before.
        """
        while self.core.rekeying:
            waiter: asyncio.Future[None] = self.loop.create_future()
            self._key_waiters.append(waiter)
            await waiter
        if not self.is_open:
            raise self.lost()

    def _wake_key_waiters(self) -> None:
        for waiter in self._key_waiters:
            if not waiter.done():
                waiter.set_result(None)
        self._key_waiters.clear()

    def _keys_changed(self) -> None:
        self._stop_timers()
        self._wake_key_waiters()
        seconds = self.core.config.rekey_seconds
        if seconds is not None:
            self._rekey_timer = self.loop.call_later(seconds, self._rekey_due)

    def _rekey_due(self) -> None:
        if self.core.may_rekey:
            self.core.rekey()
            self.settle()
        elif self.error is None and self.core.config.rekey_seconds is not None:
            self._rekey_timer = self.loop.call_later(self.core.config.rekey_seconds, self._rekey_due)

    def _watch_rekey(self) -> None:
        if self._deadline_timer is None:
            limit = self.core.config.rekey_timeout
            self._deadline_timer = self.loop.call_later(limit, self._rekey_overdue, limit)

    def _rekey_overdue(self, limit: float) -> None:
        self.fail(HandshakeTimeout("the key exchange was not finished in time", phase="rekey", limit=limit))

    def _stop_timers(self) -> None:
        for timer in (self._rekey_timer, self._deadline_timer):
            if timer is not None:
                timer.cancel()
        self._rekey_timer = self._deadline_timer = None

    # --- the end ------------------------------------------------------------------------------------

    def _end(self, error: SSHError) -> None:
        """The first cause is kept; the last bytes are sent, and then the socket goes."""
        if self.error is not None:
            return
        self.error = error
        self._stop_timers()
        self._wake_key_waiters()
        transport = self.transport
        if transport is not None:
            if not transport.is_closing():
                # Also while congested: behind these bytes nothing follows.
                self._write_all(transport)
            transport.close()
            self._close_timer = self.loop.call_later(_CLOSE_TIMEOUT, transport.abort)
        elif not self._closed.done():
            self._closed.set_result(None)
        if self.owner is not None:
            self.owner.ended(error)

    def fail(self, error: SSHError) -> None:
        """End the connection for a reason found outside the core."""
        self.core.fail(error)
        self.settle()

    def close(self, reason: int, description: str) -> None:
        """DISCONNECT, then close the socket once that has left."""
        self.core.disconnect(reason, description)
        self.settle()

    def abort(self) -> None:
        """Close the socket at once; nothing more is sent."""
        if self.transport is not None:
            self.transport.abort()
        self.core.disconnect(description="aborted")  # goes nowhere: the core is told that it is over
        self.settle()

    def drop(self) -> None:
        """Nobody waits for the end: let the last bytes leave if they can at once, and close."""
        if self.transport is not None and self.transport.get_write_buffer_size():
            self.transport.abort()

    async def wait_closed(self) -> None:
        """Until the socket is closed."""
        await asyncio.shield(self._closed)

    @property
    def is_open(self) -> bool:
        """Whether nothing has ended the connection yet."""
        return self.error is None and self.core.phase is not _CLOSED

    def lost(self) -> ConnectionLost:
        """A fresh exception for one waiter, from the first cause."""
        cause = self.error
        text = "the connection is closed" if cause is None else f"the connection is closed: {cause.message}"
        lost = ConnectionLost(text, phase=cause.phase if cause is not None else None)
        lost.__cause__ = cause
        return lost
