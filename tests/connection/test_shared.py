"""The order of replies, and the window budget over all channels."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sshtransport.connection import ChannelClosed, ChannelOpenRequested
from sshtransport.connection.shared import ReplyQueue
from sshtransport.constants import PENDING_REPLIES_MAX, WINDOW_FLOOR
from sshtransport.errors import LocalError, ProtocolError
from tests.support.connections import PEER, Side, close, data, eof, lone, opening, read_all


class TestReplyQueue:
    def test_an_answer_goes_at_once(self) -> None:
        sent: list[bytes] = []
        queue = ReplyQueue(sent.append)
        queue.answer(b"a")
        assert sent == [b"a"]

    def test_answers_wait_for_what_is_owed(self) -> None:
        sent: list[bytes] = []
        queue = ReplyQueue(sent.append)
        queue.owe("first")
        queue.answer(b"2")
        queue.owe("third")
        queue.answer(b"4")
        queue.answer(b"5")
        assert sent == []
        assert queue.settle(b"1") == "first"
        assert sent == [b"1", b"2"]
        assert queue.settle(b"3") == "third"
        assert sent == [b"1", b"2", b"3", b"4", b"5"]
        with pytest.raises(LocalError):
            queue.settle(b"6")

    @given(st.lists(st.sampled_from(["owe", "answer", "settle"]), max_size=60))
    def test_always_in_order(self, steps: list[str]) -> None:
        sent: list[bytes] = []
        queue = ReplyQueue(sent.append)
        count = 0
        owed: list[int] = []
        for step in steps:
            if step == "settle":
                if owed:
                    assert queue.settle(b"%d" % owed[0]) == owed.pop(0)
                continue
            if step == "owe":
                owed.append(count)
                queue.owe(count)
            else:
                queue.answer(b"%d" % count)
            count += 1
            assert sent == [b"%d" % i for i in range(owed[0] if owed else count)]

    @pytest.mark.parametrize("method", ["owe", "answer"])
    def test_the_bound(self, method: str) -> None:
        queue = ReplyQueue(lambda _: None)
        queue.owe(0)
        for _ in range(PENDING_REPLIES_MAX - 1):
            getattr(queue, method)(b"")
        with pytest.raises(ProtocolError) as caught:
            getattr(queue, method)(b"")
        assert caught.value.limit == PENDING_REPLIES_MAX


def accepted(side: Side, sender: int) -> Any:
    event = side.receive(opening("session", sender))
    assert isinstance(event, ChannelOpenRequested)
    event.channel.accept()
    return event.channel


def granted(payload: bytes) -> int:
    """The window in a confirmation or an adjust."""
    return int.from_bytes(payload[9:13] if payload[0] == 91 else payload[5:9], "big")


class TestBudget:
    """max_buffered: the sum of windows and unread data stays below it, plus 64 KiB a channel."""

    WINDOW = 2**21

    def test_later_channels_get_the_floor(self) -> None:
        side = Side("server", 7, max_buffered=3 * 2**20)
        channels = [accepted(side, PEER + i) for i in range(4)]
        windows = [granted(payload) for payload in side.sink.take()]
        assert windows == [self.WINDOW, 2**20, WINDOW_FLOOR, WINDOW_FLOOR]
        assert side.connection._shared.reserved() == sum(windows)
        assert all(channel.number in side.connection.channels for channel in channels)

    def test_a_channel_grows_when_there_is_room_again(self) -> None:
        side = Side("server", 7, max_buffered=2**21)
        first, second = accepted(side, PEER), accepted(side, PEER + 1)
        assert [granted(payload) for payload in side.sink.take()] == [2**21, WINDOW_FLOOR]
        side.receive(data(second.number, bytes(32768)))
        second.read(32768)
        assert granted(side.sink.take()[0]) == 32768  # back to the floor, no more
        side.receive(close(first.number))
        side.sink.take()
        side.receive(data(second.number, bytes(32768)))
        second.read(32768)
        assert granted(side.sink.take()[0]) == self.WINDOW - WINDOW_FLOOR + 32768

    def test_unread_data_counts_after_eof_and_close(self) -> None:
        side = Side("server", 7, max_buffered=2**21)
        first = accepted(side, PEER)
        side.receive(data(first.number, bytes(30_000)))
        side.receive(eof(first.number))
        assert side.connection._shared.reserved() == 30_000
        side.receive(close(first.number))
        assert side.connection._shared.reserved() == 30_000
        first.read(10_000)
        assert side.connection._shared.reserved() == 20_000
        read_all(first)
        assert side.connection._shared.reserved() == 0

    def test_closed_and_unread_channels_go_on_counting_as_channels(self) -> None:
        """Or a peer could pile data up by sending, closing and opening again."""
        side = Side("server", 7, channels_max=3, max_buffered=2**17)
        unread = []
        for i in range(3):
            channel = accepted(side, PEER + i)
            side.receive(data(channel.number, b"x"))
            assert isinstance(side.receive(close(channel.number)), ChannelClosed)
            unread.append(channel)
        assert side.connection.channels == {}
        side.sink.take()
        assert side.receive(opening("session")) is None
        assert side.sink.numbers() == [92]
        assert unread[0].read(10) == b"x"
        accepted(side, PEER + 4)
        unread[1].discard()
        accepted(side, PEER + 5)
        assert side.receive(opening("session")) is None
        unread[2].close()  # stops reading, too
        accepted(side, PEER + 6)

    def test_a_wide_channel_shrinks_while_the_budget_is_short(self) -> None:
        """Less than half a window to give: nothing goes out before the floor guarantees it, and then enough."""
        side = Side("server", 7, max_buffered=2**21)
        wide = accepted(side, PEER)
        narrow = [accepted(side, PEER + 1 + i) for i in range(20)]
        side.sink.take()
        for channel in narrow:
            side.receive(data(channel.number, bytes(32768)))  # unread: it holds its share
        window = self.WINDOW
        grants = []
        for _ in range(200):
            size = min(window, 31_001)
            assert size > 0
            side.receive(data(wide.number, bytes(size)))
            wide.read(32768)
            grant = sum(granted(payload) for payload in side.sink.take())
            window += grant - size
            grants.append(grant)
            assert window > WINDOW_FLOOR // 2  # all is read
            assert side.connection._shared.reserved() <= 2**21 + 21 * WINDOW_FLOOR
        assert 33 < next(i for i, grant in enumerate(grants) if grant) < 68
        assert max(grants) < self.WINDOW // 2

    def test_a_starved_channel_is_never_stuck(self) -> None:
        """However the budget is used up: who reads everything can receive more."""
        side = Side("server", 7, max_buffered=0)
        channel = accepted(side, PEER)
        window = granted(side.sink.take()[0])
        for size in [1, 10_000, 32_767, 1, 32_768, 31_999] * 20:
            size = min(size, window)
            side.receive(data(channel.number, bytes(size)))
            window -= size
            channel.read(100_000)
            window += sum(granted(payload) for payload in side.sink.take())
            assert 0 < window <= WINDOW_FLOOR

    @given(st.lists(st.tuples(st.integers(0, 3), st.sampled_from("drex"), st.integers(1, 32768)), max_size=80))
    def test_the_bound_holds(self, steps: list[tuple[int, str, int]]) -> None:
        """Whatever peer and readers do."""
        limit = 200_000
        side = Side("server", 7, max_buffered=limit, window_size=150_000)
        channels = [accepted(side, PEER + i) for i in range(4)]
        for index, step, size in steps:
            channel = channels[index]
            if step == "d":
                size = min(size, channel._recv_window)
                if size:
                    side.receive(data(channel.number, bytes(size)))
            elif step == "r":
                channel.read(size)
            elif step == "x":
                channel.discard()
            elif size % 5 == 0 and channel.number in side.connection.channels:
                side.receive(eof(channel.number))
            total = sum(c._recv_window + c.buffered(0) for c in channels)
            assert total == side.connection._shared.reserved() <= limit + 4 * WINDOW_FLOOR
            assert all(c._recv_window + c.buffered(0) <= 150_000 for c in channels)


def test_without_a_bound_every_channel_gets_its_window() -> None:
    side, channel = lone("client")
    for _ in range(100):
        side.connection.open_channel("session")
    assert channel._recv_window == 2**21
    assert {granted_open(payload) for payload in side.sink.take()} == {2**21}


def granted_open(payload: bytes) -> int:
    return int.from_bytes(payload[16:20], "big")  # after number, "session", sender
