"""The connection: opening channels, global requests, limits, messages for nobody."""

from __future__ import annotations

import gc
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sshtransport.connection import (
    CancelTCPIPForward,
    Channel,
    ChannelClosed,
    ChannelOpened,
    ChannelOpenFailed,
    ChannelOpenRequested,
    ChannelState,
    Connection,
    DirectTCPIP,
    Exec,
    ForwardedTCPIP,
    GlobalReplied,
    GlobalRequestReceived,
    TCPIPForward,
    encode_global,
    encode_open,
)
from sshtransport.constants import (
    CHANNELS_MAX,
    MAX_PACKET_SIZE_LIMIT,
    PENDING_OPENS_MAX,
    PENDING_REPLIES_MAX,
    WINDOW_SIZE,
)
from sshtransport.errors import LocalError, OpenFailureReason, ProtocolError
from sshtransport.wire import string, text, uint32
from tests.support.connections import (
    BIG,
    PEER,
    FakeSink,
    Pair,
    Side,
    adjust,
    channel_request,
    close,
    confirmation,
    data,
    eof,
    extended,
    failure,
    global_request,
    lone,
    open_failure,
    opening,
    success,
)

FORWARDED = encode_open(ForwardedTCPIP("", 8022, "10.0.0.1", 50000))[1]


def refused(side: Side) -> tuple[int, int]:
    """The recipient and reason of the one OPEN_FAILURE that was sent."""
    (payload,) = side.sink.take()
    assert payload[0] == 92
    recipient, reason = struct.unpack_from(">II", payload, 1)
    return recipient, reason


class TestOpening:
    def test_ours(self) -> None:
        side = Side("client", 7)
        channel = side.connection.open_channel("direct-tcpip", b"extra")
        assert side.sink.take() == [opening("direct-tcpip", 7, WINDOW_SIZE, 32768, b"extra")]
        assert (channel.state, channel.number, channel.peer_number) == (ChannelState.OPENING, 7, -1)
        assert side.receive(confirmation(7, BIG) + b"more") == ChannelOpened(channel, b"more")
        assert (channel.state, channel.peer_number) == (ChannelState.OPEN, BIG)
        channel.write(b"x")
        assert side.sink.take() == [data(BIG, b"x")]

    def test_theirs(self) -> None:
        """Known bugs G 102: always the recipient's number."""
        side = Side("server", 7)
        extra = encode_open(DirectTCPIP("h", 22, "o", 1))[1]
        event = side.receive(opening("direct-tcpip", BIG, 100, 50, extra))
        assert isinstance(event, ChannelOpenRequested)
        channel = event.channel
        assert event == ChannelOpenRequested(channel, "direct-tcpip", extra, DirectTCPIP("h", 22, "o", 1))
        assert (channel.state, channel.number, channel.peer_number) == (ChannelState.REQUESTED, 7, BIG)
        assert side.sink.take() == []
        channel.accept(b"extra")
        assert side.sink.take() == [confirmation(BIG, 7, WINDOW_SIZE, 32768) + b"extra"]
        channel.write(bytes(120))
        assert side.sink.take() == [data(BIG, bytes(50)), data(BIG, bytes(50))]
        with pytest.raises(LocalError):
            channel.accept()
        with pytest.raises(LocalError):
            channel.refuse(OpenFailureReason.CONNECT_FAILED)

    def test_refusing(self) -> None:
        side = Side("server", 7)
        event = side.receive(opening("what@ever", PEER))
        assert isinstance(event, ChannelOpenRequested)
        event.channel.refuse(OpenFailureReason.UNKNOWN_CHANNEL_TYPE, "never heard of it")
        assert side.sink.take() == [open_failure(PEER, 3, b"never heard of it")]
        assert (event.channel.state, side.connection.channels) == (ChannelState.CLOSED, {})

    def test_being_refused(self) -> None:
        side = Side("client", 7)
        channel = side.connection.open_channel("session")
        event = side.receive(open_failure(7, 1, b"go\x1b[2J away"))
        assert event == ChannelOpenFailed(channel, OpenFailureReason.ADMINISTRATIVELY_PROHIBITED, "go\\x1b[2J away")
        assert (channel.state, side.connection.channels) == (ChannelState.CLOSED, {})
        side.connection.open_channel("session")
        event = side.receive(struct.pack(">BII", 92, 8, 0xFE000000) + string(b"no language tag"))
        assert isinstance(event, ChannelOpenFailed)
        assert (event.reason, event.description) == (0xFE000000, "no language tag")

    def test_before_the_confirmation_nothing_may_be_sent(self) -> None:
        side = Side("client", 7)
        channel = side.connection.open_channel("session")
        with pytest.raises(LocalError):
            channel.write(b"x")
        with pytest.raises(LocalError):
            channel.request(Exec(b"x"))
        with pytest.raises(LocalError):
            channel.send_eof()
        assert not channel.can_write

    def test_before_the_answer_nothing_may_come(self) -> None:
        for role in ("client", "server"):
            for payload in (data(7, b"x"), eof(7), close(7), channel_request(7, Exec(b"x")), extended(7, b"")):
                side = Side(role, 7)
                if role == "client":
                    side.connection.open_channel("session")
                else:
                    side.receive(opening("session"))
                with pytest.raises(ProtocolError):
                    side.receive(payload)

    def test_a_maximum_packet_of_zero(self) -> None:
        side = Side("server", 7)
        assert side.receive(opening("session", PEER, BIG, 0)) is None
        assert refused(side) == (PEER, 4)
        side = Side("client", 7)
        side.connection.open_channel("session")
        with pytest.raises(ProtocolError):
            side.receive(confirmation(7, PEER, BIG, 0))

    @pytest.mark.parametrize(
        "channel_type", ["session", "forwarded-tcpip", "x11", "auth-agent@openssh.com", "direct-tcpip"]
    )
    def test_a_client_expects_nothing(self, channel_type: str) -> None:
        """Known bugs G 101."""
        side = Side("client", 7)
        assert side.receive(opening(channel_type, PEER)) is None
        assert refused(side) == (PEER, 1)
        assert side.connection.channels == {}

    def test_a_client_expects_what_it_asked_for(self) -> None:
        side = Side("client", 7)
        for name in ("forwarded-tcpip", "session"):
            side.connection.allow_open(name)
        event = side.receive(opening("forwarded-tcpip", PEER, extra=FORWARDED))
        assert isinstance(event, ChannelOpenRequested)
        assert event.target == ForwardedTCPIP("", 8022, "10.0.0.1", 50000)
        assert side.receive(opening("session", PEER)) is None
        assert refused(side) == (PEER, 1)
        side.connection.forbid_open("forwarded-tcpip")
        assert side.receive(opening("forwarded-tcpip", PEER, extra=FORWARDED)) is None
        assert refused(side) == (PEER, 1)

    def test_undecided_opens_are_bounded(self) -> None:
        """Known bugs M 160."""
        side = Side("server", 7)
        channels = []
        for i in range(PENDING_OPENS_MAX):
            event = side.receive(opening("session", PEER + i))
            assert isinstance(event, ChannelOpenRequested)
            channels.append(event.channel)
        assert side.receive(opening("session", 5)) is None
        assert refused(side) == (5, 4)
        channels[3].accept()
        assert side.receive(opening("session", 5)) is not None

    def test_channels_are_bounded(self) -> None:
        side = Side("server", 7)
        for i in range(200):
            side.connection.open_channel("forwarded-tcpip")  # ours do not count
            event = side.receive(opening("session", PEER + i))
            if event is None:
                break
            assert isinstance(event, ChannelOpenRequested)
            event.channel.accept()
            side.sink.take()
        assert i == CHANNELS_MAX
        assert side.sink.numbers() == [90, 92]

    def test_closing_before_the_answer(self) -> None:
        """Known bugs J 126: a late confirmation is answered with CLOSE."""
        side = Side("client", 7)
        channel = side.connection.open_channel("session")
        channel.close()
        channel.close()
        side.sink.take()
        assert side.receive(confirmation(7, PEER)) is None
        assert side.sink.take() == [close(PEER)]
        assert side.receive(data(7, b"x")) is None
        assert side.receive(close(7)) == ChannelClosed(channel)
        assert side.connection.channels == {}

    def test_closing_before_a_refusal(self) -> None:
        side = Side("client", 7)
        channel = side.connection.open_channel("session")
        channel.close()
        assert isinstance(side.receive(open_failure(7)), ChannelOpenFailed)
        channel.close()

    def test_what_is_refused_is_not_closed(self) -> None:
        side = Side("server", 7)
        event = side.receive(opening("session"))
        assert isinstance(event, ChannelOpenRequested)
        with pytest.raises(LocalError):
            event.channel.close()

    def test_an_answer_nobody_waits_for(self) -> None:
        for payload in (confirmation(7), open_failure(7), confirmation(99), open_failure(99)):
            side, _ = lone("client")
            with pytest.raises(ProtocolError):
                side.receive(payload)
        side = Side("server", 7)
        side.receive(opening("session"))
        with pytest.raises(ProtocolError):
            side.receive(confirmation(7))

    def test_numbers_are_not_reused(self) -> None:
        pair = Pair()
        seen = set()
        for _ in range(50):
            client, server = pair.open()
            seen.add(client.number)
            client.close()
            pair.deliver()
            assert server.state is client.state is ChannelState.CLOSED
        assert len(seen) == 50
        assert not pair.client.connection.channels

    def test_numbers_wrap_around_those_in_use(self) -> None:
        side, _ = lone("client")
        side.connection._next_number = BIG
        assert [side.connection.open_channel("session").number for _ in range(9)] == [BIG, 0, 1, 2, 3, 4, 5, 6, 8]

    def test_the_same_number_of_the_peer(self) -> None:
        """A peer may use one number again as soon as its channel is over."""
        side, channel = lone("server")
        side.receive(close(7))
        side.sink.take()
        event = side.receive(opening("session", PEER))
        assert isinstance(event, ChannelOpenRequested)
        event.channel.accept()
        event.channel.write(b"x")
        assert side.sink.take()[1] == data(PEER, b"x")
        assert channel.state is ChannelState.CLOSED

    @pytest.mark.parametrize("extra", [FORWARDED[:-1], FORWARDED + b"\0", b""])
    def test_a_malformed_target(self, extra: bytes) -> None:
        side = Side("client", 7)
        side.connection.allow_open("forwarded-tcpip")
        with pytest.raises(ProtocolError):
            side.receive(opening("forwarded-tcpip", PEER, extra=extra))
        with pytest.raises(ProtocolError):
            Side("server", 7).receive(opening("session", PEER, extra=b"\0"))

    def test_ours_must_be_ascii(self) -> None:
        side = Side("client", 7)
        with pytest.raises(LocalError):
            side.connection.open_channel("sessiön")
        with pytest.raises(LocalError):
            side.connection.global_request("sessiön")
        assert side.sink.take() == []


class TestGlobalRequests:
    @pytest.mark.parametrize("role", ["client", "server"])
    @pytest.mark.parametrize("name", ["keepalive@openssh.com", "hostkeys-00@openssh.com", "tcpip-forward", ""])
    def test_unknown(self, role: str, name: str) -> None:
        """Known bugs H 104, H 105: answered here, at once; silence where no answer is wanted."""
        side = Side(role, 7)
        assert side.receive(global_request(name, b"what\xff")) is None
        assert side.sink.take() == [b"\x52"]
        assert side.receive(global_request(name, b"what\xff", want_reply=False)) is None
        assert side.sink.take() == []

    def test_answered_even_if_the_gate_is_shut(self) -> None:
        side = Side("server", 7)
        side.sink.gate = False
        side.receive(global_request("keepalive@openssh.com"))
        assert side.sink.take() == [b"\x52"]

    def test_handled(self) -> None:
        side = Side("server", 7)
        for name in ("tcpip-forward", "cancel-tcpip-forward", "mine@example.com"):
            side.connection.handle_global(name)
        for request in (TCPIPForward("", 0), CancelTCPIPForward("", 8022)):
            name, content = encode_global(request)
            event = side.receive(global_request(name, content))
            assert event == GlobalRequestReceived(name, content, True, request)
        assert side.receive(global_request("mine@example.com", b"x", want_reply=False)) == GlobalRequestReceived(
            "mine@example.com", b"x", False, None
        )
        side.receive(global_request("keepalive@openssh.com"))
        assert side.sink.take() == []
        side.connection.reply_global(True, uint32(8022))
        assert side.sink.take() == [b"\x51" + uint32(8022)]
        side.connection.reply_global(False, b"ignored")
        assert side.sink.take() == [b"\x52", b"\x52"]
        with pytest.raises(LocalError):
            side.connection.reply_global(True)

    @pytest.mark.parametrize("content", [b"", text("h"), text("h") + uint32(1) + b"\0", text("h") + uint32(2**16)])
    def test_malformed(self, content: bytes) -> None:
        side = Side("server", 7)
        side.connection.handle_global("tcpip-forward")
        with pytest.raises(ProtocolError):
            side.receive(global_request("tcpip-forward", content))

    def test_too_many_owed_replies(self) -> None:
        """Known bugs E 61."""
        side = Side("server", 7)
        side.connection.handle_global("tcpip-forward")
        content = encode_global(TCPIPForward("", 0))[1]
        for _ in range(PENDING_REPLIES_MAX):
            side.receive(global_request("tcpip-forward", content))
        for name in ("tcpip-forward", "keepalive@openssh.com"):
            with pytest.raises(ProtocolError):
                side.receive(global_request(name, content))
        assert side.receive(global_request("keepalive@openssh.com", want_reply=False)) is None

    def test_asking(self) -> None:
        """Known bugs H 108: replies with and without data, a failure of one byte."""
        side = Side("client", 7)
        connection = side.connection
        tokens = [connection.global_request("a"), connection.global_request("b", b"data")]
        silent = connection.global_request("c", b"", want_reply=False)
        tokens.append(connection.global_request("d"))
        assert len({*tokens, silent}) == 4
        assert side.sink.take() == [
            global_request("a"),
            global_request("b", b"data"),
            global_request("c", want_reply=False),
            global_request("d"),
        ]
        assert side.receive(b"\x51") == GlobalReplied(tokens[0], True, b"")
        assert side.receive(b"\x51\0\0\1\0") == GlobalReplied(tokens[1], True, b"\0\0\1\0")
        assert side.receive(b"\x52") == GlobalReplied(tokens[2], False, b"")
        assert side.receive(b"\x52") is None

    def test_replies_nobody_asked_for(self) -> None:
        """Known bugs G 86: without effect, however many."""
        side = Side("client", 7)
        for _ in range(1000):
            assert side.receive(b"\x51any") is None
            assert side.receive(b"\x52") is None
        token = side.connection.global_request("a")
        assert side.receive(b"\x51") == GlobalReplied(token, True, b"")
        with pytest.raises(ProtocolError):
            side.receive(b"\x52\0")


class TestNobody:
    @pytest.mark.parametrize("number", [0, 8, PEER, BIG])
    def test_numbers_not_in_use(self, number: int) -> None:
        for payload in (
            data(number, b"x"),
            data(number, b""),
            extended(number, b"x"),
            eof(number),
            close(number),
            channel_request(number, Exec(b"x"), False),
            confirmation(number),
            open_failure(number),
        ):
            side, _ = lone("server")
            if number < 7 and payload[0] in (96, 97):
                continue  # may have been in use: see below
            with pytest.raises(ProtocolError) as caught:
                side.receive(payload)
            assert caught.value.phase == "connection"
        side, _ = lone("server")
        for payload in (adjust(number, BIG), success(number), failure(number)):
            assert side.receive(payload) is None
        assert side.sink.take() == []

    def test_eof_and_close_of_an_old_channel(self) -> None:
        """A peer that ends twice does no harm; real servers let it pass."""
        side, _ = lone("server")
        side.receive(close(7))
        side.sink.take()
        for payload in (close(7), eof(7), close(7)):
            assert side.receive(payload) is None
        with pytest.raises(ProtocolError):
            side.receive(data(7, b"x"))
        assert side.sink.take() == []


SAMPLES = (
    opening("direct-tcpip", extra=encode_open(DirectTCPIP("h", 1))[1]),
    confirmation(8),
    open_failure(8),
    adjust(7, 1),
    data(7, b"abc"),
    extended(7, b"abc"),
    eof(7),
    close(7),
    channel_request(7, Exec(b"ls")),
    success(7),
    failure(7),
    global_request("tcpip-forward", encode_global(TCPIPForward("", 0))[1]),
)

#: Messages whose end is free-form, or that some peers cut short: (number, bytes that must be there).
OPEN_ENDED = {91: 17, 92: 15}


def sample_side(role: str = "server") -> Side:
    """An open session as 7, an unanswered open as 8, and forwarding handled."""
    side, channel = lone(role)
    side.connection.open_channel("forwarded-tcpip")
    side.connection.handle_global("tcpip-forward")
    side.connection.allow_open("direct-tcpip")
    channel.request(Exec(b"x"), True)
    side.sink.take()
    return side


class TestHostile:
    @pytest.mark.parametrize("sample", SAMPLES, ids=lambda s: str(s[0]))
    def test_truncated_at_every_byte(self, sample: bytes) -> None:
        for size in range(1, len(sample)):
            side = sample_side()
            if size == OPEN_ENDED.get(sample[0]):
                side.receive(sample[:size])
                continue
            with pytest.raises(ProtocolError):
                side.receive(sample[:size])

    @pytest.mark.parametrize("sample", SAMPLES, ids=lambda s: str(s[0]))
    def test_trailing_bytes(self, sample: bytes) -> None:
        side = sample_side()
        if sample[0] == 91:
            assert isinstance(side.receive(sample + b"\0"), ChannelOpened)
            return
        with pytest.raises(ProtocolError):
            side.receive(sample + b"\0")

    @pytest.mark.parametrize("number", [94, 95, 98, 90, 80, 92])
    @pytest.mark.parametrize("length", [2**31, BIG, 1000])
    def test_huge_lengths(self, number: int, length: int) -> None:
        head = {94: uint32(7), 95: uint32(7) + uint32(1), 98: uint32(7), 90: b"", 80: b"", 92: uint32(8) + uint32(1)}
        with pytest.raises(ProtocolError):
            sample_side().receive(bytes([number]) + head[number] + uint32(length) + bytes(100))

    @pytest.mark.parametrize("payload", [b"", b"\x00", b"\x32", b"\x53", b"\x65", b"\xc0abc"])
    def test_other_numbers(self, payload: bytes) -> None:
        with pytest.raises(ProtocolError):
            sample_side().receive(payload)

    @pytest.mark.parametrize("name", [b"\xff", "ö".encode()])
    def test_names_that_are_not_ascii(self, name: bytes) -> None:
        for payload in (
            b"\x50" + string(name) + b"\1",
            b"\x62" + uint32(7) + string(name) + b"\1",
            b"\x5a" + string(name) + bytes(12),
        ):
            with pytest.raises(ProtocolError):
                sample_side().receive(payload)

    @pytest.mark.parametrize("role", ["client", "server"])
    @given(payloads=st.lists(st.binary(max_size=40) | st.sampled_from(SAMPLES), max_size=12))
    def test_any_messages(self, role: str, payloads: list[bytes]) -> None:
        """Nothing but a ProtocolError comes out, and nothing that is not a message goes out."""
        side = sample_side(role)
        try:
            for payload in payloads:
                side.receive(payload)
        except ProtocolError:
            pass
        assert set(side.sink.numbers()) <= {80, 81, 82, *range(90, 101)}

    @given(
        number=st.sampled_from(range(90, 101)),
        recipient=st.sampled_from([0, 7, 8, 9, BIG]),
        rest=st.binary(max_size=40)
        | st.binary(max_size=20).map(string)
        | st.binary(max_size=9).map(lambda b: b"\0" * 3 + b),
    )
    def test_any_channel_message(self, number: int, recipient: int, rest: bytes) -> None:
        side = sample_side()
        try:
            side.receive(bytes([number]) + uint32(recipient) + rest)
        except ProtocolError as error:
            assert error.phase == "connection"


@pytest.mark.parametrize(
    "options",
    [
        {"window_size": 0},
        {"window_size": 2**32},
        {"max_packet_size": 0},
        {"max_packet_size": MAX_PACKET_SIZE_LIMIT + 1},
    ],
)
def test_options_out_of_range(options: dict[str, int]) -> None:
    with pytest.raises(LocalError):
        Connection("client", FakeSink(), **options)


def test_a_closed_channel_is_let_go() -> None:
    side, channel = lone("server")
    side.receive(data(7, b"unread"))
    side.receive(close(7))
    side.events.clear()
    channel.discard()
    channel.type = "mark"
    del channel
    gc.collect()
    assert not [o for o in gc.get_objects() if isinstance(o, Channel) and o.type == "mark"]
    assert side.connection.channels == {}
