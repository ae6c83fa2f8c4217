"""The identification exchange (RFC 4253, section 4.2; known bugs group A)."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sshtransport.config import TransportConfig
from sshtransport.constants import IDENT_MAX_LINE_SIZE, IDENT_MAX_LINES, IDENT_MAX_SIZE, IDENT_MAX_TOTAL
from sshtransport.errors import DisconnectReason, LocalError, ProtocolError
from sshtransport.ident import IdentReader, build_ident

IDENT = b"SSH-2.0-peer_1.0 comment"
PACKET = b"\x00\x00\x05\xdc\x07\x14" + bytes(6000)


def feed(pieces: Iterable[bytes], *, skip_lines: bool = True) -> tuple[bytes | None, bytes]:
    """The line, and what is behind it in the piece that completed it."""
    reader = IdentReader(skip_lines=skip_lines)
    for piece in pieces:
        line, used = reader.feed(piece)
        if line is not None:
            return line, piece[used:]
        assert used == len(piece)
    return None, b""


def refused(data: bytes, *, skip_lines: bool = True) -> ProtocolError:
    with pytest.raises(ProtocolError) as caught:
        feed([data], skip_lines=skip_lines)
    assert caught.value.phase == "identification"
    return caught.value


# --- ours -------------------------------------------------------------------------------------------


def test_our_line() -> None:
    """Known bugs A 5: ASCII, no trailing space; the transport adds CR LF."""
    assert build_ident("sshtransport_0.1") == b"SSH-2.0-sshtransport_0.1"
    assert build_ident("x" * 245) == b"SSH-2.0-" + b"x" * 245  # with CR LF: 255


@pytest.mark.parametrize("version", ["", "a b", "a-b", "a\n", "a\0", "\u00e9", "x" * 246, "a\x7f", " a", "a\t"])
def test_a_bad_software_version(version: str) -> None:
    with pytest.raises(LocalError, match="software version"):
        build_ident(version)
    with pytest.raises(LocalError):
        TransportConfig(software_version=version)


# --- the peer's -------------------------------------------------------------------------------------


@pytest.mark.parametrize("skip_lines", [True, False])
@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
@pytest.mark.parametrize(
    "line",
    [
        IDENT,
        b"SSH-2.0-",  # known bugs A 7: devices that send nothing behind the dash
        b"SSH-2.0-x y z",
        b"SSH-1.99-x",
        b"SSH-2.0-trailing ",
        b"SSH-2.0-trailing\r",  # exactly one CR belongs to the line's end
        b"SSH-2.0-caf\xc3\xa9 \xff",
        b"SSH-2.0-with-dashes",
        b"SSH-2.0-" + b"x" * 245,
    ],
)
def test_lines_that_are_accepted(line: bytes, end: bytes, skip_lines: bool) -> None:
    """Known bugs A 4: CR LF or LF; the line is hashed byte for byte, without them."""
    if line.endswith(b"\r") and end == b"\n":
        return  # that one CR is the line's end
    assert feed([line + end + PACKET], skip_lines=skip_lines) == (line, PACKET)


@pytest.mark.parametrize("skip_lines", [True, False])
@pytest.mark.parametrize(
    ("line", "text", "reason"),
    [
        (b"SSH-1.5-x", "not supported", DisconnectReason.PROTOCOL_VERSION_NOT_SUPPORTED),
        (b"SSH-3.0-x", "not supported", DisconnectReason.PROTOCOL_VERSION_NOT_SUPPORTED),
        (b"SSH-2.1-x", "not supported", DisconnectReason.PROTOCOL_VERSION_NOT_SUPPORTED),
        (b"SSH-", "not supported", DisconnectReason.PROTOCOL_VERSION_NOT_SUPPORTED),
        (b"SSH--2.0", "not supported", DisconnectReason.PROTOCOL_VERSION_NOT_SUPPORTED),
        (b"SSH-2.0", "malformed", DisconnectReason.PROTOCOL_ERROR),
        (b"SSH-1.99", "malformed", DisconnectReason.PROTOCOL_ERROR),
        (b"SSH-2.0-a\0b", "NUL", DisconnectReason.PROTOCOL_ERROR),
        (b"SSH-2.0\0-x", "NUL", DisconnectReason.PROTOCOL_ERROR),
    ],
)
def test_lines_that_are_refused(line: bytes, text: str, reason: DisconnectReason, skip_lines: bool) -> None:
    error = refused(line + b"\r\n", skip_lines=skip_lines)
    assert text in error.message
    assert error.reason == reason
    assert error.message.isprintable()


@pytest.mark.parametrize("behind", [b"", PACKET])
@pytest.mark.parametrize(
    "before", [b"", b"hello\r\n", b"\n\nSS\nSSH\nssh-2.0-x\n SSH-2.0-x\nhave SSH-2.0-y\r\n\xff\0\n"]
)
def test_cut_at_every_byte(before: bytes, behind: bytes) -> None:
    """Known bugs A 2, 8: only a line that begins with the four bytes SSH- ends the greeting."""
    data = before + IDENT + b"\r\n" + behind
    end = len(before) + len(IDENT) + 2
    for cut in range(1, min(len(data), end + 3)):
        line, rest = feed([data[:cut], data[cut:]])
        assert line == IDENT
        assert rest == (data[end:] if cut < end else data[end:cut])
    assert feed([bytes([byte]) for byte in data]) == (IDENT, b"")


@given(st.lists(st.integers(1, 40), max_size=30))
def test_random_cuts(sizes: list[int]) -> None:
    data = b"one\r\ntwo\n" + IDENT + b"\n"
    pieces, start = [], 0
    for size in sizes:
        pieces.append(data[start : start + size])
        start += size
    assert feed([*filter(None, pieces), data[start:]]) == (IDENT, b"")


def test_what_is_behind_the_line_feed_is_not_touched() -> None:
    """Known bugs A 4, 6: the limit counts bytes up to the LF, not those of a long KEXINIT behind it."""
    assert feed([IDENT + b"\n" + b"\0" * 100_000]) == (IDENT, b"\0" * 100_000)
    assert feed([IDENT + b"\nSSH-2.0-other\r\n"]) == (IDENT, b"SSH-2.0-other\r\n")


# --- limits -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("skip_lines", [True, False])
@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
def test_255_bytes_of_the_ssh_line(end: bytes, skip_lines: bool) -> None:
    """Known bugs A 1: with CR LF, of this line alone."""
    longest = b"SSH-2.0-" + b"x" * (IDENT_MAX_SIZE - 8 - len(end))
    assert len(longest + end) == 255
    assert feed([longest + end], skip_lines=skip_lines)[0] == longest
    error = refused(longest + b"x" + end, skip_lines=skip_lines)
    assert (error.limit, error.message) == (255, "identification line too long")
    assert refused(b"SSH-" + b"x" * 252, skip_lines=skip_lines).limit == 255  # no LF needed


def test_lines_before_are_not_counted_against_it() -> None:
    """Known bugs A 1: twenty lines of eighty characters."""
    assert feed([b"x" * 80 + b"\r\n"] * 20 + [IDENT + b"\r\n"])[0] == IDENT


def test_1024_lines_before() -> None:
    assert feed([b"\n" * IDENT_MAX_LINES + IDENT + b"\n"])[0] == IDENT
    assert refused(b"\n" * (IDENT_MAX_LINES + 1)).limit == IDENT_MAX_LINES == 1024


def test_8192_bytes_of_a_line_before() -> None:
    longest = b"x" * (IDENT_MAX_LINE_SIZE - 1) + b"\n"
    assert feed([longest, IDENT + b"\n"])[0] == IDENT
    assert refused(b"x" + longest).limit == IDENT_MAX_LINE_SIZE == 8192
    assert refused(b"x" * 8193).limit == 8192


def test_256_kib_of_text_before() -> None:
    line = b"x" * 8191 + b"\n"
    assert IDENT_MAX_TOTAL == 256 * 1024 == 32 * len(line)
    assert feed([line] * 32 + [IDENT + b"\n"])[0] == IDENT
    assert refused(line * 32 + b"y").limit == IDENT_MAX_TOTAL
    assert refused(line * 31 + line[:-1] + b"x" + b"\n").limit == 8192


def test_endless_text_without_a_line_feed() -> None:
    """Known bugs A 6: refused at the limit, and next to nothing of it is kept."""
    reader = IdentReader(skip_lines=True)
    fed = 0
    with pytest.raises(ProtocolError):
        for _ in range(100_000):
            fed += reader.feed(b"x" * 1000)[1]
    assert fed <= 9000
    assert len(reader._kept) <= IDENT_MAX_SIZE + 1


@pytest.mark.parametrize(
    "data", [b"\n", b"\r\n", b"hello\n", b"S\n", b"SS\n", b"SSH\n", b"ssh-2.0-x\n", b" SSH-2.0-x", b"\0"]
)
def test_a_server_takes_no_lines_before(data: bytes) -> None:
    for size in range(1, len(data)):
        if b"SSH-".startswith(data[:size]):
            assert feed([data[:size]], skip_lines=False) == (None, b"")
    assert "not an identification" in refused(data, skip_lines=False).message


@given(st.lists(st.binary(max_size=300), max_size=20), st.booleans())
def test_noise_ends_in_a_line_or_a_protocol_error(pieces: list[bytes], skip_lines: bool) -> None:
    try:
        line, _ = feed(pieces, skip_lines=skip_lines)
    except ProtocolError:
        return
    assert line is None or line.startswith(b"SSH-")
