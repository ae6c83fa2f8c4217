"""Server work: the ``ssh`` program is the client, and what counts is the server."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import AbstractAsyncContextManager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from tests.support.openssh import Sshd, ssh_environment

from .jobs import CHUNK, HOST, Job, Measured, stopwatch
from .programs import ssh_words

Handler = Callable[[Any], Awaitable[None]]
Start = Callable[[Handler, Job], AbstractAsyncContextManager[int]]  # gives the port
SETTLING = 0.3  # seconds that a server has for the end of connections whose clients have gone


@contextlib.asynccontextmanager
async def serve_ours(handler: Handler, job: Job) -> AsyncIterator[int]:
    import sshtransport

    server = await sshtransport.listen(
        handler,
        HOST,
        0,
        host_keys=[job.file("host")],
        authenticator=sshtransport.AuthorizedKeys(job.file("authorized_keys")),
        config=sshtransport.TransportConfig(ciphers=[job.cipher]),
    )
    async with server:
        yield server.port


@contextlib.asynccontextmanager
async def serve_asyncssh(handler: Handler, job: Job) -> AsyncIterator[int]:
    import asyncssh

    async def run(process: Any) -> None:
        await handler(process)
        process.exit(0)

    server = await asyncssh.listen(
        HOST,
        0,
        server_host_keys=[job.file("host")],
        authorized_client_keys=job.file("authorized_keys"),
        process_factory=run,
        encoding=None,
        encryption_algs=[job.cipher],
        compression_algs=["none"],
        config=None,
    )
    try:
        yield server.get_port()
    finally:
        server.close()
        await server.wait_closed()


async def _give(process: Any, job: Job) -> None:
    block = bytes(CHUNK)
    for _ in range(job.size // CHUNK):
        process.stdout.write(block)
        await process.stdout.drain()


async def _take(process: Any, job: Job) -> None:
    total = 0
    while data := await process.stdin.read(CHUNK):
        total += len(data)
    assert total == job.size, total


HANDLERS = {"serve download": _give, "serve upload": _take}


async def _start_client(job: Job, work: str, command: str) -> asyncio.subprocess.Process:
    """``ssh`` with a command; for an upload with all the bytes as its input."""
    source = f"head -c {job.size} /dev/zero" if work == "serve upload" else ":"
    words = ["sh", "-c", f'{source} | "$@" > /dev/null', "sh", *ssh_words(job, command)]
    return await asyncio.create_subprocess_exec(*words, env=ssh_environment(), stderr=asyncio.subprocess.PIPE)


async def _ended(client: asyncio.subprocess.Process) -> None:
    _, said = await client.communicate()
    assert client.returncode == 0, said.decode()


async def transfer(start: Start, work: str, job: Job) -> Measured:
    """From the start of the command, so without the login, until the client has ended."""
    begun: asyncio.Future[Callable[[], Measured]] = asyncio.get_running_loop().create_future()

    async def handler(process: Any) -> None:
        begun.set_result(stopwatch())
        await HANDLERS[work](process, job)

    async with start(handler, job) as port:
        await _ended(await _start_client(replace(job, port=port), work, "work"))
        return begun.result()()


async def idle(start: Start, work: str, job: Job) -> Measured:
    """What ``count`` idle clients add to the resident memory, for each of them."""

    async def nothing(process: Any) -> None:
        pass

    async with start(nothing, job) as port:
        async with _held(replace(job, port=port, count=20)):
            pass  # what is made once is not counted
        await asyncio.sleep(SETTLING)
        before = _resident()
        async with _held(replace(job, port=port)):
            await asyncio.sleep(SETTLING)
            return Measured(memory=(_resident() - before) / job.count)


def _resident() -> int:
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@contextlib.asynccontextmanager
async def _held(job: Job) -> AsyncIterator[None]:
    """Connections of a client process of ours."""
    words = [sys.executable, "-m", "interop.bench.worker", "sshtransport", "hold", json.dumps(asdict(job))]
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*words, stdin=pipe, stdout=pipe)
    assert process.stdin and process.stdout
    try:
        assert await process.stdout.readline() == b"ready\n"
        yield
    finally:
        process.stdin.close()
        await process.communicate()


async def sshd(work: str, job: Job) -> Measured:
    """The processes of sshd for one session, and for the command alone, which begins and ends with a pause:
    afterwards nobody could tell their times from those of what they run."""
    command = f"head -c {job.size} " + ("/dev/zero" if work == "serve download" else "> /dev/null")
    command = f"echo begun >&2; sleep 0.2; {command}; echo done >&2; sleep 1"

    async with sshd_at(Path(job.folder)) as server:
        client = await _start_client(replace(job, port=server.port), work, command)
        assert client.stderr
        assert await client.stderr.readline() == b"begun\n"
        passed, before = stopwatch(), _cpu_of(server)
        assert await client.stderr.readline() == b"done\n"
        figures = Measured(_cpu_of(server) - before, passed().wall - 0.2)
        await _ended(client)
    return figures


def sshd_at(folder: Path, **options: str) -> Sshd:
    """An sshd with the keys of a :class:`Job`."""
    keys = [(folder / "authorized_keys").read_text().strip()]
    return Sshd(host_keys=[folder / "host"], authorized_keys=keys, options=options)


def _cpu_of(server: Sshd) -> float:
    """Seconds of its processes that are sshd."""
    total = 0.0
    for pid in server.sessions():
        with contextlib.suppress(OSError):  # it may end under our eyes
            name, _, rest = Path(f"/proc/{pid}/stat").read_text().rpartition(")")
            if name.partition("(")[2].startswith("sshd"):
                user, system = rest.split()[11:13]
                total += (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")
    return total


STARTS: dict[str, Start] = {
    "sshtransport": serve_ours,
    "sshtransport+uvloop": serve_ours,
    "asyncssh": serve_asyncssh,
}
WORKS: dict[str, Callable[[Start, str, Job], Coroutine[Any, Any, Measured]]] = {
    "serve download": transfer,
    "serve upload": transfer,
    "idle": idle,
}
