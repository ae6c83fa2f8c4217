"""ServerProcess: what a handler gets, how it ends, and how slow clients slow it down."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
from typing import Any

import pytest

from sshtransport import (
    ChannelOpenError,
    Grant,
    LocalError,
    PtyRequest,
    TransportConfig,
)
from sshtransport.asyncio.limits import ServerLimits
from sshtransport.asyncio.server_process import ServerProcess
from sshtransport.connection import Env
from sshtransport.constants import MSG_CHANNEL_CLOSE, MSG_CHANNEL_DATA, MSG_CHANNEL_EOF, MSG_CHANNEL_REQUEST
from sshtransport.events import Event
from tests.support.servers import client, serving


class GrantAll:
    """Everybody gets the same grant."""

    def __init__(self, grant: Grant) -> None:
        self.grant = grant

    def check_password(self, username: str, password: str, info: object) -> Grant:
        return self.grant


async def echo(process: ServerProcess) -> int:
    while data := await process.stdin.read(65536):
        process.stdout.write(data)
        await process.stdout.drain()
    return 0


async def describe(process: ServerProcess) -> None:
    """Everything a handler is told, as text."""
    terminal = process.terminal and (process.terminal.term, process.terminal.columns, process.terminal.rows)
    process.stdout.write(repr((process.command, process.subsystem, process.env, terminal, process.username)).encode())


async def described(conn: Any, *args: Any, **options: Any) -> Any:
    return eval((await conn.run(*args, **options)).stdout)


# --- what it is told ---------------------------------------------------------------------------------


async def test_command_shell_subsystem_environment_terminal() -> None:
    async def sub(process: ServerProcess) -> None:
        process.stdout.write(b"sub:")
        await describe(process)

    async with serving(describe, subsystems={"info": sub}) as server, client(server) as conn:
        assert await described(conn, "ls") == ("ls", None, {}, None, "tester")
        assert await described(conn, env={"A": "ä", "B": ""}) == (None, None, {"A": "ä", "B": ""}, None, "tester")
        assert (await described(conn, b"\xff\x00"))[0] == "\udcff\0"
        assert (await described(conn, "", pty=PtyRequest("vt100", 132, 43)))[3] == ("vt100", 132, 43)
        done = await conn.run(subsystem="info")
        assert done.stdout == b"sub:(None, 'info', {}, None, 'tester')"
        with pytest.raises(ChannelOpenError, match="subsystem refused"):
            await conn.run(subsystem="other")


async def test_a_forced_command_replaces_all_others() -> None:
    grant = Grant(force_command="only this", environment={"WHO": "server"}, permit_pty=False)
    async with serving(describe, authenticator=GrantAll(grant)) as server, client(server) as conn:
        env = {"WHO": "client", "MORE": "1", "SSH_ORIGINAL_COMMAND": "forged"}
        expected = {"WHO": "server", "MORE": "1"}
        assert await described(conn, "rm -rf", env=env) == (
            "only this",
            None,
            expected | {"SSH_ORIGINAL_COMMAND": "rm -rf"},
            None,
            "tester",
        )
        assert (await described(conn, env=env))[:3] == ("only this", None, expected)
        assert (await described(conn, subsystem="sftp"))[:3] == (
            "only this",
            None,
            {"WHO": "server", "SSH_ORIGINAL_COMMAND": "sftp"},
        )
        with pytest.raises(ChannelOpenError, match="terminal refused"):
            await conn.run("x", pty=True)


@pytest.mark.parametrize("env", [Env("", b"1"), Env("A=B", b"1"), Env("A\0", b"1"), Env("A", b"1\0")])
async def test_variables_that_no_environment_can_hold(env: Env) -> None:
    async with serving(describe) as server, client(server) as conn:
        port = await conn.open_port("session")
        assert not await port.ask(env)
        port.close()
        await port.wait_closed()


async def test_resizing_and_signals() -> None:
    sizes: list[tuple[int, int]] = []
    names: list[str] = []
    ready, over = asyncio.Event(), asyncio.Event()

    async def handler(process: ServerProcess) -> int:
        def on_signal(name: str) -> None:
            names.append(name)
            if name == "TERM":
                over.set()

        process.set_signal_handler(on_signal)
        process.set_resize_handler(lambda terminal: sizes.append((terminal.columns, terminal.rows)))
        ready.set()
        await over.wait()
        assert process.terminal is not None
        return process.terminal.columns

    async with serving(handler) as server, client(server) as conn, conn.create_process("x", pty=True) as process:
        await ready.wait()
        process.resize(100, 50)
        process.send_signal("INT")
        process.resize(101, 51)
        process.terminate()
        assert await process.wait() == 101
    assert (sizes, names) == ([(100, 50), (101, 51)], ["INT", "TERM"])


async def test_a_failing_callback_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    async def handler(process: ServerProcess) -> None:
        process.set_signal_handler(lambda name: 1 / 0)
        process.stdout.write(b".")
        await process.stdin.read()

    async with serving(handler) as server, client(server) as conn, conn.create_process("x") as process:
        await process.stdout.read(1)
        process.terminate()
        process.stdin.write_eof()
        assert await process.wait() == 0
    assert "callback failed" in caplog.text


async def test_text_streams() -> None:
    async def handler(process: ServerProcess) -> None:
        async for line in process.stdin:
            process.stdout.write(line.upper())
        process.stderr.write("ß")

    async with serving(handler, encoding="utf-8") as server, client(server) as conn:
        done = await conn.run("x", input="grün\nß", encoding="utf-8")
        assert (done.stdout, done.stderr) == ("GRÜN\nSS", "ß")


# --- how it ends -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("result", "status", "log"),
    [
        (None, 0, ""),
        (0, 0, ""),
        (3, 3, ""),
        (2**32 - 1, 2**32 - 1, ""),
        (2**32, 255, "no exit status"),
        (-1, 255, "no exit status"),
        (True, 255, "no exit status"),
        ("0", 255, "no exit status"),
        (ValueError("broken"), 255, "ValueError: broken"),
    ],
)
async def test_return_values(result: Any, status: int, log: str, caplog: pytest.LogCaptureFixture) -> None:
    async def handler(process: ServerProcess) -> Any:
        if isinstance(result, Exception):
            raise result
        return result

    async with serving(handler) as server, client(server) as conn:
        assert (await conn.run("x")).exit_status == status
    faults = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert len(faults) == bool(log)
    assert log in caplog.text


async def test_exit_and_exit_signal() -> None:
    async def handler(process: ServerProcess) -> int | None:
        for wrong in (-1, 2**32, True, "1"):
            with pytest.raises(LocalError):
                process.exit(wrong)  # type: ignore[arg-type]
        with pytest.raises(LocalError):
            process.exit_signal("")
        process.exit(5)
        if process.command == "signal":
            process.exit_signal("SIGSEGV", core_dumped=True, message="oh")
        elif process.command == "return":
            return 6
        elif process.command == "again":
            process.exit_signal("TERM")
            process.exit(7)
        return None

    async with serving(handler) as server, client(server) as conn:
        assert (await conn.run("status")).exit_status == 5
        assert (await conn.run("return")).exit_status == 6
        assert (await conn.run("again")).exit_status == 7
        done = await conn.run("signal")
        assert (done.exit_status, done.exit_signal, done.returncode) == (None, "SEGV", -11)


async def test_not_a_coroutine_function(caplog: pytest.LogCaptureFixture) -> None:
    def handler(process: ServerProcess) -> int:
        return 0

    async with serving(handler) as server, client(server) as conn:
        assert (await conn.run("x")).exit_status == 255


async def test_status_eof_and_close_come_behind_all_output() -> None:
    async def handler(process: ServerProcess) -> int:
        process.stdout.write(bytes(300_000))  # more than fits the window
        process.stderr.write(b"last words")
        return 9

    config = TransportConfig(window_size=50_000)
    async with serving(handler) as server, client(server, config=config) as conn:
        kinds: list[int] = []
        take = conn.link.receive

        def watch(payload: bytes) -> Event | None:
            kinds.append(payload[0])
            return take(payload)

        conn.link.receive = watch
        done = await conn.run("x")
        assert (len(done.stdout), done.stderr, done.exit_status) == (300_000, b"last words", 9)
    ends = [kind for kind in kinds if kind in (MSG_CHANNEL_EOF, MSG_CHANNEL_CLOSE, MSG_CHANNEL_REQUEST)]
    assert ends == [MSG_CHANNEL_REQUEST, MSG_CHANNEL_EOF, MSG_CHANNEL_CLOSE]
    assert kinds.count(MSG_CHANNEL_DATA) > 3
    assert kinds[-3:] == ends


async def test_closing_an_output_stream_keeps_the_status() -> None:
    """The habit of StreamWriter users: close and wait_closed."""

    async def handler(process: ServerProcess) -> int:
        process.stderr.close()
        process.stdout.write(b"x")
        process.stdout.close()
        await process.stdout.wait_closed()
        with pytest.raises(LocalError):
            process.stdout.write(b"y")
        return 4

    async with serving(handler) as server, client(server) as conn:
        done = await conn.run("x")
        assert (done.stdout, done.exit_status) == (b"x", 4)


async def test_unread_input_does_not_keep_it_from_ending() -> None:
    async def handler(process: ServerProcess) -> int:
        return 1

    async with serving(handler) as server, client(server) as conn:
        assert (await conn.run("x", input=bytes(3_000_000))).exit_status == 1


class Ends:
    """How handlers came to their ends."""

    def __init__(self) -> None:
        self.started = asyncio.Event()
        self.cancelled = asyncio.Event()

    async def handler(self, process: ServerProcess) -> None:
        self.started.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.cancelled.set()
            raise


@pytest.mark.parametrize("how", ["channel", "connection", "abort"])
async def test_the_client_going_away_cancels_the_handler(how: str, caplog: pytest.LogCaptureFixture) -> None:
    ends = Ends()
    async with serving(ends.handler) as server, client(server) as conn:
        process = await conn.create_process("x")
        await ends.started.wait()
        if how == "channel":
            process.close()
        elif how == "connection":
            conn.close()
        else:
            conn.abort()
        await ends.cancelled.wait()
        if how == "channel":
            await process.wait_closed()
    assert caplog.records == []


async def test_a_handler_that_notices_first_is_not_a_fault(caplog: pytest.LogCaptureFixture) -> None:
    async def handler(process: ServerProcess) -> None:
        while True:
            process.stdout.write(bytes(65536))
            await process.stdout.drain()

    async with serving(handler) as server, client(server) as conn:
        process = await conn.create_process("x")
        await process.stdout.readexactly(100_000)
        process.close()
        await process.wait_closed()
        conn.abort()
    assert caplog.records == []


async def test_a_handler_that_cancels_itself() -> None:
    async def handler(process: ServerProcess) -> None:
        raise asyncio.CancelledError

    async with serving(handler) as server, client(server) as conn:
        assert (await conn.run("x")).exit_status == 255


# --- how much ----------------------------------------------------------------------------------------


async def test_a_mebibyte_through_an_echo() -> None:
    data = os.urandom(2**20)
    async with serving(echo) as server, client(server) as conn:
        done = await conn.run("x", input=data)
        assert hashlib.sha256(done.stdout).digest() == hashlib.sha256(data).digest()


async def test_a_slow_reader_suspends_the_handler() -> None:
    """Window, high-water mark, one write: that is all a handler can be ahead of its client."""
    written = 0
    size = 16 * 2**20

    async def handler(process: ServerProcess) -> None:
        nonlocal written
        for _ in range(size // 65536):
            process.stdout.write(bytes(65536))
            written += 65536
            await process.stdout.drain()

    config = TransportConfig(window_size=2**20)
    async with serving(handler) as server, client(server, config=config) as conn:
        process = await conn.create_process("x")
        before = -1
        while written > before:
            before = written
            await asyncio.sleep(0.05)
        assert 2**20 <= written <= 2**20 + 3 * 65536
        assert len(await process.stdout.read()) == size
        assert await process.wait() == 0


async def test_a_slow_handler_shuts_the_clients_window() -> None:
    release = asyncio.Event()

    async def handler(process: ServerProcess) -> int:
        await release.wait()
        return len(await process.stdin.read()) % 251

    async with serving(handler, config=TransportConfig(window_size=2**17)) as server, client(server) as conn:
        process = await conn.create_process("x")
        process.stdin.write(bytes(2**20))
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await process.stdin.drain()
        (connection,) = server.connections
        assert connection.mux is not None
        (channel,) = connection.mux.channels.values()
        assert channel.buffered() == 2**17
        release.set()
        process.stdin.write_eof()
        assert await process.wait() == 2**20 % 251


async def test_many_sessions_and_too_many() -> None:
    async with serving(echo, limits=ServerLimits(max_channels=20)) as server, client(server) as conn:
        results = await asyncio.gather(*(conn.run("x", input=bytes([n]) * 5000) for n in range(20)))
        assert [done.stdout for done in results] == [bytes([n]) * 5000 for n in range(20)]
        processes = [await conn.create_process("x") for _ in range(20)]
        with pytest.raises(ChannelOpenError) as caught:
            await conn.create_process("x")
        assert caught.value.reason == 4
        for process in processes:
            await process.leave()
        assert (await conn.run("x", input=b"room again")).stdout == b"room again"
