"""Each message number, at each point of a connection, in both roles, on the wire (known bugs D 47, 51, 54, I 114).

What must happen stands in support/arrivals.py. Here it is counted what reached the layers above
and what was answered.
"""

from __future__ import annotations

from typing import Any

import pytest

from sshtransport import messages
from sshtransport.errors import DisconnectReason, PeerDisconnected, ProtocolError
from sshtransport.events import DebugReceived, Disconnected, ExtInfoReceived, UnimplementedReceived
from sshtransport.gates import Phase
from tests.support.arrivals import ARRIVALS, ROLES
from tests.support.phases import POINTS, Point, Stage
from tests.support.puppet import inject

#: A plausible body where one is needed; the others are opaque here and get a few bytes.
BODIES = {
    1: messages.disconnect(11, "bye"),
    2: messages.ignore(b"noise"),
    3: messages.unimplemented(5),
    4: messages.debug(True, "hello"),
    5: messages.service_request(b"ssh-userauth"),
    6: messages.service_accept(b"ssh-userauth"),
    7: messages.ext_info({"name": b"value"}),
    21: messages.NEWKEYS,
    52: b"\x34",
    192: messages.ping(b"data"),
    193: messages.pong(b"data"),
}
PLACES = [pytest.param(point, role, id=f"{point}-{role}") for point in POINTS for role in ROLES]

#: Without the clients that would have asked a question: only a server asks.
SPEAKING = [
    pytest.param(point, role, id=f"{point}-{role}")
    for point in POINTS
    for role in ROLES
    if (point.phase, role) != (Phase.PROMPT, "client")
]


def message(number: int) -> bytes:
    return BODIES.get(number, bytes([number]) + b"\0\0\0\x01body")


def is_fatal(stage: Stage, items: list[Any], phase: Phase) -> None:
    """One event, a DISCONNECT that says the same, and silence."""
    (end,) = items
    assert isinstance(end, Disconnected)
    assert isinstance(end.error, ProtocolError)
    assert end.reason in (DisconnectReason.PROTOCOL_ERROR, DisconnectReason.KEY_EXCHANGE_FAILED)
    assert end.error.phase in (phase, "key exchange")
    (goodbye,) = stage.answers()
    assert messages.decode_disconnect(goodbye) == (end.reason, end.description)
    assert stage.target.phase is Phase.CLOSED
    assert stage.give(inject(stage.peer, b"\x5e late")) == []
    assert stage.answers() == []


def is_unimplemented(stage: Stage, items: list[Any], sequence: int) -> None:
    assert items == []
    assert stage.answers() == [messages.unimplemented(sequence)]


def is_silent(stage: Stage, items: list[Any]) -> None:
    assert items == []
    assert stage.answers() == []


def expected_kind(point: Point, role: str, number: int) -> str:
    """What ALLOW means for a number: who looks at it, and what comes of it."""
    if number == 1:
        return "disconnected"
    if number in (2, 3, 4):
        return "tolerated"
    if point.phase is Phase.KEX or point.in_exchange:
        return "kexinit" if number == 20 and not point.in_exchange else "out of order"
    if number == 7:  # our server has sent one right behind NEWKEYS: this one is not the first packet
        return "late" if role == "client" and point.phase is Phase.SERVICE else "ext-info"
    return {20: "kexinit", 192: "ping"}.get(number, "delivered")


def check_allowed(stage: Stage, kind: str, payload: bytes, items: list[Any], phase: Phase) -> None:
    if kind == "disconnected":
        (end,) = items
        assert isinstance(end, Disconnected)
        assert isinstance(end.error, PeerDisconnected)
        assert (end.reason, end.description) == (11, "bye")
        assert stage.answers() == []
    elif kind == "tolerated":
        events: dict[int, list[Any]] = {
            2: [],
            3: [UnimplementedReceived(5)],
            4: [DebugReceived(True, "hello")],
        }
        assert items == events[payload[0]]
        assert stage.answers() == []
    elif kind == "out of order":
        is_fatal(stage, items, phase)
    elif kind == "ext-info":
        assert items == [ExtInfoReceived({"name": b"value"})]
        assert stage.answers() == []
    elif kind == "late":
        is_unimplemented(stage, items, stage.target._reader.sequence - 1)
    elif kind == "ping":
        assert items == []
        held = stage.target.held_size
        assert (held == 9) if stage.target.state == "rekey" else (stage.answers() == [messages.pong(b"data")])
    else:
        assert items == [payload]
        assert stage.answers() == []


@pytest.mark.parametrize(("point", "role"), SPEAKING)
def test_every_number(point: Point, role: str) -> None:
    outcomes = ARRIVALS[role, point.phase, point.in_exchange, point.strict]
    stage: Stage | None = None
    counts = dict.fromkeys("AIUF", 0)
    for number in range(256):
        outcome = outcomes[number]
        if number == 20 and (outcome, expected_kind(point, role, 20)) == ("A", "kexinit"):
            continue  # an exchange begins: every other test has that
        if stage is None:
            stage = point.make(role)
        phase = stage.target.phase
        sequence = stage.peer._writer.sequence
        assert point.phase is Phase.KEX or sequence == stage.target._reader.sequence
        payload = message(number)
        items = stage.give(inject(stage.peer, payload))
        counts[outcome] += 1
        if outcome == "F":
            is_fatal(stage, items, phase)
        elif outcome == "U":
            is_unimplemented(stage, items, stage.target._reader.sequence - 1)
        elif outcome == "I":
            is_silent(stage, items)
        else:
            check_allowed(stage, expected_kind(point, role, number), payload, items, phase)
        if outcome == "F" or (outcome == "A" and (number < 80 or number == 192)):
            stage = None  # it is over, or not where it was
    assert sum(counts.values()) >= 255


TOLERATED = [
    messages.ignore(b""),
    b"\x02",
    messages.ignore(b"x" * 100),
    messages.debug(False, "x"),
    messages.unimplemented(9),
]


@pytest.mark.parametrize("payload", TOLERATED)
@pytest.mark.parametrize(("point", "role"), [p for p in PLACES if str(p.values[0]) != "first exchange, strict"])
def test_noise_does_not_disturb(point: Point, role: str, payload: bytes) -> None:
    """Known bugs D 51: IGNORE, DEBUG and UNIMPLEMENTED at any time, but for a strict first exchange."""
    stage = point.make(role)
    for _ in range(3):
        items = stage.give(inject(stage.peer, payload))
        assert not [item for item in items if isinstance(item, (bytes, Disconnected))]
    assert stage.answers() == []
