"""Channel and stream coupled: however it is cancelled, both sides are closed."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import pytest

from sshtransport.asyncio.forwarding import open_streams, splice, start_splice
from tests.support.peers import fake_server
from tests.support.servers import HOST


class IdlePort:
    """A channel on which nothing happens."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.closed = False

    def read(self, limit: int, stream: int) -> bytes:
        return b""

    def at_end(self) -> bool:
        return False

    async def wait_readable(self, stream: int) -> None:
        await asyncio.Event().wait()

    async def wait_closed(self) -> None:
        await asyncio.Event().wait()

    def close(self) -> None:
        self.closed = True


async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read()


async def test_cancelled_again_while_it_cleans_up() -> None:
    """A connection that ends cancels what is ending already: the second one once left the socket open."""
    async with fake_server(silent) as number:
        reader, writer = await asyncio.open_connection(HOST, number)
        port: Any = IdlePort()
        task = asyncio.create_task(splice(port, reader, writer))
        for _ in range(3):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.sleep(0)  # it waits for its parts to end now
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert port.closed
        assert writer.is_closing()


async def test_cancelled_before_it_has_begun() -> None:
    async with fake_server(silent) as number:
        reader, writer = await asyncio.open_connection(HOST, number)
        port: Any = IdlePort()
        task = start_splice(port, reader, writer)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert port.closed
        assert writer.is_closing()


async def test_no_streams_no_socket() -> None:
    near, far = socket.socketpair()
    far.close()
    near.setblocking(False)
    task = asyncio.ensure_future(open_streams(near))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert near.fileno() == -1
