"""TCP peers that are no SSH servers, stop half-way, or cut what passes through them."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from sshtransport import SSHTransport
from sshtransport.constants import MSG_SERVICE_ACCEPT, MSG_SERVICE_REQUEST, MSG_USERAUTH_FAILURE, MSG_USERAUTH_REQUEST
from sshtransport.wire import boolean, byte, string
from tests.support.private_keys import private_key

HOST = "127.0.0.1"

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def reset(transport: Any) -> None:
    """Close a loop's transport with RST: what lies in its buffers is thrown away."""
    sock = transport.get_extra_info("socket")
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    transport.abort()


@contextlib.asynccontextmanager
async def fake_server(serve: Serve) -> AsyncIterator[int]:
    """Calls ``serve`` for each TCP connection; gives the port. Connections are closed when the block is left."""
    tasks: set[asyncio.Task[None]] = set()

    async def run(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            with contextlib.suppress(OSError):
                await serve(reader, writer)
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    def accepted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tasks.add(asyncio.create_task(run(reader, writer)))

    server = await asyncio.start_server(accepted, HOST, 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class HalfServer:
    """A server that does its part up to some point, and then reads on without a word.

    ``stop``: "accept", "ident", "kexinit", "keys" (no answer to SERVICE_REQUEST), "service" (no
    answer to a login) or "never" (a partial success, whatever is tried). ``asked`` is set when a
    login request has come.
    """

    def __init__(self, stop: str) -> None:
        self.stop = stop
        self.asked = asyncio.Event()
        self._came = False
        self._gone = asyncio.Event()

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._came = True
        core = SSHTransport("server", host_keys=[private_key("ssh-ed25519")])
        first = core.data_to_send()
        if self.stop != "accept":
            writer.write(first[: first.index(b"\n") + 1] if self.stop == "ident" else first)
        try:
            while data := await reader.read(65_536):
                if self.stop in ("keys", "service", "never"):
                    self._turn(core, data)
                    writer.write(core.data_to_send())
        finally:
            self._gone.set()

    async def left(self) -> None:
        """Until the client has closed its socket. On a busy machine a deadline can pass before it had one."""
        if self._came:
            await self._gone.wait()

    def _turn(self, core: SSHTransport, data: bytes) -> None:
        for item in core.receive_data(data):
            if isinstance(item, bytes) and item[0] == MSG_SERVICE_REQUEST and self.stop != "keys":
                core.send(byte(MSG_SERVICE_ACCEPT) + item[1:])
            if isinstance(item, bytes) and item[0] == MSG_USERAUTH_REQUEST:
                self.asked.set()
                if self.stop == "never":
                    core.send(byte(MSG_USERAUTH_FAILURE) + string(b"keyboard-interactive") + boolean(True))


class Proxy:
    """Passes bytes between a client and a server on loopback, and can be told to stop.

    ``cut_after`` bytes of the server's have passed, ``cut`` is done to the client: "fin", "rst" or
    "silence". ``piece`` passes on so many bytes at a time, each in a write of its own.
    """

    def __init__(self, port: int, *, cut_after: int | None = None, cut: str = "fin", piece: int = 65_536) -> None:
        self.target = port
        self.port = 0
        self.cut_after = cut_after
        self.cut = cut
        self.piece = piece
        self.passed = 0  # bytes from the server
        self.writers: list[asyncio.StreamWriter] = []  # the clients' sides
        self.silent = asyncio.Event()  # nothing passes any more, in either direction

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writers.append(writer)
        theirs, there = await asyncio.open_connection(HOST, self.target)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._up(reader, there))
                await self._down(theirs, writer)
        finally:
            there.close()
            with contextlib.suppress(OSError):
                await there.wait_closed()

    async def _up(self, reader: asyncio.StreamReader, there: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(self.piece):
                if not self.silent.is_set():
                    there.write(data)
                    await there.drain()
            there.write_eof()

    async def _down(self, theirs: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            left = self.piece if self.cut_after is None else min(self.piece, self.cut_after - self.passed)
            if left == 0:
                break
            data = await theirs.read(left)
            if not data:
                writer.close()
                return
            if not self.silent.is_set():
                self.passed += len(data)
                writer.write(data)
                await writer.drain()
        if self.cut == "silence":
            self.silent.set()
            await asyncio.Event().wait()
        if self.cut == "rst":
            reset(writer.transport)
        else:
            writer.write_eof()

    async def __aenter__(self) -> Proxy:
        self._server: Any = fake_server(self._serve)
        self.port = await self._server.__aenter__()
        return self

    async def __aexit__(self, *error: Any) -> None:
        await self._server.__aexit__(*error)
