"""Two :class:`Connection` objects in memory, and the messages of RFC 4254 written by hand."""

from __future__ import annotations

import struct
from collections import deque
from typing import Any, TypeVar

from sshtransport.connection import (
    Channel,
    ChannelOpened,
    ChannelOpenRequested,
    ChannelRequest,
    Connection,
    ConnectionEvent,
)
from sshtransport.connection.requests import encode_request
from sshtransport.wire import Buffer, boolean, byte, string, text, uint32

E = TypeVar("E", bound=ConnectionEvent)

#: Peer numbers in tests are never ours: this is where they start.
PEER = 1000
BIG = 2**32 - 1


class FakeSink:
    """Keeps payloads in order. ``gate`` is can_send_data; ``budget`` closes it after so many data messages."""

    def __init__(self) -> None:
        self.payloads: deque[bytes] = deque()
        self.gate = True
        self.budget: int | None = None
        self.views: list[Buffer] = []  # the data objects as they were handed over

    @property
    def can_send_data(self) -> bool:
        return self.gate and self.budget != 0

    def send(self, payload: bytes) -> None:
        assert type(payload) is bytes
        self.payloads.append(payload)

    def send_data(self, head: bytes, data: Buffer) -> None:
        assert self.can_send_data, "data through a shut gate"
        if self.budget is not None:
            self.budget -= 1
        self.views.append(data)
        self.payloads.append(head + bytes(data))

    def take(self) -> list[bytes]:
        """All payloads since the last call."""
        taken = list(self.payloads)
        self.payloads.clear()
        return taken

    def numbers(self) -> list[int]:
        """The message numbers of what :meth:`take` would return."""
        return [payload[0] for payload in self.payloads]


class NullSink(FakeSink):
    """Counts data and forgets them."""

    def __init__(self) -> None:
        super().__init__()
        self.received = 0
        self.largest = 0

    def send_data(self, head: bytes, data: Buffer) -> None:
        self.received += len(data)
        self.largest = max(self.largest, len(data))


class Side:
    """One end: its connection, its sink, the events it had."""

    def __init__(self, role: Any, first_number: int, **options: Any) -> None:
        self.sink = FakeSink()
        self.connection = Connection(role, self.sink, **options)
        self.connection._next_number = first_number
        self.events: list[ConnectionEvent] = []

    def receive(self, payload: bytes) -> ConnectionEvent | None:
        event = self.connection.receive(payload)
        if event is not None:
            self.events.append(event)
        return event

    def pump(self) -> None:
        self.events.extend(self.connection.pump())

    def take(self, kind: type[E]) -> list[E]:
        """Remove and return the events of a kind."""
        found = [event for event in self.events if isinstance(event, kind)]
        self.events = [event for event in self.events if not isinstance(event, kind)]
        return found


class Pair:
    """A client and a server whose numbers never agree."""

    def __init__(self, *, client: dict[str, Any] | None = None, server: dict[str, Any] | None = None) -> None:
        self.client = Side("client", 7, **(client or {}))
        self.server = Side("server", BIG, **(server or {}))

    def deliver(self) -> None:
        """Move messages until none is left."""
        while self.client.sink.payloads or self.server.sink.payloads:
            for sender, receiver in ((self.client, self.server), (self.server, self.client)):
                for payload in sender.sink.take():
                    receiver.receive(payload)

    def open(self, channel_type: str = "session", extra: bytes = b"") -> tuple[Channel, Channel]:
        """A channel from the client: its two ends."""
        ours = self.client.connection.open_channel(channel_type, extra)
        self.deliver()
        (request,) = self.server.take(ChannelOpenRequested)
        request.channel.accept()
        self.deliver()
        assert [event.channel for event in self.client.take(ChannelOpened)] == [ours]
        return ours, request.channel


def lone(role: Any, *, window: int = BIG, max_packet: int = 32768, **options: Any) -> tuple[Side, Channel]:
    """One end whose peer is the test: with an open session, the peer's number being 1000."""
    side = Side(role, 7, **options)
    if role == "client":
        channel = side.connection.open_channel("session")
        side.receive(confirmation(channel.number, PEER, window, max_packet))
        side.take(ChannelOpened)
    else:
        event = side.receive(opening("session", PEER, window, max_packet))
        assert isinstance(event, ChannelOpenRequested)
        channel = event.channel
        channel.accept()
        side.events.clear()
    side.sink.take()
    return side, channel


def read_all(channel: Channel, stream: int = 0, limit: int = 65536) -> bytes:
    """Read until nothing is buffered."""
    parts = []
    while part := channel.read(limit, stream):
        parts.append(part)
    return b"".join(parts)


def joined_data(payloads: list[bytes]) -> bytes:
    """The contents of the CHANNEL_DATA among the payloads."""
    return b"".join(payload[9:] for payload in payloads if payload[0] == 94)


# --- messages --------------------------------------------------------------------------------------
def opening(
    channel_type: str, sender: int = PEER, window: int = BIG, max_packet: int = 32768, extra: bytes = b""
) -> bytes:
    return byte(90) + text(channel_type) + struct.pack(">III", sender, window, max_packet) + extra


def confirmation(recipient: int, sender: int = PEER, window: int = BIG, max_packet: int = 32768) -> bytes:
    return struct.pack(">BIIII", 91, recipient, sender, window, max_packet)


def open_failure(recipient: int, reason: int = 2, description: bytes = b"no") -> bytes:
    return byte(92) + uint32(recipient) + uint32(reason) + string(description) + string(b"")


def adjust(recipient: int, amount: int) -> bytes:
    return byte(93) + uint32(recipient) + uint32(amount)


def data(recipient: int, content: bytes) -> bytes:
    return byte(94) + uint32(recipient) + string(content)


def extended(recipient: int, content: bytes, kind: int = 1) -> bytes:
    return byte(95) + uint32(recipient) + uint32(kind) + string(content)


def eof(recipient: int) -> bytes:
    return byte(96) + uint32(recipient)


def close(recipient: int) -> bytes:
    return byte(97) + uint32(recipient)


def channel_request(recipient: int, request: ChannelRequest, want_reply: bool = True) -> bytes:
    name, content = encode_request(request)
    return byte(98) + uint32(recipient) + text(name) + boolean(want_reply) + content


def success(recipient: int) -> bytes:
    return byte(99) + uint32(recipient)


def failure(recipient: int) -> bytes:
    return byte(100) + uint32(recipient)


def global_request(name: str, content: bytes = b"", want_reply: bool = True) -> bytes:
    return byte(80) + text(name) + boolean(want_reply) + content
