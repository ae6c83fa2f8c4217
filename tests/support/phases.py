"""Pairs that stand at a chosen point of a connection's life."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from sshtransport.config import TransportConfig
from sshtransport.gates import Phase
from sshtransport.transport import Item, SSHTransport
from tests.support.pair import Pair

__all__ = ("LOOSE", "POINTS", "QUICK", "Point", "Stage", "before_keys")

QUICK = TransportConfig(kex=["curve25519-sha256"], ciphers=["aes128-gcm@openssh.com"])
LOOSE = TransportConfig(kex=["curve25519-sha256"], ciphers=["aes128-gcm@openssh.com"], strict_kex="off")


@dataclass
class Stage:
    """One end under test, and the other, which can be made to say anything."""

    pair: Pair
    target: SSHTransport
    peer: SSHTransport

    @property
    def items(self) -> list[Item]:
        return self.pair.client_items if self.target is self.pair.client else self.pair.server_items

    def give(self, data: bytes) -> list[Item]:
        """Feed the target; what came of it."""
        before = len(self.items)
        self.pair.deliver(self.target, data)
        return self.items[before:]

    def answers(self) -> list[bytes]:
        """What the target has to send, read with the peer's keys; the peer does nothing about it."""
        reader = self.peer._reader
        reader.feed(memoryview(self.target.data_to_send()))
        found: list[bytes] = []
        while (payload := reader.read(bytes(256), [])) is not None:
            found.append(payload)
        return found


def _stage(pair: Pair, role: str) -> Stage:
    client_first = role == "client"
    return Stage(pair, *((pair.client, pair.server) if client_first else (pair.server, pair.client)))


def before_keys(role: str, config: TransportConfig) -> Stage:
    """The target has the identification line and waits for KEXINIT, which is still in the peer's output."""
    stage = _stage(Pair(config, config), role)
    greeting = stage.peer.data_to_send()
    end = greeting.index(b"\n") + 1
    stage.give(greeting[:end])
    stage.peer._writer.write_raw(greeting[end:])
    stage.target.data_to_send()
    return stage


def _ident(role: str) -> Stage:
    stage = before_keys(role, LOOSE)
    stage.peer.data_to_send()
    return stage


def _kex(config: TransportConfig) -> Callable[[str], Stage]:
    def make(role: str) -> Stage:
        stage = before_keys(role, config)
        stage.give(stage.peer.data_to_send())
        stage.answers()
        return stage

    return make


def _service(role: str) -> Stage:
    return _stage(Pair(QUICK, QUICK).pump(), role)


def _auth(role: str) -> Stage:
    stage = _service(role)
    stage.pair.client.send(b"\x05\x00\x00\x00\x0cssh-userauth")
    stage.pair.pump()
    stage.pair.server.send(b"\x06\x00\x00\x00\x0cssh-userauth")
    stage.pair.pump()
    return stage


def _prompt(role: str) -> Stage:
    stage = _auth(role)
    stage.pair.server.send(b"\x3c" + bytes(16))
    stage.pair.pump()
    return stage


def _open(role: str) -> Stage:
    return _stage(Pair(QUICK, QUICK).pump().login(), role)


def _own_kexinit(role: str) -> Stage:
    """The target has sent its KEXINIT; the peer has not seen it."""
    stage = _open(role)
    stage.target.rekey()
    stage.answers()
    return stage


def _rekey(role: str) -> Stage:
    """The peer's KEXINIT has arrived, its NEWKEYS has not."""
    stage = _open(role)
    stage.peer.rekey()
    stage.give(stage.peer.data_to_send())
    stage.answers()
    return stage


@dataclass(frozen=True)
class Point:
    """A name, how to get there, and which table of ``arrivals.py`` holds there."""

    name: str
    make: Callable[[str], Stage]
    phase: Phase
    in_exchange: bool
    strict: bool

    def __str__(self) -> str:
        return self.name


POINTS = (
    Point("waiting for KEXINIT", _ident, Phase.KEX, False, False),
    Point("first exchange, not strict", _kex(LOOSE), Phase.KEX, True, False),
    Point("first exchange, strict", _kex(QUICK), Phase.KEX, True, True),
    Point("service", _service, Phase.SERVICE, False, True),
    Point("authentication", _auth, Phase.AUTH, False, True),
    Point("prompt", _prompt, Phase.PROMPT, False, True),
    Point("open", _open, Phase.OPEN, False, True),
    Point("own KEXINIT sent", _own_kexinit, Phase.OPEN, False, True),
    Point("rekey", _rekey, Phase.OPEN, True, True),
)
