"""A private cipher: one class pair and one ``register_cipher`` call, used at both ends of a connection.

The cryptography is AES-256-GCM from the ``cryptography`` package; only the framing is ours. Like the cipher objects
of this library it sees whole packets, and nothing of padding, sequence numbers or buffers. What a cipher must do:

* never use a nonce twice with a key: here the derived 96-bit IV is a counter, one step a packet;
* cover the length field by the tag, and release nothing before the tag has been verified.

A private algorithm's name ends with a domain of yours (RFC 4251, section 6): nobody else will give it another meaning.

    python examples/custom_cipher.py
"""

from __future__ import annotations

import asyncio

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

import sshtransport
from sshtransport import (
    MAC,
    CipherSpec,
    IntegrityError,
    KnownHosts,
    Passwords,
    PrivateKey,
    ServerProcess,
    TransportConfig,
    register_cipher,
)

NAME = "aes256-gcm-example@example.org"


class Nonces:
    """The IV and what comes after it, modulo 2^96."""

    def __init__(self, iv: bytes) -> None:
        self._next = int.from_bytes(iv, "big")

    def take(self) -> bytes:
        nonce = self._next
        self._next = (nonce + 1) % 2**96
        return nonce.to_bytes(12, "big")


class ExampleSealer:
    """Protects outgoing packets. ``head`` is the length field, ``body`` the padded packet behind it."""

    block_size = 16
    length_aligned = False  # the length field is not part of what is padded to a multiple of the block size

    def __init__(self, key: bytes, iv: bytes, mac: MAC | None) -> None:
        self._aead, self._nonces = AESGCM(key), Nonces(iv)

    def seal(self, seq: int, head: bytes, body: bytes, /) -> bytes:
        return head + self._aead.encrypt(self._nonces.take(), body, head)


class ExampleOpener:
    """Checks and decrypts incoming packets."""

    head_size = 4
    block_size = 16
    length_aligned = False
    tag_size = 16

    def __init__(self, key: bytes, iv: bytes, mac: MAC | None) -> None:
        self._aead, self._nonces = AESGCM(key), Nonces(iv)

    def length(self, seq: int, head: memoryview, /) -> int:
        return int.from_bytes(head, "big")

    def open(self, seq: int, frame: memoryview, /) -> bytes:
        try:
            return self._aead.decrypt(self._nonces.take(), frame[4:], frame[:4])
        except InvalidTag:
            raise IntegrityError("the tag does not verify") from None


SPEC = CipherSpec(
    name=NAME,
    key_size=32,
    iv_size=12,
    needs_mac=False,
    rekey_bytes=2**28,  # new keys after 256 MiB at the latest
    make_sealer=ExampleSealer,
    make_opener=ExampleOpener,
)


async def shout(process: ServerProcess) -> int:
    async for line in process.stdin:
        process.stdout.write(line.upper())
        await process.stdout.drain()
    return 0


async def main() -> None:
    register_cipher(SPEC)
    print(sshtransport.cipher_status(NAME))  # a round trip and a flipped bit, tried now
    config = TransportConfig(ciphers=[NAME])  # registering alone changes no default
    key = PrivateKey.generate("ssh-ed25519")
    server = await sshtransport.listen(
        shout, "127.0.0.1", 0, host_keys=[key], authenticator=Passwords({"me": "secret"}), config=config
    )
    async with server:
        known = KnownHosts.from_text(f"[127.0.0.1]:{server.port} {key.public_key.to_text()}")
        async with sshtransport.connect(
            "127.0.0.1",
            server.port,
            username="me",
            password="secret",
            client_keys=(),
            known_hosts=known,
            config=config,
        ) as conn:
            assert conn.info.algorithms is not None
            print("in use:", conn.info.algorithms.cipher_c2s, conn.info.algorithms.cipher_s2c)
            done = await conn.run("shout", input="hello\nworld\n", encoding="utf-8")
            print(done.stdout, end="")


if __name__ == "__main__":
    asyncio.run(main())
