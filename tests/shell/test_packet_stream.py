"""Packet streams: payloads in order under rekeys and back-pressure, typed ends, and tampering that never gives data."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace

import pytest

from sshtransport import (
    ConnectionLost,
    HostKeyError,
    IntegrityError,
    LocalError,
    PacketServer,
    PacketStream,
    PeerDisconnected,
    ProtocolError,
    SSHError,
    TransportConfig,
    open_packet_stream,
    start_packet_server,
)
from sshtransport.asyncio.opening import Opening
from tests.support.private_keys import private_key
from tests.support.servers import HOST, loop_errors_seen

LOGIN = b"\x05\x00\x00\x00\x0cssh-userauth"
Callback = Callable[[PacketStream], Awaitable[None]]


async def admit(stream: PacketStream) -> None:
    """What a server says until the connection phase."""
    assert await stream.receive() == LOGIN
    await stream.send(b"\x06" + LOGIN[1:])
    await stream.send(b"\x34")


async def log_in(stream: PacketStream) -> None:
    await stream.send(LOGIN)
    assert await stream.receive() == b"\x06" + LOGIN[1:]
    assert await stream.receive() == b"\x34"


async def echo(stream: PacketStream) -> None:
    await admit(stream)
    async for payload in stream:
        await stream.send(payload)


@contextlib.asynccontextmanager
async def serving(callback: Callback, config: TransportConfig | None = None) -> AsyncIterator[PacketServer]:
    keys = [private_key("ssh-ed25519")]
    async with (
        loop_errors_seen(),
        await start_packet_server(callback, HOST, 0, host_keys=keys, config=config) as server,
    ):
        yield server


def client(port: int, config: TransportConfig | None = None) -> Opening[PacketStream]:
    key = private_key("ssh-ed25519").public_key
    return open_packet_stream(HOST, port, known_hosts=(), host_key_verifier=lambda h, p, k: k == key, config=config)


async def test_payloads_in_order_with_rekeys_from_both_sides() -> None:
    config = TransportConfig(rekey_bytes=100_000)

    async with serving(echo, replace(config, rekey_bytes=150_000)) as server, client(server.port, config) as stream:
        await log_in(stream)
        sent = [bytes([200]) + index.to_bytes(4, "big") + bytes(index % 3000) for index in range(1500)]

        async def send() -> None:
            for payload in sent:
                await stream.send(payload)

        async with asyncio.TaskGroup() as group:
            group.create_task(send())
            for payload in sent:
                assert await stream.receive() == payload
        assert stream.info.rekeys > 10


async def test_rekey_on_demand_also_before_login() -> None:
    async with serving(echo) as server, client(server.port) as stream:
        await stream.rekey()
        await log_in(stream)
        await stream.rekey()
        assert stream.info.rekeys == 2


async def test_numbers_that_ssh_does_not_know_pass() -> None:
    async with serving(echo) as server, client(server.port) as stream:
        await log_in(stream)
        for number in (80, 94, 101, 128, 191, 193, 200, 255):
            await stream.send(bytes([number]) + b"x")
            assert await stream.receive() == bytes([number]) + b"x"


async def test_what_may_not_leave() -> None:
    async with serving(echo) as server, client(server.port) as stream:
        for payload in (b"", b"\x14", b"\x5e", bytes(40_000)):
            with pytest.raises(LocalError):
                await stream.send(payload)
        await log_in(stream)
        with pytest.raises(LocalError):
            await stream.send(b"\x5e" + bytes(40_000))


async def test_one_receiver_at_a_time_and_cancelling_it() -> None:
    async with serving(echo) as server, client(server.port) as stream:
        await log_in(stream)
        first = asyncio.ensure_future(stream.receive())
        await asyncio.sleep(0)
        with pytest.raises(LocalError):
            await stream.receive()
        first.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await first
        await stream.send(b"\x5ex")
        assert await stream.receive() == b"\x5ex"


async def test_a_receiver_that_does_not_receive_stops_the_sender() -> None:
    """Back-pressure end to end: what is sent and not received is bounded by sockets and marks."""
    sent = 0

    async def pour(stream: PacketStream) -> None:
        nonlocal sent
        await admit(stream)
        while True:
            await stream.send(b"\x5e" + bytes(30_000))
            sent += 1

    async with serving(pour) as server, client(server.port) as stream:
        await log_in(stream)
        before, turns = -1, 0
        while turns < 500:  # so many turns of the loop without one more
            turns = turns + 1 if sent == before else 0
            before = sent
            await asyncio.sleep(0)
        assert 0 < before * 30_000 < 32 * 2**20  # marks, and what the kernel holds for a loopback socket
        for _ in range(before + 50):
            assert len(await stream.receive()) == 30_001


async def test_ends() -> None:
    async def leave(stream: PacketStream) -> None:
        await admit(stream)

    async with serving(leave) as server, client(server.port) as stream:
        await log_in(stream)
        with pytest.raises(PeerDisconnected) as caught:
            await stream.receive()
        assert caught.value.code == 11
        assert [payload async for payload in stream] == []
        with pytest.raises(PeerDisconnected):
            await stream.send(b"\x5e")

    async def vanish(stream: PacketStream) -> None:
        await admit(stream)
        await stream.receive()
        stream.abort()

    async with serving(vanish) as server, client(server.port) as stream:
        await log_in(stream)
        await stream.send(b"\x5e")
        with pytest.raises(ConnectionLost):
            await stream.receive()


async def test_a_host_key_that_is_not_trusted() -> None:
    async with serving(echo) as server:
        with pytest.raises(HostKeyError) as caught:
            await open_packet_stream(HOST, server.port, known_hosts=())
        assert caught.value.verdict == "unknown"


@contextlib.asynccontextmanager
async def flipping(port: int, offset: int) -> AsyncIterator[int]:
    """A proxy that flips one bit of what the server sends, ``offset`` bytes into it."""
    tasks: set[asyncio.Task[None]] = set()

    async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, at: int) -> None:
        passed = 0
        with contextlib.suppress(OSError):
            while data := bytearray(await reader.read(65_536)):
                if passed <= at < passed + len(data):
                    data[at - passed] ^= 0x10
                passed += len(data)
                writer.write(data)
                await writer.drain()
            writer.write_eof()

    async def accepted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection(HOST, port)
        for task in (carry(reader, back, -1), carry(there, writer, offset)):
            tasks.add(asyncio.ensure_future(task))

        def over(_: object) -> None:
            writer.close()
            back.close()

        for running in tuple(tasks):
            running.add_done_callback(over)

    server = await asyncio.start_server(accepted, HOST, 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@pytest.mark.parametrize("cipher", ["aes256-gcm@openssh.com", "chacha20-poly1305@openssh.com", "aes128-ctr"])
@pytest.mark.parametrize("place", [0, 1, 2, 3, 4, 5, 20, 500, 1003])
async def test_a_flipped_bit_ends_the_stream(cipher: str, place: int) -> None:
    """Issue: a typed error (or a wait, where the bit raised the length), never a byte of that frame."""
    size = 1000
    known: list[int] = []

    async def send_one(stream: PacketStream) -> None:
        await admit(stream)
        await stream.receive()
        known.append(stream.link.core.bytes_sent)
        await stream.send(b"\x5e" + bytes(size))
        with contextlib.suppress(SSHError):
            await stream.receive()

    config = TransportConfig(ciphers=[cipher], kex=["curve25519-sha256"])
    async with serving(send_one, config) as server:
        async with client(server.port, config) as stream:  # how many bytes come before the frame
            await log_in(stream)
            await stream.send(b"\x5ego")
            assert len(await stream.receive()) == size + 1
        start = known[0] + len(stream.info.peer_ident or b"") + 2
        async with flipping(server.port, start + place) as port:
            stream = await client(port, config)
            await log_in(stream)
            await stream.send(b"\x5ego")
            with pytest.raises((IntegrityError, ProtocolError, TimeoutError)):
                async with asyncio.timeout(0.5):
                    received = await stream.receive()
                    raise AssertionError(f"{len(received)} bytes of a damaged frame came up")
            stream.abort()
            await stream.wait_closed()
