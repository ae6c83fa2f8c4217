"""Link and what hangs on it: every way a connection can end, keepalives, rekeys by time."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

import sshtransport
from sshtransport import (
    INSECURE_ACCEPT_ANY_HOST_KEY,
    ClientConnection,
    ConnectionLost,
    DisconnectReason,
    HandshakeTimeout,
    Opening,
    PeerDisconnected,
    Phase,
    ServerProcess,
    SSHError,
    TransportConfig,
)
from sshtransport.connection import Connection
from tests.support.peers import HOST, HalfServer, Proxy, fake_server, reset
from tests.support.servers import PASSWORD, USERNAME, client, echo, loop_errors_seen, serving


def through(proxy: Proxy, **options: Any) -> Opening[ClientConnection]:
    options.setdefault("known_hosts", INSECURE_ACCEPT_ANY_HOST_KEY)
    return sshtransport.connect(
        HOST, proxy.port, username=USERNAME, client_keys=(), password=PASSWORD, timeout=None, **options
    )


# --- cut off ------------------------------------------------------------------------------------------------

PHASES = [str(phase) for phase in (Phase.IDENTIFICATION, Phase.KEX, Phase.SERVICE, Phase.AUTH)]


@pytest.mark.parametrize("cut", ["fin", "rst"])
async def test_cut_at_every_stage(cut: str) -> None:
    """One family of errors, with the phase; phases come in their order, and none is left out."""
    async with serving(echo) as server:
        async with Proxy(server.port) as proxy:
            connection = await through(proxy)
            total = proxy.passed
            connection.close()
            await connection.wait_closed()
        seen: list[str] = []
        ident = len(b"SSH-2.0-") + 5
        for size in sorted({0, 1, ident, *range(ident, total, total // 24), *range(total - 120, total, 20)}):
            async with Proxy(server.port, cut_after=size, cut=cut) as proxy:
                with pytest.raises(SSHError) as caught:
                    await through(proxy)
            assert isinstance(caught.value, ConnectionLost), size
            assert isinstance(caught.value, ConnectionError)
            assert caught.value.phase is not None
            seen.append(caught.value.phase)
        assert [phase for phase, _ in itertools.groupby(seen)] == PHASES


@pytest.mark.parametrize("cut", ["fin", "rst"])
async def test_cut_after_login(cut: str) -> None:
    async with serving(echo) as server, Proxy(server.port) as proxy, through(proxy) as connection:
        process = await connection.create_process("x")
        waiter = asyncio.create_task(process.stdout.read(1))
        assert await connection.ping() > 0
        if cut == "rst":
            reset(proxy.writers[0].transport)
        else:
            proxy.writers[0].write_eof()
        with pytest.raises(ConnectionLost) as caught:
            await waiter
        assert caught.value.phase == "connection"
        assert caught.value.__cause__ is connection.link.error
        await connection.wait_closed()
        with pytest.raises(ConnectionLost):
            await connection.ping()
        with pytest.raises(ConnectionLost):
            await process.stdin.drain()
        process.stdin.write(b"goes nowhere")
        await process.leave()


async def test_what_has_arrived_can_be_read_after_the_end() -> None:
    async def handler(process: ServerProcess) -> None:
        process.stdout.write(b"one\ntwo\nhalf")
        process.stderr.write(b"err")
        await process.stdin.read()

    async with serving(handler) as server, client(server) as connection:
        process = await connection.create_process("x")
        assert await process.stdout.readline() == b"one\n"
        assert await process.stderr.readexactly(3) == b"err"
        connection.abort()
        assert await process.stdout.readline() == b"two\n"
        with pytest.raises(ConnectionLost):
            await process.stdout.readexactly(100)
        assert await process.stdout.read(100) == b"half"
        with pytest.raises(ConnectionLost):
            await process.stdout.read(100)
        with pytest.raises(ConnectionLost):
            await process.wait()


# --- DISCONNECT ---------------------------------------------------------------------------------------------


async def test_the_reason_is_kept() -> None:
    async with serving(echo) as server, client(server) as connection:
        process = await connection.create_process("x")
        (peer,) = server.connections
        peer.close(DisconnectReason.BY_APPLICATION, "down for \x1b[31mmaintenance")
        with pytest.raises(ConnectionLost, match="maintenance") as caught:
            await process.stdout.read()
        cause = caught.value.__cause__
        assert isinstance(cause, PeerDisconnected)
        assert (cause.code, cause.description) == (11, "down for \\x1b[31mmaintenance")


async def test_a_disconnect_before_login() -> None:
    """Known bugs H 113: an exception of the family, never None, and with what the server said."""

    async def refuses(process: ServerProcess) -> None:
        pass

    class Hangs:
        async def check_password(self, username: str, password: str, info: Any) -> bool:
            info.connection.close(DisconnectReason.TOO_MANY_CONNECTIONS, "come back later")
            return False

    async with serving(refuses, authenticator=Hangs()) as server:
        with pytest.raises(PeerDisconnected) as caught:
            await client(server)
        assert (caught.value.code, caught.value.phase) == (12, "authentication")


_Stop = Callable[[], Awaitable[None]]


@contextlib.asynccontextmanager
async def by_hand(port: int) -> AsyncIterator[tuple[socket.socket, socket.socket, _Stop]]:
    """A socket for ``sock=``, and the one behind it: what passes there is passed on until the tasks are stopped."""
    loop = asyncio.get_running_loop()
    with socket.create_server((HOST, 0)) as listener:
        ours = socket.create_connection(listener.getsockname())
        theirs, _ = listener.accept()
    for sock in (ours, theirs):
        sock.setblocking(False)
    reader, writer = await asyncio.open_connection(HOST, port)

    async def up() -> None:
        while data := await loop.sock_recv(theirs, 65_536):
            writer.write(data)

    async def down() -> None:
        while data := await reader.read(65_536):
            await loop.sock_sendall(theirs, data)

    tasks = [asyncio.create_task(up()), asyncio.create_task(down())]

    async def stop() -> None:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    try:
        yield ours, theirs, stop
    finally:
        await stop()
        theirs.close()
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


async def test_a_disconnect_and_a_reset_while_we_write() -> None:
    """Known bugs J 133: what has arrived is looked at before a failed write counts."""
    async with serving(echo) as server, by_hand(server.port) as (ours, theirs, stop):
        connection = await client(server, sock=ours)
        process = await connection.create_process("x")
        (peer,) = server.connections
        await stop()
        peer.link.core.disconnect(DisconnectReason.BY_APPLICATION, "enough")
        # From here on in one turn of the loop: nothing is read before we write.
        theirs.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        theirs.sendall(peer.link.core.data_to_send())
        theirs.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        theirs.close()
        for _ in range(10):
            process.stdin.write(bytes(100))
            connection.link.settle()
        with pytest.raises(ConnectionLost) as caught:
            await process.stdout.read()
        assert isinstance(caught.value.__cause__, PeerDisconnected)
        assert caught.value.__cause__.description == "enough"
        await connection.wait_closed()


# --- our own end --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["close", "abort"])
async def test_our_own_end(how: str) -> None:
    async with serving(echo) as server, client(server) as connection:
        process = await connection.create_process("x")
        waiters = [asyncio.create_task(work) for work in (process.stdout.read(1), process.wait(), connection.rekey())]
        await asyncio.sleep(0)
        getattr(connection, how)()
        assert connection.is_closed()
        results = await asyncio.gather(*waiters, return_exceptions=True)
        assert [type(result) for result in results] == [ConnectionLost] * 3
        assert len({id(result) for result in results}) == 3
        await connection.wait_closed()
        for again in ("close", "abort", how):
            getattr(connection, again)()
        await connection.wait_closed()


async def test_a_cancelled_wait_does_not_end_the_others() -> None:
    async with serving(echo) as server, client(server) as connection:
        first, second = (asyncio.create_task(connection.wait_closed()) for _ in range(2))
        await asyncio.sleep(0)
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        connection.close()
        await second


async def test_closing_while_the_peer_reads_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last bytes get some time to leave, and then the socket goes all the same."""
    monkeypatch.setattr("sshtransport.asyncio.protocol._CLOSE_TIMEOUT", 0.05)
    async with serving(echo) as server, Proxy(server.port) as proxy, through(proxy) as connection:
        process = await connection.create_process("x")
        proxy.writers[0].transport.pause_reading()  # type: ignore[attr-defined]
        while not connection.link.core.congested:
            process.stdin.write(bytes(2**20))
            connection.link.settle()
            if process.stdin.get_extra_info("channel").queued:
                break
        connection.close()
        await connection.wait_closed()


# --- keepalive ----------------------------------------------------------------------------------------------


class Clock:
    """The loop of a link, with its time in our hands; timers do not run by themselves."""

    def __init__(self, connection: ClientConnection) -> None:
        self.now = connection.link.loop.time()
        self._loop = connection.link.loop
        connection.link.loop = self  # type: ignore[assignment]

    def time(self) -> float:
        return self.now

    def call_later(self, delay: float, *call: Any) -> asyncio.TimerHandle:
        return self._loop.call_later(3600, *call)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loop, name)


async def test_a_peer_that_answers_lives_on() -> None:
    """The answer to a keepalive is the only thing heard, and comes a whole interval before the next look."""
    async with serving(echo) as server, client(server) as connection:
        clock = Clock(connection)
        await connection.ping()
        for _ in range(20):
            clock.now += 30.0
            connection._keepalive_due(30.0, 2)
            assert connection._unanswered == 1
            clock.now += 0.001
            await connection.global_request("nobody@example.org")  # the keepalive's answer comes before this one's
        assert connection.link.error is None


async def test_a_silent_peer() -> None:
    async with serving(echo) as server, Proxy(server.port) as proxy, through(proxy) as connection:
        process = await connection.create_process("x")
        clock = Clock(connection)
        await connection.ping()
        proxy.silent.set()
        works = (process.stdout.read(1), process.wait(), connection.ping(), connection.run("y"))
        waiters = [asyncio.create_task(work) for work in works]
        await asyncio.sleep(0)
        for unanswered in (1, 2):
            clock.now += 30.0
            connection._keepalive_due(30.0, 2)
            assert connection.link.error is None
            assert connection._unanswered == unanswered
        clock.now += 30.0
        connection._keepalive_due(30.0, 2)
        assert isinstance(connection.link.error, ConnectionLost)
        results = await asyncio.gather(*waiters, return_exceptions=True)
        assert [type(result) for result in results] == [ConnectionLost] * 4
        assert len({id(result) for result in results}) == 4
        for result in results:
            assert isinstance(result, BaseException)
            assert result.__cause__ is connection.link.error
            assert "no sign of life" in str(result)


async def test_no_keepalive_during_a_rekey() -> None:
    """It could not leave; an unfinished rekey has its own limit."""
    async with serving(echo) as server, Proxy(server.port) as proxy, through(proxy) as connection:
        clock = Clock(connection)
        proxy.silent.set()
        rekey = asyncio.create_task(connection.rekey())
        await asyncio.sleep(0)
        for _ in range(5):
            clock.now += 30.0
            connection._keepalive_due(30.0, 2)
        assert (connection._unanswered, connection.link.error) == (0, None)
        connection.abort()
        with pytest.raises(ConnectionLost):
            await rekey


async def test_no_keepalive_before_login(monkeypatch: pytest.MonkeyPatch) -> None:
    """Known bugs H 106: the first one leaves after SUCCESS, however long the login takes."""
    sent: list[str] = []
    first = asyncio.Event()
    request = Connection.global_request

    def noting(self: Connection, name: str, *args: Any) -> object:
        sent.append(name)
        first.set()
        return request(self, name, *args)

    monkeypatch.setattr(Connection, "global_request", noting)

    class Slow:
        async def check_password(self, username: str, password: str, info: Any) -> bool:
            for _ in range(30):
                await asyncio.sleep(0.001)
            assert sent == []
            return True

    async with (
        serving(echo, authenticator=Slow()) as server,
        client(server, keepalive_interval=0.001, keepalive_count=1000),
    ):
        await first.wait()
        assert set(sent) == {"keepalive@openssh.com"}


# --- rekeys -------------------------------------------------------------------------------------------------


async def test_rekeys_by_time_on_an_idle_connection() -> None:
    """Known bugs E 63: nothing is sent or received but the rekeys themselves."""
    changes: asyncio.Queue[None] = asyncio.Queue()
    async with serving(echo) as server, client(server, config=TransportConfig(rekey_seconds=0.05)) as connection:
        noticed = connection.noticed

        def noting(event: sshtransport.Event) -> None:
            noticed(event)
            if isinstance(event, sshtransport.KeysChanged):
                changes.put_nowait(None)

        connection.noticed = noting  # type: ignore[method-assign]
        for _ in range(3):
            await changes.get()
        assert connection.info.rekeys >= 3
        assert (await connection.run("x", input=b"on")).stdout == b"on"


async def test_a_rekey_that_is_never_answered() -> None:
    """Known bugs E 60: what is written meanwhile waits in its channel, and all ends at rekey_timeout."""
    config = TransportConfig(rekey_timeout=0.1)
    async with serving(echo) as server, Proxy(server.port) as proxy, through(proxy, config=config) as connection:
        process = await connection.create_process("x")
        proxy.silent.set()
        rekey = asyncio.create_task(connection.rekey())
        await asyncio.sleep(0)
        process.stdin.write(bytes(100_000))
        drain = asyncio.create_task(process.stdin.drain())
        results = await asyncio.gather(rekey, drain, process.wait(), return_exceptions=True)
        assert [type(result) for result in results] == [ConnectionLost] * 3
        error = connection.link.error
        assert isinstance(error, HandshakeTimeout)
        assert (error.phase, error.limit) == ("rekey", 0.1)


async def test_rekeys_side_by_side() -> None:
    """Several calls while one runs are one rekey; a cancelled one does not stop it."""
    async with serving(echo) as server, client(server) as connection:
        tasks = [asyncio.create_task(connection.rekey()) for _ in range(4)]
        await asyncio.sleep(0)
        tasks[0].cancel()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        assert isinstance(results[0], asyncio.CancelledError)
        assert results[1:] == [None] * 3
        assert connection.info.rekeys == 1


# --- before there is anything -------------------------------------------------------------------------------


async def test_nothing_goes_to_the_loops_handler() -> None:
    """Failed connects of all kinds: each reports through its exception alone."""
    async with loop_errors_seen():
        for stop in ("accept", "ident", "kexinit", "keys", "service"):
            peer = HalfServer(stop)
            async with fake_server(peer) as port:
                with pytest.raises(HandshakeTimeout):
                    await sshtransport.connect(HOST, port, known_hosts=INSECURE_ACCEPT_ANY_HOST_KEY, timeout=0.05)
                await peer.left()
