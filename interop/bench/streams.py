"""Client work for sshtransport and asyncssh: the same calls, since their streams have the same methods."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from typing import Any

from .jobs import CHUNK, HOST, Job, Measured, stopwatch

Connect = Callable[[Job], Any]


def connect_ours(job: Job) -> Any:
    import sshtransport

    return sshtransport.connect(
        HOST,
        job.port,
        username=job.username,
        client_keys=[job.file("user")],
        known_hosts=job.file("known_hosts"),
        config=sshtransport.TransportConfig(ciphers=[job.cipher]),
    )


def connect_asyncssh(job: Job) -> Any:
    import asyncssh

    return asyncssh.connect(
        HOST,
        job.port,
        username=job.username,
        client_keys=[job.file("user")],
        known_hosts=job.file("known_hosts"),
        encryption_algs=[job.cipher],
        compression_algs=["none"],
        config=None,
        agent_path=None,
    )


async def download(connection: Any, job: Job) -> None:
    async with connection.create_process(f"head -c {job.size} /dev/zero", encoding=None) as process:
        total = 0
        while data := await process.stdout.read(CHUNK):
            total += len(data)
    assert total == job.size, total


async def upload(connection: Any, job: Job) -> None:
    await _write(connection, bytes(CHUNK), job.size // CHUNK)


async def messages(connection: Any, job: Job) -> None:
    await _write(connection, bytes(1024), job.count)


async def _write(connection: Any, block: bytes, times: int) -> None:
    async with connection.create_process("wc -c", encoding=None) as process:
        for _ in range(times):
            process.stdin.write(block)
            await process.stdin.drain()
        process.stdin.write_eof()
        assert int(await process.stdout.read()) == times * len(block)


async def echo(connection: Any, job: Job) -> None:
    message = bytes(64)
    async with connection.create_process("cat", encoding=None) as process:
        for _ in range(job.count):
            process.stdin.write(message)
            await process.stdout.readexactly(64)
        process.stdin.write_eof()


async def channels(connection: Any, job: Job) -> None:
    """``count`` at once, each of them with a MiB down."""

    async def one() -> None:
        async with connection.create_process("head -c 1048576 /dev/zero", encoding=None) as process:
            assert len(await process.stdout.read()) == 1 << 20

    await asyncio.gather(*(one() for _ in range(job.count)))


async def connects(connect: Connect, job: Job) -> None:
    for _ in range(job.count):
        async with connect(job):
            pass


async def storm(connect: Connect, job: Job) -> None:
    """``count`` at once."""

    async def one() -> None:
        async with connect(job):
            pass

    await asyncio.gather(*(one() for _ in range(job.count)))


async def hold(connect: Connect, job: Job) -> None:
    """``count`` idle connections, one after the other; a line when they are there, and the end when our input ends."""
    held = [await connect(job) for _ in range(job.count)]
    print("ready", flush=True)
    await asyncio.to_thread(sys.stdin.read)
    for connection in held:
        connection.close()
        await connection.wait_closed()


ON_A_CONNECTION: dict[str, Callable[[Any, Job], Awaitable[None]]] = {
    "download": download,
    "upload": upload,
    "messages": messages,
    "echo": echo,
    "channels": channels,
}
WITH_CONNECTIONS: dict[str, Callable[[Connect, Job], Awaitable[None]]] = {
    "connect": connects,
    "storm": storm,
    "hold": hold,
}


async def client(connect: Connect, work: str, job: Job) -> Measured:
    """Without imports and, for what is done on one connection, without the login."""
    if work in WITH_CONNECTIONS:
        if work != "hold":
            async with connect(job):
                pass  # what is done once a process is not counted
        passed = stopwatch()
        await WITH_CONNECTIONS[work](connect, job)
        return passed()
    async with connect(job) as connection:
        passed = stopwatch()
        await ON_A_CONNECTION[work](connection, job)
        return passed()
