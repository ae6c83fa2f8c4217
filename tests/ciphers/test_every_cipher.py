"""What every cipher must do, with each MAC it can have: a registered one is tested by existing."""

from __future__ import annotations

import random
from typing import Any

import pytest
from asyncssh.encryption import get_encryption

from sshtransport.errors import IntegrityError, ProtocolError
from tests.support.ciphers import Suite, suites, under_test
from tests.support.read import read

SUITES = under_test()
ETM = "-etm@openssh.com"
#: Bytes on the wire of a packet with a one-byte payload, without its tag (protocol, section 2.1).
SMALLEST = {"aes256-gcm@openssh.com": 20, "aes128-gcm@openssh.com": 20, "chacha20-poly1305@openssh.com": 12}


def padded(suite: Suite, size: int) -> int:
    """packet_length for a payload of that size: the smallest that holds four bytes of padding and fits."""
    opener = suite.opener()
    counted = 4 if opener.length_aligned else 0
    return next(n for n in range(size + 5, size + 5 + opener.block_size) if (n + counted) % opener.block_size == 0)


def theirs(suite: Suite) -> Any:
    """asyncssh's object for the same keys."""
    name = suite.mac.name.encode() if suite.mac else b""
    return get_encryption(
        suite.cipher.name.encode(),
        suite.key,
        suite.iv,
        name.removesuffix(ETM.encode()),
        suite.mac_key,
        name.endswith(ETM.encode()),
    )


@pytest.mark.parametrize("suite", SUITES)
def test_every_small_payload_comes_back(suite: Suite) -> None:
    """Known bugs B 15, 19: length, padding and tag add up on the wire, and nothing stands behind the tag."""
    writer, reader = suite.writer(), suite.reader()
    for size in range(1, 601):
        payload = bytes([size % 255 + 1]) * size
        writer.write(payload)
        wire = writer.take()
        assert len(wire) == 4 + padded(suite, size) + suite.tag_size
        assert read(reader, wire) == [payload]


@pytest.mark.parametrize("suite", SUITES)
def test_large_payloads_come_back(suite: Suite) -> None:
    chosen = random.Random(str(suite))
    writer, reader = suite.writer(), suite.reader()
    payloads = [b"\x5e" + chosen.randbytes(chosen.choice((1, 4)) * chosen.randint(600, 8_000)) for _ in range(40)]
    for payload in payloads:
        writer.write(payload)
    assert read(reader, writer.take()) == payloads


@pytest.mark.parametrize("suite", SUITES)
def test_the_smallest_frame(suite: Suite) -> None:
    without_tag = SMALLEST.get(suite.cipher.name)
    if without_tag is None and suite.mac is not None:
        without_tag = 20 if suite.mac.etm else 16
    if without_tag is None:
        pytest.skip("a cipher that this table does not know")
    tag = suite.mac.tag_size if suite.mac else 16
    assert len(suite.frame(b"\x15")) == without_tag + tag


@pytest.mark.parametrize("suite", SUITES)
def test_a_flipped_bit_anywhere_gives_no_data(suite: Suite) -> None:
    """Integrity error or a length out of bounds; a longer length waits, and ends the same way."""
    frame = suite.frame(b"\x5e secret", 5)
    for bit in range(len(frame) * 8):
        damaged = bytearray(frame)
        damaged[bit // 8] ^= 1 << bit % 8
        reader = suite.reader(5)
        with pytest.raises((IntegrityError, ProtocolError)):
            assert read(reader, bytes(damaged)) == []
            assert read(reader, bytes(reader.length_max + 4 + suite.tag_size)) == []
        assert reader.packets == 0


@pytest.mark.parametrize("suite", SUITES)
def test_a_damaged_tag_is_an_integrity_error(suite: Suite) -> None:
    frame = bytearray(suite.frame(b"\x5e secret"))
    for index in range(len(frame) - suite.tag_size, len(frame)):
        damaged = frame.copy()
        damaged[index] ^= 0x80
        with pytest.raises(IntegrityError):
            read(suite.reader(), bytes(damaged))


@pytest.mark.parametrize("suite", SUITES)
def test_a_replayed_swapped_or_foreign_frame_is_refused(suite: Suite) -> None:
    writer = suite.writer()
    frames = []
    for text in (b"\x5e one", b"\x5e two"):
        writer.write(text)
        frames.append(writer.take())
    for first, second in ((0, 0), (1, 0), (1, 1)):
        reader = suite.reader()
        with pytest.raises((IntegrityError, ProtocolError)):
            read(reader, frames[first])
            read(reader, frames[second] + bytes(reader.length_max + 4 + suite.tag_size))
        assert reader.packets <= 1


@pytest.mark.parametrize("suite", SUITES)
def test_asyncssh_opens_what_we_seal(suite: Suite) -> None:
    """An independent peer, over packets of one key."""
    writer, peer = suite.writer(0xFFFFFFF0), theirs(suite)
    opener = suite.opener()
    tag_size, head_size = opener.tag_size, opener.head_size
    for number in range(40):
        payload = bytes([0x5E]) * (1 + number * 7)
        sequence = writer.sequence
        writer.write(payload)
        wire = writer.take()
        first, head = peer.decrypt_header(sequence, wire[:head_size], 4)
        assert int.from_bytes(head, "big") == len(wire) - 4 - tag_size
        body = peer.decrypt_packet(sequence, first, wire[head_size:-tag_size], 4, wire[-tag_size:])
        assert body[1 : -body[0]] == payload


@pytest.mark.parametrize("suite", SUITES)
def test_we_open_what_asyncssh_seals(suite: Suite) -> None:
    reader, peer = suite.reader(0xFFFFFFF0), theirs(suite)
    for number in range(40):
        payload = bytes([0x5E]) * (1 + number * 7)
        length = padded(suite, len(payload))
        body = bytes([length - len(payload) - 1]) + payload + bytes(length - len(payload) - 1)
        sealed, tag = peer.encrypt_packet(reader.sequence, length.to_bytes(4, "big"), body)
        assert read(reader, sealed + tag) == [payload]


def test_the_matrix_is_not_empty() -> None:
    names = [str(suite) for suite in suites()]
    assert len(names) == len(set(names)) >= 11
