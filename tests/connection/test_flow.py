"""Two connections against each other: random amounts, windows, packet sizes, gates; content and order compared."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from sshtransport.connection import (
    Channel,
    ChannelClosed,
    ChannelOpenRequested,
    ChannelReadable,
    ChannelState,
    ChannelWritable,
)
from sshtransport.constants import CHANNEL_HIGH_WATER, CHANNEL_LOW_WATER
from tests.support.connections import Pair, Side, read_all
from tests.support.scale import rounds

WINDOWS = st.sampled_from([1, 2, 100, 24576, 40000, 2**21, 2**32 - 1])
PACKETS = st.sampled_from([1, 9, 100, 16384, 32759, 32768, 100_000])


@st.composite
def options(draw: st.DrawFn) -> dict[str, Any]:
    window, packet = draw(WINDOWS), draw(PACKETS)
    chosen: dict[str, Any] = {"window_size": window, "max_packet_size": packet}
    if draw(st.booleans()):
        chosen["max_buffered"] = draw(st.sampled_from([0, 50_000, 2**22]))
    return chosen


class Transfer:
    """One direction of one channel: what was written, what was read."""

    def __init__(self, name: str, sender: Side, writer: Channel, reader: Channel, stream: int = 0) -> None:
        self.sender, self.writer, self.reader, self.stream = sender, writer, reader, stream
        self.written = bytearray()
        self.got = bytearray()
        self.noise = random.Random(name)
        self.congested = False

    def write(self, size: int) -> None:
        content = self.noise.randbytes(size)
        self.written += content
        self.writer.write(content, self.stream)
        self.congested |= self.writer.queued > CHANNEL_HIGH_WATER

    def read(self, limit: int) -> None:
        part = self.reader.read(limit, self.stream)
        assert len(part) <= limit
        self.got += part
        assert self.got == self.written[: len(self.got)]


class Traffic(RuleBasedStateMachine):
    """Anything may happen in any order; nothing is lost, reordered, or sent beyond a window."""

    def __init__(self) -> None:
        super().__init__()
        self.pair = Pair(client={"window_size": 70_000}, server={"window_size": 30_000, "max_packet_size": 10_000})
        self.transfers: list[Transfer] = []
        for i in range(2):
            client, server = self.pair.open()
            pair = self.pair
            self.transfers += [
                Transfer(f"up {i}", pair.client, client, server),
                Transfer(f"down {i}", pair.server, server, client),
                Transfer(f"stderr {i}", pair.server, server, client, 1),
            ]
        self.sides = {"client": self.pair.client, "server": self.pair.server}

    @rule(index=st.integers(0, 5), size=st.sampled_from([0, 1, 50, 4096, 30_000, 100_000]))
    def write(self, index: int, size: int) -> None:
        if self.transfers[index].writer.can_write:
            self.transfers[index].write(size)

    @rule(index=st.integers(0, 5), limit=st.sampled_from([1, 100, 40_000, 10**6]))
    def read(self, index: int, limit: int) -> None:
        self.transfers[index].read(limit)

    @rule(name=st.sampled_from(["client", "server"]), opened=st.booleans())
    def gate(self, name: str, opened: bool) -> None:
        side = self.sides[name]
        side.sink.gate = opened
        if opened:
            side.pump()

    @rule(name=st.sampled_from(["client", "server"]), budget=st.integers(1, 3))
    def shut_soon(self, name: str, budget: int) -> None:
        self.sides[name].sink.budget = budget
        self.sides[name].pump()

    @rule(name=st.sampled_from(["client", "server"]), count=st.integers(1, 8))
    def arrive(self, name: str, count: int) -> None:
        receiver = self.sides[name]
        sender = self.sides["server" if name == "client" else "client"]
        for _ in range(min(count, len(sender.sink.payloads))):
            receiver.receive(sender.sink.payloads.popleft())

    @precondition(lambda self: self.transfers[0].writer.can_write)
    @rule()
    def end_one(self) -> None:
        self.transfers[0].writer.send_eof()

    @invariant()
    def nothing_in_between(self) -> None:
        for transfer in self.transfers:
            assert transfer.reader._recv_window >= 0
            assert transfer.writer._send_window >= 0

    def teardown(self) -> None:
        """Open all gates: everything arrives, and who was told to wait is told to go on."""
        for side in self.sides.values():
            side.sink.gate, side.sink.budget = True, None
            side.pump()
        moved = True
        while moved:
            self.pair.deliver()
            before = [len(transfer.got) for transfer in self.transfers]
            for transfer in self.transfers:
                while transfer.reader.buffered(transfer.stream):
                    transfer.read(10**6)
            moved = before != [len(transfer.got) for transfer in self.transfers] or any(
                side.sink.payloads for side in self.sides.values()
            )
        for transfer in self.transfers:
            assert transfer.got == transfer.written
            assert transfer.writer.queued == 0
            writable = ChannelWritable(transfer.writer) in transfer.sender.events
            shared = [t for t in self.transfers if t.writer is transfer.writer]
            assert writable or not any(t.congested for t in shared)
        assert self.transfers[0].reader.eof_received == (not self.transfers[0].writer.can_write)


Traffic.TestCase.settings = settings(max_examples=rounds(60), stateful_step_count=40, deadline=None)
TestTraffic = Traffic.TestCase


@settings(max_examples=rounds(60), deadline=None)
@given(
    client=options(),
    server=options(),
    sizes=st.lists(st.sampled_from([1, 10, 1000, 32768, 70_000]), min_size=1, max_size=6),
    seed=st.integers(0, 2**16),
)
def test_a_whole_command(client: dict[str, Any], server: dict[str, Any], sizes: list[int], seed: int) -> None:
    """Known bugs G 92, G 99, E 65: input up, output down, EOF, exit status, CLOSE right behind; nothing missing."""
    smallest = min(o[k] for o in (client, server) for k in ("window_size", "max_packet_size"))
    if smallest < 100:
        sizes = [min(size, 300) for size in sizes]
    chance = random.Random(seed)
    pair = Pair(client=client, server=server)
    ours, theirs = pair.open()
    up, down = Transfer("up", pair.client, ours, theirs), Transfer("down", pair.server, theirs, ours)
    for side in (pair.client, pair.server):
        side.sink.gate = chance.random() < 0.5
    for size in sizes:
        up.write(size)
        down.write(size)
    ours.send_eof()
    theirs.send_eof()
    theirs.send_exit_status(42)
    for _ in range(1_000_000):
        for sender, receiver in ((pair.client, pair.server), (pair.server, pair.client)):
            sender.sink.gate = chance.random() < 0.7
            sender.pump()
            for payload in sender.sink.take():
                receiver.receive(payload)
        for transfer in (up, down):
            if chance.random() < 0.7:
                transfer.read(chance.choice([1000, 100_000]))
        if up.got == up.written and theirs.queued == 0 and theirs.state is ChannelState.OPEN:
            theirs.close()
        if ours.state is ChannelState.CLOSED and not ours.buffered():
            break
    else:
        raise AssertionError("stalled")
    assert down.got == down.written
    assert (ours.eof_received, ours.exit_status, theirs.eof_received) == (True, 42, True)
    assert [type(e) for e in pair.client.events].count(ChannelClosed) == 1


@pytest.mark.parametrize("stream", [0, 1])
def test_close_right_behind_the_data(stream: int) -> None:
    """Known bugs G 92: 10 MB, EOF and CLOSE at once, a small window and a shut gate in the middle."""
    pair = Pair(client={"window_size": 24576, "max_packet_size": 32759})
    ours, theirs = pair.open()
    content = random.Random(1).randbytes(10 * 2**20)
    theirs.write(content, stream)
    theirs.send_eof()
    theirs.send_exit_status(0)
    theirs.close()
    got = bytearray()
    turn = 0
    while ours.state is not ChannelState.CLOSED:
        turn += 1
        pair.server.sink.gate = turn % 3 != 0
        pair.server.pump()
        pair.deliver()
        got += read_all(ours, stream)
    assert got == content
    assert (ours.eof_received, ours.exit_status) == (True, 0)


def test_readable_is_enough_to_read_everything() -> None:
    """A reader that acts on events alone, emptying the stream each time, misses nothing."""
    pair = Pair(client={"window_size": 5000})
    ours, theirs = pair.open()
    content = random.Random(2).randbytes(300_000)
    theirs.write(content)
    got = bytearray()
    while pair.server.sink.payloads:
        for payload in pair.server.sink.take():
            if isinstance(pair.client.receive(payload), ChannelReadable):
                got += read_all(ours, limit=777)
        for payload in pair.client.sink.take():
            pair.server.receive(payload)
    assert got == content


def test_writable_is_enough_to_write_everything() -> None:
    """Known bugs G 98: a writer that stops above the high-water mark and goes on when told never waits for ever."""
    pair = Pair()
    ours, theirs = pair.open()
    left, got, paused = 3_000_000, 0, False
    while got < 3_000_000:
        while left and not paused:
            ours.write(bytes(30_000))
            left -= 30_000
            paused = ours.queued > CHANNEL_HIGH_WATER
            assert ours.queued <= CHANNEL_HIGH_WATER + 30_000
        pair.client.sink.gate = not pair.client.sink.gate
        pair.client.pump()
        pair.deliver()
        got += len(read_all(theirs))
        if pair.client.take(ChannelWritable):
            assert ours.queued <= CHANNEL_LOW_WATER
            paused = False
        assert ours.queued or left or got == 3_000_000


def test_fifty_commands_one_after_the_other() -> None:
    """Known bugs G 90: every way out closes, so that ten slots are enough."""
    pair = Pair(server={"channels_max": 10})
    for i in range(50):
        ours = pair.client.connection.open_channel("session")
        pair.deliver()
        (request,) = pair.server.take(ChannelOpenRequested)
        theirs = request.channel
        theirs.accept()
        theirs.write(b"output")
        pair.deliver()
        (ours if i % 2 else theirs).close()
        pair.deliver()
        assert ours.state is theirs.state is ChannelState.CLOSED
    assert pair.client.connection.channels == pair.server.connection.channels == {}
