"""Typed channel and global requests: round trips, bytes by hand, hostile input."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sshtransport.connection import (
    Break,
    CancelStreamLocalForward,
    CancelTCPIPForward,
    ChannelRequest,
    Env,
    Exec,
    ExitSignal,
    ExitStatus,
    GlobalRequest,
    PtyRequest,
    Shell,
    Signal,
    StreamLocalForward,
    Subsystem,
    TCPIPForward,
    UnknownRequest,
    WindowChange,
    decode_forwarded_port,
    encode_global,
)
from sshtransport.connection.requests import (
    CLIENT_REQUESTS,
    GLOBAL_REQUESTS,
    SERVER_REQUESTS,
    decode_global,
    decode_request,
    encode_request,
)
from sshtransport.errors import LocalError, ProtocolError
from sshtransport.wire import string, uint32

KNOWN = {**CLIENT_REQUESTS, **SERVER_REQUESTS}

U32 = st.integers(0, 2**32 - 1)
#: Any text that bytes from the wire can become.
TEXT = st.binary(max_size=40).map(lambda raw: raw.decode("utf-8", "surrogateescape"))
MODES = st.dictionaries(st.integers(1, 159), U32, max_size=20)

REQUESTS: st.SearchStrategy[ChannelRequest] = st.one_of(
    st.builds(Exec, st.binary(max_size=100)),
    st.builds(Shell),
    st.builds(Subsystem, TEXT),
    st.builds(Env, TEXT, st.binary(max_size=100)),
    st.builds(PtyRequest, TEXT, U32, U32, U32, U32, MODES),
    st.builds(WindowChange, U32, U32, U32, U32),
    st.builds(Signal, TEXT),
    st.builds(Break, U32),
    st.builds(ExitStatus, U32),
    st.builds(ExitSignal, TEXT, st.booleans(), TEXT, TEXT),
)

SAMPLES: list[ChannelRequest] = [
    Exec(b"uname -a"),
    Subsystem("sftp"),
    Env("LANG", b"C"),
    PtyRequest("xterm", 80, 24, 640, 480, {1: 3, 53: 1}),
    WindowChange(100, 30, 0, 0),
    Signal("TERM"),
    Break(500),
    ExitStatus(255),
    ExitSignal("KILL", True, "killed", "en"),
]

GLOBAL_SAMPLES: list[GlobalRequest] = [
    TCPIPForward("localhost", 8022),
    CancelTCPIPForward("", 65535),
    StreamLocalForward("/run/x.sock"),
    CancelStreamLocalForward("/run/x.sock"),
]


@given(REQUESTS)
def test_round_trip(request: ChannelRequest) -> None:
    name, data = encode_request(request)
    assert decode_request(name, data, KNOWN) == request


@pytest.mark.parametrize(
    ("request_", "name", "data"),
    [
        (Exec(b"ls"), "exec", b"\0\0\0\2ls"),
        (Shell(), "shell", b""),
        (Subsystem("sftp"), "subsystem", b"\0\0\0\4sftp"),
        (Env("A", b"\xff"), "env", b"\0\0\0\1A\0\0\0\1\xff"),
        (
            PtyRequest("vt", 80, 24, 1, 2, {53: 1}),
            "pty-req",
            b"\0\0\0\2vt\0\0\0\x50\0\0\0\x18\0\0\0\1\0\0\0\2\0\0\0\6\x35\0\0\0\1\0",
        ),
        (PtyRequest("", 0, 0), "pty-req", bytes(20) + b"\0\0\0\1\0"),
        (WindowChange(80, 24), "window-change", b"\0\0\0\x50\0\0\0\x18" + bytes(8)),
        (Signal("INT"), "signal", b"\0\0\0\3INT"),
        (Break(1), "break", b"\0\0\0\1"),
        (ExitStatus(2**32 - 1), "exit-status", b"\xff\xff\xff\xff"),
        (ExitSignal("KILL"), "exit-signal", b"\0\0\0\4KILL\0" + bytes(8)),
        (UnknownRequest("x@y", b"raw"), "x@y", b"raw"),
    ],
)
def test_bytes_on_the_wire(request_: ChannelRequest, name: str, data: bytes) -> None:
    assert encode_request(request_) == (name, data)
    assert decode_request(name, data, KNOWN) == request_


@pytest.mark.parametrize("request_", SAMPLES, ids=lambda r: type(r).__name__)
def test_truncated_at_every_byte_and_trailing(request_: ChannelRequest) -> None:
    """Known bugs G 100: a short exit-status is a protocol error, no crash."""
    name, data = encode_request(request_)
    for size in range(len(data)):
        with pytest.raises(ProtocolError):
            decode_request(name, data[:size], KNOWN)
    with pytest.raises(ProtocolError):
        decode_request(name, data + b"\0", KNOWN)


@pytest.mark.parametrize("name", KNOWN)
@given(data=st.binary(max_size=80))
def test_any_bytes(name: str, data: bytes) -> None:
    """Whatever comes decodes or is a protocol error."""
    try:
        request = decode_request(name, data, KNOWN)
    except ProtocolError:
        return
    assert type(request) is KNOWN[name]


@pytest.mark.parametrize("name", ["exec", "env", "pty-req", "exit-signal"])
def test_huge_counts(name: str) -> None:
    with pytest.raises(ProtocolError):
        decode_request(name, b"\xff\xff\xff\xff" + bytes(100), KNOWN)


def test_a_name_nobody_knows() -> None:
    assert decode_request("exec", b"\1", SERVER_REQUESTS) == UnknownRequest("exec", b"\1")


class TestModes:
    """RFC 4254, section 8."""

    def decode(self, modes: bytes) -> dict[int, int]:
        request = decode_request("pty-req", bytes(20) + string(modes), KNOWN)
        assert isinstance(request, PtyRequest)
        return dict(request.modes)

    def test_end_is_optional_and_stops(self) -> None:
        one = b"\x01" + uint32(3)
        assert self.decode(b"") == {}
        assert self.decode(one) == {1: 3}
        assert self.decode(one + b"\0") == {1: 3}
        assert self.decode(one + b"\0" + b"\x02" + uint32(4)) == {1: 3}

    def test_from_160_on_parsing_stops(self) -> None:
        assert self.decode(b"\x01" + uint32(3) + b"\xa0\1\2") == {1: 3}
        assert self.decode(b"\x9f" + uint32(3)) == {159: 3}
        assert self.decode(b"\xff") == {}

    def test_the_last_of_two_counts(self) -> None:
        assert self.decode((b"\x01" + uint32(3)) + (b"\x01" + uint32(4))) == {1: 4}

    @pytest.mark.parametrize("size", [1, 2, 3, 4])
    def test_a_short_value(self, size: int) -> None:
        with pytest.raises(ProtocolError):
            self.decode((b"\x01" + uint32(3))[:size])

    @pytest.mark.parametrize("opcode", [-1, 0, 160, 255, 256])
    def test_what_cannot_be_sent(self, opcode: int) -> None:
        with pytest.raises(LocalError):
            encode_request(PtyRequest("vt", 80, 24, modes={opcode: 1}))


@pytest.mark.parametrize(
    "request_",
    [
        ExitStatus(-1),
        ExitStatus(2**32),
        WindowChange(2**32, 1),
        PtyRequest("vt", 1, -1),
        PtyRequest("vt", 1, 1, modes={1: 2**32}),
        Signal("\ud800"),
        UnknownRequest("naïve"),
    ],
)
def test_values_that_do_not_fit(request_: ChannelRequest) -> None:
    with pytest.raises(LocalError):
        encode_request(request_)


def test_the_value_of_a_variable_is_not_shown() -> None:
    assert "s3cret" not in repr(Env("TOKEN", b"s3cret"))


@pytest.mark.parametrize("request_", GLOBAL_SAMPLES, ids=lambda r: type(r).__name__)
def test_global_requests(request_: GlobalRequest) -> None:
    name, data = encode_global(request_)
    assert decode_global(name, data) == request_
    for size in range(len(data)):
        with pytest.raises(ProtocolError):
            decode_global(name, data[:size])
    with pytest.raises(ProtocolError):
        decode_global(name, data + b"\0")


def test_a_cancel_is_not_a_request_to_listen() -> None:
    """The two look alike on the wire; a check with isinstance() must not take one for the other."""
    assert not isinstance(CancelTCPIPForward("", 1), TCPIPForward)
    assert not isinstance(CancelStreamLocalForward(""), StreamLocalForward)
    pair: list[GlobalRequest] = [CancelTCPIPForward("", 1), TCPIPForward("", 1)]
    assert pair[0] != pair[1]
    assert set(GLOBAL_REQUESTS) == {
        "tcpip-forward",
        "cancel-tcpip-forward",
        "streamlocal-forward@openssh.com",
        "cancel-streamlocal-forward@openssh.com",
    }


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("tcpip-forward", string(b"host") + uint32(65536)),
        ("tcpip-forward", string(b"ho\0st") + uint32(1)),
        ("streamlocal-forward@openssh.com", string(b"/tmp\0")),
    ],
)
def test_values_no_socket_takes(name: str, data: bytes) -> None:
    with pytest.raises(ProtocolError):
        decode_global(name, data)


def test_global_values_that_do_not_fit() -> None:
    with pytest.raises(LocalError):
        encode_global(TCPIPForward("", -1))
    with pytest.raises(LocalError):
        encode_global(StreamLocalForward("\ud800"))


def test_unknown_global_request() -> None:
    assert decode_global("keepalive@openssh.com", b"") is None


def test_the_allocated_port() -> None:
    assert decode_forwarded_port(uint32(40000)) == 40000
    for bad in (b"", b"\0\0\0", uint32(65536), uint32(1) + b"\0"):
        with pytest.raises(ProtocolError):
            decode_forwarded_port(bad)
