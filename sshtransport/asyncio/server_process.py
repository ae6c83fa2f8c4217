"""What a client has run on a server: a session channel on the server's side (RFC 4254, section 6)."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from ..auth import Grant
from ..connection import (
    ChannelRequest,
    ChannelRequestReceived,
    Env,
    Exec,
    PtyRequest,
    Shell,
    Signal,
    Subsystem,
    WindowChange,
)
from ..errors import ConnectionLost, LocalError
from ..wire import visible
from .ports import ChannelPort
from .streams import SSHReader, SSHWriter, make_reader

if TYPE_CHECKING:
    from .server_connection import ServerConnection

__all__ = ("Handler", "ServerProcess", "Session")

_logger = logging.getLogger("sshtransport.server")

_FAILED: Final = 255  # the status of a handler that raised
_STATUS_MAX: Final = 2**32 - 1
_ORIGINAL: Final = "SSH_ORIGINAL_COMMAND"  # where scripts behind a forced command look, as with OpenSSH


class _OutputWriter(SSHWriter[Any]):
    """``close`` of one stream must not close the channel: the exit status is still to come."""

    def close(self) -> None:
        self.write_eof()

    async def wait_closed(self) -> None:
        with contextlib.suppress(ConnectionLost):
            await self._port.drain()


class ServerProcess:
    """What a handler works with: one command, shell or subsystem of a client. Made by this package.

    ``command`` is what the client wants run, None for a shell (bytes that are not UTF-8 are in it as
    surrogate escapes); ``subsystem`` the subsystem's name or None. ``env`` is what the client set,
    and for a forced command what it wanted to run as SSH_ORIGINAL_COMMAND; what the login's Grant
    sets wins. ``terminal`` is the client's terminal or None, and follows its size.

    ``stdin`` reads from the client, ``stdout`` and ``stderr`` write to it: bytes, or str where the
    server has an encoding. Follow writes with ``await process.stdout.drain()``: that is what makes
    a handler as slow as its client, instead of piling up output. When the handler returns, the exit
    status, EOF and CLOSE follow behind all output.
    """

    def __init__(
        self,
        port: ChannelPort,
        *,
        command: str | None,
        subsystem: str | None,
        env: Mapping[str, str],
        terminal: PtyRequest | None,
        encoding: str | None,
    ) -> None:
        self._port = port
        self.command = command
        self.subsystem = subsystem
        self.env = dict(env)
        self.terminal = terminal
        self.stdin: SSHReader[Any] = make_reader(port, 0, encoding)
        self.stdout: SSHWriter[Any] = _OutputWriter(port, 0, encoding)
        self.stderr: SSHWriter[Any] = _OutputWriter(port, 1, encoding)
        self._status: int | None = None
        self._signal: tuple[str, bool, str] | None = None
        self._on_signal: Callable[[str], object] | None = None
        self._on_resize: Callable[[PtyRequest], object] | None = None

    def __repr__(self) -> str:
        what = self.subsystem if self.subsystem is not None else self.command
        return f"<ServerProcess {visible(what, 80)!r}>" if what is not None else "<ServerProcess (shell)>"

    @property
    def connection(self) -> ServerConnection:
        """The connection that it runs on."""
        connection: Any = self._port.connection
        return connection  # type: ignore[no-any-return]

    @property
    def username(self) -> str:
        """The name that the client logged in with."""
        return self.connection.username or ""

    def exit(self, status: int) -> None:
        """The exit status to report when the handler returns None; the last call counts.

        Raises:
            LocalError: it is not from 0 to 2^32 - 1.
        """
        if not _is_status(status):
            raise LocalError(f"not an exit status: {status!r}")
        self._status, self._signal = status, None

    def exit_signal(self, name: str, core_dumped: bool = False, message: str = "") -> None:
        """Report the end by a signal, named with or without "SIG", instead (RFC 4254, section 6.10)."""
        name = name.removeprefix("SIG")
        if not name or not name.isascii():
            raise LocalError(f"not a signal's name: {name!r}")
        self._status, self._signal = None, (name, core_dumped, message)

    def set_signal_handler(self, callback: Callable[[str], object] | None) -> None:
        """Have ``callback(name)`` called for signals of the client ("TERM", "INT", ...; RFC 4254, section 6.9).

        Without one signals have no effect.
        """
        self._on_signal = callback

    def set_resize_handler(self, callback: Callable[[PtyRequest], object] | None) -> None:
        """Have ``callback(terminal)`` called when the client's terminal has another size."""
        self._on_resize = callback


def _is_status(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _STATUS_MAX


Handler = Callable[[ServerProcess], Awaitable[int | None]]


class Session:
    """A session channel: collects what comes before the start, then runs one handler."""

    def __init__(
        self,
        port: ChannelPort,
        grant: Grant,
        handler: Handler,
        subsystems: Mapping[str, Handler],
        encoding: str | None,
    ) -> None:
        self._port = port
        self._grant = grant
        self._handler = handler
        self._subsystems = subsystems
        self._encoding = encoding
        self._env: dict[str, str] = {}
        self._terminal: PtyRequest | None = None
        self._process: ServerProcess | None = None
        self._task: asyncio.Task[None] | None = None

    # --- requests ---------------------------------------------------------------------------------

    def requested(self, event: ChannelRequestReceived) -> None:
        """Carry a request of the client out, and answer it."""
        granted = _REQUESTS.get(type(event.request), Session._refuse)(self, event.request)
        if event.want_reply:
            self._port.channel.reply(granted)
        if granted and self._process is not None and self._task is None:
            # Only now: the answer leaves before the first output.
            connection: Any = self._port.connection
            self._task = connection.spawn(self._run(self._process))

    def _refuse(self, request: ChannelRequest) -> bool:
        return False

    def _set_env(self, request: ChannelRequest) -> bool:
        assert isinstance(request, Env)
        if not request.name or "=" in request.name or "\0" in request.name or b"\0" in request.value:
            return False  # no environment can hold it
        self._env[request.name] = request.value.decode("utf-8", "surrogateescape")
        return True

    def _set_terminal(self, request: ChannelRequest) -> bool:
        assert isinstance(request, PtyRequest)
        if not self._grant.permit_pty:
            return False
        self._terminal = request
        return True

    def _exec(self, request: ChannelRequest) -> bool:
        assert isinstance(request, Exec)
        return self._start(request.command.decode("utf-8", "surrogateescape"), None, self._handler)

    def _shell(self, request: ChannelRequest) -> bool:
        return self._start(None, None, self._handler)

    def _subsystem(self, request: ChannelRequest) -> bool:
        assert isinstance(request, Subsystem)
        handler = self._subsystems.get(request.name)
        if handler is None and self._grant.force_command is None:
            return False
        return self._start(None, request.name, handler or self._handler)

    def _start(self, command: str | None, subsystem: str | None, handler: Handler) -> bool:
        forced = self._grant.force_command
        if forced is not None:
            original = command if command is not None else subsystem
            self._env.pop(_ORIGINAL, None)
            if original is not None:
                self._env[_ORIGINAL] = original
            command, subsystem, handler = forced, None, self._handler
        self._handler = handler
        self._process = ServerProcess(
            self._port,
            command=command,
            subsystem=subsystem,
            env={**self._env, **self._grant.environment},
            terminal=self._terminal,
            encoding=self._encoding,
        )
        return True

    def _resize(self, request: ChannelRequest) -> bool:
        assert isinstance(request, WindowChange)
        process = self._process
        if process is None or process.terminal is None:
            return False
        process.terminal = replace(
            process.terminal,
            columns=request.columns,
            rows=request.rows,
            pixel_width=request.pixel_width,
            pixel_height=request.pixel_height,
        )
        return _call(process._on_resize, process.terminal)

    def _signal(self, request: ChannelRequest) -> bool:
        assert isinstance(request, Signal)
        return self._process is not None and _call(self._process._on_signal, request.name)

    # --- the handler --------------------------------------------------------------------------------

    async def _run(self, process: ServerProcess) -> None:
        try:
            self._finish(process, await self._handler(process))
        except asyncio.CancelledError:
            self._finish(process, _FAILED)
            raise
        except Exception as error:
            if self._port.closed and isinstance(error, ConnectionLost):
                return  # the client went away, and the handler noticed
            _logger.exception("the handler failed: %r of '%s'", process, visible(process.username, 64))
            self._finish(process, _FAILED)

    def _finish(self, process: ServerProcess, result: object) -> None:
        """Exit status, EOF and CLOSE, behind all output."""
        port = self._port
        channel, link = port.channel, port.connection.link
        if port.closed or not link.is_open:
            return
        if result is None and process._signal is not None:
            channel.send_exit_signal(*process._signal)
        else:
            if result is None:
                result = process._status or 0
            elif not _is_status(result):
                _logger.error("the handler of %r returned %r, which is no exit status", process, result)
                result = _FAILED
            assert isinstance(result, int)
            channel.send_exit_status(result)
        port.write_eof()
        port.close()

    def closed(self) -> None:
        """The client closed the channel, or the connection ended: the handler has to stop."""
        if self._task is not None:
            self._task.cancel()


def _call(callback: Callable[..., object] | None, argument: object) -> bool:
    if callback is not None:
        try:
            callback(argument)
        except Exception:
            _logger.exception("a handler's callback failed")
    return True


_REQUESTS: Final[dict[type[ChannelRequest], Callable[[Session, ChannelRequest], bool]]] = {
    Env: Session._set_env,
    PtyRequest: Session._set_terminal,
    Exec: Session._exec,
    Shell: Session._shell,
    Subsystem: Session._subsystem,
    WindowChange: Session._resize,
    Signal: Session._signal,
}
