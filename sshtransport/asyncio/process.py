"""Remote commands: a session channel on the client's side (RFC 4254, section 6)."""

from __future__ import annotations

import signal
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..connection import SESSION, ChannelRequest, Env, Exec, PtyRequest, Shell, Signal, Subsystem, WindowChange
from ..errors import ChannelOpenError, LocalError, OpenFailureReason, ProcessError
from .connection import SSHConnection
from .ports import ChannelPort
from .streams import SSHReader, SSHWriter, make_reader

__all__ = ("ClientProcess", "CompletedProcess", "open_process", "run_process")

_CLOSE_TIMEOUT = 5.0  # seconds that leaving a process block waits for the peer's CLOSE
_CHUNK = 262_144


@dataclass(frozen=True, slots=True)
class CompletedProcess:
    """How a command ended, and what it wrote: bytes, or str with an encoding.

    ``exit_status`` is None when the peer reported none, ``exit_signal`` the signal's name without
    "SIG" (RFC 4254, section 6.10) or None.
    """

    command: str | bytes | None
    stdout: Any
    stderr: Any
    exit_status: int | None
    exit_signal: str | None

    @property
    def returncode(self) -> int | None:
        """The status; ``-n`` for signal number n where this system knows its name; None if neither came."""
        return _returncode(self.exit_status, self.exit_signal)

    def check_returncode(self) -> None:
        """Raise ProcessError unless the status is 0."""
        if self.exit_status != 0:
            how = f"signal {self.exit_signal}" if self.exit_signal else f"status {self.exit_status}"
            raise ProcessError(f"command ended with {how}", result=self)


def _returncode(status: int | None, name: str | None) -> int | None:
    if status is not None:
        return status
    # Members only: the module has other names that a peer could say, "_DFL" for 0 among them.
    number = signal.Signals.__members__.get(f"SIG{name}") if name else None
    return -number if number is not None else None


class ClientProcess:
    """A command, shell or subsystem that runs on the peer. Made by ``create_process``.

    ``stdin``, ``stdout`` and ``stderr`` are its streams; what is not read keeps the peer's window
    shut. In an ``async with`` block, leaving sends CLOSE and waits for the peer's, not for the exit.
    """

    def __init__(self, port: ChannelPort, command: str | bytes | None, encoding: str | None, errors: str) -> None:
        self._port = port
        self.command = command
        self.stdin: SSHWriter[Any] = SSHWriter(port, 0, encoding, errors)
        self.stdout: SSHReader[Any] = make_reader(port, 0, encoding, errors)
        self.stderr: SSHReader[Any] = make_reader(port, 1, encoding, errors)

    @property
    def connection(self) -> SSHConnection:
        """The connection that it runs on."""
        return self._port.connection

    @property
    def exit_status(self) -> int | None:
        """The exit status, once the peer has reported it."""
        return self._port.channel.exit_status

    @property
    def exit_signal(self) -> str | None:
        """The name of the signal that ended it, without "SIG", once the peer has reported it."""
        ended = self._port.channel.exit_signal
        return ended.name if ended is not None else None

    @property
    def returncode(self) -> int | None:
        """As :attr:`CompletedProcess.returncode`."""
        return _returncode(self.exit_status, self.exit_signal)

    async def wait(self) -> int | None:
        """Wait until the command has ended and its channel is closed; returns ``returncode``.

        Output stays readable. Output that nobody reads can keep the command from ending.

        Raises:
            ConnectionLost: the connection ended first, and no status had come.
        """
        await self._port.wait_closed()
        link = self._port.connection.link
        if not link.is_open and self.exit_status is None and self.exit_signal is None:
            raise link.lost()
        return self.returncode

    def send_signal(self, name: str) -> None:
        """Send a signal, named without "SIG" (RFC 4254, section 6.9)."""
        self._port.request(Signal(name.removeprefix("SIG")))

    def terminate(self) -> None:
        """Send TERM."""
        self.send_signal("TERM")

    def kill(self) -> None:
        """Send KILL."""
        self.send_signal("KILL")

    def resize(self, columns: int, rows: int, pixel_width: int = 0, pixel_height: int = 0) -> None:
        """Tell the new size of the terminal (RFC 4254, section 6.7)."""
        self._port.request(WindowChange(columns, rows, pixel_width, pixel_height))

    def close(self) -> None:
        """Send CLOSE behind what is queued."""
        self._port.close()

    async def wait_closed(self) -> None:
        """Until the channel is closed in both directions."""
        await self._port.wait_closed()

    async def leave(self) -> None:
        """CLOSE, and wait at most 5 seconds for the peer's."""
        await self._port.leave(_CLOSE_TIMEOUT)

    async def communicate(self, max_output: int | None = None) -> tuple[bytes, bytes]:
        """Read both streams to their end, then wait for the close. Bytes; ProcessError beyond ``max_output``."""
        port = self._port
        parts: tuple[list[bytes], list[bytes]] = ([], [])
        total = 0
        while True:
            for stream in (0, 1):
                while data := port.read(_CHUNK, stream):
                    parts[stream].append(data)
                    total += len(data)
            if max_output is not None and total > max_output:
                result = CompletedProcess(self.command, b"".join(parts[0]), b"".join(parts[1]), None, None)
                raise ProcessError(f"more than {max_output} bytes of output", result=result, limit=max_output)
            if port.at_end():
                break
            await port.wait_any()
        await port.wait_closed()
        return b"".join(parts[0]), b"".join(parts[1])


def _start_request(command: str | bytes | None, subsystem: str | None) -> ChannelRequest:
    if subsystem is not None:
        if command is not None:
            raise LocalError("either a command or a subsystem")
        return Subsystem(subsystem)
    if command is None:
        return Shell()
    return Exec(command if isinstance(command, bytes) else command.encode("utf-8", "surrogateescape"))


def _terminal(pty: bool | str | PtyRequest | None) -> PtyRequest | None:
    if isinstance(pty, PtyRequest):
        return pty
    if pty is None or pty is False:
        return None
    return PtyRequest("xterm-256color" if pty is True else pty, 80, 24)


async def open_process(
    connection: SSHConnection,
    command: str | bytes | None,
    *,
    env: Mapping[str, str] | None,
    pty: bool | str | PtyRequest | None,
    subsystem: str | None,
    encoding: str | None,
    errors: str,
) -> ClientProcess:
    """Open a session, set it up and start the command.

    Environment variables that the peer refuses are not an error: most accept only a few.

    Raises:
        ChannelOpenError: the peer refused the session, the terminal or the command.
        ConnectionLost: the connection ended.
    """
    start = _start_request(command, subsystem)
    terminal = _terminal(pty)
    port = await connection.open_port(SESSION)
    try:
        for name, value in (env or {}).items():
            port.request(Env(name, value.encode("utf-8", "surrogateescape")))
        granted = port.ask(terminal) if terminal is not None else None
        started = port.ask(start)
        connection.link.settle()
        if granted is not None and not await granted:
            raise ChannelOpenError(OpenFailureReason.ADMINISTRATIVELY_PROHIBITED, "terminal refused")
        if not await started:
            if not connection.link.is_open:
                raise connection.link.lost()
            what = "subsystem" if subsystem is not None else "command"
            raise ChannelOpenError(OpenFailureReason.ADMINISTRATIVELY_PROHIBITED, f"{what} refused")
    except BaseException:
        port.close()
        raise
    return ClientProcess(port, command, encoding, errors)


async def run_process(
    process: ClientProcess, data: bytes | str | None, *, encoding: str | None, errors: str, max_output: int | None
) -> CompletedProcess:
    """Feed a process, collect its output, and wait for its end; it is closed on every way out."""
    try:
        if data:
            process.stdin.write(data)
        process.stdin.write_eof()
        process.connection.link.settle()
        out, err = await process.communicate(max_output)
    except BaseException:
        process.close()
        raise
    process.close()
    if encoding is None:
        return CompletedProcess(process.command, out, err, process.exit_status, process.exit_signal)
    texts = out.decode(encoding, errors), err.decode(encoding, errors)
    return CompletedProcess(process.command, *texts, process.exit_status, process.exit_signal)
