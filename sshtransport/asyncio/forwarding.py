"""Forwarding: a channel and a TCP connection coupled, each as slow as the other (RFC 4254, section 7)."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from asyncio import FIRST_COMPLETED

from ..errors import ConnectionLost
from .ports import ChannelPort

__all__ = ("open_streams", "splice", "start_splice")

_CHUNK = 65_536


async def open_streams(sock: socket.socket) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Streams on a connected socket, which is closed when that fails or is cancelled."""
    try:
        return await asyncio.open_connection(sock=sock)
    except BaseException:
        sock.close()
        raise


def start_splice(port: ChannelPort, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> asyncio.Task[None]:
    """:func:`splice` as a task; both sides are closed also when it is cancelled before it has begun."""

    def over(task: asyncio.Task[None]) -> None:
        writer.close()
        port.close()

    task = port.loop.create_task(splice(port, reader, writer))
    task.add_done_callback(over)
    return task


async def splice(port: ChannelPort, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Carry bytes both ways until both directions have ended, then close both sides.

    An EOF is passed on, and the other direction goes on; an error on one side, or the CLOSE of the
    channel, ends both once what had come before has been passed on.
    """
    loop = port.loop
    out, back, closed = tasks = (
        loop.create_task(_to_stream(port, writer)),
        loop.create_task(_to_channel(port, reader)),
        loop.create_task(port.wait_closed()),
    )
    try:
        # What came before the channel's CLOSE is passed on; what the stream still has would go nowhere.
        while not (out.done() and (back.done() or closed.done())):
            done, _ = await asyncio.wait([task for task in tasks if not task.done()], return_when=FIRST_COMPLETED)
            if any(task.exception() for task in done):
                break
    finally:
        # Both are closed before anything is waited for: another cancellation may come while we wait.
        port.close()
        writer.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        with contextlib.suppress(OSError):
            await writer.wait_closed()


async def _to_stream(port: ChannelPort, writer: asyncio.StreamWriter) -> None:
    while True:
        data = port.read(_CHUNK, 0)
        if data:
            writer.write(data)
            await writer.drain()
        elif port.at_end():
            break
        else:
            await port.wait_readable(0)
    if not port.connection.link.is_open:
        raise ConnectionLost("the connection is closed")
    if writer.can_write_eof():
        writer.write_eof()


async def _to_channel(port: ChannelPort, reader: asyncio.StreamReader) -> None:
    while data := await reader.read(_CHUNK):
        port.write(data, 0)
        await port.drain()
    port.write_eof()
