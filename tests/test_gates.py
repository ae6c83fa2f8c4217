"""The gates against tables of all 256 numbers, which were not written from the code (support/arrivals.py)."""

from __future__ import annotations

import pytest

from sshtransport.gates import (
    DEPARTURE,
    REKEY_DEPARTURE,
    REPLIES,
    Arrival,
    Departure,
    Phase,
    arrival_gate,
)
from sshtransport.transport import _HANDLERS
from tests.support.arrivals import ARRIVALS, table


@pytest.mark.parametrize(("role", "phase", "in_exchange", "strict"), ARRIVALS)
def test_what_may_arrive(role: str, phase: Phase, in_exchange: bool, strict: bool) -> None:
    gate = arrival_gate(role, phase, in_exchange=in_exchange, strict=strict)
    letters = {Arrival.ALLOW: "A", Arrival.IGNORE: "I", Arrival.UNIMPLEMENTED: "U", Arrival.FATAL: "F"}
    assert "".join(letters[Arrival(o)] for o in gate.outcomes) == ARRIVALS[role, phase, in_exchange, strict]


@pytest.mark.parametrize(("role", "phase", "in_exchange", "strict"), ARRIVALS)
def test_only_what_is_allowed_is_delivered(role: str, phase: Phase, in_exchange: bool, strict: bool) -> None:
    """And nothing that the transport itself must look at; what is not delivered has a handler."""
    gate = arrival_gate(role, phase, in_exchange=in_exchange, strict=strict)
    assert len(gate.deliver) == len(gate.outcomes) == 256
    for number, outcome in enumerate(gate.outcomes):
        if gate.deliver[number]:
            assert outcome == Arrival.ALLOW
            assert number >= 5
            assert number not in (7, 192) and not 20 <= number < 50
        elif outcome == Arrival.ALLOW:
            assert number in _HANDLERS or 30 <= number < 50


def test_before_login_nothing_of_a_channel_arrives() -> None:
    """Known bugs I 114, said once more without the table."""
    for role, phase, in_exchange, strict in ARRIVALS:
        if phase is not Phase.OPEN:
            outcomes = arrival_gate(role, phase, in_exchange=in_exchange, strict=strict).outcomes
            assert set(outcomes[80:]) == {Arrival.FATAL}


# S sent, W sent and moves the phase, H held until the exchange is over, X refused.

CLIENT_LOGIN = table("""
    0,1     X  DISCONNECT has its own call
    2-4     S
    5       S
    6-49    X  KEX messages and EXT_INFO are the transport's
    50      S
    51-60   X
    61      S
    62-255  X
""")
SERVER_LOGIN = table("""
    0,1     X
    2-4     S
    5       X
    6       S
    7-50    X
    51      S
    52      W  SUCCESS
    53      S
    54-59   X
    60      W  a question, or PK_OK
    61-255  X
""")
SERVER_PROMPT = table("""
    0,1     X
    2-4     S
    5       X
    6       S
    7-50    X
    51      W  FAILURE: no answer is expected any more
    52      W
    53      S
    54-59   X
    60      W
    61-255  X
""")
CONNECTION = table("""
    0,1     X
    2-4     S
    5-79    X
    80-255  S
""")
DEPARTURES = {
    ("client", Phase.SERVICE): CLIENT_LOGIN,
    ("client", Phase.AUTH): CLIENT_LOGIN,
    ("server", Phase.SERVICE): SERVER_LOGIN,
    ("server", Phase.AUTH): SERVER_LOGIN,
    ("server", Phase.PROMPT): SERVER_PROMPT,
    ("client", Phase.OPEN): CONNECTION,
    ("server", Phase.OPEN): CONNECTION,
}


def departures(outcomes: bytes) -> str:
    letters = {Departure.SEND: "S", Departure.SWITCH: "W", Departure.HOLD: "H", Departure.FORBID: "X"}
    return "".join(letters[Departure(o)] for o in outcomes)


def test_what_may_leave() -> None:
    """In the first exchange nothing of a caller's leaves: there is no table for it."""
    assert {key: departures(outcomes) for key, outcomes in DEPARTURE.items()} == DEPARTURES


def test_what_may_leave_in_a_rekey() -> None:
    """Known bugs E 57: between own KEXINIT and own NEWKEYS nothing but 1 to 4 and KEX."""
    held = {
        key: "".join(o if n in (2, 3, 4) or o == "X" else "H" for n, o in enumerate(rows))
        for key, rows in DEPARTURES.items()
    }
    assert {key: departures(outcomes) for key, outcomes in REKEY_DEPARTURE.items()} == held


def test_what_a_peer_can_make_us_owe() -> None:
    """UNIMPLEMENTED, answers to global and channel requests and opens, PONG."""
    assert {3, 81, 82, 91, 92, 99, 100, 193} == REPLIES
