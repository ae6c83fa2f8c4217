"""What may arrive and what may leave: 256-entry tables per role and phase (design section 4).

State is data here: the transport swaps tables on transitions and has no other place where a
message number is judged. Sources: RFC 4250 section 4.1, RFC 4252 section 6, RFC 4253 sections 7.1
and 11.4, RFC 8308 section 2.4, draft-ietf-sshm-strict-kex section 3.2.

Arrival has four outcomes. ALLOW hands the payload to the machine that owns its number, IGNORE drops
it, UNIMPLEMENTED answers with SSH_MSG_UNIMPLEMENTED, FATAL disconnects. For the packet reader's fast
path each arrival table comes with its ``deliver`` bytes: non-zero where a payload is simply passed
up, without the transport looking at it.

Departure has four as well: SEND, HOLD (after the running key exchange), FORBID, and SWITCH (send, and
move to another phase).
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum, StrEnum
from typing import Final

from .constants import (
    MSG_KEXINIT,
    MSG_NEWKEYS,
    MSG_USERAUTH_FAILURE,
    MSG_USERAUTH_INFO_REQUEST,
    MSG_USERAUTH_INFO_RESPONSE,
    MSG_USERAUTH_SUCCESS,
)

__all__ = ("ArrivalGate", "Arrival", "DEPARTURE", "Departure", "Phase", "REKEY_DEPARTURE", "REPLIES", "arrival_gate")


class Arrival(IntEnum):
    """What happens to a message that arrives."""

    ALLOW = 0
    IGNORE = 1
    UNIMPLEMENTED = 2
    FATAL = 3


class Departure(IntEnum):
    """What happens to a message that a caller wants to send."""

    SEND = 0
    SWITCH = 1
    HOLD = 2
    FORBID = 3


class Phase(StrEnum):
    """Where a connection stands, as far as message numbers are concerned."""

    IDENTIFICATION = "identification"
    KEX = "key exchange"  # the first one, no keys yet
    SERVICE = "service request"  # keys on, nothing asked for yet
    AUTH = "authentication"
    PROMPT = "authentication prompt"  # the server asked: 61 is expected
    OPEN = "connection"
    CLOSED = "closed"


_TRANSPORT: Final = range(1, 5)  # DISCONNECT, IGNORE, UNIMPLEMENTED, DEBUG
_KEX_METHOD: Final = range(30, 50)
_UNKNOWN_EARLY: Final = (*range(8, 20), *range(22, 30))
_CONNECTION: Final = (80, 81, 82, *range(90, 101))


class ArrivalGate:
    """One arrival table and its fast-path bytes."""

    __slots__ = ("deliver", "outcomes")

    def __init__(self, default: Arrival, rules: Iterable[tuple[Arrival, Iterable[int]]], owned: Iterable[int]) -> None:
        table = bytearray([default]) * 256
        for outcome, numbers in rules:
            for number in numbers:
                table[number] = outcome
        table[0] = Arrival.FATAL
        self.outcomes = bytes(table)
        mine = {*_TRANSPORT, 7, MSG_KEXINIT, MSG_NEWKEYS, *_KEX_METHOD, 192, *owned}
        self.deliver = bytes(
            outcome == Arrival.ALLOW and number not in mine for number, outcome in enumerate(self.outcomes)
        )


_A, _I, _U, _F = Arrival

#: First key exchange: strict allows nothing but what it needs, DISCONNECT excepted.
_FIRST_KEX = ArrivalGate(_F, [(_A, (*_TRANSPORT, 20, 21, *_KEX_METHOD)), (_U, _UNKNOWN_EARLY)], ())
_FIRST_KEX_STRICT = ArrivalGate(_F, [(_A, (1, 20, 21, *_KEX_METHOD))], ())
#: Between the peer's rekey KEXINIT and its NEWKEYS.
_REKEY = ArrivalGate(_F, [(_A, (*_TRANSPORT, 21, *_KEX_METHOD)), (_U, _UNKNOWN_EARLY)], ())

_LOGIN_UNKNOWN: Final = (*_UNKNOWN_EARLY, *_KEX_METHOD)
_NORMAL: Final = {
    # A server answers each SERVICE_REQUEST until SUCCESS; 61 without a prompt is not understood; numbers the
    # server alone may send are a fault. 5 and 6 and 52 also move the phase, so the transport looks at them.
    ("server", Phase.SERVICE): ArrivalGate(_F, [(_A, (*_TRANSPORT, 5, 7, 20)), (_U, (*_LOGIN_UNKNOWN, 50, 61))], (5,)),
    ("server", Phase.AUTH): ArrivalGate(
        _F, [(_A, (*_TRANSPORT, 5, 20, 50)), (_U, (*_LOGIN_UNKNOWN, 7, 61, *range(54, 60), *range(62, 80)))], ()
    ),
    ("server", Phase.PROMPT): ArrivalGate(
        _F,
        [(_A, (*_TRANSPORT, 5, 20, 50, 61)), (_U, (*_LOGIN_UNKNOWN, 7, *range(54, 60), *range(62, 80)))],
        (50, 61),
    ),
    ("client", Phase.SERVICE): ArrivalGate(_F, [(_A, (*_TRANSPORT, 6, 7, 20)), (_U, _LOGIN_UNKNOWN)], (6,)),
    ("client", Phase.AUTH): ArrivalGate(
        _F,
        [
            (_A, (*_TRANSPORT, 7, 20, 51, 52, 53, 60)),
            (_U, (*_LOGIN_UNKNOWN, 5, 6, *range(54, 60), *range(61, 80))),
        ],
        (52,),
    ),
}
_OPEN_ALL = ArrivalGate(_U, [(_A, (*_TRANSPORT, 20, *range(80, 256))), (_F, (21,)), (_I, range(50, 80))], ())
_OPEN = ArrivalGate(_U, [(_A, (*_TRANSPORT, 20, 192, 193, *_CONNECTION)), (_F, (21,)), (_I, range(50, 80))], ())


def arrival_gate(role: str, phase: Phase, *, in_exchange: bool, strict: bool, all_numbers: bool = False) -> ArrivalGate:
    """The table for what the peer may send now.

    ``in_exchange``: the peer's KEXINIT has arrived and its NEWKEYS has not; ``strict``: strict KEX
    was agreed; ``all_numbers``: what stands above knows messages of its own, so that all from 80
    on go up once login is done.
    """
    if phase is Phase.KEX:
        return _FIRST_KEX_STRICT if strict else _FIRST_KEX
    if in_exchange:
        return _REKEY
    if phase is Phase.OPEN:
        return _OPEN_ALL if all_numbers else _OPEN
    return _NORMAL[role, phase]


_S, _W, _H, _X = Departure


def _departure(*rules: tuple[Departure, Iterable[int]]) -> bytes:
    table = bytearray([_X]) * 256
    for outcome, numbers in rules:
        for number in numbers:
            table[number] = outcome
    return bytes(table)


_LOGIN_CLIENT = _departure((_S, (2, 3, 4, 5, 50, MSG_USERAUTH_INFO_RESPONSE)))
_LOGIN_SERVER = _departure((_S, (2, 3, 4, 6, 51, 53)), (_W, (MSG_USERAUTH_SUCCESS, MSG_USERAUTH_INFO_REQUEST)))
_PROMPT_SERVER = _departure(
    (_S, (2, 3, 4, 6, 53)), (_W, (MSG_USERAUTH_FAILURE, MSG_USERAUTH_SUCCESS, MSG_USERAUTH_INFO_REQUEST))
)
_ALL_OPEN = _departure((_S, (2, 3, 4, *range(80, 256))))

#: What ``send`` may be asked for, by role and phase, while no key exchange of ours runs. KEX messages and
#: DISCONNECT are the transport's own. In the first exchange nothing leaves; callers wait for KeysChanged.
DEPARTURE: Final = {
    ("client", Phase.SERVICE): _LOGIN_CLIENT,
    ("client", Phase.AUTH): _LOGIN_CLIENT,
    ("server", Phase.SERVICE): _LOGIN_SERVER,
    ("server", Phase.AUTH): _LOGIN_SERVER,
    ("server", Phase.PROMPT): _PROMPT_SERVER,
    ("client", Phase.OPEN): _ALL_OPEN,
    ("server", Phase.OPEN): _ALL_OPEN,
}

#: The same from own KEXINIT to own NEWKEYS in a rekey: only IGNORE, UNIMPLEMENTED and DEBUG leave at once.
REKEY_DEPARTURE: Final = {
    key: bytes(
        outcome if number in _TRANSPORT or outcome == _X else Departure.HOLD for number, outcome in enumerate(table)
    )
    for key, table in DEPARTURE.items()
}

#: Answers that the peer can make us owe it: UNIMPLEMENTED, global and channel replies, PONG.
REPLIES: Final = frozenset({3, 81, 82, 91, 92, 99, 100, 193})
