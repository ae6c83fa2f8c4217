"""A flipped bit at many places of a session, under each cipher, to either side (``interop/tamper.py``)."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable

from interop.model import Ability, Login, Program, Target
from interop.tamper import (
    Direction,
    Ending,
    Flip,
    Tamper,
    attack_client,
    attack_server,
    choose_flips,
)

from .commands import ECHO, counted, exit_with, source
from .sides import Check, ClientPeer, ServerPeer, Side, key_at
from .table import Names, Shared

__all__ = ("tamper_client", "tamper_server", "tampered", "tampered_in_turns")

SIZE = 3000  # bytes of the session's data: a few packets
SERVER_FLIPS, CLIENT_FLIPS = 12, 3  # of a case; a client is a process each time
EVERY = ", every byte"  # of the first packets: the variant of a full run


def tampered(both: Shared) -> Iterable[Names]:
    """Each cipher, to either side; where a MAC goes with it, each MAC in turn, or with ``full`` all of them."""
    macs = list(dict.fromkeys(mac for _, mac in both.suites if mac))
    turn = itertools.cycle(macs)
    suites = both.suites if both.full else [(cipher, next(turn) if mac else "") for cipher, mac in both.few]
    rest = EVERY if both.full else ""
    return [
        {"variant": direction + rest, "cipher": cipher, "mac": mac} for cipher, mac in suites for direction in Direction
    ]


def tampered_in_turns(both: Shared) -> Iterable[Names]:
    """Each cipher once, the sides in turns: a client is a process for each flip. With ``full`` as above."""
    cases = list(tampered(both))
    return cases if both.full else [case for n, case in enumerate(cases) if n // 2 % 2 == n % 2]


Attack = Callable[[Flip | None], Awaitable[tuple[Ending, Tamper]]]


async def tamper_server(side: ServerPeer) -> None:
    """Our client's sessions with a server peer."""
    command, data, expected = _work(side)
    key = key_at(side.credentials.path(f"user_{Login.ED25519}"))

    async def attack(flip: Flip | None) -> tuple[Ending, Tamper]:
        async with side.gate:
            return await attack_server(
                side.server.host,
                side.server.port,
                flip,
                command=command,
                data=data,
                expected=expected,
                config=side.config(),
                login={"username": side.server.username, "client_keys": [key]},
            )

    await _attack(side, attack, SERVER_FLIPS)


async def tamper_client(side: ClientPeer) -> None:
    """A client peer's sessions with our server."""
    command, data, expected = _work(side)
    async with side.serve() as ours:

        async def start(port: int) -> Program:
            return await side.client.start(command, Target(port, Login.ED25519, side.settings))

        async def attack(flip: Flip | None) -> tuple[Ending, Tamper]:
            return await attack_client(ours.server, flip, start, data=data, expected=expected)

        await _attack(side, attack, CLIENT_FLIPS)


def _work(side: Side) -> tuple[str, bytes, bytes]:
    """Command, input and output."""
    data = counted(SIZE)
    return (ECHO, data, data) if side.can(Ability.STDIN) else (source(SIZE), b"", data)


async def _attack(side: Side, attack: Attack, count: int) -> None:
    async with side.session() as session:  # what was settled on
        await session.run(exit_with(0))
    _, whole = await attack(None)
    direction = Direction(side.case.variant.removesuffix(EVERY))
    size = whole.encrypted(direction)
    few = None if side.case.variant.endswith(EVERY) else count
    endings: Counter[str] = Counter()
    for flip in choose_flips(direction, size, few, side.case.id):
        ending, tamper = await attack(flip)
        endings[ending + (", after it had waited for more" if tamper.filled else "")] += 1
    side.facts["flips"] = "; ".join(f"{number} {ending}" for ending, number in endings.items())
    if set(endings) <= {Ending.BEYOND}:
        raise Check("no bit was flipped: every session was over before")
