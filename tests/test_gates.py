"""The gates against a table of all 256 numbers, written from the protocol and the design, not from the code.

Sources: RFC 4250, section 4.1 (numbers), RFC 4252, section 6, RFC 4253, sections 7.1 and 11.4, RFC 8308,
section 2.4, the strict KEX draft, section 3.2; where they leave a choice, design section 4.
"""

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

ROLES = ("client", "server")
LOGIN = (Phase.SERVICE, Phase.AUTH, Phase.PROMPT)


def table(rows: str) -> str:
    """``1-4 A  why`` lines to one letter a number; each number must be said exactly once."""
    letters: dict[int, str] = {}
    for row in filter(None, map(str.strip, rows.splitlines())):
        numbers, letter, *_ = row.split()
        for part in numbers.split(","):
            first, _, last = part.partition("-")
            for number in range(int(first), int(last or first) + 1):
                assert number not in letters, f"{number} stands twice"
                letters[number] = letter
    assert sorted(letters) == list(range(256)), sorted(set(range(256)) - letters.keys())
    return "".join(letters[number] for number in range(256))


# A allowed, I ignored, U answered with UNIMPLEMENTED, F fatal.

FIRST_KEX = table("""
    0       F  not a message number
    1-4     A  without strict KEX they are legal at any time (known bugs D 51)
    5-7     F  no service, no extension before NEWKEYS (D 54)
    8-19    U  unknown numbers below 50 are answered (RFC 4253, 11.4)
    20,21   A  the transport judges when
    22-29   U
    30-49   A  the method's own
    50-255  F  no login, no channel before NEWKEYS (D 54, I 114)
""")
FIRST_KEX_STRICT = table("""
    0       F
    1       A  DISCONNECT is honoured everywhere
    2-19    F  whatever KEX does not need ends the connection (D 47)
    20,21   A
    22-29   F
    30-49   A
    50-255  F
""")
REKEY = table("""
    0       F
    1-4     A  IGNORE and DEBUG are legal again, strict or not (D 48)
    5-7     F  no SERVICE_REQUEST, and no EXT_INFO inside an exchange
    8-19    U
    20      F  a second KEXINIT in one exchange (C 46)
    21      A
    22-29   U
    30-49   A
    50-255  F  the peer's own KEXINIT shut its gate (E 57)
""")
SERVER_SERVICE = table("""
    0       F
    1-5     A  5 is what it waits for
    6       F  SERVICE_ACCEPT comes from servers
    7       A  right behind NEWKEYS; the transport looks at its place
    8-19    U
    20      A  a client's early rekey is served
    21      F  no exchange is running
    22-49   U  nor are a method's numbers known outside one
    50      U  no service was granted yet
    51-60   F  server's messages, and numbers of methods that cannot run yet
    61      U  unsolicited
    62-255  F  above all no channels (I 114)
""")
SERVER_AUTH = table("""
    0       F
    1-5     A  paramiko sends a SERVICE_REQUEST per attempt
    6       F
    7       U  too late: without effect
    8-19    U
    20      A
    21      F
    22-49   U
    50      A
    51-53   F  a client that says FAILURE, SUCCESS or BANNER (I 114: CVE-2018-10933)
    54-59   U  not assigned
    60      F  PK_OK and its likes come from servers
    61      U  nobody asked
    62-79   U  not assigned
    80-255  F
""")
SERVER_PROMPT = table("""
    0       F
    1-5     A
    6       F
    7       U
    8-19    U
    20      A
    21      F
    22-49   U
    50      A  a new request drops the question
    51-53   F
    54-59   U
    60      F
    61      A  the answer
    62-79   U
    80-255  F
""")
CLIENT_SERVICE = table("""
    0       F
    1-4     A
    5       F  SERVICE_REQUEST comes from clients
    6,7     A
    8-19    U
    20      A
    21      F
    22-49   U
    50-255  F  the server has to grant the service first (D 54: no SUCCESS out of nothing)
""")
CLIENT_AUTH = table("""
    0       F
    1-4     A
    5,6     U  granted already
    7       A  a server's second one, before SUCCESS (F 75)
    8-19    U
    20      A
    21      F
    22-49   U
    50      F  a server that asks for login
    51-53   A
    54-59   U
    60      A
    61-79   U
    80-255  F
""")
OPEN = table("""
    0       F
    1-4     A
    5-19    U  EXT_INFO out of place has no effect (E 67)
    20      A
    21      F
    22-49   U
    50-79   I  RFC 4252, 5.1: further login requests are ignored
    80-82   A
    83-89   U
    90-100  A
    101-191 U
    192,193 A  PING and PONG
    194-255 U
""")
NORMAL = {
    ("server", Phase.SERVICE): SERVER_SERVICE,
    ("server", Phase.AUTH): SERVER_AUTH,
    ("server", Phase.PROMPT): SERVER_PROMPT,
    ("client", Phase.SERVICE): CLIENT_SERVICE,
    ("client", Phase.AUTH): CLIENT_AUTH,
    ("server", Phase.OPEN): OPEN,
    ("client", Phase.OPEN): OPEN,
}
ARRIVALS = {
    **{(role, Phase.KEX, exchange, strict): FIRST_KEX_STRICT if strict else FIRST_KEX
       for role in ROLES for exchange in (True, False) for strict in (True, False)},
    **{(role, phase, True, strict): REKEY for role, phase in NORMAL for strict in (True, False)},
    **{(role, phase, False, strict): rows for (role, phase), rows in NORMAL.items() for strict in (True, False)},
}  # fmt: skip


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
    ("server", Phase.PROMPT): SERVER_LOGIN,
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
