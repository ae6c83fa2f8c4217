"""listen: a server socket, its connections, and their orderly end."""

from __future__ import annotations

import asyncio
import codecs
import logging
import os
import socket
from collections.abc import Coroutine, Mapping, Sequence
from types import TracebackType
from typing import Any, Final, Self, cast

from ..config import TransportConfig
from ..errors import DisconnectReason, LocalError
from ..keys import PrivateKey
from ..transport import SSHTransport
from .limits import FrontDoor, ServerLimits, client_address
from .protocol import Link, loop_arena
from .server_connection import ServerConnection, ServerSettings
from .server_forwards import ForwardPolicy
from .server_login import methods_of
from .server_process import Handler

__all__ = ("Server", "listen")

_logger = logging.getLogger("sshtransport.server")
_BACKLOG: Final = 128


class _Doorman(asyncio.Protocol):
    """Receives a new connection: turned away before it costs anything, or handed to a Link."""

    def __init__(self, server: Server) -> None:
        self._server = server

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._server._accepted(cast(asyncio.Transport, transport))


class Server:
    """A listening SSH server. Made by :func:`listen`.

    In an ``async with`` block, leaving closes it and waits for the end.
    """

    def __init__(self, settings: ServerSettings, loop: asyncio.AbstractEventLoop) -> None:
        self.settings = settings
        self.closing = False
        self._loop = loop
        self._door = FrontDoor(settings.limits)
        self._strangers: dict[ServerConnection, str | None] = {}  # not logged in yet, with what the door counts
        self._connections: set[ServerConnection] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._waiters: list[asyncio.Future[None]] = []
        self._listener: asyncio.Server | None = None

    # --- what the application asks ------------------------------------------------------------------

    @property
    def sockets(self) -> tuple[socket.socket, ...]:
        """The listening sockets; empty once closed."""
        return tuple(self._listener.sockets) if self._listener is not None else ()

    @property
    def port(self) -> int:
        """The TCP port of the first listening socket.

        Raises:
            LocalError: there is none.
        """
        for sock in self.sockets:
            if sock.family in (socket.AF_INET, socket.AF_INET6):
                number: int = sock.getsockname()[1]
                return number
        raise LocalError("the server listens on no port")

    @property
    def connections(self) -> frozenset[ServerConnection]:
        """The connections that are open, those in login among them (``username`` is None there)."""
        return frozenset(self._connections)

    def is_serving(self) -> bool:
        """Whether connections are accepted."""
        return not self.closing

    def close(self) -> None:
        """Stop listening and disconnect everybody; running handlers are cancelled. Returns at once."""
        self._stop_listening()
        for connection in self.connections:
            connection.close(DisconnectReason.BY_APPLICATION, "the server is shutting down")

    async def wait_closed(self) -> None:
        """Until the server is closed, all connections are, and all handlers have ended."""
        me = asyncio.current_task()
        while not self.closing or self._connections or any(task is not me for task in self._tasks):
            await self._change()
        if self._listener is not None:
            await self._listener.wait_closed()

    async def shutdown(self, timeout: float | None = None) -> None:
        """Stop listening, let running sessions end for at most ``timeout`` seconds, then disconnect everybody.

        A session has ended when its handler has and its output has left. New channels are refused
        meanwhile, and connections in login closed at once.
        """
        self._stop_listening()
        for connection in tuple(self._strangers):
            connection.close(DisconnectReason.BY_APPLICATION, "the server is shutting down")
        try:
            async with asyncio.timeout(timeout):
                while any(connection.sessions for connection in self._connections):
                    await self._change()
        except TimeoutError:
            pass
        self.close()
        await self.wait_closed()

    async def serve_forever(self) -> None:
        """Wait until the server is closed; when cancelled, close it and wait for the end."""
        try:
            await self.wait_closed()
        except asyncio.CancelledError:
            self.close()
            await self.wait_closed()
            raise

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
        await self.wait_closed()

    # --- accepting ------------------------------------------------------------------------------------

    async def _start(self, **where: Any) -> None:
        self._listener = await self._loop.create_server(lambda: _Doorman(self), backlog=_BACKLOG, **where)

    def _stop_listening(self) -> None:
        self.closing = True
        if self._listener is not None:
            self._listener.close()
        self._changed()

    def _accepted(self, transport: asyncio.Transport) -> None:
        peername = transport.get_extra_info("peername")
        address = client_address(peername)[0]
        limit = "closed" if self.closing else self._door.enter(address)
        if limit is not None:
            transport.abort()
            self._refused(address, limit)
            return
        settings = self.settings
        core = SSHTransport("server", settings.config, host_keys=settings.host_keys, arena=loop_arena(self._loop))
        link = Link(core, self._loop)
        connection = ServerConnection(link, self, peername)
        self._connections.add(connection)
        self._strangers[connection] = address
        transport.set_protocol(link)
        link.connection_made(transport)
        connection.remember_addresses()

    def _refused(self, address: str | None, limit: str) -> None:
        _logger.debug("a connection from %s was closed at the door: %s", address, limit)
        hook = self.settings.limits.on_refused
        if hook is not None and limit != "closed":
            try:
                hook(address, limit)
            except Exception:
                _logger.exception("on_refused failed")

    # --- Host: what connections say ---------------------------------------------------------------------

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._task_done)
        return task

    def _task_done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._loop.call_exception_handler(
                {"message": "unexpected error in a server task", "exception": error, "task": task}
            )
        self._changed()

    def logged_in(self, connection: ServerConnection) -> None:
        self._leave_door(connection)

    def session_ended(self) -> None:
        self._changed()

    def connection_ended(self, connection: ServerConnection) -> None:
        self._leave_door(connection)
        closed = self._loop.create_task(connection.wait_closed())
        closed.add_done_callback(lambda _: self._gone(connection))

    def _leave_door(self, connection: ServerConnection) -> None:
        if connection in self._strangers:
            self._door.leave(self._strangers.pop(connection))

    def _gone(self, connection: ServerConnection) -> None:
        self._connections.discard(connection)
        self._changed()

    # --- waiting for changes ------------------------------------------------------------------------------

    async def _change(self) -> None:
        waiter: asyncio.Future[None] = self._loop.create_future()
        self._waiters.append(waiter)
        try:
            await waiter
        finally:
            if waiter in self._waiters:
                self._waiters.remove(waiter)

    def _changed(self) -> None:
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)


async def listen(
    handler: Handler,
    host: str | Sequence[str] | None = None,
    port: int | None = None,
    *,
    host_keys: Sequence[str | os.PathLike[str] | PrivateKey],
    authenticator: object,
    subsystems: Mapping[str, Handler] | None = None,
    allow_direct_tcpip: ForwardPolicy = None,
    allow_tcpip_forward: ForwardPolicy = None,
    config: TransportConfig | None = None,
    limits: ServerLimits | None = None,
    sock: socket.socket | None = None,
    reuse_port: bool = False,
    encoding: str | None = None,
) -> Server:
    """Start an SSH server; connections are accepted when this returns.

    Args:
        handler: coroutine function called with a ``ServerProcess`` for each command and shell. What
            it returns is the exit status (None: 0); when it raises, the fault is logged and the
            status 255.
        host: address or addresses to listen on; None is all.
        port: TCP port; 0 lets the system choose one (``server.port``).
        host_keys: private key files (not encrypted) or ``PrivateKey`` objects, at least one.
        authenticator: an object with any of ``check_public_key(username, key, info)``,
            ``check_password(username, password, info)`` and ``check_keyboard_interactive(username,
            ask, info)``, sync or async. True, a ``Grant`` or ``PARTIAL_SUCCESS`` accepts; anything
            else, exceptions included, refuses.
        subsystems: handlers by subsystem name; other subsystems are refused.
        allow_direct_tcpip: ``(connection, host, port) -> bool``, sync or async: may the client have a
            connection opened to there? None refuses all.
        allow_tcpip_forward: the same for ports to listen on.
        config: algorithms, rekey limits and windows.
        limits: what clients may cost; None is ``ServerLimits()``.
        sock: a listening or bound socket instead of ``host`` and ``port``.
        reuse_port: set SO_REUSEPORT, so that several processes can listen.
        encoding: makes the streams of processes text.

    Raises:
        LocalError: an argument that cannot work; KeyFileError for a key file.
        OSError: the address cannot be listened on.
    """
    if (sock is None) is (port is None) or (sock is not None and host is not None):
        raise LocalError("either a port or a socket is needed")
    loop = asyncio.get_running_loop()
    settings = ServerSettings(
        handler=_checked_callable("handler", handler),
        subsystems={name: _checked_callable(f"subsystem {name!r}", each) for name, each in (subsystems or {}).items()},
        host_keys=await _loaded(host_keys),
        authenticator=authenticator,
        methods=methods_of(authenticator),
        allow_direct_tcpip=_checked_policy("allow_direct_tcpip", allow_direct_tcpip),
        allow_tcpip_forward=_checked_policy("allow_tcpip_forward", allow_tcpip_forward),
        config=_checked("config", TransportConfig() if config is None else config, TransportConfig),
        limits=_checked("limits", ServerLimits() if limits is None else limits, ServerLimits),
        encoding=_checked_encoding(encoding),
    )
    # Whatever could keep a connection's transport from being made is found here, once.
    SSHTransport("server", settings.config, host_keys=settings.host_keys, arena=loop_arena(loop))
    server = Server(settings, loop)
    if sock is not None:
        await server._start(sock=sock)
    else:
        await server._start(host=host, port=port, reuse_port=reuse_port or None)
    return server


def _checked_callable(what: str, value: Any) -> Any:
    if not callable(value):
        raise LocalError(f"{what} must be a function, not {value!r}")
    return value


def _checked_policy(what: str, value: Any) -> Any:
    return None if value is None else _checked_callable(what, value)


def _checked(what: str, value: Any, kind: type[Any]) -> Any:
    if not isinstance(value, kind):
        raise LocalError(f"{what} must be a {kind.__name__}, not {value!r}")
    return value


def _checked_encoding(encoding: str | None) -> str | None:
    if encoding is not None:
        try:
            codecs.lookup(encoding)
        except LookupError as error:
            raise LocalError(str(error)) from None
    return encoding


async def _loaded(keys: Any) -> tuple[PrivateKey, ...]:
    """Host keys ready for use. Reading a file can take a while: it is done on the side."""
    if isinstance(keys, str | os.PathLike | PrivateKey):
        keys = [keys]
    loop = asyncio.get_running_loop()
    loaded = [
        key if isinstance(key, PrivateKey) else await loop.run_in_executor(None, PrivateKey.load, key) for key in keys
    ]
    if not loaded:
        raise LocalError("a server needs a host key")
    return tuple(loaded)
