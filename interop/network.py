"""A bad network between two ends: pieces of one byte, a delay, little bandwidth.

A TCP proxy in a process of its own: in the harness a byte would take a turn of a busy loop, and 64 KiB of them minutes.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from collections.abc import AsyncIterator
from dataclasses import asdict, dataclass
from pathlib import Path

from interop.model import HarnessError
from interop.processes import ChildProgram

__all__ = ("Network", "bad_network")

_CHUNK = 16384


@dataclass(frozen=True)
class Network:
    """What happens to each direction. The default is a good one."""

    single_bytes: int = 0  # so many bytes at the beginning go one by one
    gap: float = 0.0  # seconds between those
    delay: float = 0.0  # seconds on the way
    rate: float = 0.0  # bytes a second; 0: as many as there are
    waiting: int = 64  # pieces on their way: a full pipe is not read from


@contextlib.asynccontextmanager
async def bad_network(host: str, port: int, network: Network) -> AsyncIterator[int]:
    """A loopback port that leads there, through ``network``."""
    words = [sys.executable, "-m", "interop.network", host, str(port), json.dumps(asdict(network))]
    proxy = await ChildProgram.start(words, cwd=Path(__file__).parents[1])
    try:
        line = await proxy.stdout.readline()
        if not line:
            raise HarnessError(f"the proxy did not start: {(await proxy.stderr.read()).decode(errors='replace')}")
        yield int(line)
    finally:
        await proxy.close()


async def _serve(host: str, port: int, network: Network) -> None:
    """What the proxy's process does: tell the port, and go on until its standard input ends."""
    tasks: set[asyncio.Task[None]] = set()

    def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(_relay(reader, writer, host, port, network))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.to_thread(sys.stdin.read)


async def _relay(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, host: str, port: int, network: Network
) -> None:
    """Both directions of one connection, until both have ended or one broke."""
    ends = [writer]
    try:
        there_reader, there_writer = await asyncio.open_connection(host, port)
        ends.append(there_writer)
        async with asyncio.TaskGroup() as group:
            group.create_task(_Direction(reader, there_writer, network).run())
            group.create_task(_Direction(there_reader, writer, network).run())
        for end in ends:
            end.close()
            await end.wait_closed()
    except* OSError:
        pass  # one end has gone; the other one shall see that
    finally:
        for end in ends:
            end.transport.abort()


class _Direction:
    """Bytes on their way from one end to the other."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, network: Network) -> None:
        self._reader, self._writer, self._network = reader, writer, network
        self._pieces: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(network.waiting)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._take())
            group.create_task(self._give())

    async def _take(self) -> None:
        clock = asyncio.get_running_loop().time
        while data := await self._reader.read(_CHUNK):
            await self._pieces.put((clock() + self._network.delay, data))
        await self._pieces.put((clock() + self._network.delay, b""))

    async def _give(self) -> None:
        loop = asyncio.get_running_loop()
        singles = self._network.single_bytes
        while True:
            due, data = await self._pieces.get()
            if (early := due - loop.time()) > 0:
                await asyncio.sleep(early)
            if not data:
                self._writer.write_eof()
                return
            for offset in range(min(singles, len(data))):
                self._writer.write(data[offset : offset + 1])
                await self._writer.drain()
                await asyncio.sleep(self._network.gap)
            self._writer.write(data[singles:])
            await self._writer.drain()
            singles = max(0, singles - len(data))
            if self._network.rate:
                await asyncio.sleep(len(data) / self._network.rate)


if __name__ == "__main__":
    asyncio.run(_serve(sys.argv[1], int(sys.argv[2]), Network(**json.loads(sys.argv[3]))))
