"""Connections that leave from the other end of a client's connection: ProxyJump and local forwards."""

from __future__ import annotations

import asyncio
import logging
import socket
from types import TracebackType
from typing import Any

from ..connection import ChannelTarget, DirectTCPIP, encode_open
from ..errors import SSHError
from .connection import SSHConnection
from .forwarding import open_streams, splice, start_splice
from .ports import ChannelPort

__all__ = ("LocalForward", "forward_local", "tunnel_socket")

_logger = logging.getLogger("sshtransport.forwarding")


async def tunnel_socket(connection: SSHConnection, host: str, port: int) -> socket.socket:
    """A socket whose other end is a TCP connection from the server to ``host``, ``port`` (RFC 4254, section 7.2).

    Raises:
        ChannelOpenError: the server refused, or could not connect.
    """
    channel = await connection.open_port(*encode_open(DirectTCPIP(host, port)))
    near, far = socket.socketpair()
    try:
        near.setblocking(False)
        far.setblocking(False)
        reader, writer = await open_streams(far)
    except BaseException:
        near.close()
        channel.close()
        raise
    connection.keep(start_splice(channel, reader, writer))
    return near


class LocalForward:
    """A listening socket whose connections go through an SSH connection. ``port`` is where it listens."""

    def __init__(self, server: asyncio.Server, tasks: set[asyncio.Task[None]]) -> None:
        self._server = server
        self._tasks = tasks
        self.sockets = tuple(server.sockets)
        self.port: int = self.sockets[0].getsockname()[1]

    def close(self) -> None:
        """Stop listening, and cut the connections that go through."""
        self._server.close()
        for task in self._tasks:
            task.cancel()

    async def wait_closed(self) -> None:
        """Until the connections have ended."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    async def __aenter__(self) -> LocalForward:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
        await self.wait_closed()


async def forward_local(connection: SSHConnection, host: str, port: int, target: ChannelTarget) -> LocalForward:
    """Listen on ``host``, ``port``; each connection becomes a channel to ``target``."""
    loop = asyncio.get_running_loop()
    tasks: set[asyncio.Task[None]] = set()

    async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        channel: ChannelPort | None = None
        try:
            channel = await connection.open_port(*encode_open(target))
        except SSHError as error:
            _logger.info("forward to %r failed: %s", target, error)
        finally:
            if channel is None:
                writer.close()
        if channel is not None:
            await splice(channel, reader, writer)

    def accepted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = loop.create_task(carry(reader, writer))
        tasks.add(task)
        connection.keep(task)
        task.add_done_callback(tasks.discard)
        task.add_done_callback(lambda _: writer.close())  # also when it is cancelled before it has begun

    server: Any = await asyncio.start_server(accepted, host, port)
    forward = LocalForward(server, tasks)
    connection.at_end(forward.close)
    return forward
