"""Connecting by name: addresses side by side, the first that answers wins, and no socket is left over."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from typing import Any

import pytest

from sshtransport.asyncio import dial as module
from sshtransport.asyncio.dial import dial
from tests.support.cancel import cancelled_at, open_files, settled

HOST = "127.0.0.1"


@contextlib.asynccontextmanager
async def listening() -> AsyncIterator[int]:
    server = await asyncio.start_server(lambda reader, writer: writer.close(), HOST, 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


async def closed_port() -> int:
    async with listening() as port:
        pass
    return port


def resolve_to(monkeypatch: pytest.MonkeyPatch, *targets: tuple[str, int]) -> None:
    """Have every name stand for these addresses."""
    loop = asyncio.get_running_loop()
    found = [(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", target) for target in targets]

    class Resolving:
        def __getattr__(self, name: str) -> Any:
            return getattr(loop, name)

        async def getaddrinfo(self, *args: Any, **options: Any) -> Any:
            return found

    monkeypatch.setattr(asyncio, "get_running_loop", lambda: Resolving())


async def test_an_address_needs_no_resolver() -> None:
    async with listening() as port:
        sock = await dial(HOST, port, local_addr=(HOST, 0))
        assert sock.getpeername() == (HOST, port)
        sock.close()


async def test_a_dead_address_first(monkeypatch: pytest.MonkeyPatch) -> None:
    dead = await closed_port()
    async with listening() as port:
        resolve_to(monkeypatch, (HOST, dead), (HOST, port))
        sock = await dial("name.example.org", 22)
        assert sock.getpeername() == (HOST, port)
        sock.close()


async def test_nobody_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = await closed_port(), await closed_port()
    resolve_to(monkeypatch, (HOST, first), (HOST, second))
    with pytest.raises(OSError, match="no address answered"):
        await dial("name.example.org", 22)
    resolve_to(monkeypatch, (HOST, first))
    with pytest.raises(ConnectionRefusedError):
        await dial("name.example.org", 22)
    resolve_to(monkeypatch)
    with pytest.raises(OSError, match="no address found"):
        await dial("name.example.org", 22)


async def test_a_silent_address_does_not_hold_up_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    """The silent one is given up and its attempt cancelled once another has answered."""
    attempt, cancelled = module._attempt, asyncio.Event()

    async def silent_first(loop: Any, address: Any, local: Any) -> socket.socket:
        if address[4][1] == 1:
            try:
                await asyncio.Event().wait()
            finally:
                cancelled.set()
        return await attempt(loop, address, local)

    monkeypatch.setattr(module, "_attempt", silent_first)
    monkeypatch.setattr(module, "_DELAY", 0.01)
    async with listening() as port:
        resolve_to(monkeypatch, (HOST, 1), (HOST, port))
        sock = await dial("name.example.org", 22)
        assert sock.getpeername() == (HOST, port)
        assert cancelled.is_set()
        sock.close()


async def test_families_take_turns() -> None:
    six = [(socket.AF_INET6, socket.SOCK_STREAM, 0, "", (f"::{number}", 22, 0, 0)) for number in range(3)]
    four = [(socket.AF_INET, socket.SOCK_STREAM, 0, "", ("127.0.0.1", 22))]
    assert module._interleaved([*six, *four]) == [six[0], four[0], six[1], six[2]]


async def test_the_local_address() -> None:
    async with listening() as port:
        with socket.create_server((HOST, 0)) as taken:
            mine = taken.getsockname()[1]
        sock = await dial(HOST, port, local_addr=(HOST, mine))
        assert sock.getsockname() == (HOST, mine)
        sock.close()
        with pytest.raises(OSError, match="no local address of the family"):
            await dial(HOST, port, local_addr=("::1", 0))


async def test_a_name_of_this_machine() -> None:
    """The real resolver: localhost is often ::1 first, where nobody listens."""
    async with listening() as port:
        sock = await dial("localhost", port)
        assert sock.getpeername() == (HOST, port)
        sock.close()


@pytest.mark.parametrize("late", [False, True])
async def test_cancelled_at_every_step(late: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even the socket of a winner stays open, when cancelled while the others are being given up."""
    attempt = module._attempt

    async def slowly_given_up(loop: Any, address: Any, local: Any) -> socket.socket:
        if address[4][1] != 1:
            return await attempt(loop, address, local)
        try:
            return await asyncio.Event().wait()  # type: ignore[return-value]
        finally:
            await asyncio.sleep(0)

    monkeypatch.setattr(module, "_attempt", slowly_given_up)
    monkeypatch.setattr(module, "_DELAY", 0.001)
    dead = await closed_port()
    async with listening() as port:
        resolve_to(monkeypatch, (HOST, dead), (HOST, 1), (HOST, port))
        tasks, files = asyncio.all_tasks(), open_files()
        steps = 0
        cancelled = True
        while cancelled:
            steps += 1
            cancelled, sock = await cancelled_at(dial("name.example.org", 22), steps, late=late)
        assert sock is not None
        sock.close()
        assert steps > 3
        await settled(lambda: asyncio.all_tasks() <= tasks and open_files() <= files)
