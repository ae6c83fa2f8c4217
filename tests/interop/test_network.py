"""The bad network: bytes arrive whole and in order, late, slowly, or one by one; and ends are passed on."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from interop.network import Network, bad_network

DATA = bytes(range(256)) * 40
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@asynccontextmanager
async def through(network: Network, serve: Callable[[Streams], Awaitable[None]]) -> AsyncIterator[Streams]:
    """A connection through the network to a server that does ``serve`` for it."""
    served: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await serve((reader, writer))
        finally:
            writer.close()
            if not served.done():
                served.set_result(None)

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    async with bad_network("127.0.0.1", server.sockets[0].getsockname()[1], network) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            yield reader, writer
        finally:
            writer.close()
            server.close()
    await asyncio.wait_for(served, 5)


async def echo(streams: Streams) -> None:
    reader, writer = streams
    while data := await reader.read(1000):
        writer.write(data)
        await writer.drain()
    writer.write(b"end")


@pytest.mark.parametrize(
    "network",
    [Network(), Network(single_bytes=3000), Network(delay=0.02), Network(rate=500_000)],
    ids=["good", "single", "late", "narrow"],
)
async def test_everything_arrives_and_each_direction_ends_by_itself(network: Network) -> None:
    loop = asyncio.get_running_loop()
    async with through(network, echo) as (reader, writer):
        began = loop.time()
        writer.write(DATA)
        writer.write_eof()
        assert await reader.read() == DATA + b"end"
        took = loop.time() - began
    assert took >= 2 * network.delay - 0.005  # uvloop's clock counts whole milliseconds
    if network.rate:
        assert took >= len(DATA) / network.rate / 2


async def test_single_bytes_come_as_single_bytes() -> None:
    sizes: list[int] = []

    async def count(streams: Streams) -> None:
        while data := await streams[0].read(1000):
            sizes.append(len(data))

    async with through(Network(single_bytes=200, gap=0.004), count) as (_, writer):
        writer.write(bytes(400))
        writer.write_eof()
        await writer.drain()
        await asyncio.sleep(0)
        while sum(sizes) < 400:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
    assert sizes.count(1) > 150  # now and then two come together
    assert sum(sizes) == 400


async def test_an_end_that_goes_away_takes_the_other_with_it() -> None:
    seen = asyncio.Event()

    async def watch(streams: Streams) -> None:
        with pytest.raises(ConnectionError):
            while await streams[0].read(1000):
                streams[1].write(b"x")
                await streams[1].drain()
            raise ConnectionResetError  # seen as an end
        seen.set()

    async with through(Network(), watch) as (_, writer):
        writer.write(b"x")
        await writer.drain()
        writer.transport.abort()
        await asyncio.wait_for(seen.wait(), 5)


async def test_a_server_that_is_not_there() -> None:
    server = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    server.close()
    await server.wait_closed()
    async with bad_network("127.0.0.1", port, Network()) as entry:
        reader, writer = await asyncio.open_connection("127.0.0.1", entry)
        try:
            with contextlib.suppress(ConnectionError):  # a reset, or a plain end
                assert await reader.read() == b""
        finally:
            writer.close()
