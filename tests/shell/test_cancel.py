"""Cancelled at each await, a call leaves nothing behind; dropped objects and loops that end do so quietly."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import sys
import weakref
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

import pytest

import sshtransport
from sshtransport import (
    INSECURE_ACCEPT_ANY_HOST_KEY,
    ChannelOpenError,
    ClientConnection,
    ServerConnection,
    ServerProcess,
    TransportConfig,
)
from sshtransport.wire import string
from tests.support.cancel import cancelled_at, open_files, settled
from tests.support.peers import fake_server
from tests.support.private_keys import private_key
from tests.support.servers import HOST, PASSWORD, USERNAME, client, echo, serving

LATE = pytest.mark.parametrize("late", [False, True], ids=["waiting", "late"])


async def allow(connection: ServerConnection, host: str, port: int) -> bool:
    return True


async def accept_all(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(await reader.read(100))
    writer.close()


async def handler(process: ServerProcess) -> int:
    if process.command == "sleep":
        await asyncio.Event().wait()
    return await echo(process)


@contextlib.asynccontextmanager
async def connected() -> AsyncIterator[ClientConnection]:
    async with serving(handler, allow_direct_tcpip=allow) as server, client(server) as connection:
        yield connection


async def is_fine(connection: ClientConnection) -> None:
    """It can be used, and the channels of what was cancelled are closed at both ends."""
    assert (await connection.run("x", input=b"fine")).stdout == b"fine"
    mux = connection.mux
    assert mux is not None
    await settled(lambda: not mux.channels)
    assert not connection._ports
    assert not connection._globals
    assert not connection._pongs


async def cancel_everywhere(
    connection: ClientConnection, work: Callable[[], Coroutine[Any, Any, Any]], late: bool
) -> int:
    """At the first await, the second, ... until there is none left; returns how many there were."""
    steps = 0
    cancelled = True
    tasks = asyncio.all_tasks()
    while cancelled:
        steps += 1
        cancelled, _ = await cancelled_at(work(), steps, late=late)
        await is_fine(connection)
        await settled(lambda: asyncio.all_tasks() <= tasks)
    return steps - 1


@LATE
async def test_run(late: bool) -> None:
    async with connected() as connection:
        assert await cancel_everywhere(connection, lambda: connection.run("x", input=bytes(100_000)), late) >= 3


@LATE
async def test_run_with_everything(late: bool) -> None:
    async with connected() as connection:
        options: dict[str, Any] = {"pty": True, "env": {"A": "b"}, "timeout": 20, "check": True, "encoding": "utf-8"}
        assert await cancel_everywhere(connection, lambda: connection.run("x", input="text", **options), late) >= 3


@LATE
async def test_a_process_block(late: bool) -> None:
    async def work() -> None:
        async with connection.create_process("x") as process:
            process.stdin.write(bytes(2**22))
            await process.stdin.drain()
            await process.stdout.readexactly(10)
            process.stdin.write_eof()
            while await process.stdout.read(2**20):
                pass
            await process.wait()

    async with connected() as connection:
        assert await cancel_everywhere(connection, work, late) >= 4


@LATE
async def test_a_process_that_is_awaited(late: bool) -> None:
    """Without a block: who is cancelled before he has the process cannot close it."""

    async def work() -> None:
        process = await connection.create_process("sleep", env={"A": "b"})
        process.close()
        await process.wait_closed()

    async with connected() as connection:
        assert await cancel_everywhere(connection, work, late) == 3


@LATE
async def test_a_connection_through_it(late: bool) -> None:
    async def work() -> None:
        async with connection.open_connection(HOST, port) as (reader, writer):
            writer.write(b"there and back")
            await writer.drain()
            assert await reader.read() == b"there and back"

    async with fake_server(accept_all) as port, connected() as connection:
        assert await cancel_everywhere(connection, work, late) >= 2


@LATE
async def test_requests(late: bool) -> None:
    async def work() -> None:
        await connection.ping()
        await connection.global_request("nobody@example.org")
        await connection.rekey()

    async with connected() as connection:
        assert await cancel_everywhere(connection, work, late) == 3


@LATE
@pytest.mark.parametrize("tunnelled", [False, True], ids=["direct", "tunnelled"])
async def test_connect(late: bool, tunnelled: bool, tmp_path: Any) -> None:
    """No task, no socket, nothing at the server either."""

    async def verifier(host: str, port: int, key: object) -> bool:
        await asyncio.sleep(0)
        return True

    async def password() -> str:
        await asyncio.sleep(0)
        return PASSWORD

    async def work(tunnel: ClientConnection | None) -> None:
        async with client(
            server, known_hosts=(), host_key_verifier=verifier, password=password, tunnel=tunnel
        ) as connection:
            await connection.ping()

    async with serving(handler, allow_direct_tcpip=allow) as server, contextlib.AsyncExitStack() as stack:
        outer = await stack.enter_async_context(client(server)) if tunnelled else None
        await settled(lambda: len(server.connections) == tunnelled)
        tasks, files = asyncio.all_tasks(), open_files()
        steps = 0
        cancelled = True
        while cancelled:
            steps += 1
            cancelled, _ = await cancelled_at(work(outer), steps, late=late)
            await settled(lambda: len(server.connections) == tunnelled)
            await settled(lambda: asyncio.all_tasks() <= tasks and open_files() <= files)
        assert steps > 8
        if outer is not None:
            await is_fine(outer)


@LATE
async def test_packet_streams(late: bool) -> None:
    async def serve(stream: sshtransport.PacketStream) -> None:
        async for payload in stream:
            await stream.send(b"\x06" + payload[1:])

    request = b"\x05" + string(b"ssh-userauth")

    async def work() -> None:
        async with sshtransport.open_packet_stream(
            HOST, server.port, known_hosts=INSECURE_ACCEPT_ANY_HOST_KEY
        ) as stream:
            await stream.send(request)
            assert await stream.receive() == b"\x06" + request[1:]
            await stream.rekey()

    async with await sshtransport.start_packet_server(serve, HOST, 0, host_keys=[private_key("ssh-ed25519")]) as server:
        tasks, files = asyncio.all_tasks(), open_files()
        steps = 0
        cancelled = True
        while cancelled:
            steps += 1
            cancelled, _ = await cancelled_at(work(), steps, late=late)
            await settled(lambda: asyncio.all_tasks() <= tasks and open_files() <= files)
        assert steps > 4


# --- late answers -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("answer", ["accept", "refuse"])
async def test_a_late_answer_to_an_open(answer: str) -> None:
    """Known bugs J 126: nobody waits for the confirmation any more: it is answered with CLOSE."""
    asked, go = asyncio.Event(), asyncio.Event()

    async def slow(connection: ServerConnection, host: str, port: int) -> bool:
        asked.set()
        await go.wait()
        return answer == "accept"

    async with (
        fake_server(accept_all) as port,
        serving(handler, allow_direct_tcpip=slow) as server,
        client(server) as connection,
    ):
        task = asyncio.create_task(connection.open_connection(HOST, port))
        await asked.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert connection.mux is not None
        assert len(connection.mux.channels) == 1
        go.set()
        await is_fine(connection)
        (peer,) = server.connections
        assert peer.mux is not None
        await settled(lambda: not peer.mux.channels if peer.mux else True)
        if answer == "refuse":
            with pytest.raises(ChannelOpenError):
                await connection.open_connection(HOST, port)


async def test_an_end_while_an_open_that_nobody_wants_is_out() -> None:
    asked = asyncio.Event()

    async def never(connection: ServerConnection, host: str, port: int) -> bool:
        asked.set()
        await asyncio.Event().wait()
        return True

    async with serving(handler, allow_direct_tcpip=never) as server, client(server) as connection:
        task = asyncio.create_task(connection.open_connection(HOST, 9))
        await asked.wait()
        task.cancel()
        connection.abort()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert not connection._ports


# --- dropped, and loops that end ----------------------------------------------------------------------------


async def test_dropped_processes() -> None:
    """Known bugs J 130: finalizers do nothing; a connection outlives what was dropped of it."""
    async with connected() as connection:
        for _ in range(5):
            process = await connection.create_process("sleep")
            process.stdin.write(bytes(2**22))
            cycle: list[Any] = [process]
            cycle.append(cycle)
            gone = weakref.ref(process)
            del process, cycle
            gc.collect()
            assert gone() is None
        assert (await connection.run("x", input=b"on")).stdout == b"on"


async def test_dropped_waiters_of_a_connection_that_ended() -> None:
    """Nobody looks at their exceptions, and nothing says "never retrieved"."""
    async with serving(handler) as server, client(server) as connection:
        process = await connection.create_process("sleep")
        process.stdin.write(bytes(2**22))
        works = [
            process.stdout.read(1),
            process.wait(),
            process.stdin.drain(),
            connection.ping(),
            connection.global_request("x@example.org"),
            connection.open_connection(HOST, 9),
            connection.rekey(),
        ]
        tasks = [asyncio.create_task(work) for work in works]
        await asyncio.sleep(0)
        for task in tasks:
            task.cancel()
        connection.abort()
        await asyncio.wait(tasks)
        del tasks, works
        gc.collect()


LOOPS: list[Any] = [pytest.param(asyncio.new_event_loop, id="asyncio")]
with contextlib.suppress(ImportError):
    import uvloop

    LOOPS.append(pytest.param(uvloop.new_event_loop, id="uvloop"))


@pytest.mark.parametrize("loop_factory", LOOPS)
@pytest.mark.parametrize("moment", ["idle", "reading", "writing", "rekeying", "logging in"])
@pytest.mark.filterwarnings("ignore:unclosed (transport|resource):ResourceWarning")
@pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")
def test_a_loop_that_ends(loop_factory: Any, moment: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Known bugs J 136: asyncio.run over open connections reports no exception, and destroys no pending task."""
    reported: list[dict[str, Any]] = []
    unraisable: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", unraisable.append)

    async def main() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context))
        keys = [private_key("ssh-ed25519")]
        passwords = sshtransport.Passwords({USERNAME: PASSWORD})
        server = await sshtransport.listen(handler, HOST, 0, host_keys=keys, authenticator=passwords)
        config = TransportConfig(rekey_seconds=0.01)
        opening = client(server, config=config, keepalive_interval=0.01)
        if moment == "logging in":
            task = asyncio.create_task(opening)
            await settled(lambda: bool(server.connections))
            tasks.append(task)
            return
        connection = await opening
        process = await connection.create_process("sleep")
        if moment == "reading":
            tasks.append(asyncio.create_task(process.stdout.read()))
        elif moment == "writing":
            process.stdin.write(bytes(2**23))
            tasks.append(asyncio.create_task(process.stdin.drain()))
        elif moment == "rekeying":
            tasks.append(asyncio.create_task(connection.rekey()))
        await asyncio.sleep(0)

    tasks: list[asyncio.Task[Any]] = []
    with asyncio.Runner(loop_factory=loop_factory) as runner:
        runner.run(main())
    tasks.clear()
    gc.collect()
    assert reported == []
    assert [hook for hook in unraisable if not isinstance(hook.exc_value, ResourceWarning)] == []
