"""Scenarios that differ with the role of the peer."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import sshtransport
from interop.model import Ability

from .commands import ECHO, WORK, counted, source
from .common import BLOCK, MIB, check_work, handshake, work
from .sides import Check, ClientPeer, Process, ServerPeer, Side, complete

CHANNELS = 20
AT_ONCE = 4  # key exchanges of a storm
ENOUGH = 16 * MIB  # of a transfer: more than windows and buffers take
GONE = 20.0  # seconds in which the end of a connection has to be seen
LOST = (sshtransport.ConnectionLost, sshtransport.PeerDisconnected)


@contextlib.asynccontextmanager
async def raises(*kinds: type[BaseException]) -> AsyncIterator[list[BaseException]]:
    """The block has to end with one of these, in time."""
    caught: list[BaseException] = []
    try:
        async with asyncio.timeout(GONE):
            yield caught
    except kinds as error:
        caught.append(error)
    else:
        raise Check(f"none of {', '.join(kind.__name__ for kind in kinds)} was raised")


# --- the peer is the server ----------------------------------------------------------------------------


async def channels(side: ServerPeer) -> None:
    """On one connection, all open before the first one works."""
    async with side.session() as session:
        processes = [await session.start(WORK) for _ in range(CHANNELS)]
        async with asyncio.TaskGroup() as group:
            for number, process in enumerate(processes):
                group.create_task(_one_of_many(side, process, counted(BLOCK)[number * 1000 :]))


async def _one_of_many(side: Side, process: Process, data: bytes) -> None:
    check_work(side, await complete(process, data), data)


async def kill_server(side: ServerPeer) -> None:
    """In the middle of a transfer; by us: the server goes on for others. By the peer: whoever waits gets an error."""
    if side.case.variant == "ours":
        async with side.connect() as conn:
            process = await conn.create_process(source(ENOUGH))
            await process.stdout.readexactly(MIB)
            conn.abort()
            async with raises(*LOST):
                while await process.stdout.read(MIB):
                    pass
                await process.wait()
        async with side.session() as session:
            await work(side, session)
        return
    async with contextlib.AsyncExitStack() as stack:
        async with side.engine.serve(side.peer, side.settings) as doomed:
            conn = await stack.enter_async_context(side.connect(server=doomed))
            process = await conn.create_process(ECHO)
            process.stdin.write(counted(BLOCK))
            await process.stdout.readexactly(BLOCK)
        async with raises(*LOST):
            await process.wait()
        async with asyncio.timeout(GONE):
            await conn.wait_closed()


async def wrong_host_key_of_server(side: ServerPeer) -> None:
    """Refused before anything secret is sent, or even looked up."""
    asked: list[str] = []

    async def password() -> str:
        asked.append("password")
        return side.credentials.password

    known = side.credentials.path("known_hosts_wrong")
    wrong = side.connect(known_hosts=known, password=password, client_keys=[])
    async with raises(sshtransport.HostKeyError) as caught, wrong:
        pass
    error = caught[0]
    assert isinstance(error, sshtransport.HostKeyError)
    if error.verdict != "changed" or asked:
        raise Check(f"verdict {error.verdict}; asked for {asked}")


async def require_strict_of_server(side: ServerPeer) -> None:
    config = side.config(strict_kex="require")
    if side.can(Ability.STRICT_KEX):
        async with side.session(config) as session:
            await work(side, session)
        return
    async with raises(sshtransport.NegotiationError), side.connect(config):
        pass


async def kex_storm(side: Side) -> None:
    """So many key exchanges, a few at once; each with a message both ways under the new keys."""
    left = iter(range(int(side.case.variant)))

    async def some() -> None:
        for _ in left:
            await handshake(side)

    async with asyncio.TaskGroup() as group:
        for _ in range(AT_ONCE):
            group.create_task(some())


# --- the peer is the client ----------------------------------------------------------------------------


async def kill_client(side: ClientPeer) -> None:
    """In the middle of a transfer; by us: the client ends with an error. By the peer: our server sees that."""
    async with side.serve() as ours, side.program(source(ENOUGH), ours.port) as program:
        await program.stdout.readexactly(MIB)
        conn = ours.seen[-1]
        if side.case.variant == "theirs":
            await program.kill()
        else:
            conn.abort()
            async with asyncio.timeout(GONE):
                done = await complete(program)
            if done.status == 0:
                raise Check("the client took the end of the connection for success")
        async with asyncio.timeout(GONE):
            await conn.wait_closed()


async def wrong_host_key_for_client(side: ClientPeer) -> None:
    """The client refuses our server, and does not log in."""
    async with side.serve() as ours, side.program(WORK, ours.port, right_host_key=False) as program:
        done = await complete(program)
        if done.status == 0 or ours.users.tried or ours.seen:
            raise Check(f"it went on: {done}, tried {ours.users.tried}")
        side.notes.append(f"stderr: {done.stderr.decode(errors='replace')}")


async def require_strict_of_client(side: ClientPeer) -> None:
    config = side.config(strict_kex="require")
    if side.can(Ability.STRICT_KEX):
        async with side.session(config) as session:
            await work(side, session)
        return
    async with side.serve(config) as ours, side.program(WORK, ours.port) as program:
        done = await complete(program)
        if done.status == 0 or ours.users.tried:
            raise Check(f"a client without strict KEX was let in: {done}")
