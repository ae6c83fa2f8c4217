"""Encrypted packets without the rest of SSH: client and server in one program, with their own protocol on top.

The upper protocol here has one message, number 200: the server answers its text in upper case. Message numbers keep
their meaning (RFC 4250), so a short login comes first: SERVICE_REQUEST (5), SERVICE_ACCEPT (6), USERAUTH_SUCCESS (52);
after 52 everything from 80 on may be sent. This server lets everybody in: a real one would look at a USERAUTH_REQUEST
(50) first. The client pins the server's host key, so that it talks to nobody else.

    python examples/packet_stream.py
"""

from __future__ import annotations

import asyncio

import sshtransport
from sshtransport import KnownHosts, PacketStream, PrivateKey

SERVICE_REQUEST, SERVICE_ACCEPT, USERAUTH_SUCCESS = 5, 6, 52
SERVICE = b"\x00\x00\x00\x0cssh-userauth"  # an SSH string: its length, then the bytes
TEXT = 200


async def serve(stream: PacketStream) -> None:
    if await stream.receive() != bytes([SERVICE_REQUEST]) + SERVICE:
        return
    await stream.send(bytes([SERVICE_ACCEPT]) + SERVICE)
    await stream.send(bytes([USERAUTH_SUCCESS]))
    async for payload in stream:  # until the client closes
        if payload[0] == TEXT:
            await stream.send(bytes([TEXT]) + payload[1:].upper())


async def log_in(stream: PacketStream) -> None:
    await stream.send(bytes([SERVICE_REQUEST]) + SERVICE)
    for number in (SERVICE_ACCEPT, USERAUTH_SUCCESS):
        payload = await stream.receive()
        assert payload[0] == number, payload


async def main() -> None:
    key = PrivateKey.generate("ssh-ed25519")
    async with await sshtransport.start_packet_server(serve, "127.0.0.1", 0, host_keys=[key]) as server:
        known = KnownHosts.from_text(f"[127.0.0.1]:{server.port} {key.public_key.to_text()}")
        async with sshtransport.open_packet_stream("127.0.0.1", server.port, known_hosts=known) as stream:
            await log_in(stream)
            for text in (b"hello", b"and again, under new keys"):
                await stream.send(bytes([TEXT]) + text)
                answer = await stream.receive()
                print(answer[1:].decode())
                await stream.rekey()
            assert stream.info.algorithms is not None
            print(f"cipher {stream.info.algorithms.cipher_c2s}, {stream.info.rekeys} rekeys")


if __name__ == "__main__":
    asyncio.run(main())
