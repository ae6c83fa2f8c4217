"""The few commands of all scenarios: a shell runs them at a server peer, and our server does the same for a client."""

from __future__ import annotations

import asyncio
import functools
import hashlib
import itertools
import re
from collections.abc import Awaitable, Callable

import sshtransport

__all__ = (
    "ECHO",
    "LATE",
    "SINK",
    "WORK",
    "after_input",
    "counted",
    "digest_of",
    "exit_with",
    "handle",
    "slow_sink",
    "source",
)

CHUNK = 65536

WORK = "cat; echo oops >&2; exit 7"
ECHO = "cat"
SINK = "sha256sum"
LATE = 'exec >&- 2>&-; read x; test "$x" = late && exit 7'  # ends its output, and reads on


def source(size: int) -> str:
    """Writes that many bytes of :func:`counted`: no two places of it look alike."""
    return f"seq 99999999 | head -c {size}"


def after_input(size: int) -> str:
    """As :func:`source`, after the end of its input."""
    return f"cat >/dev/null; seq 99999999 | head -c {size}"


def slow_sink(seconds: float) -> str:
    """Reads nothing for so long, then everything."""
    return f"sleep {seconds:g}; sha256sum"


def exit_with(status: int) -> str:
    return f"exit {status}"


@functools.cache
def counted(size: int) -> bytes:
    """What ``seq`` writes, cut to a size: 1, 2, 3 and so on, a line each."""
    text = bytearray()
    for first in itertools.count(1, 100_000):
        if len(text) >= size:
            break
        text += "".join(f"{number}\n" for number in range(first, first + 100_000)).encode()
    return bytes(text[:size])


@functools.cache
def digest_of(size: int) -> str:
    """SHA-256 of :func:`counted`, in hex."""
    return hashlib.sha256(counted(size)).hexdigest()


# --- the same at our server ----------------------------------------------------------------------------


async def _echo(process: sshtransport.ServerProcess) -> int:
    while data := await process.stdin.read(CHUNK):
        process.stdout.write(data)
        await process.stdout.drain()
    return 0


async def _work(process: sshtransport.ServerProcess) -> int:
    await _echo(process)
    process.stderr.write(b"oops\n")
    return 7


async def _sink(process: sshtransport.ServerProcess) -> int:
    digest = hashlib.sha256()
    while data := await process.stdin.read(CHUNK):
        digest.update(data)
    process.stdout.write(f"{digest.hexdigest()}  -\n".encode())
    return 0


async def _slow_sink(process: sshtransport.ServerProcess, seconds: str) -> int:
    await asyncio.sleep(float(seconds))
    return await _sink(process)


async def _source(process: sshtransport.ServerProcess, size: str) -> int:
    data = memoryview(counted(int(size)))
    for start in range(0, len(data), CHUNK):
        process.stdout.write(data[start : start + CHUNK])
        await process.stdout.drain()
    return 0


async def _after_input(process: sshtransport.ServerProcess, size: str) -> int:
    while await process.stdin.read(CHUNK):
        pass
    return await _source(process, size)


async def _late(process: sshtransport.ServerProcess) -> int:
    process.stdout.write_eof()
    return 7 if await process.stdin.readline() == b"late\n" else 1


async def _exit(process: sshtransport.ServerProcess, status: str) -> int:
    return int(status)


_Served = Callable[..., Awaitable[int]]
_COMMANDS: tuple[tuple[str, _Served], ...] = (
    (re.escape(WORK), _work),
    (re.escape(ECHO), _echo),
    (re.escape(SINK), _sink),
    (re.escape(LATE), _late),
    (r"seq 99999999 \| head -c (\d+)", _source),
    (r"cat >/dev/null; seq 99999999 \| head -c (\d+)", _after_input),
    (r"sleep ([\d.]+); sha256sum", _slow_sink),
    (r"exit (\d+)", _exit),
)


async def handle(process: sshtransport.ServerProcess) -> int:
    """The handler of our server: knows the commands above by their text, and no others."""
    for pattern, serve in _COMMANDS:
        if found := re.fullmatch(pattern, process.command or ""):
            return await serve(process, *found.groups())
    process.stderr.write(b"not a command of the harness\n")
    return 127
