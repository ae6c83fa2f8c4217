"""Readers and writers of channels: what asyncio's own promise, in bytes and in text, and back-pressure."""

from __future__ import annotations

import asyncio
import contextlib
import tracemalloc
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from typing import Any

import pytest

from sshtransport import (
    ClientConnection,
    ClientProcess,
    ConnectionLost,
    LocalError,
    ServerProcess,
    TransportConfig,
)
from sshtransport.constants import CHANNEL_HIGH_WATER
from tests.support.servers import client, echo, serving

Handler = Callable[[ServerProcess], Awaitable[int | None]]


@contextlib.asynccontextmanager
async def running(handler: Handler, encoding: str | None = None, **options: Any) -> AsyncIterator[ClientProcess]:
    async with serving(handler) as server, client(server, **options) as connection:
        errors = options.pop("errors", "strict")
        async with connection.create_process("x", encoding=encoding, errors=errors) as process:
            yield process


def saying(*parts: bytes) -> Handler:
    """A command that writes the parts as packets of their own, and ends."""

    async def handler(process: ServerProcess) -> None:
        for part in parts:
            process.stdout.write(part)
            await process.stdout.drain()

    return handler


class Script:
    """A command that says what it is told, when it is told."""

    def __init__(self) -> None:
        self._parts: asyncio.Queue[bytes | None] = asyncio.Queue()

    async def __call__(self, process: ServerProcess) -> None:
        while (part := await self._parts.get()) is not None:
            process.stdout.write(part)
            await process.stdout.drain()

    async def say(self, part: bytes, connection: Any) -> None:
        """Have it said, and wait until it has arrived."""
        self._parts.put_nowait(part)
        await asyncio.sleep(0)
        await connection.ping()

    def end(self) -> None:
        self._parts.put_nowait(None)


# --- reading, as asyncio.StreamReader reads -----------------------------------------------------------------


async def test_read() -> None:
    script = Script()
    async with running(script) as process:
        stdout = process.stdout
        await script.say(b"abcdef", process.connection)
        assert await stdout.read(0) == b""
        assert await stdout.read(2) == b"ab"
        assert await stdout.read(100) == b"cdef"  # what is there, without waiting for more
        assert not stdout.at_eof()
        await script.say(b"g", process.connection)
        script.end()
        assert await stdout.read() == b"g"
        assert stdout.at_eof()
        for size in (-1, 1, 100):
            assert await stdout.read(size) == b""
        assert await stdout.readexactly(0) == b""


async def test_readexactly() -> None:
    async with running(saying(b"ab", b"cd", b"ef")) as process:
        stdout = process.stdout
        assert await stdout.readexactly(3) == b"abc"
        with pytest.raises(asyncio.IncompleteReadError) as caught:
            await stdout.readexactly(4)
        assert (caught.value.partial, caught.value.expected) == (b"def", 4)
        assert stdout.at_eof()
        with pytest.raises(LocalError):
            await stdout.readexactly(-1)


async def test_readuntil() -> None:
    async with running(saying(b"one\r", b"\ntwo\r\r\nthree")) as process:
        stdout = process.stdout
        assert await stdout.readuntil(b"\r\n") == b"one\r\n"  # also where a packet ends between the two
        assert await stdout.readuntil(b"\r\n") == b"two\r\r\n"
        with pytest.raises(asyncio.IncompleteReadError) as caught:
            await stdout.readuntil(b"\r\n")
        assert (caught.value.partial, caught.value.expected) == (b"three", None)
        with pytest.raises(LocalError):
            await stdout.readuntil(b"")


async def test_lines_and_their_limit() -> None:
    limit = 2**16
    fits = bytes(limit - 1) + b"\n"
    async with running(saying(fits, bytes(limit) + b"\nnext\n")) as process:
        stdout = process.stdout
        assert await stdout.readline() == fits
        with pytest.raises(asyncio.LimitOverrunError) as caught:
            await stdout.readuntil(b"\n")
        assert caught.value.consumed == limit
        assert await stdout.readexactly(10) == bytes(10)  # nothing was lost
        assert await stdout.readexactly(limit - 10) == bytes(limit - 10)
        assert await stdout.readline() == b"\n"
        assert await stdout.readline() == b"next\n"
        assert await stdout.readline() == b""


async def test_a_line_that_is_too_long() -> None:
    async with running(saying(bytes(2**16), b"rest\nnext\n")) as process:
        with pytest.raises(ValueError, match="limit"):
            await process.stdout.readline()
        assert await process.stdout.readline() == b"rest\n"
        assert [line async for line in process.stdout] == [b"next\n"]


async def test_one_reader_at_a_time() -> None:
    script = Script()
    async with running(script) as process:
        first = asyncio.create_task(process.stdout.readline())
        await asyncio.sleep(0)
        for work in (
            process.stdout.read(1),
            process.stdout.read(),
            process.stdout.readexactly(1),
            process.communicate(),
        ):
            with pytest.raises(LocalError, match="another coroutine"):
                await work
        await script.say(b"one\ntwo\n", process.connection)
        assert await first == b"one\n"  # the others took nothing from it
        assert await process.stdout.readline() == b"two\n"
        script.end()


@pytest.mark.parametrize("encoding", [None, "utf-8"])
async def test_a_cancelled_read_loses_nothing(encoding: str | None) -> None:
    """As with asyncio.StreamReader: wait_for around any of them can be tried again."""
    script = Script()

    def made(data: bytes) -> Any:
        return data if encoding is None else data.decode()

    async with running(script, encoding) as process:
        stdout = process.stdout
        works: list[Callable[[], Coroutine[Any, Any, Any]]] = [
            lambda: stdout.readexactly(6),
            lambda: stdout.readuntil(made(b"f")),
            stdout.readline,
            stdout.read,
        ]
        for work in works:
            task = asyncio.create_task(work())
            await script.say(b"abc", process.connection)
            await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await script.say(b"def", process.connection)
            assert await stdout.readexactly(6) == made(b"abcdef")
        script.end()


async def test_two_streams_at_once() -> None:
    async def handler(process: ServerProcess) -> None:
        for number in range(100):
            process.stdout.write(b"o%d\n" % number)
            process.stderr.write(b"e%d\n" % number)
        await process.stdout.drain()

    async with running(handler) as process:
        out, err = await asyncio.gather(process.stdout.read(), process.stderr.read())
        assert out.splitlines() == [b"o%d" % number for number in range(100)]
        assert err.splitlines() == [b"e%d" % number for number in range(100)]


# --- text ---------------------------------------------------------------------------------------------------

TEXT = "aä€𝄞\nzwei ß\nende"


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16-le", "utf-8-sig"])
@pytest.mark.parametrize("size", [1, 2, 3, 5])
async def test_characters_cut_by_packets(encoding: str, size: int) -> None:
    data = TEXT.encode(encoding)
    parts = [data[start : start + size] for start in range(0, len(data), size)]
    async with running(saying(*parts), encoding) as process:
        assert await process.stdout.readexactly(2) == "aä"
        assert await process.stdout.read(1) == "€"
        assert await process.stdout.readline() == "𝄞\n"
        assert await process.stdout.read() == "zwei ß\nende"
        assert process.stdout.at_eof()


async def test_bytes_that_are_no_text() -> None:
    script = Script()
    async with running(script, "utf-8") as process:
        await script.say(b"ok\xff", process.connection)
        with pytest.raises(UnicodeDecodeError):
            await process.stdout.read(10)
        script.end()


async def test_more_characters_than_were_asked_for() -> None:
    """A broken character that was waiting comes out together with the next one."""
    script = Script()
    async with (
        serving(script) as server,
        client(server) as connection,
        connection.create_process("x", encoding="utf-8", errors="replace") as process,
    ):
        task = asyncio.create_task(process.stdout.readexactly(1))
        await script.say(b"\xf0\x9f", connection)
        await script.say(b"AB", connection)
        assert await task == "\ufffd"
        assert await process.stdout.read(1) == "A"
        assert await process.stdout.readexactly(1) == "B"
        await script.say(b"\xf0\x9f", connection)
        task = asyncio.create_task(process.stdout.read(1))
        await connection.ping()
        script.end()
        assert await task == "\ufffd"
        assert await process.stdout.read(1) == ""
        assert process.stdout.at_eof()


async def test_half_a_character_at_the_end() -> None:
    script = Script()
    async with (
        serving(script) as server,
        client(server) as connection,
        connection.create_process("x", encoding="utf-8", errors="replace") as process,
    ):
        task = asyncio.create_task(process.stdout.read(10))
        await script.say(b"\xf0\x9f", connection)
        task.cancel()
        script.end()
        await process.wait()
        assert not process.stdout.at_eof()  # its replacement is still to come
        assert await process.stdout.read() == "\ufffd"
        assert process.stdout.at_eof()


# --- writing ------------------------------------------------------------------------------------------------


async def test_kinds_of_data() -> None:
    async with running(echo) as process:
        stdin = process.stdin
        array = bytearray(b"cd")
        for data in (b"ab", array, memoryview(b"xefx")[1:3], b""):
            stdin.write(data)
        array[:] = b"--"  # what can change is copied
        stdin.writelines([b"g", b"h"])
        stdin.write_eof()
        assert await process.stdout.read() == b"abcdefgh"
        assert stdin.can_write_eof()
        with pytest.raises(LocalError):
            stdin.write(b"more")


async def test_text_and_bytes_are_not_mixed() -> None:
    async with running(echo, "utf-8") as process:
        with pytest.raises(LocalError):
            process.stdin.write(b"bytes")
        process.stdin.write("täxt")
        process.stdin.write_eof()
        assert await process.stdout.read() == "täxt"
    async with running(echo) as process:
        with pytest.raises(LocalError):
            process.stdin.write("text")


async def test_after_the_end() -> None:
    """What is written to a channel that the peer has closed is dropped, and drain says so."""

    async def handler(process: ServerProcess) -> None:
        return None

    async with running(handler) as process:
        await process.wait()
        assert process.stdin.is_closing()
        process.stdin.write(bytes(10))
        process.stdin.write_eof()
        with pytest.raises(ConnectionLost):
            await process.stdin.drain()
        process.stdin.close()
        await process.stdin.wait_closed()


async def test_extra_info() -> None:
    async with running(echo) as process:
        stdin = process.stdin
        assert stdin.get_extra_info("connection") is process.connection
        assert stdin.get_extra_info("channel").type == "session"
        assert stdin.get_extra_info("peername") == process.connection.info.peer_address
        assert stdin.get_extra_info("socket").fileno() > 0
        assert stdin.get_extra_info("nothing", 5) == 5


# --- back-pressure ------------------------------------------------------------------------------------------


def holding(connection: ClientConnection, number: int = 0) -> int:
    """Bytes that wait in our channels, and at the socket."""
    assert connection.mux is not None and connection.link.transport is not None
    queued = sum(channel.queued for channel in connection.mux.channels.values())
    return queued + connection.link.core.pending_output + connection.link.transport.get_write_buffer_size()


@pytest.mark.parametrize("stuck", ["command", "socket"])
async def test_a_peer_that_never_reads_suspends_drain(stuck: str) -> None:
    """Known bugs G 98: the window, or the socket, is full; drain waits and what waits here is bounded."""
    go = asyncio.Event()

    async def sleeper(process: ServerProcess) -> int:
        await go.wait()
        return len(await process.stdin.read()) % 256

    async with serving(sleeper) as server, client(server) as connection:
        process = await connection.create_process("x")
        (peer,) = server.connections
        assert peer.link.transport is not None
        if stuck == "socket":
            peer.link.transport.pause_reading()
        written = 0

        async def pour() -> None:
            nonlocal written
            while written < 2**26:
                process.stdin.write(bytes(32_768))
                written += 32_768
                await process.stdin.drain()
            process.stdin.write_eof()

        task = asyncio.create_task(pour())
        before = -1
        while before != written:
            before = written
            for _ in range(20):  # turns without any progress
                await asyncio.sleep(0)
        assert not task.done()
        assert written < 2**24
        assert holding(connection) <= CHANNEL_HIGH_WATER + 32_768 + 2**19
        if stuck == "command":  # others go on
            other = await connection.global_request("nobody@example.org")
            assert other == (False, b"")
        if stuck == "socket":
            peer.link.transport.resume_reading()
        go.set()
        await task
        assert await process.wait() == 2**26 % 256


async def test_drain_ends_with_the_connection() -> None:
    """Several at once: each with an exception of its own."""
    go = asyncio.Event()

    async def sleeper(process: ServerProcess) -> None:
        await go.wait()

    async with serving(sleeper) as server, client(server) as connection:
        process = await connection.create_process("x")
        process.stdin.write(bytes(2**22))
        tasks = [asyncio.create_task(process.stdin.drain()) for _ in range(3)]
        for _ in range(3):
            await connection.ping()
        assert not any(task.done() for task in tasks)
        connection.abort()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        assert [type(result) for result in results] == [ConnectionLost] * 3
        assert len({id(result) for result in results}) == 3


async def test_drain_ends_with_the_channel() -> None:
    async def closes(process: ServerProcess) -> int:
        await process.stdin.read(1)
        return 3

    async with serving(closes) as server, client(server) as connection:
        process = await connection.create_process("x")
        process.stdin.write(bytes(2**23))
        with pytest.raises(ConnectionLost, match="closed by the peer"):
            await process.stdin.drain()
        assert await process.wait() == 3


async def test_a_slow_reader_costs_a_window() -> None:
    """Known bugs G 96: memory stays within the windows, and other sessions go on meanwhile."""
    window = 2**18

    async def pour(process: ServerProcess) -> None:
        if process.command == "echo":
            await echo(process)
            return
        chunk = bytes(32_768)
        while True:
            process.stdout.write(chunk)
            await process.stdout.drain()

    async with serving(pour) as server, client(server, config=TransportConfig(window_size=window)) as connection:
        processes = [await connection.create_process("pour") for _ in range(4)]
        assert (await connection.run("echo", input=b"warm")).stdout == b"warm"
        tracemalloc.start()
        try:
            for _ in range(40):
                assert (await connection.run("echo", input=b"on" * 5000)).stdout == b"on" * 5000
                for process in processes:
                    await process.stdout.readexactly(1000)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert connection.mux is not None
        unread = [channel.buffered(0) for channel in connection.mux.channels.values()]
        assert all(size <= window for size in unread)
        assert sum(unread) > 2 * window  # the windows are really full
        assert peak < 4 * (window + CHANNEL_HIGH_WATER + 65_536) + 2**20  # both ends are in this process
        for process in processes:
            process.close()


async def test_what_is_not_read_is_dropped_at_close() -> None:
    """Leaving the block closes a channel whose window is full."""

    async def pour(process: ServerProcess) -> None:
        while True:
            process.stdout.write(bytes(32_768))
            await process.stdout.drain()

    async with serving(pour) as server, client(server) as connection:
        for _ in range(3):
            async with connection.create_process("pour") as process:
                assert await process.stdout.readexactly(100_000) == bytes(100_000)
        assert connection.mux is not None
        assert not connection.mux.channels
