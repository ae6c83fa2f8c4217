"""Transport messages: byte-exact encoding, and decoders that stand anything."""

from __future__ import annotations

import contextlib
import struct
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sshtransport import messages
from sshtransport.constants import EXT_INFO_MAX_ENTRIES
from sshtransport.errors import ProtocolError
from sshtransport.messages import KexInit, NameList

COOKIE = bytes(range(16))
KEXINIT = KexInit(
    COOKIE,
    ("curve25519-sha256", "ext-info-c"),
    ("ssh-ed25519",),
    ("aes256-ctr", "chacha20-poly1305@openssh.com"),
    ("aes128-ctr",),
    (),
    ("hmac-sha2-256",),
    languages_s2c=("en",),
    first_kex_packet_follows=True,
)


def u32(value: int) -> bytes:
    return struct.pack(">I", value)


def s(value: bytes) -> bytes:
    return u32(len(value)) + value


KEXINIT_WIRE = (
    b"\x14"
    + COOKIE
    + s(b"curve25519-sha256,ext-info-c")
    + s(b"ssh-ed25519")
    + s(b"aes256-ctr,chacha20-poly1305@openssh.com")
    + s(b"aes128-ctr")
    + s(b"")
    + s(b"hmac-sha2-256")
    + s(b"none")
    + s(b"none")
    + s(b"")
    + s(b"en")
    + b"\x01"
    + u32(0)
)

#: What is sent, its bytes, its decoder, and what that gives back.
GOOD: list[tuple[bytes, bytes, Callable[[bytes], Any], Any]] = [
    (messages.unimplemented(2**32 - 1), b"\x03\xff\xff\xff\xff", messages.decode_unimplemented, 2**32 - 1),
    (messages.debug(True, "hi"), b"\x04\x01" + s(b"hi") + s(b""), messages.decode_debug, (True, "hi")),
    (messages.service_request(b"ssh-userauth"), b"\x05" + s(b"ssh-userauth"), messages.decode_service, b"ssh-userauth"),
    (messages.service_accept(b"x"), b"\x06" + s(b"x"), messages.decode_service, b"x"),
    (messages.ext_info({"a": b"\0\1", "": b""}), b"\x07" + u32(2) + s(b"a") + s(b"\0\1") + s(b"") + s(b""),
     messages.decode_ext_info, {"a": b"\0\1", "": b""}),
    (messages.ping(b"abc"), b"\xc0" + s(b"abc"), messages.decode_ping, b"abc"),
    (messages.pong(b""), b"\xc1" + s(b""), messages.decode_ping, b""),
]  # fmt: skip
STRICT = [row[2] for row in GOOD] + [KexInit.decode]


@pytest.mark.parametrize(("payload", "wire", "decode", "value"), GOOD)
def test_encode_and_decode(payload: bytes, wire: bytes, decode: Callable[[bytes], Any], value: Any) -> None:
    assert payload == wire
    assert decode(payload) == value


@pytest.mark.parametrize(("payload", "wire", "decode", "value"), GOOD)
def test_short_and_long_ones_are_refused(payload: bytes, wire: bytes, decode: Any, value: Any) -> None:
    for size in range(1, len(wire)):
        with pytest.raises(ProtocolError):
            decode(wire[:size])
    with pytest.raises(ProtocolError):
        decode(wire + b"\0")


@pytest.mark.parametrize("decode", STRICT)
@given(data=st.binary(max_size=120))
def test_noise_gives_a_value_or_a_protocol_error(decode: Callable[[bytes], Any], data: bytes) -> None:
    with contextlib.suppress(ProtocolError):
        decode(b"\x01" + data)


def test_one_byte_messages() -> None:
    assert messages.NEWKEYS == b"\x15"
    assert messages.ignore() == b"\x02" + s(b"")
    assert messages.ignore(b"data") == b"\x02" + s(b"data")


# --- DISCONNECT -------------------------------------------------------------------------------------


def test_disconnect() -> None:
    assert messages.disconnect(11, "bye \u00e9") == b"\x01" + u32(11) + s(b"bye \xc3\xa9") + s(b"")


@pytest.mark.parametrize("text", ["\ud800", "a\udcffb", "\udfff" * 3])
def test_disconnect_takes_any_text(text: str) -> None:
    """The text may come from anywhere; ending a connection must not fail for it."""
    assert messages.decode_disconnect(messages.disconnect(2, text))[0] == 2


@pytest.mark.parametrize(
    ("body", "value"),
    [
        (u32(11) + s(b"bye") + s(b"en"), (11, "bye")),
        (u32(11) + s(b"bye"), (11, "bye")),  # no language tag: real peers
        (u32(11) + s(b"bye") + s(b"") + b"more", (11, "bye")),
        (u32(2**32 - 1) + s(b""), (2**32 - 1, "")),
        (u32(2) + s(b"a\x1b[2J\r\n\0\xff\xe2\x80\xae"), (2, "a\\x1b[2J\\r\\n\\x00\\xff\\u202e")),
        (u32(2) + s(b"x" * 5000), (2, "x" * 1024 + "...")),
    ],
)
def test_decode_disconnect(body: bytes, value: tuple[int, str]) -> None:
    assert messages.decode_disconnect(b"\x01" + body) == value


@given(st.binary(max_size=40))
def test_a_damaged_disconnect_is_one_all_the_same(body: bytes) -> None:
    reason, text = messages.decode_disconnect(b"\x01" + body)
    assert 0 <= reason < 2**32
    assert text.isprintable()


def test_debug_text_is_escaped() -> None:
    assert messages.decode_debug(b"\x04\x02" + s(b"a\nb\x07") + s(b"en")) == (True, "a\\nb\\x07")


# --- EXT_INFO ---------------------------------------------------------------------------------------


def test_ext_info_values_are_opaque() -> None:
    extensions = {"server-sig-algs": b"a,b", "x": b"\0\xff" * 100, "empty": b""}
    assert messages.decode_ext_info(messages.ext_info(extensions)) == extensions


def test_ext_info_of_every_allowed_size() -> None:
    most = {str(n): b"" for n in range(EXT_INFO_MAX_ENTRIES)}
    assert len(messages.decode_ext_info(messages.ext_info(most))) == 1024
    with pytest.raises(ProtocolError) as caught:
        messages.decode_ext_info(messages.ext_info(most | {"one more": b""}))
    assert caught.value.limit == 1024


@pytest.mark.parametrize("count", [2, 1024, 2**31, 2**32 - 1])
def test_an_absurd_count_is_seen_before_anything_is_read(count: int) -> None:
    """Known bugs I 120: counts are checked against the bytes that remain."""
    with pytest.raises(ProtocolError):
        messages.decode_ext_info(b"\x07" + u32(count) + s(b"name") + b"\0\0\0")


# --- KEXINIT ----------------------------------------------------------------------------------------


def listed(kexinit: KexInit) -> list[tuple[str, ...]]:
    return [tuple(names) for names in kexinit.lists]


def test_kexinit_encode() -> None:
    assert KEXINIT.encode() == KEXINIT_WIRE


def test_kexinit_decode() -> None:
    decoded = KexInit.decode(KEXINIT_WIRE)
    assert decoded.cookie == COOKIE
    assert listed(decoded) == listed(KEXINIT)
    assert decoded.first_kex_packet_follows
    assert decoded.encode() == KEXINIT_WIRE


def test_kexinit_field_order() -> None:
    """RFC 4253, section 7.1: client to server comes first in each pair."""
    names: list[Any] = [(f"list{n}",) for n in range(10)]
    assert listed(KexInit.decode(KexInit(COOKIE, *names).encode())) == names


def test_kexinit_cut_anywhere_or_with_more_behind() -> None:
    for size in range(1, len(KEXINIT_WIRE)):
        with pytest.raises(ProtocolError):
            KexInit.decode(KEXINIT_WIRE[:size])
    with pytest.raises(ProtocolError, match="trailing"):
        KexInit.decode(KEXINIT_WIRE + b"\0")


def test_kexinit_reserved_field_and_flag() -> None:
    """The reserved number is ignored; any non-zero flag is true (RFC 4251, section 5)."""
    assert listed(KexInit.decode(KEXINIT_WIRE[:-4] + u32(77))) == listed(KEXINIT)
    for flag, value in ((b"\0", False), (b"\x01", True), (b"\xff", True)):
        assert KexInit.decode(KEXINIT_WIRE[:-5] + flag + u32(0)).first_kex_packet_follows is value


def test_empty_names_are_skipped() -> None:
    """Known bugs B 16: empty lists parse; libssh 0.10.6 sends a trailing comma."""
    wire = b"\x14" + COOKIE + s(b"a,,b,") + s(b",") + s(b",a") + s(b"") * 7 + b"\0" + u32(0)
    decoded = KexInit.decode(wire)
    assert listed(decoded)[:4] == [("a", "b"), (), ("a",), ()]
    assert "" not in decoded.kex
    assert "a" in decoded.cipher_c2s


@pytest.mark.parametrize("bad", [b"caf\xc3\xa9", b"a,\xff", b"\x80"])
def test_names_are_ascii(bad: bytes) -> None:
    for position in range(10):
        lists = [s(b"a")] * 10
        lists[position] = s(bad)
        with pytest.raises(ProtocolError, match="ASCII"):
            KexInit.decode(b"\x14" + COOKIE + b"".join(lists) + b"\0" + u32(0))


def test_a_list_may_not_claim_more_than_there_is() -> None:
    for size in (2**32 - 1, 2**31, len(KEXINIT_WIRE)):
        with pytest.raises(ProtocolError):
            KexInit.decode(b"\x14" + COOKIE + u32(size) + KEXINIT_WIRE[21:])


# --- name-lists -------------------------------------------------------------------------------------

NAMES = st.lists(st.text(st.sampled_from("ab-@"), max_size=4), max_size=8)


@given(NAMES, st.text(st.sampled_from("ab-@"), max_size=4), st.binary(max_size=3), st.binary(max_size=3))
def test_a_name_list_is_its_names(names: list[str], name: str, before: bytes, behind: bytes) -> None:
    """Wherever it lies, and whatever name stands inside another."""
    raw = ",".join(names).encode()
    made = NameList(before + raw + behind, len(before), len(before) + len(raw))
    wanted = [n for n in names if n]
    assert list(made) == wanted
    assert (name in made) == (name in wanted)
    assert all(n in made for n in wanted)


def test_a_name_inside_another_is_not_found() -> None:
    raw = b"aes256-ctr-x,x-aes256-ctr,aes256-ctraes256-ctr"
    assert "aes256-ctr" not in NameList(raw, 0, len(raw))
    assert "aes256-ctr" in NameList(raw + b",aes256-ctr", 0, len(raw) + 11)
    assert "aes256-ctr" not in NameList(raw + b",aes256-ctr", 0, len(raw) + 10)


def test_a_long_list_costs_no_memory() -> None:
    """A tuple of these names would take a megabyte, before login."""
    names = tuple(f"{n:x}" for n in range(7000))
    wire = replace(KEXINIT, kex=names).encode()
    tracemalloc.start()
    try:
        decoded = KexInit.decode(wire)
        assert "1b57" in decoded.kex
        assert "nothing" not in decoded.kex
        assert sum(1 for _ in decoded.kex) == 7000
        assert tracemalloc.get_traced_memory()[1] < len(wire) + 4096
    finally:
        tracemalloc.stop()
    assert len(repr(decoded.kex)) < 300
