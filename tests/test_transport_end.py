"""Every way a connection ends: one event, one cause, and silence; and calls that may not change anything."""

from __future__ import annotations

import gc
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sshtransport import messages
from sshtransport.config import TransportConfig
from sshtransport.constants import PAYLOAD_SEND_MAX
from sshtransport.errors import (
    ChannelOpenError,
    ConnectionLost,
    DisconnectReason,
    IntegrityError,
    LocalError,
    PeerDisconnected,
    ProtocolError,
    RemoteError,
    SSHError,
)
from sshtransport.events import Disconnected
from sshtransport.gates import Phase
from sshtransport.transport import SSHTransport, TransportState
from tests.support.ciphers import under_test
from tests.support.pair import Pair, host_key, logged_in
from tests.support.phases import LOOSE, POINTS, QUICK, Point, before_keys
from tests.support.puppet import ended, events, inject
from tests.support.scale import rounds

ROLES = pytest.mark.parametrize("role", ["client", "server"])
PLACES = pytest.mark.parametrize(
    ("point", "role"),
    [
        pytest.param(point, role, id=f"{point}-{role}")
        for point in POINTS
        for role in ("client", "server")
        if (point.phase, role) != (Phase.PROMPT, "client")
    ],
)


def is_over(end: SSHTransport) -> None:
    """Nothing is read, nothing is written, nothing is reported."""
    assert (end.state, end.phase) == (TransportState.CLOSED, Phase.CLOSED)
    assert not end.want_read
    assert not end.can_send_data
    assert end.data_to_send() == b""
    assert end.receive_data(b"\0" * 1000) == []
    assert end.receive_eof() == []
    assert end.take_events() == []
    end.disconnect(11, "again")
    end.fail(ProtocolError("again"))
    end.fail(SSHError("again"))
    assert end.take_events() == []
    for call in (lambda: end.send(b"\x5e"), lambda: end.send(b"\x02"), end.rekey, end.accept_host_key):
        with pytest.raises(LocalError):
            call()
    with pytest.raises(LocalError):
        end.send_data(b"\x5e", b"x")
    assert end.data_to_send() == b""
    assert end.held_size == 0


# --- DISCONNECT -------------------------------------------------------------------------------------


@PLACES
def test_we_disconnect(point: Point, role: str) -> None:
    """At every point: what we say is the last thing in the output, and the other side hears it."""
    stage = point.make(role)
    stage.target.disconnect(DisconnectReason.BY_APPLICATION, "good bye")
    assert ended(stage.target.take_events()) == Disconnected(DisconnectReason.BY_APPLICATION, "good bye", None)
    answers = stage.answers()
    assert messages.decode_disconnect(answers[-1]) == (11, "good bye")
    is_over(stage.target)


@PLACES
@pytest.mark.parametrize("reason", [2, 11, 99, 2**32 - 1])
def test_the_peer_disconnects(point: Point, role: str, reason: int) -> None:
    """Known bugs H 113: an exception of its own, with what the peer said; nothing is answered."""
    stage = point.make(role)
    phase = stage.target.phase
    end = ended(stage.give(inject(stage.peer, messages.disconnect(reason, "go\x07 away"))))
    assert (end.reason, end.description) == (reason, "go\\x07 away")
    assert isinstance(end.error, PeerDisconnected)
    assert (end.error.code, end.error.description, end.error.phase) == (reason, "go\\x07 away", phase)
    assert stage.answers() == []
    is_over(stage.target)


def test_a_disconnect_before_the_identification() -> None:
    end = SSHTransport("client", QUICK)
    end.disconnect(11, "never mind")
    data = end.data_to_send()
    server = SSHTransport("server", QUICK, host_keys=[host_key()])
    last = server.receive_data(data)[-1]
    assert isinstance(last, Disconnected)
    assert last.description == "never mind"
    ended(end.take_events())
    is_over(end)


@pytest.mark.parametrize("body", [b"", b"\0\0\0", b"\0\0\0\x0b\0\0\0\xffbye", b"\0\0\0\x0b\0\0\0\x03bye"])
def test_a_damaged_disconnect_ends_it_all_the_same(body: bytes) -> None:
    pair = logged_in(QUICK, QUICK)
    pair.clear()
    pair.deliver(pair.server, inject(pair.client, b"\x01" + body))
    assert isinstance(ended(pair.server_items).error, PeerDisconnected)


@pytest.mark.parametrize("behind", [b"\x5e data", messages.disconnect(2, "second"), b"\0", b"\x01"])
def test_nothing_is_parsed_behind_a_disconnect(behind: bytes) -> None:
    """Known bugs B 23: whole packets, half ones and noise; the recorded cause is the first."""
    for tail in (b"", b"\0\0\0", bytes(range(256))):
        pair = logged_in(QUICK, QUICK)
        pair.clear()
        pair.server.disconnect(11, "first")
        pair.server._writer.write(behind)
        pair.deliver(pair.client, pair.server.data_to_send() + tail)
        assert ended(pair.client_items).description == "first"
        is_over(pair.client)


def test_long_and_odd_descriptions() -> None:
    for text in ("x" * 10_000, "\ud800\udfff", "\u00e9" * 1000, ""):
        pair = logged_in(QUICK, QUICK)
        pair.clear()
        pair.client.disconnect(11, text)
        pair.pump()
        assert len(ended(pair.server_items).description) <= 512
        assert ended(pair.client.take_events()).description == text


# --- the stream ends --------------------------------------------------------------------------------


@PLACES
@pytest.mark.parametrize("partial", [b"", b"\0", bytes(5)])
def test_the_stream_ends(point: Point, role: str, partial: bytes) -> None:
    """Known bugs H 113: ConnectionLost, which is also a ConnectionError, with the phase."""
    stage = point.make(role)
    phase = stage.target.phase
    stage.give(partial[:3])
    end = ended(stage.target.receive_eof())
    assert isinstance(end.error, ConnectionLost)
    assert isinstance(end.error, ConnectionError)
    assert end.error.phase == phase
    assert end.reason == DisconnectReason.CONNECTION_LOST
    assert stage.target.data_to_send() == b""
    is_over(stage.target)


def test_the_stream_ends_before_anything_came() -> None:
    end = SSHTransport("client", QUICK)
    end.data_to_send()
    error = ended(end.receive_eof()).error
    assert error is not None
    assert error.phase == "identification"


# --- a layer above found a fault --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (ProtocolError("bad channel"), 2),
        (ProtocolError("no such service", reason=DisconnectReason.SERVICE_NOT_AVAILABLE), 7),
        (LocalError("gave up"), 11),
        (ChannelOpenError(1, "no"), 11),
    ],
)
def test_fail(error: SSHError, reason: int) -> None:
    pair = logged_in(QUICK, QUICK)
    pair.clear()
    pair.server.fail(error)
    end = ended(pair.server.take_events())
    assert (end.reason, end.error) == (reason, error)
    if isinstance(error, RemoteError):
        assert error.phase == "connection"
    pair.pump()
    theirs = ended(pair.client_items)
    assert (theirs.reason, theirs.description) == (reason, error.message)
    is_over(pair.server)


# --- faults on the wire -----------------------------------------------------------------------------


@pytest.mark.parametrize("suite", under_test())
def test_a_flipped_bit_anywhere_in_a_live_session(suite: Any) -> None:
    """A typed error and no payload; where it raised the length, after as much as that length allows."""
    config = TransportConfig(kex=["curve25519-sha256"], ciphers=[suite.cipher], macs=[suite.mac or "hmac-sha2-256"])
    pair = Pair(config, config).pump()
    frame = inject(pair.client, b"\x05\x00\x00\x00\x0cssh-userauth")
    for bit in range(0, len(frame) * 8, 11):
        victim = pair.server
        damaged = bytearray(frame)
        damaged[bit // 8] ^= 1 << bit % 8
        items = victim.receive_data(damaged)
        if victim.phase is not Phase.CLOSED:
            assert items == []
            items = victim.receive_data(bytes(victim._reader.length_max + 100))
        end = ended(items)
        assert isinstance(end.error, (IntegrityError, ProtocolError))
        assert end.reason in (DisconnectReason.MAC_ERROR, DisconnectReason.PROTOCOL_ERROR)
        assert victim.data_to_send() != b""  # the DISCONNECT
        is_over(victim)
        pair = Pair(config, config).pump()
        frame = inject(pair.client, b"\x05\x00\x00\x00\x0cssh-userauth")


def test_an_error_lets_go_of_what_it_was_about() -> None:
    """A traceback's frames would keep the packet, decrypted under encrypt-and-MAC, as long as the error lives."""
    config = TransportConfig(kex=["curve25519-sha256"], ciphers=["aes128-ctr"], macs=["hmac-sha2-256"])
    pair = logged_in(config, config)
    wire = bytearray(inject(pair.client, b"\x5e top secret"))
    wire[-1] ^= 1
    last = pair.server.receive_data(wire)[-1]
    assert isinstance(last, Disconnected)
    assert isinstance(last.error, IntegrityError)
    traceback = last.error.__traceback__
    while traceback is not None:
        assert not [v for v in traceback.tb_frame.f_locals.values() if isinstance(v, bytes) and b"secret" in v]
        traceback = traceback.tb_next
    gc.collect()
    wire.clear()  # no view of the caller's buffer is left either


def test_a_buffer_is_free_after_a_bad_length() -> None:
    pair = logged_in(QUICK, QUICK)
    wire = bytearray(b"\xff" * 100)
    pair.server.receive_data(wire)
    wire.clear()
    pair = logged_in(QUICK, QUICK)
    wire = bytearray(inject(pair.client, messages.disconnect(11, "bye"), b"\x5e behind"))
    pair.server.receive_data(wire)
    wire.clear()


@PLACES
@settings(max_examples=rounds(12))
@given(data=st.data())
def test_any_payload_at_any_point(point: Point, role: str, data: st.DataObject) -> None:
    """Never an exception, at most one end, and no payload of a number that is not for above."""
    stage = point.make(role)
    likely = st.sampled_from([1, 2, 3, 4, 5, 6, 7, 20, 21, 30, 31, 50, 52, 60, 61, 80, 94, 192])
    number = st.one_of(likely, st.integers(0, 255))
    payloads = data.draw(st.lists(st.tuples(number, st.binary(max_size=60)), min_size=1, max_size=4))
    for first, body in payloads:
        stage.give(inject(stage.peer, bytes([first]) + body))
    ends = events(stage.items, Disconnected)
    assert len(ends) <= 1
    assert all(isinstance(end.error, RemoteError) for end in ends)
    stage.target.data_to_send()


@ROLES
@settings(max_examples=rounds(30))
@given(noise=st.lists(st.binary(max_size=200), max_size=5))
def test_any_bytes(role: str, noise: list[bytes]) -> None:
    for loose in (False, True):
        stage = before_keys(role, LOOSE if loose else QUICK)
        before = len(stage.items)
        for piece in noise:
            stage.give(piece)
        assert len(events(stage.items[before:], Disconnected)) <= 1


# --- misuse -----------------------------------------------------------------------------------------


def state(end: SSHTransport) -> tuple[Any, ...]:
    writer, reader = end._writer, end._reader
    return (
        *(end.state, end.phase, end.want_read, end.can_send_data, end.held_size, end.pending_output, end.session_id),
        *(writer.sequence, writer.packets, writer.total, reader.sequence, reader.packets, end._keying.exchange),
    )


@PLACES
def test_local_errors_change_nothing(point: Point, role: str) -> None:
    stage = point.make(role)
    end = stage.target
    before = state(end)
    calls: list[Any] = [
        lambda: end.send(b""),
        lambda: end.send(b"\x5e" * (PAYLOAD_SEND_MAX + 1)),
        lambda: end.send(b"\x02" * (PAYLOAD_SEND_MAX + 1)),
        *(lambda number=number: end.send(bytes([number])) for number in (0, 1, 7, 8, 20, 21, 30, 49, 79)),
        lambda: end.send_data(b"\x5e", bytes(PAYLOAD_SEND_MAX)),
        lambda: end.send_data(b"\x14", b"no data message"),
        lambda: end.send_data(b"", b"no number"),
        end.accept_host_key,
        end.reject_host_key,
        lambda: end.disconnect(-1),
        lambda: end.disconnect(2**32),
    ]
    for call in calls:
        with pytest.raises(LocalError):
            call()
        assert state(end) == before
    assert end.take_events() == []
    assert end.data_to_send() == b""


@pytest.mark.parametrize("role", ["", "peer", None, 1])
def test_a_role_that_does_not_exist(role: Any) -> None:
    with pytest.raises(LocalError, match="role"):
        SSHTransport(role)


def test_buffer_updated_without_get_buffer() -> None:
    with pytest.raises(LocalError):
        SSHTransport("client", QUICK).buffer_updated(5)


def test_secrets_do_not_show() -> None:
    """Neither in a repr nor in the text of any event."""
    pair = Pair(QUICK, QUICK)
    pair.deliver(pair.server, pair.client.data_to_send())
    pair.deliver(pair.client, pair.server.data_to_send())
    pair.deliver(pair.server, pair.client.data_to_send())
    exchange = pair.server._keying.exchange
    assert exchange is not None
    assert exchange.result is not None
    secret = exchange.result.secret
    shown = repr(exchange) + repr(exchange.result)
    assert repr(secret) not in shown
    assert secret.hex() not in shown
