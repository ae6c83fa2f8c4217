"""Ways to make one end of a pair say what a well-behaved one would not, and to see what it says."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from sshtransport.ciphers import MAC, CipherSpec, Sealer, get_cipher
from sshtransport.events import Disconnected, Event
from sshtransport.messages import KexInit, NameList
from sshtransport.packets import PacketReader
from sshtransport.transport import Item, SSHTransport

__all__ = ("Tap", "clear_packets", "edit_kexinit", "ended", "events", "inject", "listed", "say")


def say(end: SSHTransport, *payloads: bytes) -> None:
    """Put packets into the end's output, past its gates, under its present keys."""
    for payload in payloads:
        end._writer.write(payload)


def inject(end: SSHTransport, *payloads: bytes) -> bytes:
    """The same; what the end has to send now, these last."""
    say(end, *payloads)
    return end.data_to_send()


def edit_kexinit(end: SSHTransport, **changes: Any) -> KexInit:
    """Change the KEXINIT that was written last and has not been taken yet.

    In clear, or under ChaCha20: the other ciphers' state cannot be wound back.
    """
    exchange, writer = end._keying.exchange, end._writer
    assert exchange is not None
    assert exchange.ours is not None
    size = len(writer._frames.pop())
    writer.sequence -= 1
    writer.packets -= 1
    writer.total -= size
    writer.pending -= size
    exchange.ours = replace(exchange.ours, **changes)
    exchange.our_payload = exchange.ours.encode()
    writer.write(exchange.our_payload)
    return exchange.ours


def listed(names: tuple[str, ...] | NameList) -> tuple[str, ...]:
    """The names of a list that came over the wire."""
    return tuple(names)


def clear_packets(stream: bytes) -> list[bytes]:
    """Payloads before the first NEWKEYS of a stream, that included, without the identification line."""
    reader = PacketReader()
    reader.feed(memoryview(stream).toreadonly()[stream.index(b"\n") + 1 :])
    payloads: list[bytes] = []
    while (payload := reader.read(bytes(256), [])) is not None:
        payloads.append(payload)
        if payload == b"\x15":
            break
    return payloads


def ended(items: list[Item]) -> Disconnected:
    """The one item there is: the end."""
    (end,) = items
    assert isinstance(end, Disconnected)
    return end


def events(items: list[Item], kind: type[Event]) -> list[Any]:
    """The events of one kind."""
    return [item for item in items if isinstance(item, kind)]


class _TappedSealer:
    def __init__(self, sealer: Sealer, sent: list[tuple[int, bytes]]) -> None:
        self._sealer = sealer
        self._sent = sent
        self.block_size = sealer.block_size
        self.length_aligned = sealer.length_aligned

    def seal(self, seq: int, head: bytes, body: bytes, /) -> bytes:
        self._sent.append((seq, body[1 : len(body) - body[0]]))
        return self._sealer.seal(seq, head, body)


@dataclass
class Tap:
    """A cipher that also notes every packet its end seals, as (sequence number, payload)."""

    name: str = "aes128-gcm@openssh.com"
    sent: list[tuple[int, bytes]] = field(default_factory=list)

    def __post_init__(self) -> None:
        plain = get_cipher(self.name)
        assert plain.known_answer is not None
        test_key = plain.known_answer.key

        def make(key: bytes, iv: bytes, mac: MAC | None) -> Sealer:
            sealer = plain.make_sealer(key, iv, mac)
            return sealer if key == test_key else _TappedSealer(sealer, self.sent)

        self.spec: CipherSpec = replace(plain, make_sealer=make)

    @property
    def numbers(self) -> list[int]:
        """Message numbers in order."""
        return [payload[0] for _, payload in self.sent]
