"""Forwarding at a server: who may, what is carried, what is left when somebody goes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import asyncssh
import pytest

from sshtransport import ChannelOpenError, ConnectionLost, Grant
from sshtransport.asyncio.limits import ServerLimits
from sshtransport.asyncio.server_process import ServerProcess
from sshtransport.connection import CancelTCPIPForward, TCPIPForward, decode_forwarded_port, encode_global
from sshtransport.keys import ForwardRule
from tests.support.servers import HOST, PASSWORD, USERNAME, client, serving


class GrantAll:
    """Everybody gets the same grant."""

    def __init__(self, grant: Grant) -> None:
        self.grant = grant

    def check_password(self, username: str, password: str, info: object) -> Grant:
        return self.grant


async def nothing(process: ServerProcess) -> None:
    pass


# --- direct-tcpip ------------------------------------------------------------------------------------


@pytest.fixture
async def upper() -> AsyncIterator[int]:
    """A TCP server that answers in capitals, line by line, and ends with its input; its port."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async for line in reader:
            writer.write(line.upper())
            await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, HOST, 0)
    yield server.sockets[0].getsockname()[1]
    server.close()
    await server.wait_closed()


async def test_a_connection_through_the_server(upper: int) -> None:
    asked: list[tuple[str, str | None, str, int]] = []

    async def allow(connection: Any, host: str, port: int) -> bool:
        asked.append((type(connection).__name__, connection.username, host, port))
        return True

    async with serving(nothing, allow_direct_tcpip=allow) as server, client(server) as conn:
        reader, writer = await conn.open_connection(HOST, upper)
        writer.write(b"one\n")
        assert await reader.readline() == b"ONE\n"
        writer.write(b"two\n" * 100_000)
        writer.write_eof()
        assert await reader.read() == b"TWO\n" * 100_000
        await writer.wait_closed()
    assert asked == [("ServerConnection", "tester", HOST, upper)]


@pytest.mark.parametrize("answer", [None, False, 1, "yes", RuntimeError("broken")])
async def test_who_may_not_go_through(upper: int, answer: Any) -> None:
    """Only True itself lets through (known bugs, M 162)."""

    def allow(connection: object, host: str, port: int) -> Any:
        if isinstance(answer, Exception):
            raise answer
        return answer

    policy: Any = None if answer is None else allow
    async with serving(nothing, allow_direct_tcpip=policy) as server, client(server) as conn:
        with pytest.raises(ChannelOpenError) as caught:
            await conn.open_connection(HOST, upper)
        assert caught.value.reason == 1


async def test_a_grant_narrows_what_the_policy_allows(upper: int) -> None:
    options: Any = {
        "authenticator": GrantAll(Grant(permit_port_forwarding=False)),
        "allow_direct_tcpip": lambda *_: True,
    }
    async with serving(nothing, **options) as server, client(server) as conn:
        with pytest.raises(ChannelOpenError, match="not allowed"):
            await conn.open_connection(HOST, upper)


async def test_a_target_that_does_not_answer() -> None:
    async with serving(nothing, allow_direct_tcpip=lambda *_: True) as server, client(server) as conn:
        for host in (HOST, "x" * 300, "no-such-host.invalid"):
            with pytest.raises(ChannelOpenError) as caught:
                await conn.open_connection(host, 1)
            assert caught.value.reason == 2


async def test_going_away_while_an_open_is_decided() -> None:
    asked = asyncio.Event()

    async def allow(*_: object) -> bool:
        asked.set()
        await asyncio.Event().wait()
        return True

    async with serving(nothing, allow_direct_tcpip=allow) as server, client(server) as conn:
        opening = asyncio.create_task(conn.open_connection(HOST, 1))
        await asked.wait()
        conn.close()
        with pytest.raises(ConnectionLost):
            await opening


# --- tcpip-forward -----------------------------------------------------------------------------------


def as_asyncssh(port: int) -> Any:
    return asyncssh.connect(
        HOST,
        port,
        username=USERNAME,
        password=PASSWORD,
        known_hosts=None,
        client_keys=None,
        agent_path=None,
        config=None,
    )


async def lines_through(port: int) -> None:
    reader, writer = await asyncio.open_connection(HOST, port)
    writer.write(b"one\n" * 50_000)
    writer.write_eof()
    assert await reader.read() == b"ONE\n" * 50_000
    writer.close()
    await writer.wait_closed()


@pytest.mark.parametrize("host", [HOST, "localhost", ""])
async def test_a_port_that_leads_to_the_client(upper: int, host: str) -> None:
    asked: list[tuple[str, int]] = []

    def allow(connection: object, host: str, port: int) -> bool:
        asked.append((host, port))
        return True

    async with serving(nothing, allow_tcpip_forward=allow) as server, as_asyncssh(server.port) as conn:
        listener = await conn.forward_remote_port(host, 0, HOST, upper)
        port = listener.get_port()
        await asyncio.gather(*(lines_through(port) for _ in range(3)))
        listener.close()
        await listener.wait_closed()
        with pytest.raises(OSError):
            await asyncio.open_connection(HOST, port)
    assert asked == [(host, 0)]


async def test_a_port_ends_with_its_connection(upper: int) -> None:
    async with serving(nothing, allow_tcpip_forward=lambda *_: True) as server:
        async with as_asyncssh(server.port) as conn:
            listener = await conn.forward_remote_port(HOST, 0, HOST, upper)
            port = listener.get_port()
            reader, writer = await asyncio.open_connection(HOST, port)
            writer.write(b"x\n")
            assert await reader.readline() == b"X\n"
        assert await reader.read() == b""
        writer.close()
        await writer.wait_closed()
        with pytest.raises(OSError):
            await asyncio.open_connection(HOST, port)


async def request(conn: Any, host: str, port: int, kind: Any = TCPIPForward) -> int | None:
    granted, data = await conn.global_request(*encode_global(kind(host, port)))
    if not granted:
        return None
    return decode_forwarded_port(data) if data else port


async def test_answers_come_in_order_and_within_limits() -> None:
    async def allow(connection: object, host: str, port: int) -> bool:
        await asyncio.sleep(0.01)
        return host != "refused"

    limits = ServerLimits(max_remote_forwards=2)
    async with serving(nothing, allow_tcpip_forward=allow, limits=limits) as server, client(server) as conn:
        answers = await asyncio.gather(
            request(conn, HOST, 0),
            request(conn, "refused", 0),
            request(conn, "no-such-host.invalid", 0),
            request(conn, HOST, 0),
            request(conn, HOST, 0),
        )
        assert [answer is not None for answer in answers] == [True, False, False, True, False]
        first = answers[0]
        assert first is not None
        assert await request(conn, HOST, first + 1, CancelTCPIPForward) is None
        assert await request(conn, HOST, first, CancelTCPIPForward) == first
        assert await request(conn, HOST, first, CancelTCPIPForward) is None
        assert await request(conn, HOST, first) == first
        assert await request(conn, HOST, first) is None


@pytest.mark.parametrize("answer", [None, False, 1, "yes", RuntimeError("broken")])
async def test_who_may_not_listen(answer: Any) -> None:
    """Only True itself lets listen (known bugs, M 162)."""

    def allow(connection: object, host: str, port: int) -> Any:
        if isinstance(answer, Exception):
            raise answer
        return answer

    policy: Any = None if answer is None else allow
    async with serving(nothing, allow_tcpip_forward=policy) as server, client(server) as conn:
        assert await request(conn, HOST, 0) is None
        assert await conn.ping() > 0


async def test_a_grant_narrows_where_may_be_listened() -> None:
    grant = Grant(permit_listen=[ForwardRule("localhost", 1)])
    options: Any = {"authenticator": GrantAll(grant), "allow_tcpip_forward": lambda *_: True}
    async with serving(nothing, **options) as server, client(server) as conn:
        assert await request(conn, HOST, 0) is None


async def test_a_client_that_does_not_take_the_connection() -> None:
    async with serving(nothing, allow_tcpip_forward=lambda *_: True) as server, client(server) as conn:
        port = await request(conn, HOST, 0)
        reader, writer = await asyncio.open_connection(HOST, port)
        assert await reader.read() == b""
        writer.close()
        await writer.wait_closed()
        assert not conn.is_closed()
