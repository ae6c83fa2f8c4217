"""Forwarding: a channel and a TCP connection coupled, each as slow as the other (RFC 4254, section 7)."""

from __future__ import annotations

import asyncio
import contextlib

from ..errors import ConnectionLost
from .ports import ChannelPort

__all__ = ("splice",)

_CHUNK = 65_536


async def splice(port: ChannelPort, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Carry bytes both ways until both directions have ended, then close both sides.

    An EOF is passed on, and the other direction goes on; an error on one side ends both.
    """
    legs = (
        asyncio.ensure_future(_to_stream(port, writer)),
        asyncio.ensure_future(_to_channel(port, reader)),
    )
    try:
        # The peer's CLOSE ends both directions, whatever the TCP side still has to say.
        with contextlib.suppress(OSError, ConnectionLost):
            await asyncio.gather(*legs)
    finally:
        for leg in legs:
            leg.cancel()
        await asyncio.gather(*legs, return_exceptions=True)
        port.close()
        writer.close()
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
    if writer.can_write_eof():
        writer.write_eof()


async def _to_channel(port: ChannelPort, reader: asyncio.StreamReader) -> None:
    while data := await reader.read(_CHUNK):
        port.write(data, 0)
        await port.drain()
    port.write_eof()
