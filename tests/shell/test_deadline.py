"""One deadline over everything until login (known bugs H 109): it names the phase, and frees the socket."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from typing import Any

import pytest

import sshtransport
from sshtransport import INSECURE_ACCEPT_ANY_HOST_KEY, HandshakeTimeout, SSHError
from sshtransport.asyncio.client import Deadline
from tests.support.peers import HOST, HalfServer, fake_server
from tests.support.servers import client, echo, serving

STOPS = [
    ("accept", "identification"),
    ("ident", "key exchange"),
    ("kexinit", "key exchange"),
    ("keys", "service request"),
    ("service", "authentication"),
]


def connect(port: int, **options: Any) -> sshtransport.Opening[sshtransport.ClientConnection]:
    options.setdefault("known_hosts", INSECURE_ACCEPT_ANY_HOST_KEY)
    return sshtransport.connect(HOST, port, client_keys=(), password="x", **options)


@pytest.fixture(autouse=True)
async def nothing_left() -> AsyncIterator[None]:
    """No task outlives a test."""
    yield
    await asyncio.sleep(0)
    assert asyncio.all_tasks() == {asyncio.current_task()}


@pytest.mark.parametrize(("stop", "phase"), STOPS)
async def test_a_server_that_stops(stop: str, phase: str) -> None:
    peer = HalfServer(stop)
    async with fake_server(peer) as port:
        with pytest.raises(HandshakeTimeout) as caught:
            await connect(port, timeout=0.06)
        error = caught.value
        assert (error.phase, error.limit) == (phase, 0.06)
        assert phase in str(error) and "0.06" in str(error)
        assert isinstance(error, TimeoutError) and isinstance(error, SSHError)
        assert error.__cause__ is None
        await peer.left()


@pytest.mark.parametrize(("stop", "phase"), STOPS)
@pytest.mark.parametrize("way", ["wait_for", "timeout"])
async def test_the_callers_own_deadline(stop: str, phase: str, way: str) -> None:
    """asyncio's own work at each of them too, and end in its plain TimeoutError."""
    peer = HalfServer(stop)
    async with fake_server(peer) as port:
        with pytest.raises(TimeoutError) as caught:
            if way == "wait_for":
                await asyncio.wait_for(connect(port, timeout=None), 0.04)
            else:
                async with asyncio.timeout(0.04), connect(port):
                    pytest.fail(f"connected, {phase} and all")
        assert type(caught.value) is TimeoutError
        await peer.left()


async def test_packet_streams_too() -> None:
    peer = HalfServer("kexinit")
    async with fake_server(peer) as port:
        with pytest.raises(HandshakeTimeout) as caught:
            await sshtransport.open_packet_stream(HOST, port, known_hosts=INSECURE_ACCEPT_ANY_HOST_KEY, timeout=0.03)
        assert caught.value.phase == "key exchange"
        await peer.left()


async def test_names_and_dialling_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """A resolver that hangs, and an address that swallows what is sent to it."""

    async def hangs(*args: Any, **options: Any) -> Any:
        await asyncio.Event().wait()

    for name in ("sshtransport.asyncio.client.dial", "sshtransport.asyncio.dial._attempt"):
        with monkeypatch.context() as patch:
            patch.setattr(name, hangs)
            with pytest.raises(HandshakeTimeout) as caught:
                await connect(22, timeout=0.02)
            assert caught.value.phase == "connect"


async def test_a_given_socket_is_closed() -> None:
    peer = HalfServer("ident")
    async with fake_server(peer) as port:
        sock = socket.create_connection((HOST, port))
        sock.setblocking(False)
        with pytest.raises(HandshakeTimeout):
            await connect(port, sock=sock, timeout=0.02)
        await peer.left()
        assert sock.fileno() == -1


@pytest.mark.parametrize("timeout", [0, -1.0, 1e-9])
async def test_a_deadline_that_is_over(timeout: float) -> None:
    with socket.create_server((HOST, 0)) as listener, pytest.raises(HandshakeTimeout):
        await connect(listener.getsockname()[1], timeout=timeout)


async def test_none_is_no_limit() -> None:
    async with serving(echo) as server, client(server, timeout=None) as connection:
        assert not connection.is_closed()


# --- the clock itself ---------------------------------------------------------------------------------------


async def test_the_clock_stands_still_for_callbacks() -> None:
    """The callback takes three times what there is; behind it, what is left runs out."""
    deadline = Deadline(0.05)
    loop = asyncio.get_running_loop()

    async def callback(text: str) -> str:
        done = asyncio.Event()
        loop.call_later(0.15, done.set)
        await done.wait()
        return text

    answers: list[str] = []
    with pytest.raises(HandshakeTimeout) as caught:
        async with deadline.running(lambda: "somewhere"):
            answers.append(await deadline.ask(callback, "slow"))
            answers.append(await deadline.ask(str.upper, "at once"))
            await asyncio.Event().wait()
    assert answers == ["slow", "AT ONCE"]
    assert caught.value.phase == "somewhere"
    assert await deadline.ask(callback, "after the end") == "after the end"


async def test_a_callback_that_fails_starts_the_clock_again() -> None:
    deadline = Deadline(0.02)

    async def callback() -> None:
        raise ValueError("mine")

    with pytest.raises(HandshakeTimeout):
        async with deadline.running(lambda: "x"):
            with pytest.raises(ValueError, match="mine"):
                await deadline.ask(callback)
            await asyncio.Event().wait()


async def test_other_timeouts_are_not_ours() -> None:
    """A TimeoutError of a callback's own comes out as it is."""
    deadline = Deadline(20)

    async def callback() -> None:
        async with asyncio.timeout(0):
            await asyncio.sleep(0)

    with pytest.raises(TimeoutError) as caught:
        async with deadline.running(lambda: "x"):
            await deadline.ask(callback)
    assert type(caught.value) is TimeoutError
