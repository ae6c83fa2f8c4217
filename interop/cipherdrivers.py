"""Who seals and opens in ``cipherbench``: our packets, our bare cipher objects, asyncssh's, the library's own calls.

A driver prepares outside of the measured time whatever it can, and gives back a function that does nothing but the
work. All get the same keys, IVs, sequence numbers and payloads, and, when their output is to be compared, the same
padding: they must then agree on every byte.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.ciphers.algorithms import AES, ChaCha20
from cryptography.hazmat.primitives.ciphers.modes import CTR
from cryptography.hazmat.primitives.hashes import SHA256, SHA512
from cryptography.hazmat.primitives.hmac import HMAC
from cryptography.hazmat.primitives.poly1305 import Poly1305

from sshtransport.packets import PacketWriter, PaddingPool
from tests.support.ciphers import Suite, material

Cut = Callable[[bytes], Iterable[bytes]]
Run = Callable[[], list[Any]]
Source = Callable[[int], bytes]

ETM = "-etm@openssh.com"
EVERY_NUMBER = bytes([1]) * 256  # the payloads here are no messages


def pinned(size: int) -> bytes:
    """The padding of outputs that are compared."""
    return material("padding", size)


@dataclass(frozen=True)
class Batch:
    """Packets that are sealed in one go: payloads, and the same as packets with pinned padding, without a cipher."""

    sequence: int
    payloads: Sequence[bytes]
    bodies: Sequence[tuple[bytes, bytes]]  # length field; padding_length | payload | padding


class Recorder:
    """A sealer that keeps what it is given. So the packets of all drivers are made in one place, by PacketWriter."""

    def __init__(self, suite: Suite) -> None:
        sealer = suite.sealer()
        self.block_size = sealer.block_size
        self.length_aligned = sealer.length_aligned
        self.bodies: list[tuple[bytes, bytes]] = []

    def seal(self, seq: int, head: bytes, body: bytes, /) -> bytes:
        self.bodies.append((head, body))
        return b""


class Batches:
    """One batch after the other, as one connection would send them."""

    def __init__(self, suite: Suite) -> None:
        self._recorder = Recorder(suite)
        self._writer = PacketWriter(PaddingPool(pinned))
        self._writer.change(self._recorder, reset=True)

    def next(self, payloads: Sequence[bytes]) -> Batch:
        sequence = self._writer.sequence
        for payload in payloads:
            self._writer.write(payload)
        self._writer.take()
        bodies, self._recorder.bodies = self._recorder.bodies, []
        return Batch(sequence, payloads, bodies)


class Driver:
    """One direction's two ends. ``sealing`` and ``opening`` give the function whose time counts."""

    takes_stream: ClassVar[bool] = False  # whether the receiving end finds the packets in a stream by itself

    def __init__(self, suite: Suite, padding: Source | None) -> None:
        """``padding`` None: the driver's own."""
        self.suite = suite
        self.head_size = suite.opener().head_size
        self.tag_size = suite.tag_size

    def sealing(self, batch: Batch) -> Run:
        raise NotImplementedError

    def frames(self, batch: Batch, sealed: list[Any]) -> list[bytes]:
        """What the function of ``sealing`` returned, as it would go over the wire."""
        return sealed

    def opening(self, batch: Batch, frames: list[bytes], cut: Cut) -> Run:
        raise NotImplementedError

    def payloads(self, opened: list[Any]) -> list[bytes]:
        """What the function of ``opening`` returned, without padding."""
        return [body[1 : len(body) - body[0]] for body in opened]


class Packets(Driver):
    """PacketWriter and PacketReader with our cipher objects: all that the core does with a packet."""

    takes_stream = True

    def __init__(self, suite: Suite, padding: Source | None, pool: Callable[[], PaddingPool] = PaddingPool) -> None:
        super().__init__(suite, padding)
        self.writer = PacketWriter(pool() if padding is None else PaddingPool(padding))
        self.writer.change(suite.sealer(), reset=True)
        self.reader = suite.reader()

    def sealing(self, batch: Batch) -> Run:
        writer, payloads = self.writer, batch.payloads

        def run() -> list[bytes]:
            for payload in payloads:
                writer.write(payload)
            return writer.take_frames()

        return run

    def opening(self, batch: Batch, frames: list[bytes], cut: Cut) -> Run:
        reader, pieces = self.reader, [memoryview(piece) for piece in cut(b"".join(frames))]

        def run() -> list[bytes]:
            items: list[bytes] = []
            for piece in pieces:
                reader.feed(piece)
                reader.read(EVERY_NUMBER, items)
            return items

        return run

    def payloads(self, opened: list[Any]) -> list[bytes]:
        return opened


class Objects(Driver):
    """Our cipher objects alone, called as their protocols say."""

    def __init__(self, suite: Suite, padding: Source | None) -> None:
        super().__init__(suite, padding)
        self.sealer, self.opener = suite.sealer(), suite.opener()

    def sealing(self, batch: Batch) -> Run:
        seal = self.sealer.seal
        packets = [(batch.sequence + i, head, body) for i, (head, body) in enumerate(batch.bodies)]
        return lambda: [seal(seq, head, body) for seq, head, body in packets]

    def opening(self, batch: Batch, frames: list[bytes], cut: Cut) -> Run:
        length, open_frame = self.opener.length, self.opener.open
        views = [memoryview(frame) for frame in frames]
        packets = [(batch.sequence + i, view[: self.head_size], view) for i, view in enumerate(views)]

        def run() -> list[bytes]:
            bodies = []
            for seq, head, frame in packets:
                length(seq, head)
                bodies.append(open_frame(seq, frame))
            return bodies

        return run


class Fresh(Driver):
    """The same objects made anew for each packet, with the IV where the kept one would have it."""

    def __init__(self, suite: Suite, padding: Source | None) -> None:
        super().__init__(suite, padding)
        self.sealing_iv = self.opening_iv = int.from_bytes(suite.iv, "big")
        self.length_counts = 4 if suite.sealer().length_aligned else 0

    def ivs(self, start: int, batch: Batch) -> list[int]:
        """One for each packet, and the one that follows: GCM counts packets, CTR blocks, ChaCha20 has none."""
        size = self.suite.cipher.iv_size
        ivs = [start]
        for _, body in batch.bodies:
            step = {0: 0, 12: 1, 16: (len(body) + self.length_counts) // 16}[size]
            ivs.append((ivs[-1] + step) % 2 ** (8 * size))
        return ivs

    def sealing(self, batch: Batch) -> Run:
        make, key, mac, size = (
            self.suite.cipher.make_sealer,
            self.suite.key,
            self.suite.make_mac,
            self.suite.cipher.iv_size,
        )
        *ivs, self.sealing_iv = self.ivs(self.sealing_iv, batch)
        packets = [
            (batch.sequence + i, iv.to_bytes(size, "big"), head, body)
            for i, (iv, (head, body)) in enumerate(zip(ivs, batch.bodies, strict=True))
        ]
        return lambda: [make(key, iv, mac()).seal(seq, head, body) for seq, iv, head, body in packets]

    def opening(self, batch: Batch, frames: list[bytes], cut: Cut) -> Run:
        make, key, mac, size = (
            self.suite.cipher.make_opener,
            self.suite.key,
            self.suite.make_mac,
            self.suite.cipher.iv_size,
        )
        *ivs, self.opening_iv = self.ivs(self.opening_iv, batch)
        packets = [
            (batch.sequence + i, iv.to_bytes(size, "big"), memoryview(frame)[: self.head_size], memoryview(frame))
            for i, (iv, frame) in enumerate(zip(ivs, frames, strict=True))
        ]

        def run() -> list[bytes]:
            bodies = []
            for seq, iv, head, frame in packets:
                opener = make(key, iv, mac())
                opener.length(seq, head)
                bodies.append(opener.open(seq, frame))
            return bodies

        return run


class Asyncssh(Driver):
    """asyncssh's cipher objects, called as its connection does."""

    def __init__(self, suite: Suite, padding: Source | None) -> None:
        super().__init__(suite, padding)
        self.sealer, self.opener = self.make(), self.make()
        # It reads a block of eight at least, and decrypts that first.
        self.first = max(8, suite.sealer().block_size)

    def make(self) -> Any:
        from asyncssh.encryption import get_encryption

        suite, mac = self.suite, self.suite.mac.name if self.suite.mac else ""
        names = suite.cipher.name.encode(), mac.removesuffix(ETM).encode()
        return get_encryption(names[0], suite.key, suite.iv, names[1], suite.mac_key, mac.endswith(ETM))

    def sealing(self, batch: Batch) -> Run:
        seal = self.sealer.encrypt_packet
        packets = [(batch.sequence + i, head, body) for i, (head, body) in enumerate(batch.bodies)]
        return lambda: [seal(seq, head, body) for seq, head, body in packets]

    def frames(self, batch: Batch, sealed: list[Any]) -> list[bytes]:
        return [data + tag for data, tag in sealed]

    def opening(self, batch: Batch, frames: list[bytes], cut: Cut) -> Run:
        header, open_packet, first, tag = (
            self.opener.decrypt_header,
            self.opener.decrypt_packet,
            self.first,
            self.tag_size,
        )
        packets = [
            (batch.sequence + i, frame[:first], frame[first : len(frame) - tag], frame[len(frame) - tag :])
            for i, frame in enumerate(frames)
        ]

        def run() -> list[bytes]:
            bodies = []
            for seq, block, rest, mac in packets:
                block, _ = header(seq, block, 4)
                bodies.append(open_packet(seq, block, rest, 4, mac))
            return bodies

        return run


class RawGCM(Driver):
    """The calls of ``cryptography`` alone, with all their arguments at hand: nothing in Python can be faster."""

    def __init__(self, suite: Suite, padding: Source | None) -> None:
        super().__init__(suite, padding)
        self.cipher = AESGCM(suite.key)

    def nonce(self, seq: int) -> bytes:
        iv = self.suite.iv
        return iv[:4] + ((int.from_bytes(iv[4:], "big") + seq) % 2**64).to_bytes(8, "big")

    def sealing(self, batch: Batch) -> Run:
        encrypt = self.cipher.encrypt
        packets = [(self.nonce(batch.sequence + i), body, head) for i, (head, body) in enumerate(batch.bodies)]
        return lambda: [encrypt(nonce, body, head) for nonce, body, head in packets]

    def frames(self, batch: Batch, sealed: list[Any]) -> list[bytes]:
        return [head + rest for (head, _), rest in zip(batch.bodies, sealed, strict=True)]

    def opening(self, batch: Batch, frames: list[bytes], cut: Cut) -> Run:
        decrypt = self.cipher.decrypt
        packets = [(self.nonce(batch.sequence + i), frame[4:], frame[:4]) for i, frame in enumerate(frames)]
        return lambda: [decrypt(nonce, rest, head) for nonce, rest, head in packets]


class RawChaCha20(Driver):
    """The same for ChaCha20-Poly1305: seven calls a packet."""

    def __init__(self, suite: Suite, padding: Source | None) -> None:
        super().__init__(suite, padding)

        def context(key: bytes) -> Any:
            return Cipher(ChaCha20(key, bytes(16)), None).encryptor()

        self.main, self.header = context(suite.key[:32]), context(suite.key[32:])

    def sealing(self, batch: Batch) -> Run:
        main, header, zeros, tag = self.main, self.header, bytes(64), Poly1305.generate_tag
        packets = [(bytes(8) + (batch.sequence + i).to_bytes(8, "big"), *parts) for i, parts in enumerate(batch.bodies)]

        def run() -> list[bytes]:
            frames = []
            for nonce, head, body in packets:
                header.reset_nonce(nonce)
                main.reset_nonce(nonce)
                key = main.update(zeros)[:32]
                sealed = header.update(head) + main.update(body)
                frames.append(sealed + tag(key, sealed))
            return frames

        return run

    def opening(self, batch: Batch, frames: list[bytes], cut: Cut) -> Run:
        main, header, zeros, verify = self.main, self.header, bytes(64), Poly1305.verify_tag
        packets = [
            (bytes(8) + (batch.sequence + i).to_bytes(8, "big"), frame[:4], frame[:-16], frame[4:-16], frame[-16:])
            for i, frame in enumerate(frames)
        ]

        def run() -> list[bytes]:
            bodies = []
            for nonce, head, signed, sealed, tag in packets:
                header.reset_nonce(nonce)
                header.update(head)
                main.reset_nonce(nonce)
                verify(main.update(zeros)[:32], signed, tag)
                bodies.append(main.update(sealed))
            return bodies

        return run


class RawCTR(Driver):
    """The same for AES-CTR with a plain HMAC, which covers the plaintext."""

    def __init__(self, suite: Suite, padding: Source | None) -> None:
        super().__init__(suite, padding)
        self.keyed = HMAC(suite.mac_key, {32: SHA256, 64: SHA512}[suite.tag_size]())
        self.encrypt = Cipher(AES(suite.key), CTR(suite.iv)).encryptor().update
        self.decrypt = Cipher(AES(suite.key), CTR(suite.iv)).decryptor().update

    def sealing(self, batch: Batch) -> Run:
        encrypt, copy = self.encrypt, self.keyed.copy
        packets = [
            ((batch.sequence + i).to_bytes(4, "big"), head + body) for i, (head, body) in enumerate(batch.bodies)
        ]

        def run() -> list[bytes]:
            frames = []
            for seq, packet in packets:
                mac = copy()
                mac.update(seq)
                mac.update(packet)
                frames.append(encrypt(packet) + mac.finalize())
            return frames

        return run

    def opening(self, batch: Batch, frames: list[bytes], cut: Cut) -> Run:
        decrypt, copy, tag = self.decrypt, self.keyed.copy, self.tag_size
        packets = [((batch.sequence + i).to_bytes(4, "big"), f[:-tag], f[-tag:]) for i, f in enumerate(frames)]

        def run() -> list[bytes]:
            opened = []
            for seq, sealed, signature in packets:
                packet = decrypt(sealed)
                mac = copy()
                mac.update(seq)
                mac.update(packet)
                mac.verify(signature)
                opened.append(packet)
            return opened

        return run

    def payloads(self, opened: list[Any]) -> list[bytes]:
        return super().payloads([packet[4:] for packet in opened])


class RawCTREtM(RawCTR):
    """The same with an HMAC of the ciphertext."""

    def sealing(self, batch: Batch) -> Run:
        encrypt, copy = self.encrypt, self.keyed.copy
        packets = [((batch.sequence + i).to_bytes(4, "big"), *parts) for i, parts in enumerate(batch.bodies)]

        def run() -> list[bytes]:
            frames = []
            for seq, head, body in packets:
                sealed = head + encrypt(body)
                mac = copy()
                mac.update(seq)
                mac.update(sealed)
                frames.append(sealed + mac.finalize())
            return frames

        return run

    def opening(self, batch: Batch, frames: list[bytes], cut: Cut) -> Run:
        decrypt, copy, tag = self.decrypt, self.keyed.copy, self.tag_size
        packets = [
            ((batch.sequence + i).to_bytes(4, "big"), f[:-tag], f[4:-tag], f[-tag:]) for i, f in enumerate(frames)
        ]

        def run() -> list[bytes]:
            bodies = []
            for seq, signed, sealed, signature in packets:
                mac = copy()
                mac.update(seq)
                mac.update(signed)
                mac.verify(signature)
                bodies.append(decrypt(sealed))
            return bodies

        return run

    def payloads(self, opened: list[Any]) -> list[bytes]:
        return Driver.payloads(self, opened)


def library(suite: Suite, padding: Source | None) -> Driver:
    """The raw calls that a cipher is made of."""
    if suite.mac is not None:
        return (RawCTREtM if suite.mac.etm else RawCTR)(suite, padding)
    return (RawChaCha20 if suite.cipher.iv_size == 0 else RawGCM)(suite, padding)


# --- sources of padding, as TransportConfig(padding=...) takes them -----------------------------------------


def zeros(size: int) -> bytes:
    """No randomness: what the others cost above this is their price."""
    return bytes(size)


def chacha20_source() -> Source:
    """A ChaCha20 key stream under a random key."""
    update = Cipher(ChaCha20(os.urandom(32), os.urandom(16)), None).encryptor().update
    return lambda size: update(bytes(size))


def aes_ctr_source() -> Source:
    """An AES-256-CTR key stream under a random key."""
    update = Cipher(AES(os.urandom(32)), CTR(os.urandom(16))).encryptor().update
    return lambda size: update(bytes(size))


class Unpooled(PaddingPool):
    """os.urandom for each packet, instead of a pool that is filled from it."""

    def take(self, size: int) -> bytes:
        return os.urandom(size)


DRIVERS: dict[str, Callable[[Suite, Source | None], Driver]] = {
    "sshtransport": Packets,
    "objects": Objects,
    "fresh": Fresh,
    "asyncssh": Asyncssh,
    "library": library,
    "padding-urandom": partial(Packets, pool=Unpooled),
    "padding-chacha20": partial(Packets, pool=lambda: PaddingPool(chacha20_source())),
    "padding-aes-ctr": partial(Packets, pool=lambda: PaddingPool(aes_ctr_source())),
    "padding-zeros": partial(Packets, pool=lambda: PaddingPool(zeros)),
}
