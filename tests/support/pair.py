"""A client and a server transport in memory, and ways to move the bytes between them."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from sshtransport.config import TransportConfig
from sshtransport.events import Disconnected, HostKeyOffered
from sshtransport.keys import PrivateKey
from sshtransport.transport import Item, SSHTransport

__all__ = ("CUTS", "Pair", "by_byte", "host_key", "logged_in", "random_cuts", "whole")

Cut = Callable[[bytes], Iterator[bytes]]


def whole(data: bytes) -> Iterator[bytes]:
    """All at once."""
    if data:
        yield data


def by_byte(data: bytes) -> Iterator[bytes]:
    """One byte after the other."""
    for index in range(len(data)):
        yield data[index : index + 1]


def random_cuts(seed: int, most: int = 200) -> Cut:
    """Pieces of random sizes, the same for the same seed."""
    chosen = random.Random(seed)

    def cut(data: bytes) -> Iterator[bytes]:
        start = 0
        while start < len(data):
            size = chosen.randint(1, most)
            yield data[start : start + size]
            start += size

    return cut


CUTS: dict[str, Cut] = {"whole": whole, "by byte": by_byte, "random": random_cuts(7)}

_host_keys: dict[str, PrivateKey] = {}


def host_key(algorithm: str = "ssh-ed25519") -> PrivateKey:
    """A throw-away key of that type, made once a run."""
    if algorithm not in _host_keys:
        _host_keys[algorithm] = PrivateKey.generate(algorithm)
    return _host_keys[algorithm]


class Pair:
    """Two transports and what each has received. Host keys are accepted unless ``accept`` is False."""

    def __init__(
        self,
        client: TransportConfig | None = None,
        server: TransportConfig | None = None,
        *,
        host_keys: Sequence[PrivateKey] | None = None,
        cut: Cut = whole,
        accept: bool = True,
        **options: Any,
    ) -> None:
        self.client = SSHTransport("client", client, **options)
        self.server = SSHTransport("server", server, host_keys=host_keys or [host_key()], **options)
        self.cut = cut
        self.accept = accept
        self.client_items: list[Item] = []
        self.server_items: list[Item] = []
        self.to_server = bytearray()  # everything that crossed
        self.to_client = bytearray()

    def deliver(self, target: SSHTransport, data: bytes) -> None:
        """Give ``data`` to one end, cut."""
        seen = self.client_items if target is self.client else self.server_items
        log = self.to_client if target is self.client else self.to_server
        log += data
        for piece in self.cut(data):
            self._note(target, seen, target.receive_data(piece))

    def _note(self, target: SSHTransport, seen: list[Item], items: list[Item]) -> None:
        while items:
            seen += items
            offered = any(isinstance(item, HostKeyOffered) for item in items)
            items = target.accept_host_key() if offered and self.accept else []

    def pump(self) -> Pair:
        """Move bytes both ways until nothing moves."""
        while True:
            moved = False
            for source, target in ((self.client, self.server), (self.server, self.client)):
                data = source.data_to_send()
                if data:
                    moved = True
                    self.deliver(target, data)
            if not moved:
                return self

    @property
    def ends(self) -> tuple[tuple[SSHTransport, list[Item]], tuple[SSHTransport, list[Item]]]:
        return (self.client, self.client_items), (self.server, self.server_items)

    @staticmethod
    def payloads(items: list[Item]) -> list[bytes]:
        return [item for item in items if isinstance(item, bytes)]

    @staticmethod
    def end(items: list[Item]) -> Disconnected | None:
        """The Disconnected event; there must not be two."""
        ends = [item for item in items if isinstance(item, Disconnected)]
        assert len(ends) <= 1
        return ends[0] if ends else None

    def login(self) -> Pair:
        """The messages that open the connection phase, with no real authentication behind them."""
        self.client.send(b"\x05\x00\x00\x00\x0cssh-userauth")
        self.pump()
        self.server.send(b"\x06\x00\x00\x00\x0cssh-userauth")
        self.pump()
        self.server.send(b"\x34")
        return self.pump()

    def clear(self) -> None:
        """Forget what was received so far."""
        self.client_items.clear()
        self.server_items.clear()


def logged_in(*args: Any, **options: Any) -> Pair:
    """A pair past key exchange and login."""
    pair = Pair(*args, **options).pump().login()
    assert pair.client.phase == pair.server.phase == "connection", (pair.client_items, pair.server_items)
    return pair
