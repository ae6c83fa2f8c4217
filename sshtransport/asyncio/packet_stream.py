"""Packet streams: the transport alone, payload by payload, for harnesses, proxies and other upper layers."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Any, Final

from ..config import TransportConfig
from ..errors import DisconnectReason, HandshakeTimeout, LocalError, PeerDisconnected, ProtocolError, SSHError
from ..events import Event, HostKeyOffered, KeysChanged
from ..keys import PrivateKey
from ..transport import SSHTransport
from .base import LinkUser
from .client import Deadline, HostKeyWatch, client_core, open_link
from .opening import Opening
from .protocol import Link, loop_arena
from .trust import HostKeyVerifier, HostTrust, KnownHostsSource

__all__ = ("PacketServer", "PacketStream", "open_packet_stream", "start_packet_server")

_logger = logging.getLogger("sshtransport.packet_stream")

_INPUT_HIGH_WATER: Final = 256 * 1024  # received bytes that wait for receive() before the socket is left alone
_INPUT_MAX: Final = 16 * 2**20  # the same while a rekey keeps the socket open, for what was under way
_HANDSHAKE_TIMEOUT: Final = 120.0  # seconds a server gives a client for its first key exchange


class PacketStream(LinkUser):
    """Encrypted packets both ways, with rekeys going on underneath. Made by this module's functions.

    The message numbers of RFC 4250 keep their meaning, and what may be sent or come depends on the
    phase: login first (5, 6, 50 to 79), everything from 80 on after the server has sent
    USERAUTH_SUCCESS (52), numbers that SSH does not know included. PING (192) is answered below.
    """

    def __init__(self, link: Link) -> None:
        super().__init__(link)
        self._writers: list[asyncio.Future[None]] = []
        link.owner = self
        link.receive = self._received
        link.waiting = self._writers
        link.core.all_numbers = True
        self.watch: HostKeyWatch | None = None
        self._ready: asyncio.Future[None] = link.loop.create_future()
        self._payloads: deque[bytes] = deque()
        self._size = 0
        self._reader: asyncio.Future[None] | None = None

    # --- LinkOwner --------------------------------------------------------------------------------------

    def noticed(self, event: Event) -> None:
        if isinstance(event, HostKeyOffered) and self.watch is not None:
            self.watch.offered(event)
        elif isinstance(event, KeysChanged) and event.first and not self._ready.done():
            self._ready.set_result(None)

    def happened(self, event: Event) -> None:
        """Payloads have no meaning here."""

    def pump(self) -> bool:
        for waiter in self._writers:
            if not waiter.done():
                waiter.set_result(None)
        self._writers.clear()
        return False  # they send in a later turn of the loop

    def ended(self, error: SSHError) -> None:
        if self.watch is not None:
            self.watch.stop()
        if not self._ready.done():
            self._ready.set_result(None)
        self._wake_reader()
        self.pump()

    def _received(self, payload: bytes) -> None:
        self._payloads.append(payload)
        self._size += len(payload)
        if self._size > _INPUT_HIGH_WATER:
            self.link.hold_input(True)
            if self._size > _INPUT_MAX:
                raise ProtocolError("too much data while a rekey is running", limit=_INPUT_MAX)
        self._wake_reader()

    def _wake_reader(self) -> None:
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(None)

    # --- for the application ----------------------------------------------------------------------------

    async def handshake(self) -> None:
        """Until the first keys are in place; raises what ended the connection instead."""
        await self._ready
        self._check()

    def _check(self) -> None:
        error = self.link.error
        if error is not None:
            raise error.renewed() from error

    async def send(self, payload: bytes) -> None:
        """Send one payload; waits while a rekey runs or the socket takes no more.

        Raises:
            LocalError: the message number may not leave in this phase, or the payload is too large.
            SSHError: a fresh copy of what ended the connection.
        """
        link, core = self.link, self.link.core
        self._check()
        while core.congested or core.rekeying:
            if core.rekeying:
                await link.wait_keys()
            else:
                waiter: asyncio.Future[None] = link.loop.create_future()
                self._writers.append(waiter)
                await waiter
            self._check()
        core.send(payload)
        if core.pending_output > _INPUT_HIGH_WATER:
            link.settle()
        else:
            link.flush_soon()

    async def receive(self) -> bytes:
        """The next payload. What had arrived before the end comes first.

        Raises:
            LocalError: another coroutine is receiving.
            SSHError: a fresh copy of what ended the connection.
        """
        while not self._payloads:
            self._check()
            if self._reader is not None:
                raise LocalError("another coroutine is receiving from this stream already")
            self._reader = self.link.loop.create_future()
            try:
                await self._reader
            finally:
                self._reader = None
        payload = self._payloads.popleft()
        self._size -= len(payload)
        if self.link.holds_input and self._size <= _INPUT_HIGH_WATER // 2:
            self.link.hold_input(False)
            self.link.flush_soon()
        return payload

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """Payloads until the peer disconnects by application (reason 11); other ends raise."""
        try:
            while True:
                yield await self.receive()
        except PeerDisconnected as error:
            if error.code != DisconnectReason.BY_APPLICATION:
                raise

    async def rekey(self) -> None:
        """Change the keys now, and wait until that is done."""
        self._check()
        self.link.core.rekey()
        self.link.settle()
        await self.link.wait_keys()

    async def close(self) -> None:
        """DISCONNECT by application, and wait until the socket is closed."""
        self.link.close(DisconnectReason.BY_APPLICATION, "closed")
        await self.link.wait_closed()

    def abort(self) -> None:
        """Close the socket without a word."""
        self.link.abort()

    async def wait_closed(self) -> None:
        """Until the socket is closed."""
        await self.link.wait_closed()


def open_packet_stream(
    host: str = "",
    port: int = 22,
    *,
    known_hosts: KnownHostsSource = None,
    host_key_verifier: HostKeyVerifier | None = None,
    config: TransportConfig | None = None,
    timeout: float | None = 30.0,
    sock: socket.socket | None = None,
) -> Opening[PacketStream]:
    """Connect and exchange keys, without login; arguments and errors as :func:`connect`."""

    async def start() -> PacketStream:
        settings = replace(config or TransportConfig(), rekey_before_login=True)
        deadline = Deadline(timeout)
        trust = HostTrust(known_hosts, host_key_verifier, host, port, None, settings.rsa_min_bits)
        core = client_core(settings, trust)

        def make(link: Link) -> PacketStream:
            stream = PacketStream(link)
            stream.watch = HostKeyWatch(link, trust, deadline)
            return stream

        stream: PacketStream | None = None
        try:
            async with deadline.running(lambda: "connect" if stream is None else str(core.phase)):
                stream = await open_link(core, host, port, sock=sock, local_addr=None, make_owner=make)
                stream.remember_addresses()
                await stream.handshake()
        except BaseException:
            if stream is not None:
                stream.link.close(DisconnectReason.BY_APPLICATION, "given up")
                stream.link.drop()
            elif sock is not None:
                sock.close()
            raise
        return stream

    async def leave(stream: PacketStream, error: BaseException | None) -> None:
        await stream.close()

    return Opening(start, leave)


class PacketServer:
    """Listens for packet streams. Made by :func:`start_packet_server`."""

    def __init__(self, server: asyncio.Server, tasks: set[asyncio.Task[None]]) -> None:
        self._server = server
        self._tasks = tasks
        self._first_sockets = tuple(server.sockets)
        self.port: int = self._first_sockets[0].getsockname()[1]

    @property
    def sockets(self) -> tuple[Any, ...]:
        """The listening sockets."""
        return tuple(self._server.sockets)

    def close(self) -> None:
        """Stop listening, and cancel the callbacks that run; their streams are closed."""
        self._server.close()
        for task in self._tasks:
            task.cancel()

    async def wait_closed(self) -> None:
        """Until the callbacks have ended."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    async def __aenter__(self) -> PacketServer:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
        await self.wait_closed()


async def start_packet_server(
    callback: Callable[[PacketStream], Awaitable[None]],
    host: str | None = None,
    port: int = 0,
    *,
    host_keys: Sequence[str | os.PathLike[str] | PrivateKey],
    config: TransportConfig | None = None,
    sock: socket.socket | None = None,
) -> PacketServer:
    """Serve packet streams: ``callback`` is awaited for each, after its first key exchange.

    The stream is closed when the callback returns. One that raises is logged; the connection ends.

    Raises:
        LocalError: no usable host key, or a configuration that cannot work.
        OSError: the address cannot be listened on.
    """
    loop = asyncio.get_running_loop()
    settings = replace(config or TransportConfig(), rekey_before_login=True)
    keys = [
        key if isinstance(key, PrivateKey) else await loop.run_in_executor(None, PrivateKey.load, key)
        for key in host_keys
    ]
    SSHTransport("server", settings, host_keys=keys)  # raises now what would fail each connection
    tasks: set[asyncio.Task[None]] = set()

    async def serve(stream: PacketStream) -> None:
        try:
            try:
                async with asyncio.timeout(_HANDSHAKE_TIMEOUT):
                    await stream.handshake()
            except TimeoutError:
                text = "no key exchange in time"
                stream.link.fail(HandshakeTimeout(text, phase=str(stream.link.core.phase), limit=_HANDSHAKE_TIMEOUT))
                return
            stream.remember_addresses()
            await callback(stream)
        except SSHError as error:
            _logger.info("packet stream ended: %s", error)
        except Exception:
            _logger.exception("packet stream callback failed")
        finally:
            stream.link.close(DisconnectReason.BY_APPLICATION, "closed")
            await stream.wait_closed()

    def make() -> Link:
        link = Link(SSHTransport("server", settings, host_keys=keys, arena=loop_arena(loop)), loop)
        task = loop.create_task(serve(PacketStream(link)))
        tasks.add(task)
        task.add_done_callback(tasks.discard)
        return link

    if sock is not None:
        server = await loop.create_server(make, sock=sock)
    else:
        server = await loop.create_server(make, host, port)
    return PacketServer(server, tasks)
