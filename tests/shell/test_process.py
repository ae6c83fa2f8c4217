"""Remote commands at a real sshd, and at our own server where sshd cannot be made to do it."""

from __future__ import annotations

import asyncio
import contextlib
import struct
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

import sshtransport
from sshtransport import (
    ChannelOpenError,
    ClientConnection,
    LocalError,
    OpenFailureReason,
    ProcessError,
    PtyRequest,
    ServerProcess,
    SSHError,
)
from tests.support.cancel import settled
from tests.support.openssh import Sshd
from tests.support.servers import client, echo, serving

MAX_SESSIONS = 10  # what sshd allows when nothing is said

#: Ends when nobody listens any more. sshd answers CLOSE only when the command has ended.
ENDLESS = "while echo on; do sleep 0.02; done"


@pytest.fixture(scope="module")
def sshd() -> Iterator[Sshd]:
    with Sshd() as server:
        yield server


@contextlib.asynccontextmanager
async def at(sshd: Sshd) -> AsyncIterator[ClientConnection]:
    async with sshtransport.connect(
        sshd.host, sshd.port, username=sshd.username, client_keys=[sshd.user_key], known_hosts=sshd.known_hosts
    ) as connection:
        yield connection


sshd_only = pytest.mark.sshd


# --- how a command ends -------------------------------------------------------------------------------------


@sshd_only
async def test_status_and_signals(sshd: Sshd) -> None:
    async with at(sshd) as connection:
        done = await connection.run("echo out; echo err >&2; exit 7")
        assert (done.stdout, done.stderr) == (b"out\n", b"err\n")
        assert (done.exit_status, done.exit_signal, done.returncode) == (7, None, 7)
        done = await connection.run("kill -TERM $$")
        assert (done.exit_status, done.exit_signal, done.returncode) == (None, "TERM", -15)
        with pytest.raises(ProcessError, match="signal KILL") as caught:
            await connection.run("kill -KILL $$", check=True)
        error = caught.value
        assert (error.exit_signal, error.returncode, error.command) == ("KILL", -9, "kill -KILL $$")
        with pytest.raises(ProcessError, match="status 3") as caught:
            await connection.run("echo out; echo err >&2; exit 3", check=True)
        assert (caught.value.stdout, caught.value.stderr, caught.value.exit_status) == (b"out\n", b"err\n", 3)
        assert (await connection.run("true", check=True)).returncode == 0
        assert (await connection.run(b"printf '\\377'")).stdout == b"\xff"


@pytest.mark.parametrize(
    ("exit_signal", "returncode"), [("TERM", -15), ("XYZ@example.org", None), ("_DFL", None), (None, None)]
)
async def test_ends_of_other_kinds(exit_signal: str | None, returncode: int | None) -> None:
    """Known bugs G 100: a signal that this system does not know, and no word at all."""

    async def handler(process: ServerProcess) -> None:
        if exit_signal is not None:
            process.exit_signal(exit_signal)
            return
        assert process.connection.mux is not None
        for channel in list(process.connection.mux.channels.values()):
            channel.close()
        process.connection.link.settle()
        await asyncio.Event().wait()

    async with serving(handler) as server, client(server) as connection:
        done = await connection.run("x")
        assert (done.exit_status, done.exit_signal, done.returncode) == (None, exit_signal, returncode)
        with pytest.raises(ProcessError):
            done.check_returncode()
        process = await connection.create_process("x")
        assert await process.wait() is returncode or returncode is not None
        assert (process.returncode, process.exit_signal) == (returncode, exit_signal)


async def test_send_signal() -> None:
    """At our own server: an sshd delivers signals only when it runs as root and the user is not."""

    async def handler(process: ServerProcess) -> None:
        signals: asyncio.Queue[str] = asyncio.Queue()
        process.set_signal_handler(signals.put_nowait)
        process.stdout.write(b"ready\n")
        while (name := await signals.get()) == "USR1":
            process.stdout.write(b"got it\n")
        process.exit_signal(name)

    async with serving(handler) as server, client(server) as connection:
        for send, name in (("terminate", "TERM"), ("kill", "KILL")):
            async with connection.create_process("x") as process:
                assert await process.stdout.readline() == b"ready\n"
                assert (process.exit_status, process.exit_signal, process.returncode) == (None, None, None)
                process.send_signal("USR1")
                process.send_signal("SIGUSR1")  # "SIG" in front does no harm
                assert await process.stdout.readline() == b"got it\n"
                getattr(process, send)()
                await process.wait()
                assert process.exit_signal == name
                assert await process.stdout.read() == b"got it\n"


@sshd_only
async def test_the_exit_does_not_wait_for_us(sshd: Sshd) -> None:
    """What was written can be read after the end; a status is there once wait returns."""
    async with at(sshd) as connection, connection.create_process("printf abc; printf def >&2; exit 4") as process:
        assert await process.wait() == 4
        assert (await process.stdout.read(), await process.stderr.read()) == (b"abc", b"def")
        assert process.stdout.at_eof()


# --- what a command is given --------------------------------------------------------------------------------


@sshd_only
async def test_environment(sshd: Sshd) -> None:
    async with at(sshd) as connection:
        done = await connection.run('printf "%s|" "$A" "$B" "$LANG"', env={"A": "a b", "B": "ä€", "LANG": "C"})
        assert done.stdout == "a b|ä€|C|".encode()


@sshd_only
async def test_a_refused_environment_is_no_error() -> None:
    async with Sshd(options={"AcceptEnv": "LANG"}) as sshd, at(sshd) as connection:
        assert (await connection.run('echo "$A"', env={"A": "1"})).stdout == b"\n"


@sshd_only
async def test_a_terminal(sshd: Sshd) -> None:
    async with at(sshd) as connection:
        done = await connection.run("echo $TERM; stty size; tty", pty=True)
        lines = done.stdout.split()
        assert lines[:3] == [b"xterm-256color", b"24", b"80"]
        assert lines[3].startswith(b"/dev/")
        done = await connection.run("echo $TERM; stty size", pty=PtyRequest("vt100", 132, 50))
        assert done.stdout.split() == [b"vt100", b"50", b"132"]
        done = await connection.run("tty; echo $?", pty=False)
        assert done.stdout.split()[-1] == b"1"


@sshd_only
async def test_resize(sshd: Sshd) -> None:
    async with (
        at(sshd) as connection,
        connection.create_process("stty -echo; stty size; read x; stty size", pty="xterm") as process,
    ):
        assert await process.stdout.readline() == b"24 80\r\n"
        process.resize(100, 30)
        process.stdin.write(b"\n")
        assert await process.stdout.readline() == b"30 100\r\n"


@sshd_only
async def test_a_shell(sshd: Sshd) -> None:
    async with at(sshd) as connection:
        done = await connection.run(input=b"echo in a shell; exit 6\n")
        assert done.stdout.endswith(b"in a shell\n")
        assert done.exit_status == 6


@sshd_only
async def test_sftp(sshd: Sshd) -> None:
    """The subsystem answers INIT with VERSION (draft-ietf-secsh-filexfer-02, section 4)."""
    async with at(sshd) as connection, connection.create_process(subsystem="sftp") as process:
        process.stdin.write(struct.pack(">IBI", 5, 1, 3))
        size, kind, version = struct.unpack(">IBI", await process.stdout.readexactly(9))
        assert (kind, version) == (2, 3)
        await process.stdout.readexactly(size - 5)


@sshd_only
async def test_refused(sshd: Sshd) -> None:
    async with at(sshd) as connection:
        with pytest.raises(ChannelOpenError, match="subsystem refused"):
            await connection.create_process(subsystem="no-such-thing")
        with pytest.raises(LocalError):
            await connection.create_process("a command", subsystem="sftp")
        assert (await connection.run("echo on")).stdout == b"on\n"


async def test_a_refused_terminal() -> None:
    async with serving(echo, authenticator=NoTerminal()) as server, client(server) as connection:
        with pytest.raises(ChannelOpenError, match="terminal refused"):
            await connection.run("x", pty=True)
        assert (await connection.run("x", input=b"on")).stdout == b"on"
        assert connection.mux is not None
        mux = connection.mux
        await settled(lambda: not mux.channels)


class NoTerminal:
    def check_password(self, username: str, password: str, info: Any) -> sshtransport.Grant:
        return sshtransport.Grant(permit_pty=False)


# --- run ----------------------------------------------------------------------------------------------------


@sshd_only
async def test_input_and_text(sshd: Sshd) -> None:
    async with at(sshd) as connection:
        data = bytes(range(256)) * 5000
        assert (await connection.run("cat", input=data)).stdout == data
        for nothing in (None, b""):  # EOF at once
            assert (await connection.run("cat; echo end", input=nothing)).stdout == b"end\n"
        done = await connection.run("cat; echo fehlér >&2", input="täxt€", encoding="utf-8")
        assert (done.stdout, done.stderr) == ("täxt€", "fehlér\n")
        done = await connection.run("printf 'a\\377b'", encoding="utf-8", errors="replace")
        assert done.stdout == "a\ufffdb"
        with pytest.raises(UnicodeDecodeError):
            await connection.run("printf '\\377'", encoding="utf-8")
        with pytest.raises(LocalError):
            await connection.run("cat", input="text without an encoding")
        with pytest.raises(LocalError):
            await connection.run("cat", input=b"bytes", encoding="utf-8")


@sshd_only
async def test_a_timeout(sshd: Sshd) -> None:
    async with at(sshd) as connection:
        with pytest.raises(TimeoutError) as caught:
            await connection.run(ENDLESS, timeout=0.1)
        assert not isinstance(caught.value, SSHError)
        assert connection.mux is not None
        mux = connection.mux
        await settled(lambda: not mux.channels)
        assert (await connection.run("echo on", timeout=20)).stdout == b"on\n"


@sshd_only
async def test_too_much_output(sshd: Sshd) -> None:
    async with at(sshd) as connection:
        assert len((await connection.run("head -c 1000 /dev/zero", max_output=1000)).stdout) == 1000
        for command in ("head -c 1001 /dev/zero", "cat /dev/zero", "cat /dev/zero >&2"):
            with pytest.raises(ProcessError) as caught:
                await connection.run(command, max_output=1000)
            assert caught.value.limit == 1000
            assert 1000 < len(caught.value.stdout) + len(caught.value.stderr) <= 2**22
        assert (await connection.run("echo on")).stdout == b"on\n"


@sshd_only
@pytest.mark.parametrize("command", ["exit 3", "head -c 10; exit 3", "exec <&-; echo closed; exit 3"])
async def test_a_command_that_does_not_want_its_input(sshd: Sshd, command: str) -> None:
    """It ends while megabytes wait for its window: that is no error, and its status counts."""
    async with at(sshd) as connection:
        done = await connection.run(command, input=bytes(2**24))
        assert done.exit_status == 3
        assert done.stdout in (b"", bytes(10), b"closed\n")
        assert connection.mux is not None
        mux = connection.mux
        await settled(lambda: not mux.channels)


# --- many ---------------------------------------------------------------------------------------------------


@sshd_only
async def test_fifty_in_a_row(sshd: Sshd) -> None:
    """Known bugs G 90: sshd takes ten sessions at once; each way out has to give its session back."""
    async with at(sshd) as connection:
        for number in range(50):
            done = await connection.run(f"cat; exit {number}", input=b"%d" % number)
            assert (done.stdout, done.exit_status) == (b"%d" % number, number)


@sshd_only
async def test_fifty_that_are_given_up(sshd: Sshd) -> None:
    """Known bugs G 90: cancelled, dropped at an error, over the limit, left early."""
    async with at(sshd) as connection:
        assert connection.mux is not None
        mux = connection.mux
        for number in range(13):
            task = asyncio.create_task(connection.run(ENDLESS, input=b"x"))
            for _ in range(number):
                await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            with pytest.raises(ProcessError):
                await connection.run("cat /dev/zero", max_output=1)
            with pytest.raises(ZeroDivisionError):
                async with connection.create_process("cat"):
                    raise ZeroDivisionError
            async with connection.create_process(ENDLESS):
                pass
            await settled(lambda: len(mux.channels) < MAX_SESSIONS - 1)
        assert (await connection.run("echo on")).stdout == b"on\n"


@sshd_only
async def test_fifty_at_once() -> None:
    async with Sshd(options={"MaxSessions": 100}) as sshd, at(sshd) as connection:
        works = [connection.run("cat", input=b"%d" % number) for number in range(50)]
        results = await asyncio.gather(*works)
        assert [done.stdout for done in results] == [b"%d" % number for number in range(50)]
        assert connection.mux is not None
        mux = connection.mux
        await settled(lambda: not mux.channels)


@sshd_only
async def test_one_too_many(sshd: Sshd) -> None:
    """Known bugs J 131: a clean error with the reason, and the others are not touched."""
    async with at(sshd) as connection, contextlib.AsyncExitStack() as stack:
        processes = [await stack.enter_async_context(connection.create_process("cat")) for _ in range(MAX_SESSIONS)]
        for _ in range(3):
            with pytest.raises(ChannelOpenError) as caught:
                await connection.create_process("cat")
            assert caught.value.reason == OpenFailureReason.CONNECT_FAILED
        await processes[0].leave()
        async with connection.create_process("cat") as another:
            processes[0] = another
            for number, process in enumerate(processes):
                process.stdin.write(b"%d" % number)
                process.stdin.write_eof()
            assert [await process.stdout.read() for process in processes] == [b"%d" % n for n in range(MAX_SESSIONS)]


# --- leaving ------------------------------------------------------------------------------------------------


@sshd_only
async def test_leaving_does_not_wait_for_the_exit(sshd: Sshd, monkeypatch: pytest.MonkeyPatch) -> None:
    """sshd keeps the session as long as the command runs; our time limit ends the wait, and nothing else breaks."""
    monkeypatch.setattr("sshtransport.asyncio.process._CLOSE_TIMEOUT", 0.05)
    async with at(sshd) as connection:
        async with connection.create_process("echo ready; read x; exec sleep 600") as process:
            assert await process.stdout.readline() == b"ready\n"
            process.stdin.write(b"\n")
        assert process.returncode is None
        assert (await connection.run("echo on")).stdout == b"on\n"


@sshd_only
async def test_after_the_block(sshd: Sshd) -> None:
    async with at(sshd) as connection:
        async with connection.create_process("cat") as process:
            pass
        assert connection.mux is not None
        assert not connection.mux.channels
        process.send_signal("TERM")  # too late, and of no effect
        process.resize(80, 24)
        process.close()
        await process.wait_closed()
        await process.leave()
        assert await process.stdout.read() == b""


async def test_leaving_waits_for_the_peers_close_only_so_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sshtransport.asyncio.process._CLOSE_TIMEOUT", 0.05)
    async with serving(echo) as server, client(server) as connection:
        (peer,) = server.connections
        async with connection.create_process("x"):
            assert peer.link.transport is not None
            peer.link.transport.pause_reading()
        assert connection.mux is not None
        assert len(connection.mux.channels) == 1
        peer.link.transport.resume_reading()
        mux = connection.mux
        await settled(lambda: not mux.channels)


async def test_communicate_with_a_process() -> None:
    async def handler(process: ServerProcess) -> int:
        process.stdout.write(b"out")
        process.stderr.write(b"err")
        return 2

    async with serving(handler) as server, client(server) as connection:
        process = await connection.create_process("x", encoding="utf-8")
        assert await process.communicate() == (b"out", b"err")
        assert process.exit_status == 2
