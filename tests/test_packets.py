"""The packet reader and writer: bounds, cuts, sequence numbers, padding (RFC 4253, section 6)."""

from __future__ import annotations

import gc
import os
import random
import tracemalloc
from collections.abc import Iterator
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sshtransport.ciphers import get_cipher
from sshtransport.constants import PACKET_LENGTH_MAX, PACKET_LENGTH_MAX_EARLY, PAYLOAD_SEND_MAX
from sshtransport.errors import IntegrityError, LocalError, ProtocolError
from sshtransport.packets import PacketReader, PacketWriter, PaddingPool
from tests.support.ciphers import ANY, NONE_DELIVERED, Suite, suites, under_test
from tests.support.read import read, read_pieces

SUITES = under_test()
GCM = Suite(get_cipher("aes256-gcm@openssh.com"), None)


def plain_writer() -> PacketWriter:
    return PacketWriter(PaddingPool())


def frame(payload: bytes, padding: int, *, length: int | None = None) -> bytes:
    """A packet in clear as the test says, right or wrong."""
    body = bytes([padding]) + payload + bytes(padding)
    return (len(body) if length is None else length).to_bytes(4, "big") + body


def refused(data: bytes, reader: PacketReader | None = None) -> ProtocolError:
    reader = reader or PacketReader()
    with pytest.raises(ProtocolError) as caught:
        read(reader, data)
    return caught.value


# --- lengths ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("length", [0, 1, 4, 35_001, 35_004, 2**18 + 4, 2**31 - 1, 2**31, 2**32 - 4, 2**32 - 1])
def test_a_length_out_of_bounds_is_refused_after_four_bytes(length: int) -> None:
    """Known bugs B 11, M 159."""
    error = refused(length.to_bytes(4, "big"))
    assert error.limit == PACKET_LENGTH_MAX_EARLY == 35_000
    assert "out of bounds" in error.message


@pytest.mark.parametrize("length", [5, 11, 13, 19, 34_995])
def test_a_misaligned_length_is_refused_after_four_bytes(length: int) -> None:
    assert "multiple of the block" in refused(length.to_bytes(4, "big")).message


def test_the_largest_lengths() -> None:
    """35,000 must work early, 256 KiB later; length and length field together fill blocks of eight."""
    reader = PacketReader()
    payload = b"\x5e" * (34_996 - 5)
    assert read(reader, frame(payload, 4)) == [payload]
    later = PacketReader()
    later.length_max = PACKET_LENGTH_MAX
    big = b"\x5e" * (2**18 - 4 - 5)
    assert read(later, frame(big, 4)) == [big]
    assert refused(frame(big, 4), PacketReader()).limit == 35_000
    assert refused((2**18 + 4).to_bytes(4, "big"), later).limit == 2**18


@pytest.mark.parametrize("suite", SUITES)
def test_under_a_cipher_a_bad_length_is_refused_before_the_body(suite: Suite) -> None:
    """Known bugs B 11: also where the length has to be decrypted first."""
    opener = suite.opener()
    aligned = 4 if opener.length_aligned else 0
    for length in (0, 4, 12 - aligned + 1, 35_001, 2**31, 2**32 - 1):
        head = length.to_bytes(4, "big") + bytes(opener.head_size - 4)
        sealed = suite.sealer().seal(0, head[:4], head[4:] + bytes(64))
        reader = suite.reader()
        with pytest.raises(ProtocolError):
            read(reader, sealed[: opener.head_size])
        assert reader._partial is None


@pytest.mark.parametrize("pieces", [1, 1000])
def test_a_length_of_four_gib_allocates_nothing(pieces: int) -> None:
    data = memoryview(b"\xff\xff\xff\xff" + bytes(1_000_000))
    reader = PacketReader()
    tracemalloc.start()
    try:
        with pytest.raises(ProtocolError):
            for start in range(0, len(data), len(data) // pieces):
                reader.feed(data[start : start + len(data) // pieces])
                reader.read(ANY, [])
        assert tracemalloc.get_traced_memory()[1] < 4096
    finally:
        tracemalloc.stop()


def test_an_incomplete_frame_costs_what_has_arrived() -> None:
    """The buffer grows with arrival, up to the frame's size, never by what a length promises."""
    reader = PacketReader()
    reader.length_max = PACKET_LENGTH_MAX
    tracemalloc.start()
    try:
        reader.feed(memoryview((2**18 - 4).to_bytes(4, "big") + bytes(996)))
        assert reader.read(ANY, []) is None
        assert tracemalloc.get_traced_memory()[1] < 4096
        for _ in range(40):
            reader.feed(memoryview(bytes(1000)))
            assert reader.read(ANY, []) is None
        assert reader._partial is not None
        assert len(reader._partial) == 41_000
        assert tracemalloc.get_traced_memory()[1] < 41_000 * 1.25 + 4096
    finally:
        tracemalloc.stop()


# --- padding and payload ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("payload", "padding"),
    [
        (b"\x5e" * 11, 0),
        (b"\x5e" * 10, 1),
        (b"\x5e" * 9, 2),
        (b"\x5e" * 8, 3),
        (b"", 11),  # packet_length - 1: no payload
    ],
)
def test_bad_padding(payload: bytes, padding: int) -> None:
    """Known bugs B 14."""
    assert "padding" in refused(frame(payload, padding)).message


@pytest.mark.parametrize("claimed", [12, 13, 200, 255])
def test_padding_that_is_longer_than_the_packet(claimed: int) -> None:
    assert "padding" in refused(b"\0\0\0\x0c" + bytes([claimed]) + bytes(11)).message


@pytest.mark.parametrize("padding", [4, 5, 12, 100, 255])
def test_good_padding(padding: int) -> None:
    """Up to 255, and of any content."""
    size = 1 + (3 - 1 - padding) % 8
    assert read(PacketReader(), frame(b"\x5e" * size, padding)) == [b"\x5e" * size]
    noisy = bytearray(frame(b"\x5e" * size, padding))
    noisy[-padding:] = b"\xa5" * padding
    assert read(PacketReader(), bytes(noisy)) == [b"\x5e" * size]


def test_message_zero_is_handed_out_and_never_delivered() -> None:
    items: list[bytes] = []
    reader = PacketReader()
    reader.feed(memoryview(frame(b"\0" + b"x" * 6, 4)))
    assert reader.read(ANY, items) == b"\0xxxxxx"
    assert items == []


# --- delivery ---------------------------------------------------------------------------------------


def test_the_table_decides_what_is_delivered() -> None:
    """Others come out one by one, in order with those around them, and with the right number."""
    writer, reader = plain_writer(), PacketReader()
    for number in (94, 94, 20, 94, 21, 21, 94):
        writer.write(bytes([number]) * 5)
    deliver = bytes(number == 94 for number in range(256))
    reader.feed(memoryview(writer.take()))
    items: list[bytes] = []
    seen = []
    while (payload := reader.read(deliver, items)) is not None:
        seen.append((payload[0], len(items), reader.sequence))
    assert seen == [(20, 2, 3), (21, 3, 5), (21, 3, 6)]
    assert len(items) == 4
    assert reader.sequence == reader.packets == 7


def test_nothing_is_read_after_drop_and_nothing_kept() -> None:
    data = bytearray(frame(b"\x5e" * 7, 4) * 2 + b"\0\0")
    reader = PacketReader()
    reader.feed(memoryview(data))
    assert reader.read(NONE_DELIVERED, []) is not None
    reader.drop()
    assert reader.read(NONE_DELIVERED, []) is None
    data.clear()  # no view of it is left
    reader.feed(memoryview(b"\0\0"))
    reader.read(ANY, [])
    reader.drop()
    assert reader._partial is None


def test_rest_gives_back_what_was_not_read() -> None:
    one, two = frame(b"\x5e" * 7, 4), frame(b"\x14" * 7, 4)
    reader = PacketReader()
    reader.feed(memoryview(two + one + one[:5]))
    assert reader.read(bytes(256), []) == b"\x14" * 7
    assert reader.rest() == one + one[:5]
    assert reader.rest() == b""
    assert reader.read(ANY, []) is None


# --- cuts -------------------------------------------------------------------------------------------


def conversation(suite: Suite, seed: int) -> tuple[bytes, list[bytes]]:
    chosen = random.Random(seed)
    writer = suite.writer()
    payloads = [bytes([chosen.choice((94, 20))]) * chosen.choice((1, 2, 17, 100, 3000)) for _ in range(12)]
    for payload in payloads:
        writer.write(payload)
    return writer.take(), payloads


@pytest.mark.parametrize("suite", SUITES)
@pytest.mark.parametrize("deliver", [ANY, NONE_DELIVERED])
def test_byte_by_byte(suite: Suite, deliver: bytes) -> None:
    wire, payloads = conversation(suite, 1)
    assert read_pieces(suite.reader(), (wire[i : i + 1] for i in range(len(wire))), deliver) == payloads


@given(st.data())
def test_random_cuts(data: st.DataObject) -> None:
    suite = data.draw(st.sampled_from(list(suites())), label="suite")
    wire, payloads = conversation(suite, data.draw(st.integers(0, 5)))
    cuts = sorted(data.draw(st.sets(st.integers(1, len(wire) - 1), max_size=30)))
    deliver = data.draw(st.sampled_from([ANY, NONE_DELIVERED]))
    assert read_pieces(suite.reader(), (wire[a:b] for a, b in pairwise([0, *cuts, len(wire)])), deliver) == payloads


def test_two_cuts_anywhere_in_two_packets() -> None:
    """Head, body and tag of both, cut at every pair of places."""
    writer = GCM.writer()
    payloads = [b"\x5e" * 9, b"\x14"]
    for payload in payloads:
        writer.write(payload)
    wire = writer.take()
    for first in range(1, len(wire)):
        for second in range(first, len(wire), 3):
            assert read_pieces(GCM.reader(), (wire[:first], wire[first:second], wire[second:])) == payloads


def test_length_is_called_once_and_then_open() -> None:
    """An opener may keep state between the two (encrypt-and-MAC does)."""
    calls: list[str] = []

    class Watched:
        head_size, block_size, length_aligned, tag_size = 4, 8, True, 0

        def length(self, seq: int, head: memoryview, /) -> int:
            calls.append(f"length {seq}")
            assert len(head) == 4
            return int.from_bytes(head, "big")

        def open(self, seq: int, frame: memoryview, /) -> bytes:
            calls.append(f"open {seq}")
            return bytes(frame[4:])

    wire = frame(b"\x5e" * 7, 4) * 3
    for pieces in ([wire], [wire[i : i + 1] for i in range(len(wire))], [wire[:3], wire[3:21], wire[21:]]):
        calls.clear()
        reader = PacketReader()
        reader.change(Watched(), reset=False)
        assert len(read_pieces(reader, pieces)) == 3
        assert calls == ["length 0", "open 0", "length 1", "open 1", "length 2", "open 2"]


# --- sequence numbers -------------------------------------------------------------------------------


@pytest.mark.parametrize("suite", SUITES)
def test_the_sequence_wraps_under_keys(suite: Suite) -> None:
    writer, reader = suite.writer(2**32 - 2), suite.reader(2**32 - 2)
    for expected in (2**32 - 1, 0, 1):
        writer.write(b"\x5e over the edge")
        assert writer.sequence == expected
        assert read(reader, writer.take()) == [b"\x5e over the edge"]
        assert reader.sequence == expected


def test_the_sequence_may_not_wrap_in_the_first_key_exchange() -> None:
    """Strict KEX, section 3.2; design section 4: always fatal."""
    writer, reader = plain_writer(), PacketReader()
    writer.sequence = reader.sequence = 2**32 - 2
    writer.write(b"\x14")
    assert read(reader, writer.take()) == [b"\x14"]
    with pytest.raises(ProtocolError, match="wrap"):
        writer.write(b"\x14")
    assert (writer.take(), writer.packets) == (b"", 1)
    assert "wrapped" in refused(frame(b"\x5e" * 7, 4), reader).message
    assert reader.packets == 1


@pytest.mark.parametrize("reset", [True, False])
def test_new_keys(reset: bool) -> None:
    """Strict KEX starts both counters again; packets and bytes are counted on."""
    writer, reader = plain_writer(), PacketReader()
    for _ in range(3):
        writer.write(b"\x14 in clear")
    before = writer.take()
    writer.change(GCM.sealer(), reset=reset)
    writer.write(b"\x5e secret")
    behind = writer.take()
    assert read(reader, before) == [b"\x14 in clear"] * 3
    reader.change(GCM.opener(), reset=reset)
    assert read(reader, behind) == [b"\x5e secret"]
    for side in (writer, reader):
        assert side.sequence == (1 if reset else 4)
        assert (side.packets, side.total, side.keyed) == (4, len(before + behind), True)


def test_keys_change_in_the_middle_of_a_buffer() -> None:
    """NEWKEYS and the first packet under the new keys in one segment, and cut anywhere."""
    writer = plain_writer()
    writer.write(b"\x15")
    writer.change(GCM.sealer(), reset=True)
    writer.write(b"\x05 service")
    wire = writer.take()
    for cut in range(len(wire)):
        reader = PacketReader()
        items: list[bytes] = []
        for piece in (wire[:cut], wire[cut:]):
            reader.feed(memoryview(piece))
            while (payload := reader.read(bytes(256), items)) is not None:
                items.append(payload)
                if payload == b"\x15":
                    reader.change(GCM.opener(), reset=True)
        assert items == [b"\x15", b"\x05 service"]


def test_a_bad_packet_is_not_counted() -> None:
    wire = bytearray(GCM.frame(b"\x5e secret"))
    wire[-1] ^= 1
    reader = GCM.reader()
    with pytest.raises(IntegrityError):
        read(reader, bytes(wire))
    assert (reader.packets, reader.total, reader.sequence) == (0, 0, 0)


# --- writing ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("suite", SUITES)
def test_the_largest_payload(suite: Suite) -> None:
    """Whole frames of at most 35,000 bytes: Dropbear reads no more. A channel's 32 KiB fit."""
    writer, reader = suite.writer(), suite.reader()
    assert PAYLOAD_SEND_MAX >= 32_768 + 13
    writer.write(b"\x5e" * PAYLOAD_SEND_MAX)
    wire = writer.take()
    assert len(wire) <= 35_000
    assert len(read(reader, wire)[0]) == PAYLOAD_SEND_MAX
    state = (writer.sequence, writer.packets, writer.total, writer.pending)
    with pytest.raises(LocalError, match="does not fit"):
        writer.write(b"\x5e" * (PAYLOAD_SEND_MAX + 1))
    with pytest.raises(LocalError):
        writer.write(b"\x5e" * 9, memoryview(bytes(PAYLOAD_SEND_MAX)))
    assert (writer.sequence, writer.packets, writer.total, writer.pending) == state
    assert writer.take() == b""


def test_head_and_data_are_one_payload() -> None:
    writer, reader = GCM.writer(), GCM.reader()
    for data in (b"", b"abc", bytearray(b"abc"), memoryview(b"xabcx")[1:4]):
        writer.write(b"\x5e head", data)
    assert read(reader, writer.take()) == [b"\x5e head", *[b"\x5e headabc"] * 3]


def test_counts_and_take() -> None:
    writer = plain_writer()
    writer.write_raw(b"SSH-2.0-x\r\n")
    assert (writer.packets, writer.total, writer.pending) == (0, 0, 11)
    writer.write(b"\x14" * 20)
    assert (writer.packets, writer.total, writer.pending) == (1, 32, 43)
    assert len(writer.take()) == 43
    assert (writer.packets, writer.total, writer.pending) == (1, 32, 0)
    assert writer.take() == b""
    writer.write(b"\x15")
    assert len(writer.take()) == 16


# --- padding pool -----------------------------------------------------------------------------------


def counter() -> Iterator[int]:
    number = 0
    while True:
        yield number % 251
        number += 1


def test_the_pool_gives_its_source_in_order() -> None:
    """Each byte once; a remainder too short for the request is dropped."""
    drawn: list[int] = []
    numbers = counter()

    def source(size: int) -> bytes:
        drawn.append(size)
        return bytes(next(numbers) for _ in range(size))

    pool = PaddingPool(source, block=256)
    assert pool.take(4) == bytes([0, 1, 2, 3])
    assert pool.take(251) == bytes((4 + n) % 251 for n in range(251))
    assert pool.take(255) == bytes((256 + n) % 251 for n in range(255))
    assert drawn == [256, 256]


def test_no_byte_is_given_twice() -> None:
    pool = PaddingPool()
    taken = [pool.take(8) for _ in range(2000)]
    assert len(set(taken)) == 2000
    assert all(len(piece) == 8 for piece in taken)


def test_a_source_that_gives_too_little_is_a_local_error() -> None:
    writer = PacketWriter(PaddingPool(lambda size: b"x" * (size - 1)))
    with pytest.raises(LocalError, match="padding"):
        writer.write(b"\x14")
    assert (writer.sequence, writer.packets, writer.pending) == (0, 0, 0)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_child_process_drops_the_stock() -> None:
    """Or parent and child would pad with the same bytes."""
    pool = PaddingPool(os.urandom)
    pool.take(4)
    expected = pool._left[4:12]
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writing, pool.take(8))
        os._exit(0)
    os.close(writing)
    os.waitpid(child, 0)
    with os.fdopen(reading, "rb") as pipe:
        theirs = pipe.read()
    assert len(theirs) == 8
    assert theirs != expected
    assert pool.take(8) == expected


def test_pools_die_with_their_users() -> None:
    from sshtransport import packets

    gc.collect()  # those of earlier tests that wait for it
    before = len(packets._pools)
    made = [PaddingPool() for _ in range(5)]
    assert len(packets._pools) == before + 5
    made.clear()
    assert len(packets._pools) == before
