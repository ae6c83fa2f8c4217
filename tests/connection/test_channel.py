"""One channel: windows, order of output, credit, EOF and CLOSE, requests. Peer numbers are never ours."""

from __future__ import annotations

import itertools
import mmap
import struct
import sys
from typing import Any

import pytest

from sshtransport.connection import (
    ChannelClosed,
    ChannelEOFReceived,
    ChannelReadable,
    ChannelReplied,
    ChannelRequest,
    ChannelRequestReceived,
    ChannelState,
    ChannelWritable,
    Env,
    Exec,
    ExitSignal,
    ExitStatus,
    PtyRequest,
    Shell,
    Signal,
    Subsystem,
    UnknownRequest,
    WindowChange,
)
from sshtransport.connection.requests import encode_request
from sshtransport.constants import (
    CHANNEL_HIGH_WATER,
    CHANNEL_LOW_WATER,
    ENV_MAX,
    MAX_PACKET_SIZE,
    PACKET_SEND_MAX,
    PENDING_REPLIES_MAX,
    WINDOW_SIZE,
)
from sshtransport.errors import LocalError, ProtocolError
from tests.support.connections import (
    BIG,
    PEER,
    NullSink,
    Pair,
    adjust,
    channel_request,
    close,
    data,
    eof,
    extended,
    failure,
    joined_data,
    lone,
    read_all,
    success,
)


class TestWriting:
    def test_one_write_one_message(self) -> None:
        side, channel = lone("client")
        content = bytes(1000)
        channel.write(content)
        assert side.sink.take() == [data(PEER, content)]
        assert side.sink.views[0] is content
        assert channel.queued == 0

    @pytest.mark.parametrize("window", [1, 200, 24576, 2**31 - 1, BIG])
    @pytest.mark.parametrize("max_packet", [1, 9, 16384, 32759, 32768, BIG])
    def test_any_window_and_maximum(self, window: int, max_packet: int) -> None:
        """Known bugs G 80: no hidden cap; Dropbear's 24576 with 32759 must not stall."""
        side, channel = lone("client", window=window, max_packet=max_packet)
        content = bytes(range(256)) * 512
        if min(window, max_packet) < 1000:
            content = content[:500]
        channel.write(content)
        received = b""
        while len(received) < len(content):
            sent = side.sink.take()
            assert sent, "stalled"
            assert all(0 < len(p) - 9 <= min(max_packet, MAX_PACKET_SIZE) for p in sent)
            part = joined_data(sent)
            assert len(part) <= window
            received += part
            side.receive(adjust(channel.number, len(part)))
        assert received == content
        assert channel.queued == 0

    def test_a_whole_packet_stays_below_35000_bytes(self) -> None:
        """Extended data has the longest head; frame, padding and tag have to fit too."""
        side, channel = lone("server", max_packet=BIG)
        channel.write(bytes(200_000), 1)
        largest = max(map(len, side.sink.take()))
        assert largest == MAX_PACKET_SIZE + 13
        assert 4 + 1 + largest + 255 + 64 <= PACKET_SEND_MAX

    def test_no_window_at_first(self) -> None:
        """OpenSSH's server opens sessions with 0 and adjusts when the command starts."""
        side, channel = lone("client", window=0)
        channel.write(b"abc")
        assert (side.sink.take(), channel.queued) == ([], 3)
        side.receive(adjust(channel.number, 2**21))
        assert side.sink.take() == [data(PEER, b"abc")]

    def test_a_window_of_one_byte(self) -> None:
        """Known bugs G 87: one byte under a window of 0, and partial chunks."""
        side, channel = lone("client", window=0)
        channel.write(b"x")
        side.receive(adjust(channel.number, 1))
        channel.write(b"yz")
        side.receive(adjust(channel.number, 1))
        side.receive(adjust(channel.number, 1))
        assert side.sink.take() == [data(PEER, b"x"), data(PEER, b"y"), data(PEER, b"z")]

    @pytest.mark.parametrize("empty", [b"", bytearray(), memoryview(b"")])
    def test_nothing_sends_nothing(self, empty: Any) -> None:
        side, channel = lone("client")
        channel.write(empty)
        side.sink.gate = False
        channel.write(empty)
        side.sink.gate = True
        side.pump()
        assert side.sink.take() == []

    @pytest.mark.skipif(sys.maxsize < 2**33 or sys.platform == "win32", reason="needs 4 GiB of address space, unused")
    def test_more_than_4_gib(self) -> None:
        """Known bugs G 87: lengths are not cut to 32 bits, and nothing is copied."""
        side, channel = lone("client", window=BIG)
        sink = NullSink()
        side.connection._shared.sink = sink
        size = 2**32 + 5
        with mmap.mmap(-1, size, access=mmap.ACCESS_READ) as huge, memoryview(huge) as view:
            channel.write(view)
            assert sink.received == BIG
            assert channel.queued == size - BIG
            side.receive(adjust(channel.number, 4))
            side.receive(adjust(channel.number, 4))
            assert (sink.received, channel.queued) == (size, 0)
            assert sink.largest == MAX_PACKET_SIZE

    def test_memory_that_changes_later(self) -> None:
        side, channel = lone("client", window=0)
        small, large = bytearray(b"a" * 10), bytearray(b"b" * 10_000)
        channel.write(small)
        channel.write(memoryview(large))
        small[:] = large[:] = b""
        side.receive(adjust(channel.number, 20_000))
        assert joined_data(side.sink.take()) == b"a" * 10 + b"b" * 10_000

    def test_items_that_are_not_bytes(self) -> None:
        side, channel = lone("client")
        channel.write(memoryview(struct.pack("4I", 1, 2, 3, 4)).cast("I"))
        assert side.sink.take() == [data(PEER, struct.pack("4I", 1, 2, 3, 4))]

    def test_stderr(self) -> None:
        side, channel = lone("server", window=12)
        channel.write(b"out")
        channel.write(b"error", 1)
        channel.write(b"out again")
        assert side.sink.take() == [data(PEER, b"out"), extended(PEER, b"error"), data(PEER, b"out ")]

    def test_a_client_has_no_stderr(self) -> None:
        _, channel = lone("client")
        for stream in (1, 2, -1):
            with pytest.raises(LocalError):
                channel.write(b"x", stream)
        with pytest.raises(LocalError):
            lone("server")[1].write(b"x", 2)

    def test_window_overflow(self) -> None:
        side, channel = lone("client", window=BIG - 1)
        side.receive(adjust(channel.number, 1))
        side.receive(adjust(channel.number, 0))
        with pytest.raises(ProtocolError):
            side.receive(adjust(channel.number, 1))

    def test_adjusts_make_no_events(self) -> None:
        """Known bugs G 85."""
        side, channel = lone("client", window=0)
        for _ in range(10_000):
            assert side.receive(adjust(channel.number, 1)) is None


class TestWaterMarks:
    def test_writable_after_having_been_full(self) -> None:
        side, channel = lone("client", window=0)
        channel.write(bytes(CHANNEL_HIGH_WATER + 1))
        for left in range(CHANNEL_HIGH_WATER, CHANNEL_LOW_WATER, -4096):
            assert side.receive(adjust(channel.number, channel.queued - left)) is None
        event = side.receive(adjust(channel.number, channel.queued - CHANNEL_LOW_WATER))
        assert event == ChannelWritable(channel)
        assert side.receive(adjust(channel.number, 100)) is None

    def test_not_without(self) -> None:
        side, channel = lone("client", window=0)
        channel.write(bytes(CHANNEL_HIGH_WATER))
        assert side.receive(adjust(channel.number, BIG)) is None

    def test_from_pump(self) -> None:
        side, channel = lone("client")
        side.sink.gate = False
        channel.write(bytes(200_000))
        side.sink.gate = True
        assert side.connection.pump() == [ChannelWritable(channel)]
        assert side.connection.pump() == []


class TestOrder:
    """Known bugs G 92: one ordered queue; known bugs E 57: nothing leaks through a shut gate."""

    @pytest.mark.parametrize("window", [BIG, 5, 0])
    def test_nothing_is_overtaken(self, window: int) -> None:
        side, channel = lone("server", window=window)
        side.sink.gate = window == 0
        content = bytes(range(256)) * 300
        channel.write(content)
        channel.send_eof()
        channel.send_exit_status(7)
        channel.close()
        assert side.sink.take() == []
        assert not channel.can_write
        side.sink.gate = True
        side.pump()
        sent = side.sink.take()
        while channel.state is ChannelState.OPEN:
            side.receive(adjust(channel.number, 9999))
            sent += side.sink.take()
        assert joined_data(sent) == content
        tail = [eof(PEER), channel_request(PEER, ExitStatus(7), False), close(PEER)]
        assert sent[-3:] == tail
        assert {payload[0] for payload in sent[:-3]} == {94}

    def test_control_messages_wait_for_the_gate_only(self) -> None:
        side, channel = lone("server", window=0)
        side.sink.gate = False
        channel.send_exit_signal("KILL", True, "killed")
        channel.send_eof()
        channel.send_eof()
        channel.close()
        channel.close()
        assert side.sink.take() == []
        side.sink.gate = True
        side.pump()
        assert side.sink.take() == [
            channel_request(PEER, ExitSignal("KILL", True, "killed"), False),
            eof(PEER),
            close(PEER),
        ]

    def test_other_requests_and_credit_do_not_wait(self) -> None:
        side, channel = lone("client", window=0)
        channel.write(b"x")
        side.sink.gate = False
        channel.request(Signal("INT"))
        assert side.sink.take() == [channel_request(PEER, Signal("INT"), False)]

    def test_the_gate_shuts_in_the_middle(self) -> None:
        side, channel = lone("client")
        side.sink.budget = 2
        content = bytes(range(256)) * 512
        channel.write(content)
        assert (len(side.sink.payloads), channel.queued) == (2, len(content) - 2 * 32768)
        channel.write(b"more")
        side.sink.budget = None
        side.pump()
        assert joined_data(side.sink.take()) == content + b"more"

    def test_after_the_end_nothing_is_taken(self) -> None:
        _, channel = lone("server")
        channel.send_eof()
        with pytest.raises(LocalError):
            channel.write(b"x")
        channel.send_exit_status(0)
        channel.close()
        with pytest.raises(LocalError):
            channel.write(b"")
        with pytest.raises(LocalError):
            channel.send_eof()
        with pytest.raises(LocalError):
            channel.send_exit_status(1)

    def test_taking_turns(self) -> None:
        """pump() sends one message of each channel in turn."""
        pair = Pair()
        channels = [pair.open()[0] for _ in range(3)]
        sink = pair.client.sink
        sink.gate = False
        for channel in channels:
            channel.write(bytes(100_000))
        sink.gate = True
        sink.budget = 6
        pair.client.pump()
        recipients = [payload[1:5] for payload in sink.take()]
        assert recipients == recipients[:3] * 2
        assert len(set(recipients)) == 3

    def test_nobody_overtakes_those_who_wait(self) -> None:
        """A channel that writes while others wait for pump() gets in line."""
        pair = Pair()
        first, second = pair.open()[0], pair.open()[0]
        sink = pair.client.sink
        sink.gate = False
        first.write(b"first")
        sink.gate = True
        second.write(b"second")
        assert not sink.payloads
        pair.client.pump()
        assert [payload[9:] for payload in sink.take()] == [b"first", b"second"]

    def test_who_has_no_window_does_not_hold_up_the_others(self) -> None:
        side, stuck = lone("client", window=0)
        stuck.write(b"x")
        assert not side.connection._shared.pending
        other = side.connection.open_channel("session")
        side.receive(struct.pack(">BIIII", 91, other.number, 2000, 100, 100))
        side.sink.take()
        other.write(b"y")
        assert side.sink.take() == [data(2000, b"y")]


class TestReading:
    def test_notified_once_until_empty(self) -> None:
        side, channel = lone("client")
        event = side.receive(data(7, b"ab"))
        assert event == ChannelReadable(channel, 0)
        assert side.receive(data(7, b"cd")) is None
        assert channel.read(3) == b"abc"
        assert side.receive(data(7, b"ef")) is None
        assert channel.read(100) == b"def"
        assert channel.read(100) == b""
        assert side.receive(data(7, b"g")) is event  # the same object each time

    def test_the_slow_way_does_the_same_as_the_fast_one(self) -> None:
        side, channel = lone("client", window_size=100)
        assert channel._received(0, b"ab") == ChannelReadable(channel, 0)
        assert channel._received(0, bytes(97)) is None
        assert side.receive(data(7, b"c")) is None
        with pytest.raises(ProtocolError):
            channel._received(0, b"x")
        assert channel.read(1000) == b"ab" + bytes(97) + b"c"
        assert side.sink.take() == [adjust(PEER, 100)]

    def test_streams_are_apart(self) -> None:
        side, channel = lone("client")
        assert side.receive(data(7, b"out")) == ChannelReadable(channel, 0)
        assert side.receive(extended(7, b"err")) == ChannelReadable(channel, 1)
        assert (channel.buffered(0), channel.buffered(1)) == (3, 3)
        assert channel.read(10, 1) == b"err"
        assert side.receive(extended(7, b"more")) == ChannelReadable(channel, 1)
        assert side.receive(data(7, b"put")) is None
        assert (channel.read(10), channel.read(10, 1)) == (b"output", b"more")

    def test_nothing_there(self) -> None:
        _, channel = lone("client")
        assert channel.read(1) == channel.read(1, 1) == b""
        for limit in (0, -1):
            with pytest.raises(LocalError):
                channel.read(limit)

    def test_credit_comes_with_reading_half(self) -> None:
        side, channel = lone("client")
        for _ in range(WINDOW_SIZE // 32768):
            side.receive(data(7, bytes(32768)))
        with pytest.raises(ProtocolError):
            side.receive(data(7, b"x"))
        assert side.sink.take() == []
        read = 0
        while not side.sink.payloads:
            read += len(channel.read(32768))
        assert read == WINDOW_SIZE // 2
        assert side.sink.take() == [adjust(PEER, WINDOW_SIZE // 2)]

    @pytest.mark.parametrize("window", [1, 2, 3, 200, 65536])
    @pytest.mark.parametrize("limit", [1, 7, 10**6])
    def test_a_full_window_opens_again(self, window: int, limit: int) -> None:
        """Known bugs G 81: credit does not depend on what the window is now."""
        side, channel = lone("client", window_size=window)
        credit = window
        for _ in range(5):
            while credit:
                size = min(credit, 32768)
                side.receive(data(7, bytes(size)))
                credit -= size
            read_all(channel, limit=max(limit, window // 100))
            credit = sum(int.from_bytes(payload[5:], "big") for payload in side.sink.take())
            assert credit > window // 2

    def test_discard_throws_away_and_credits_at_once(self) -> None:
        side, channel = lone("client", window_size=1000)
        side.receive(data(7, bytes(400)))
        side.receive(extended(7, bytes(200)))
        channel.discard()
        assert side.sink.take() == [adjust(PEER, 600)]
        assert (channel.buffered(), channel.buffered(1), channel.read(10)) == (0, 0, b"")
        for _ in range(10):
            assert side.receive(data(7, bytes(500))) is None
            assert side.receive(extended(7, bytes(500))) is None
            assert sum(int.from_bytes(payload[5:], "big") for payload in side.sink.take()) == 1000

    @pytest.mark.parametrize("kind", [0, 2, 1000, BIG])
    def test_other_extended_data_is_counted_credited_and_dropped(self, kind: int) -> None:
        side, channel = lone("client", window_size=100)
        for _ in range(10):
            assert side.receive(extended(7, bytes(100), kind)) is None
            assert side.sink.take() == [adjust(PEER, 100)]
        assert (channel.buffered(0), channel.buffered(1)) == (0, 0)
        with pytest.raises(ProtocolError):
            side.receive(extended(7, bytes(101), kind))

    def test_extended_data_to_a_server(self) -> None:
        side, channel = lone("server", window_size=100)
        for _ in range(10):
            assert side.receive(extended(7, bytes(100))) is None
            assert side.sink.take() == [adjust(PEER, 100)]
        assert channel.buffered(1) == 0

    def test_extended_data_of_a_forwarding(self) -> None:
        """Nobody reads a stderr there: it must not use the window up."""
        pair = Pair(client={"window_size": 100})
        channel, _ = pair.open("direct-tcpip", struct.pack(">I1sII1sI", 1, b"h", 1, 1, b"o", 1))
        assert pair.client.receive(extended(channel.number, bytes(100))) is None
        assert pair.client.sink.numbers() == [93]

    def test_data_of_no_length(self) -> None:
        side, channel = lone("client")
        for payload in (data(7, b""), extended(7, b""), extended(7, b"", 5)):
            assert side.receive(payload) is None
        assert channel.buffered() == 0

    @pytest.mark.parametrize("make", [data, extended])
    def test_beyond_the_window(self, make: Any) -> None:
        """Known bugs G 83: one byte too many."""
        side, _ = lone("client", window_size=1000)
        side.receive(make(7, bytes(600)))
        with pytest.raises(ProtocolError) as caught:
            side.receive(make(7, bytes(401)))
        assert (caught.value.limit, caught.value.phase) == (400, "connection")

    @pytest.mark.parametrize("make", [data, extended])
    def test_above_our_maximum(self, make: Any) -> None:
        """Known bugs G 83: one byte too many in a packet."""
        side, _ = lone("client", max_packet_size=500)
        side.receive(make(7, bytes(500)))
        with pytest.raises(ProtocolError):
            side.receive(make(7, bytes(501)))

    def test_a_slow_reader_keeps_its_window_shut_and_nobody_elses(self) -> None:
        """Known bugs G 96."""
        pair = Pair(client={"window_size": 50_000})
        slow, slow_server = pair.open()
        quick, quick_server = pair.open()
        slow_server.write(bytes(500_000))
        quick_server.write(bytes(500_000))
        pair.deliver()
        for _ in range(20):
            quick.read(10**6)
            pair.deliver()
        while quick.read(10**6):
            pair.deliver()
        assert quick_server.queued == 0
        assert (slow.buffered(), slow_server.queued) == (50_000, 450_000)


class TestEnd:
    def test_eof(self) -> None:
        side, channel = lone("client")
        side.receive(data(7, b"abc"))
        assert not channel.read_closed
        assert side.receive(eof(7)) == ChannelEOFReceived(channel)
        assert (channel.eof_received, channel.read_closed, channel.read(10)) == (True, True, b"abc")
        assert side.receive(eof(7)) is None
        channel.write(b"still")
        assert side.sink.take() == [data(PEER, b"still")]

    @pytest.mark.parametrize("make", [data, extended])
    def test_data_after_eof(self, make: Any) -> None:
        side, _ = lone("client")
        side.receive(eof(7))
        assert side.receive(make(7, b"")) is None
        with pytest.raises(ProtocolError):
            side.receive(make(7, b"x"))

    def test_no_credit_after_eof(self) -> None:
        side, channel = lone("client", window_size=100)
        side.receive(data(7, bytes(100)))
        side.receive(eof(7))
        read_all(channel)
        assert side.sink.take() == []

    def test_eof_never_becomes_close(self) -> None:
        """Known bugs G 93."""
        side, channel = lone("server")
        side.receive(eof(7))
        assert side.sink.take() == []
        assert channel.can_write

    @pytest.mark.parametrize("window", [BIG, 0])
    def test_close_is_answered_once(self, window: int) -> None:
        """Known bugs G 89: CLOSE alone, CLOSE with much queued and no window."""
        side, channel = lone("client", window=window)
        if not window:
            channel.write(bytes(10**6))
            channel.send_eof()
        assert side.receive(close(7)) == ChannelClosed(channel)
        assert side.sink.take() == [close(PEER)]
        assert (channel.state, channel.queued, side.connection.channels) == (ChannelState.CLOSED, 0, {})
        assert side.receive(close(7)) is None
        assert side.receive(eof(7)) is None
        channel.close()
        assert side.sink.take() == []

    def test_close_is_answered_even_if_the_gate_is_shut(self) -> None:
        """Known bugs E 56: the answer waits, the reader does not."""
        side, channel = lone("client")
        side.sink.gate = False
        channel.write(bytes(100_000))
        assert side.receive(close(7)) == ChannelClosed(channel)
        assert (side.sink.take(), channel.state, channel.queued) == ([], ChannelState.CLOSING, 0)
        assert side.receive(close(7)) is None
        assert side.receive(eof(7)) is None
        assert side.receive(adjust(7, BIG)) is None
        assert side.receive(success(7)) is None
        for payload in (data(7, b"x"), extended(7, b"x"), channel_request(7, ExitStatus(1))):
            with pytest.raises(ProtocolError):
                side.receive(payload)
        side.sink.gate = True
        side.pump()
        assert side.sink.take() == [close(PEER)]
        assert side.connection.channels == {}

    def test_what_came_before_close_can_be_read_after_it(self) -> None:
        """Known bugs G 99."""
        side, channel = lone("client")
        side.receive(data(7, b"x" * 32768))
        side.receive(extended(7, b"err"))
        side.receive(channel_request(7, ExitStatus(3), False))
        side.receive(close(7))
        assert (channel.read(10**6), channel.read(10, 1), channel.exit_status) == (b"x" * 32768, b"err", 3)
        assert (channel.read_closed, channel.read(1)) == (True, b"")
        assert side.sink.take() == [close(PEER)]

    def test_after_our_close_nothing_more_is_sent(self) -> None:
        side, channel = lone("server", window_size=1000)
        side.receive(channel_request(7, Shell()))
        channel.reply(True)
        channel.close()
        assert side.sink.take() == [success(PEER), close(PEER)]
        for payload in (
            data(7, bytes(1000)),
            extended(7, b"x"),
            channel_request(7, Signal("INT")),
            channel_request(7, UnknownRequest("keepalive@openssh.com")),
            adjust(7, 5),
            success(7),
            failure(7),
            eof(7),
            data(7, b""),
        ):
            assert side.receive(payload) is None
        assert channel.state is ChannelState.CLOSING
        assert side.receive(close(7)) == ChannelClosed(channel)
        channel.reply(True)  # late, and no harm
        assert side.sink.take() == []

    def test_exit_status_is_kept_even_after_our_close(self) -> None:
        side, channel = lone("client")
        channel.close()
        assert side.receive(channel_request(7, ExitStatus(4), True)) is None
        assert channel.exit_status == 4
        assert side.sink.take() == [close(PEER)]

    def test_closing_with_output_queued_reads_over_the_input(self) -> None:
        """A peer that writes before it reads must not be stuck while our CLOSE waits for its window."""
        side, channel = lone("server", window=0, window_size=100)
        channel.write(b"result")
        side.receive(data(7, b"unread"))
        channel.close()
        for _ in range(10):
            assert side.receive(data(7, bytes(94))) is None
            side.receive(data(7, bytes(6)))
        assert set(side.sink.numbers()) == {93}
        side.sink.take()
        side.receive(adjust(7, 100))
        assert side.sink.take() == [data(PEER, b"result"), close(PEER)]

    ENDS = (data(7, b"out"), channel_request(7, ExitStatus(5), False), eof(7), close(7))

    @pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
    @pytest.mark.parametrize("present", [(1, 1, 1), (1, 1, 0), (1, 0, 1), (1, 0, 0), (0, 1, 1), (0, 0, 0)])
    def test_every_order_of_the_end(self, order: tuple[int, ...], present: tuple[int, ...]) -> None:
        """Known bugs G 100: data, exit-status and EOF in every legal order, or missing; each known once."""
        parts = [i for i in order if present[i]]
        if 0 in parts and 2 in parts and parts.index(2) < parts.index(0):
            return  # data after EOF
        side, channel = lone("client")
        for i in [*parts, 3]:
            side.receive(self.ENDS[i])
        assert channel.read(10) == (b"out" if 0 in parts else b"")
        assert channel.exit_status == (5 if 1 in parts else None)
        assert channel.eof_received == (2 in parts)
        kinds = [type(event) for event in side.events]
        assert kinds[-1] is ChannelClosed
        assert len(set(kinds)) == len(kinds) == len(parts) + 1

    def test_exit_signal(self) -> None:
        side, channel = lone("client")
        request = ExitSignal("KILL", False, "gone", "en")
        assert side.receive(channel_request(7, request, False)) == ChannelRequestReceived(channel, request, False)
        assert (channel.exit_signal, channel.exit_status) == (request, None)

    def test_the_first_word_counts(self) -> None:
        side, channel = lone("client")
        side.receive(channel_request(7, ExitStatus(1), True))
        assert side.receive(channel_request(7, ExitStatus(2), True)) is None
        assert side.receive(channel_request(7, ExitSignal("INT"), False)) is None
        assert (channel.exit_status, channel.exit_signal) == (1, None)
        assert side.sink.take() == [success(PEER)] * 2

    def test_a_short_exit_status(self) -> None:
        """Known bugs G 100."""
        side, _ = lone("client")
        with pytest.raises(ProtocolError):
            side.receive(channel_request(7, UnknownRequest("exit-status", b"\0\0\0")))


class TestRequests:
    def test_a_server_takes_them_in_order(self) -> None:
        side, channel = lone("server")
        requests: list[ChannelRequest] = [Env("A", b"1"), PtyRequest("vt", 80, 24), Exec(b"ls"), WindowChange(1, 2)]
        for request in requests:
            event = side.receive(channel_request(7, request))
            assert event == ChannelRequestReceived(channel, request, True)
        assert side.sink.take() == []
        for answer in (False, True, True, True):
            channel.reply(answer)
        assert side.sink.take() == [failure(PEER)] + [success(PEER)] * 3
        with pytest.raises(LocalError):
            channel.reply(True)

    @pytest.mark.parametrize("want_reply", [True, False])
    @pytest.mark.parametrize("name", ["keepalive@openssh.com", "x11-req", "eow@openssh.com", ""])
    @pytest.mark.parametrize("role", ["client", "server"])
    def test_unknown(self, role: str, name: str, want_reply: bool) -> None:
        """Known bugs H 104, H 105: answered here, without the application."""
        side, _ = lone(role)
        assert side.receive(channel_request(7, UnknownRequest(name, b"any"), want_reply)) is None
        assert side.sink.take() == ([failure(PEER)] if want_reply else [])

    def test_unknown_ones_wait_their_turn(self) -> None:
        side, channel = lone("server")
        side.receive(channel_request(7, Shell()))
        side.receive(channel_request(7, UnknownRequest("keepalive@openssh.com")))
        assert side.sink.take() == []
        channel.reply(True)
        assert side.sink.take() == [success(PEER), failure(PEER)]

    @pytest.mark.parametrize(
        "request_", [Shell(), Exec(b"x"), Subsystem("s"), PtyRequest("vt", 1, 1), Env("A", b""), Signal("INT")]
    )
    def test_a_client_refuses_a_servers(self, request_: ChannelRequest) -> None:
        """RFC 4254, sections 6.2 and 6.5."""
        side, _ = lone("client")
        assert side.receive(channel_request(7, request_)) is None
        assert side.receive(channel_request(7, request_, False)) is None
        assert side.sink.take() == [failure(PEER)]

    def test_a_server_refuses_an_exit_status(self) -> None:
        side, channel = lone("server")
        assert side.receive(channel_request(7, ExitStatus(0))) is None
        assert side.sink.take() == [failure(PEER)]
        assert channel.exit_status is None

    @pytest.mark.parametrize("second", [Shell(), Exec(b"x"), Subsystem("sftp")])
    @pytest.mark.parametrize("settled", [True, False])
    def test_a_second_start(self, second: ChannelRequest, settled: bool) -> None:
        side, channel = lone("server")
        side.receive(channel_request(7, Shell()))
        if settled:
            channel.reply(True)
        assert side.receive(channel_request(7, second)) is None
        if not settled:
            channel.reply(True)
        assert side.sink.take() == [success(PEER), failure(PEER)]

    def test_a_start_without_reply_counts(self) -> None:
        side, channel = lone("server")
        assert side.receive(channel_request(7, Shell(), False)) == ChannelRequestReceived(channel, Shell(), False)
        assert side.receive(channel_request(7, Shell())) is None
        assert side.sink.take() == [failure(PEER)]

    def test_after_a_refused_start_another_may_come(self) -> None:
        side, channel = lone("server")
        side.receive(channel_request(7, Subsystem("none")))
        channel.reply(False)
        assert side.receive(channel_request(7, Shell())) is not None

    def test_only_after_the_start(self) -> None:
        side, _ = lone("server")
        for request in (WindowChange(1, 2), Signal("INT")):
            assert side.receive(channel_request(7, request)) is None
        assert side.sink.take() == [failure(PEER)] * 2

    def test_too_many_variables(self) -> None:
        side, _ = lone("server")
        events = [side.receive(channel_request(7, Env(f"V{i}", b""), False)) for i in range(ENV_MAX + 1)]
        assert [event is not None for event in events] == [True] * ENV_MAX + [False]
        side.receive(channel_request(7, Env("V", b"")))
        assert side.sink.take() == [failure(PEER)]

    def test_channels_that_are_no_session(self) -> None:
        pair = Pair()
        client, server = pair.open("direct-tcpip", struct.pack(">I1sII1sI", 1, b"h", 1, 1, b"o", 1))
        client.request(Shell(), True)
        server.request(ExitStatus(0), True)
        pair.deliver()
        assert client.exit_status is None
        assert pair.client.take(ChannelReplied) == [ChannelReplied(client, False)]
        assert pair.server.take(ChannelReplied) == [ChannelReplied(server, False)]

    def test_too_many_owed_replies(self) -> None:
        """Known bugs E 61: beyond the bound the connection ends."""
        side, _ = lone("server")
        side.receive(channel_request(7, Shell()))
        for _ in range(PENDING_REPLIES_MAX - 1):
            side.receive(channel_request(7, UnknownRequest("keepalive@openssh.com")))
        with pytest.raises(ProtocolError) as caught:
            side.receive(channel_request(7, UnknownRequest("keepalive@openssh.com")))
        assert caught.value.limit == PENDING_REPLIES_MAX
        assert side.sink.take() == []

    def test_asking(self) -> None:
        side, channel = lone("client")
        channel.request(Env("A", b"1"), True)
        channel.request(Exec(b"ls"), True)
        channel.request(Signal("INT"))
        assert side.sink.take() == [
            channel_request(PEER, Env("A", b"1")),
            channel_request(PEER, Exec(b"ls")),
            channel_request(PEER, Signal("INT"), False),
        ]
        assert side.receive(failure(7)) == ChannelReplied(channel, False)
        assert side.receive(success(7)) == ChannelReplied(channel, True)
        assert side.receive(success(7)) is None

    def test_no_reply_is_reported_after_our_close(self) -> None:
        side, channel = lone("client")
        channel.request(Exec(b"ls"), True)
        channel.close()
        assert side.receive(success(7)) is None

    def test_replies_nobody_asked_for(self) -> None:
        """Known bugs G 86: without effect, however many, also on a channel that is not there."""
        side, channel = lone("client")
        for _ in range(1000):
            for number in (7, 99):
                assert side.receive(success(number)) is None
                assert side.receive(failure(number)) is None
        channel.request(Exec(b"ls"), True)
        assert side.receive(success(7)) == ChannelReplied(channel, True)

    def test_a_request_that_cannot_be_encoded_changes_nothing(self) -> None:
        side, channel = lone("client")
        with pytest.raises(LocalError):
            channel.request(Signal("\ud800"), True)
        assert side.sink.take() == []
        assert side.receive(success(7)) is None
        with pytest.raises(LocalError):
            lone("server")[1].send_exit_status(-1)

    @pytest.mark.parametrize("request_", [Exec(b"ls"), Env("A", b"1"), PtyRequest("vt", 80, 24, 0, 0, {1: 2})])
    def test_malformed(self, request_: ChannelRequest) -> None:
        """Truncated at every byte, and trailing bytes; also when the request would be refused."""
        name, content = encode_request(request_)
        for started in (False, True):
            for bad in [content[:size] for size in range(len(content))] + [content + b"\0"]:
                side, _ = lone("server")
                if started:
                    side.receive(channel_request(7, Shell()))
                with pytest.raises(ProtocolError):
                    side.receive(channel_request(7, UnknownRequest(name, bad)))


def test_repr() -> None:
    _, channel = lone("client")
    assert repr(channel) == "<Channel 7 (session, peer's 1000, open)>"
