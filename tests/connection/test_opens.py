"""Payloads of CHANNEL_OPEN, and the refusal."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sshtransport.connection import (
    ChannelTarget,
    DirectStreamLocal,
    DirectTCPIP,
    ForwardedStreamLocal,
    ForwardedTCPIP,
    encode_open,
)
from sshtransport.connection.opens import CHANNEL_TARGETS, decode_open, refusal
from sshtransport.errors import LocalError, OpenFailureReason, ProtocolError
from sshtransport.wire import string, uint32
from tests.support.connections import open_failure

SAMPLES: list[ChannelTarget] = [
    DirectTCPIP("db", 5432, "10.0.0.1", 2**32 - 1),
    ForwardedTCPIP("", 0),
    DirectStreamLocal("/run/x.sock"),
    ForwardedStreamLocal("/run/x.sock"),
]


@pytest.mark.parametrize("target", SAMPLES, ids=lambda t: type(t).__name__)
def test_round_trip_truncated_and_trailing(target: ChannelTarget) -> None:
    channel_type, extra = encode_open(target)
    assert decode_open(channel_type, extra) == target
    for size in range(len(extra)):
        with pytest.raises(ProtocolError):
            decode_open(channel_type, extra[:size])
    with pytest.raises(ProtocolError):
        decode_open(channel_type, extra + b"\0")


def test_bytes_on_the_wire() -> None:
    assert encode_open(DirectTCPIP("h", 1, "o", 2)) == ("direct-tcpip", b"\0\0\0\1h\0\0\0\1\0\0\0\1o\0\0\0\2")
    assert encode_open(DirectStreamLocal("/s")) == ("direct-streamlocal@openssh.com", b"\0\0\0\2/s" + bytes(8))
    assert encode_open(ForwardedStreamLocal("/s")) == ("forwarded-streamlocal@openssh.com", b"\0\0\0\2/s" + bytes(4))


def test_reserved_fields_are_read_over() -> None:
    extra = string(b"/s") + string(b"anything") + uint32(9)
    assert decode_open("direct-streamlocal@openssh.com", extra) == DirectStreamLocal("/s")


@pytest.mark.parametrize("channel_type", CHANNEL_TARGETS)
@given(extra=st.binary(max_size=60))
def test_any_bytes(channel_type: str, extra: bytes) -> None:
    try:
        target = decode_open(channel_type, extra)
    except ProtocolError:
        return
    assert type(target) is CHANNEL_TARGETS[channel_type]


@pytest.mark.parametrize(
    ("channel_type", "extra"),
    [
        ("direct-tcpip", string(b"h") + uint32(65536) + string(b"o") + uint32(1)),
        ("direct-tcpip", string(b"h\0") + uint32(1) + string(b"o") + uint32(1)),
        ("direct-tcpip", string(b"h") + uint32(1) + string(b"\0") + uint32(1)),
        ("direct-tcpip", b"\xff\xff\xff\xff" + bytes(50)),
        ("direct-streamlocal@openssh.com", string(b"/\0s") + bytes(8)),
    ],
)
def test_hostile_targets(channel_type: str, extra: bytes) -> None:
    with pytest.raises(ProtocolError):
        decode_open(channel_type, extra)


def test_types_without_a_payload() -> None:
    assert decode_open("session", b"") is None
    assert decode_open("x11", b"whatever") is None
    with pytest.raises(ProtocolError):
        decode_open("session", b"\0")


def test_a_forwarded_channel_is_not_a_direct_one() -> None:
    assert not isinstance(ForwardedTCPIP("h", 1), DirectTCPIP)


def test_values_that_do_not_fit() -> None:
    for target in (DirectTCPIP("h", -1), DirectTCPIP("h", 1, "o", 2**32), DirectStreamLocal("\ud800")):
        with pytest.raises(LocalError):
            encode_open(target)


def test_refusal() -> None:
    assert refusal(1000, OpenFailureReason.CONNECT_FAILED, "no") == open_failure(1000, 2, b"no")
