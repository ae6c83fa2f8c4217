"""Forwarding at a server (RFC 4254, section 7): connections to elsewhere, ports listened on for a client.

Both are refused unless the application's policy says True and the login's Grant allows the target.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import socket
from collections import deque
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final

from ..connection import (
    CancelTCPIPForward,
    Channel,
    DirectTCPIP,
    ForwardedTCPIP,
    GlobalRequestReceived,
    TCPIPForward,
    encode_open,
)
from ..errors import OpenFailureReason, SSHError
from ..wire import uint32, visible
from .dial import dial
from .forwarding import open_streams, splice
from .limits import client_address

if TYPE_CHECKING:
    from .server_connection import ServerConnection

__all__ = ("ForwardPolicy", "ServerForwards")

_logger = logging.getLogger("sshtransport.server")

ForwardPolicy = Callable[["ServerConnection", str, int], bool | Awaitable[bool]] | None

_REFUSED: Final = OpenFailureReason.ADMINISTRATIVELY_PROHIBITED


class ServerForwards:
    """All forwarding of one connection."""

    def __init__(
        self, connection: ServerConnection, direct: ForwardPolicy, remote: ForwardPolicy, max_remote: int
    ) -> None:
        self._connection = connection
        self._direct = direct
        self._remote = remote
        self._max_remote = max_remote
        self._tasks: set[asyncio.Task[None]] = set()
        self._requests: deque[GlobalRequestReceived] = deque()  # answered one after the other, in order
        self._listeners: dict[tuple[str, int], asyncio.Server] = {}

    def start(self) -> None:
        """Login is done: have the requests reported that this class answers."""
        mux = self._connection.mux
        if mux is not None and self._remote is not None:
            mux.handle_global(TCPIPForward.TYPE)
            mux.handle_global(CancelTCPIPForward.TYPE)

    def stop(self) -> None:
        """The connection ended: nothing is listened on for it, and what it had carried ends."""
        for listener in self._listeners.values():
            listener.close()
        self._listeners.clear()
        self._requests.clear()
        for task in tuple(self._tasks):
            task.cancel()

    def _spawn(self, work: Any) -> None:
        task = self._connection.spawn(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _allowed(self, policy: ForwardPolicy, permitted: bool, host: str, port: int) -> bool:
        """Whether the login permits it and the application says True itself (known bugs, M 162)."""
        if policy is None or not permitted:
            return False
        try:
            answer: Any = policy(self._connection, host, port)
            if inspect.isawaitable(answer):
                answer = await answer
        except Exception:
            _logger.exception("a forwarding policy failed")
            return False
        return answer is True

    # --- direct-tcpip -------------------------------------------------------------------------------

    def open_direct(self, channel: Channel, target: DirectTCPIP) -> None:
        """The client wants a connection from here to somewhere."""
        self._spawn(self._open_direct(channel, target.host, target.port))

    async def _open_direct(self, channel: Channel, host: str, port_number: int) -> None:
        connection = self._connection
        assert connection.grant is not None
        permitted = connection.grant.allows_open(host, port_number)
        if not await self._allowed(self._direct, permitted, host, port_number):
            channel.refuse(_REFUSED, "not allowed")
            connection.link.settle()
            return
        try:
            reader, writer = await open_streams(await dial(host, port_number))
        except (OSError, UnicodeError) as error:
            _logger.info("no connection to '%s', port %d: %s", visible(host, 64), port_number, error)
            channel.refuse(OpenFailureReason.CONNECT_FAILED, "no connection")
            connection.link.settle()
            return
        try:
            port = connection.accept(channel)
        except BaseException:
            writer.close()
            raise
        connection.link.settle()
        await splice(port, reader, writer)

    # --- tcpip-forward ------------------------------------------------------------------------------

    def requested(self, event: GlobalRequestReceived) -> None:
        """The client wants a port listened on, or no longer."""
        self._requests.append(event)
        if len(self._requests) == 1:
            self._spawn(self._answer_all())

    async def _answer_all(self) -> None:
        while self._requests:
            event = self._requests[0]
            reply = await self._carry_out(event.request)
            self._requests.popleft()
            mux = self._connection.mux
            if event.want_reply and mux is not None:
                mux.reply_global(reply is not None, reply or b"")
            self._connection.link.settle()

    async def _carry_out(self, request: object) -> bytes | None:
        """The data of the reply, or None where it is a failure."""
        if isinstance(request, CancelTCPIPForward):
            listener = self._listeners.pop((request.host, request.port), None)
            if listener is None:
                return None
            listener.close()
            return b""
        if not isinstance(request, TCPIPForward):
            return None
        grant = self._connection.grant
        assert grant is not None
        host, port = request.host, request.port
        if len(self._listeners) >= self._max_remote or (host, port) in self._listeners:
            return None
        if not await self._allowed(self._remote, grant.allows_listen(host, port), host, port):
            return None
        try:
            number = await self._listen(host, port)
        except (OSError, UnicodeError) as error:
            _logger.info("not listening on '%s', port %d: %s", visible(host, 64), port, error)
            return None
        return b"" if port else uint32(number)

    async def _listen(self, host: str, port: int) -> int:
        """Listen for the client; returns the port (RFC 4254, section 7.1)."""
        loop = asyncio.get_running_loop()
        sock = await _bound_socket(loop, host, port)
        number: int = sock.getsockname()[1]

        def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            self._spawn(self._bring(ForwardedTCPIP(host, number), reader, writer))

        try:
            listener = await asyncio.start_server(connected, sock=sock)
        except BaseException:
            sock.close()
            raise
        self._listeners[host, number] = listener
        return number

    async def _bring(self, target: ForwardedTCPIP, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Somebody connected: the client gets a channel for it."""
        address, number = client_address(writer.get_extra_info("peername"))
        target = ForwardedTCPIP(target.host, target.port, address or "", number or 0)
        try:
            port = await self._connection.open_port(*encode_open(target))
        except SSHError:
            writer.close()  # the client does not want it, or is gone
            return
        except BaseException:
            writer.close()
            raise
        await splice(port, reader, writer)


async def _bound_socket(loop: asyncio.AbstractEventLoop, host: str, port: int) -> socket.socket:
    """A listening socket: "" is every address of both families, a name its first address."""
    if not host and socket.has_dualstack_ipv6():
        return _listening(socket.AF_INET6, ("::", port), dual=True)
    found = await loop.getaddrinfo(host or "0.0.0.0", port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    return _listening(found[0][0], found[0][4], dual=False)


def _listening(family: socket.AddressFamily, address: Any, *, dual: bool) -> socket.socket:
    sock = socket.create_server(address[:2], family=family, dualstack_ipv6=dual)
    sock.setblocking(False)
    return sock
