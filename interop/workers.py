"""One measurement in a process of its own: ``python -m interop.workers PEER WORK JSON`` prints CPU and wall seconds.

CPU is user and system time of this process (for ``ssh``: of the program), without imports and, for
transfers and echoes, without the login.
"""

from __future__ import annotations

import asyncio
import json
import resource
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass
from typing import Any

CHUNK = 262_144


@dataclass(frozen=True)
class Job:
    """Where the server is, and how much to do."""

    host: str
    port: int
    username: str
    key: str
    known_hosts: str
    cipher: str
    mib: int
    count: int


def cpu(who: int = resource.RUSAGE_SELF) -> float:
    usage = resource.getrusage(who)
    return usage.ru_utime + usage.ru_stime


async def measured(work: Awaitable[None]) -> tuple[float, float]:
    start, wall = cpu(), time.perf_counter()
    await work
    return cpu() - start, time.perf_counter() - wall


# --- sshtransport and asyncssh: the same work through the same kind of calls -----------------------


def _connect_ours(job: Job) -> Any:
    import sshtransport

    return sshtransport.connect(
        job.host,
        job.port,
        username=job.username,
        client_keys=[job.key],
        known_hosts=job.known_hosts,
        config=sshtransport.TransportConfig(ciphers=[job.cipher]),
    )


def _connect_asyncssh(job: Job) -> Any:
    import asyncssh

    return asyncssh.connect(
        job.host,
        job.port,
        username=job.username,
        client_keys=[job.key],
        known_hosts=job.known_hosts,
        encryption_algs=[job.cipher],
        compression_algs=["none"],
        config=None,
        agent_path=None,
    )


async def _download(connection: Any, job: Job) -> None:
    async with connection.create_process(f"head -c {job.mib << 20} /dev/zero", encoding=None) as process:
        total = 0
        while data := await process.stdout.read(CHUNK):
            total += len(data)
        assert total == job.mib << 20, total


async def _upload(connection: Any, job: Job) -> None:
    block = bytes(CHUNK)
    async with connection.create_process("wc -c", encoding=None) as process:
        for _ in range(job.mib * 2**20 // CHUNK):
            process.stdin.write(block)
            await process.stdin.drain()
        process.stdin.write_eof()
        assert int(await process.stdout.read()) == job.mib << 20


async def _echo(connection: Any, job: Job) -> None:
    message = bytes(64)
    async with connection.create_process("cat", encoding=None) as process:
        for _ in range(job.count):
            process.stdin.write(message)
            await process.stdout.readexactly(64)
        process.stdin.write_eof()


async def _connects(connect: Callable[[Job], Any], job: Job) -> None:
    for _ in range(job.count):
        async with connect(job):
            pass


async def _python_peer(connect: Callable[[Job], Any], work: str, job: Job) -> tuple[float, float]:
    if work == "connect":
        async with connect(job):
            pass  # what is done once a process is not counted
        return await measured(_connects(connect, job))
    run = {"download": _download, "upload": _upload, "echo": _echo}[work]
    async with connect(job) as connection:
        return await measured(run(connection, job))


# --- the ssh program ---------------------------------------------------------------------------------


def _ssh(work: str, job: Job) -> tuple[float, float]:
    command = ["ssh", "-F", "/dev/null", "-p", str(job.port), "-l", job.username, "-i", job.key, "-c", job.cipher]
    for option in (f"UserKnownHostsFile={job.known_hosts}", "IdentitiesOnly=yes", "BatchMode=yes", "LogLevel=ERROR"):
        command += ["-o", option]
    command.append(job.host)
    start, wall = cpu(resource.RUSAGE_CHILDREN), time.perf_counter()
    if work == "download":
        subprocess.run([*command, f"head -c {job.mib << 20} /dev/zero"], stdout=subprocess.DEVNULL, check=True)
    else:
        process = subprocess.Popen([*command, "wc -c"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
        assert process.stdin is not None
        block = bytes(CHUNK)
        for _ in range(job.mib * 2**20 // CHUNK):
            process.stdin.write(block)
        process.stdin.close()
        assert process.wait() == 0
    return cpu(resource.RUSAGE_CHILDREN) - start, time.perf_counter() - wall


def run(peer: str, work: str, job: Job) -> tuple[float, float]:
    """CPU and wall seconds of one piece of work."""
    if peer == "ssh":
        return _ssh(work, job)
    if peer == "sshtransport+uvloop":
        import uvloop

        return uvloop.run(_python_peer(_connect_ours, work, job))
    connect = {"sshtransport": _connect_ours, "asyncssh": _connect_asyncssh}[peer]
    return asyncio.run(_python_peer(connect, work, job))


def measure(peer: str, work: str, job: Job) -> tuple[float, float]:
    """The same in a process of its own."""
    command = [sys.executable, "-m", "interop.workers", peer, work, json.dumps(asdict(job))]
    output = subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout
    result = json.loads(output)
    return result["cpu"], result["wall"]


if __name__ == "__main__":
    _cpu, _wall = run(sys.argv[1], sys.argv[2], Job(**json.loads(sys.argv[3])))
    print(json.dumps({"cpu": _cpu, "wall": _wall}))
