"""The queues of a channel, against plain byte strings."""

from __future__ import annotations

import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sshtransport.connection import ChannelReadable
from sshtransport.connection.buffers import CONTROL, MERGE_BELOW, Inbox, Outbox

SIZES = st.sampled_from([1, 2, 64, 255, 256, 257, 1024, 4095, 4096, 8191, 8192, 32768])
NOBODY: Any = None


def inbox() -> Inbox:
    return Inbox(ChannelReadable(NOBODY, 0))


def pattern(size: int, start: int) -> bytes:
    return bytes((start + i) % 251 for i in range(size))


@given(st.lists(st.tuples(SIZES, st.integers(0, 3), SIZES), max_size=30))
def test_in_and_out(steps: list[tuple[int, int, int]]) -> None:
    """Adds and takes of any sizes keep every byte in order, and the count right."""
    box = inbox()
    expected = b""
    got = b""
    for size, takes, limit in steps:
        chunk = pattern(size, len(expected))
        expected += chunk
        box.add(chunk)
        for _ in range(takes):
            taken = box.take(limit)
            assert type(taken) is bytes
            assert len(taken) <= limit
            assert taken or not box.size
            got += taken
        assert box.size == len(expected) - len(got)
    while part := box.take(1000):
        got += part
    assert got == expected
    assert box.size == 0


def test_a_whole_chunk_is_handed_back_itself() -> None:
    box = inbox()
    chunks = [bytes(32768), bytes(32768)]
    for chunk in chunks:
        box.add(chunk)
    assert box.take(65536) is chunks[0]
    assert box.take(65536) is chunks[1]


def test_several_small_chunks_in_one_read() -> None:
    box = inbox()
    for i in range(70):
        box.add(bytes([i]) * 1024)
    assert len(box.take(65536)) == 65536
    assert len(box.take(65536)) == 6 * 1024


def test_a_large_chunk_is_not_joined() -> None:
    box = inbox()
    large = bytes(32768)
    box.add(bytes(1000))
    box.add(large)
    assert len(box.take(65536)) == 1000
    assert box.take(65536) is large


def test_a_chunk_above_the_limit() -> None:
    box = inbox()
    whole = pattern(100_000, 0)
    box.add(whole)
    assert b"".join(iter(lambda: box.take(999), b"")) == whole


def test_single_bytes_do_not_cost_an_object_each() -> None:
    """A window of 64 KiB filled byte by byte must not take 40 times as much memory."""
    box = inbox()
    for i in range(65536):
        box.add(bytes([i % 256]))
    held = sum(sys.getsizeof(chunk) for chunk in box.chunks)
    assert held < 2 * 65536
    assert box.take(100_000) == bytes(range(256)) * 256


def test_alternating_sizes_do_not_either() -> None:
    box = inbox()
    for _ in range(500):
        box.add(bytes(MERGE_BELOW))
        box.add(bytes(1))
    assert sum(sys.getsizeof(chunk) for chunk in box.chunks) < 2 * box.size


def test_clear() -> None:
    box = inbox()
    box.add(bytes(1000))
    box.take(10)
    box.notified = True
    assert box.clear() == 990
    assert (box.size, box.notified, box.take(10)) == (0, False, b"")
    box.add(b"new")
    assert box.take(10) == b"new"


# --- output ------------------------------------------------------------------------------------------
@given(
    st.lists(st.tuples(st.integers(0, 1), SIZES, st.sampled_from([bytes, bytearray, memoryview])), max_size=20), SIZES
)
def test_out_in_order(writes: list[tuple[int, int, Any]], limit: int) -> None:
    box = Outbox()
    expected = {0: b"", 1: b""}
    for stream, size, kind in writes:
        chunk = pattern(size, len(expected[stream]))
        expected[stream] += chunk
        box.add(stream, kind(chunk) if kind is not bytearray else memoryview(bytearray(chunk)))
    assert box.size == sum(map(len, expected.values()))
    got = {0: b"", 1: b""}
    while box:
        stream, piece = box.take(limit)
        assert 0 < len(piece) <= limit
        got[stream] += bytes(piece)
    assert got == expected
    assert box.size == 0


def test_messages_keep_their_place() -> None:
    box = Outbox()
    box.add(0, b"a")
    box.add_message(b"M1")
    box.add(0, b"b")
    box.add(0, b"c")
    box.add(1, b"d")
    box.add_message(b"M2")
    taken = [box.take(100) for _ in range(5)]
    assert [(stream, bytes(piece)) for stream, piece in taken] == [
        (0, b"a"),
        (CONTROL, b"M1"),
        (0, b"bc"),
        (1, b"d"),
        (CONTROL, b"M2"),
    ]
    assert not box


def test_a_message_needs_no_window() -> None:
    box = Outbox()
    assert not box.ready(100)
    box.add(0, b"a")
    assert not box.ready(0)
    assert box.ready(1)
    box.take(1)
    box.add_message(b"M")
    assert box.ready(0)


def test_what_is_kept_and_what_is_copied() -> None:
    box = Outbox()
    whole = bytes(10_000)
    view = memoryview(whole)[5000:]
    changing = bytearray(b"a" * 10_000)
    box.add(0, whole)
    box.add(0, view)
    box.add(0, memoryview(changing))
    changing[:] = b"b" * 10_000
    assert box.take(32768)[1] is whole
    assert box.take(32768)[1] is view
    assert box.take(32768)[1] == b"a" * 10_000


def test_a_piece_that_left_does_not_change() -> None:
    """Small writes are joined, but never to something of which a part is out already."""
    box = Outbox()
    box.add(0, b"abcdef")
    _, first = box.take(3)
    box.add(0, b"ghi")
    assert bytes(first) == b"abc"
    assert [bytes(box.take(100)[1]) for _ in range(2)] == [b"def", b"ghi"]


def test_small_writes_are_joined_up_to_a_packet() -> None:
    box = Outbox()
    for _ in range(40_000):
        box.add(0, b"x")
    assert [len(box.take(32768)[1]) for _ in range(2)] == [32768, 40_000 - 32768]


def test_clear_out() -> None:
    box = Outbox()
    box.add(0, bytes(100_000))
    box.take(10)
    box.clear()
    assert not box
    assert box.size == 0
    box.add(0, b"abc")
    assert bytes(box.take(100)[1]) == b"abc"


@pytest.mark.parametrize("size", [1, 5000])
def test_a_view_of_part_of_something(size: int) -> None:
    box = Outbox()
    box.add(0, memoryview(bytes(range(256)) * 100)[7 : 7 + size])
    assert bytes(box.take(10_000)[1]) == (bytes(range(256)) * 100)[7 : 7 + size]
