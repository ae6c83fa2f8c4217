"""The data types of RFC 4251, section 5, with the examples it prints; and the bounds of the reader."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sshtransport.errors import ProtocolError
from sshtransport.wire import Reader, boolean, byte, mpint, name_list, string, text, uint32, uint64, visible

# RFC 4251, section 5: value and bytes.
MPINTS = [
    (0, "00000000"),
    (0x9A378F9B2E332A7, "0000000809a378f9b2e332a7"),
    (0x80, "000000020080"),
]
NAME_LISTS = [((), "00000000"), (("zlib",), "000000047a6c6962"), (("zlib", "none"), "000000097a6c69622c6e6f6e65")]

READS: dict[str, Callable[[Reader], Any]] = {
    "byte": Reader.byte,
    "boolean": Reader.boolean,
    "uint32": Reader.uint32,
    "uint64": Reader.uint64,
    "string": Reader.string,
    "text": Reader.text,
    "ascii": Reader.ascii,
    "mpint": Reader.mpint,
    "name_list": Reader.name_list,
    "raw": lambda reader: reader.raw(3),
    "skip": lambda reader: reader.skip(3),
}


@pytest.mark.parametrize(("value", "wire"), MPINTS)
def test_mpints_of_the_rfc(value: int, wire: str) -> None:
    assert mpint(value).hex() == wire
    assert Reader(bytes.fromhex(wire)).mpint() == value


@pytest.mark.parametrize("wire", ["00000002edcc", "00000005ff21524111"])
def test_negative_mpints(wire: str) -> None:
    with pytest.raises(ProtocolError, match="negative"):
        Reader(bytes.fromhex(wire)).mpint()
    with pytest.raises(ValueError, match="negative"):
        mpint(-1)


@pytest.mark.parametrize(("names", "wire"), NAME_LISTS)
def test_name_lists_of_the_rfc(names: tuple[str, ...], wire: str) -> None:
    assert name_list(names).hex() == wire
    assert Reader(bytes.fromhex(wire)).name_list() == names


def test_empty_names_are_skipped() -> None:
    assert Reader(string(b"a,,b,")).name_list() == ("a", "b")


def test_surplus_zeros_of_an_mpint_are_taken() -> None:
    assert Reader(string(b"\x00\x00\x05")).mpint() == 5


@given(
    st.integers(0, 2**32 - 1), st.integers(0, 2**64 - 1), st.binary(), st.text(), st.booleans(), st.integers(0, 2**600)
)
def test_what_is_written_is_read(a: int, b: int, c: bytes, d: str, e: bool, f: int) -> None:
    reader = Reader(b"\x00" + uint32(a) + uint64(b) + string(c) + text(d) + boolean(e) + mpint(f) + byte(7), 1)
    read = (reader.uint32(), reader.uint64(), reader.string(), reader.text(), reader.boolean(), reader.mpint())
    assert read == (a, b, c, d, e, f)
    assert reader.remaining == 1
    with pytest.raises(ProtocolError, match="trailing"):
        reader.end()
    assert reader.rest() == b"\x07"
    reader.end()


@given(st.binary(max_size=40), st.sampled_from(sorted(READS)))
def test_only_protocol_errors_leave_the_reader(data: bytes, kind: str) -> None:
    for view in (data, bytearray(data), memoryview(data)):
        reader = Reader(view)
        try:
            READS[kind](reader)
        except ProtocolError:
            continue
        assert 0 <= reader.remaining <= len(data)


@pytest.mark.parametrize("kind", sorted(READS))
def test_a_field_that_is_cut(kind: str) -> None:
    """By one byte, in its length or in its value; whatever lies behind the message is not looked at."""
    whole = {
        "byte": b"\x01",
        "boolean": b"\x01",
        "uint32": uint32(1),
        "uint64": uint64(1),
        "raw": b"abc",
        "skip": b"abc",
    }
    field = whole.get(kind, string(b"abc"))
    READS[kind](Reader(field))
    for size in range(len(field)):
        with pytest.raises(ProtocolError, match="truncated"):
            READS[kind](Reader(field[:size]))


@pytest.mark.parametrize("size", [4, 2**31, 2**32 - 1])
def test_a_length_beyond_the_message(size: int) -> None:
    with pytest.raises(ProtocolError, match="truncated"):
        Reader(uint32(size) + b"abc").string()


def test_a_limit() -> None:
    assert Reader(string(b"abc")).string(3) == b"abc"
    with pytest.raises(ProtocolError, match="too long") as caught:
        Reader(string(b"abcd")).string(3)
    assert caught.value.limit == 3


def test_names_are_ascii() -> None:
    for read in (Reader.ascii, Reader.name_list):
        with pytest.raises(ProtocolError, match="ASCII"):
            read(Reader(string(b"caf\xc3\xa9")))


def test_any_octet_but_zero_is_true() -> None:
    assert [Reader(byte(n)).boolean() for n in (0, 1, 2, 255)] == [False, True, True, True]


def test_bytes_that_are_no_text_survive() -> None:
    assert text(Reader(string(b"\xff\xfe")).text()) == string(b"\xff\xfe")


def test_visible_text_stays_one_line_and_short() -> None:
    assert visible(b"a\r\n\x1b[2J\xff\t") == "a\\r\\n\\x1b[2J\\xff\\t"
    assert visible("x" * 5, 3) == "xxx..."
    assert visible("\u202e") == "\\u202e"
    assert visible("a\nb\r", keep="\n") == "a\nb\\r"
