"""What a scenario is, and which cases it makes for a peer."""

from __future__ import annotations

import itertools
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import sshtransport
from interop.model import Ability, Case, Login, Peer, Role, RoleSpec, Setting
from interop.pairwise import cover
from sshtransport.keys import HOST_KEY_ALGORITHMS

from .sides import KEX_NAMES

__all__ = ("Names", "Scenario", "Shared", "Weight", "once", "plan", "shared")

Names = Mapping[str, str]  # fields of a Case: variant, kex, host_key, cipher, mac
LOGINS = {
    Login.ED25519: {"ssh-ed25519"},
    Login.ECDSA: {"ecdsa-sha2-nistp256"},
    Login.RSA: {"rsa-sha2-256", "rsa-sha2-512"},
}  # and the signatures, one of which the peer must know


class Weight(Enum):
    """What a case costs, which decides how many run at once."""

    LIGHT = "a short while of some CPU"
    HEAVY = "seconds of CPU"
    IDLE = "waits most of the time"


@dataclass(frozen=True)
class Shared:
    """What a peer in a role and we both have, best first."""

    spec: RoleSpec
    kex: tuple[str, ...]
    host_keys: tuple[str, ...]
    aead: tuple[str, ...]
    suites: tuple[tuple[str, str], ...]  # ciphers with their MAC; "" for an AEAD
    full: bool
    storm: int

    @property
    def few(self) -> tuple[tuple[str, str], ...]:
        """Every cipher once, with the first of its MACs."""
        return tuple({cipher: (cipher, mac) for cipher, mac in reversed(self.suites)}.values())[::-1]


def shared(spec: RoleSpec, full: bool = False, storm: int = Peer.storm) -> Shared:
    offers = spec.offers
    ciphers = [name for name in sshtransport.cipher_names() if name in offers.ciphers]
    macs = [name for name in sshtransport.mac_names() if name in offers.macs]
    with_mac = [name for name in ciphers if sshtransport.get_cipher(name).needs_mac]
    aead = tuple(name for name in ciphers if name not in with_mac)
    return Shared(
        spec,
        tuple(name for name in KEX_NAMES if name in offers.kex),
        tuple(name for name in HOST_KEY_ALGORITHMS if name in offers.host_keys),
        aead,
        (*((name, "") for name in aead), *itertools.product(with_mac, macs)),
        full,
        storm,
    )


def once(_: Shared) -> Iterable[Names]:
    """One case, with whatever the two settle on."""
    return [{}]


def nothing_set(_: Case, __: RoleSpec) -> Mapping[Setting, str]:
    return {}


@dataclass(frozen=True)
class Scenario:
    """One thing to try, in the roles where the peer has the abilities for it."""

    name: str
    run: Callable[[Any], Awaitable[None]]  # is given the Side of the role
    cases: Callable[[Shared], Iterable[Names]] = once
    roles: tuple[Role, ...] = tuple(Role)
    needs: frozenset[Ability] = field(default_factory=frozenset)
    weight: Weight = Weight.LIGHT
    deadline: float = 60.0  # seconds
    settings: Callable[[Case, RoleSpec], Mapping[Setting, str]] = nothing_set  # what the peer is told
    on_demand: bool = False  # not part of a run that does not name it


def plan(peer: Peer, scenarios: Iterable[Scenario], roles: Iterable[Role], full: bool) -> list[Case]:
    """The cases of a peer: thinned, or with ``full`` all there can be."""
    cases: list[Case] = []
    for role in roles:
        spec = peer.roles.get(role)
        if spec is None:
            continue
        both = shared(spec, full, peer.storm)
        cases += [
            Case(peer.name, role, scenario.name, **names)
            for scenario in scenarios
            if role in scenario.roles and scenario.needs <= spec.abilities
            for names in scenario.cases(both)
        ]
    return cases


# --- which cases ---------------------------------------------------------------------------------------


def variants(*names: str) -> Callable[[Shared], Iterable[Names]]:
    """One case each."""
    return lambda _: [{"variant": name} for name in names]


def variants_over_ciphers(*names: str) -> Callable[[Shared], Iterable[Names]]:
    """Every variant and every cipher at least once: in turns, or with ``full`` the product."""

    def cases(both: Shared) -> Iterable[Names]:
        pairs = itertools.product(names, both.few) if both.full else _in_turns(names, both.few)
        return [{"variant": name, "cipher": cipher, "mac": mac} for name, (cipher, mac) in pairs]

    return cases


def _in_turns(one: tuple[str, ...], other: tuple[tuple[str, str], ...]) -> Iterable[tuple[str, tuple[str, str]]]:
    if not other:
        return ()
    return itertools.islice(zip(itertools.cycle(one), itertools.cycle(other)), max(len(one), len(other)))


def logins(both: Shared) -> Iterable[Names]:
    """By each kind of key that the peer knows; by password under every AEAD cipher."""
    cases: list[Names] = [{"variant": str(login)} for login, names in LOGINS.items() if names & {*both.host_keys}]
    if Ability.PASSWORD in both.spec.abilities:
        cases += [{"variant": str(Login.PASSWORD), "cipher": cipher} for cipher in both.aead]
    return cases


def who_rekeys(both: Shared) -> Iterable[Names]:
    names = ("ours", "theirs", "both") if Setting.REKEY in both.spec.settings else ("ours",)
    return variants_over_ciphers(*names)(both)


def matrix(both: Shared) -> Iterable[Names]:
    """Every value and every pair of values of cipher, MAC, KEX and host key; with ``full`` all there are."""
    rows = [(*suite, kex, key) for suite, kex, key in itertools.product(both.suites, both.kex, both.host_keys)]
    return [
        dict(zip(("cipher", "mac", "kex", "host_key"), row, strict=True))
        for row in (rows if both.full else cover(rows))
    ]


def alone(both: Shared) -> Iterable[Names]:
    """Each value of each kind, where the peer can be told to have no other one."""
    settings = both.spec.settings
    cases: list[Names] = []
    if Setting.CIPHER in settings:
        cases += [{"cipher": cipher} for cipher, mac in both.few if not mac or Setting.MAC not in settings]
        if Setting.MAC in settings:
            cases += [{"cipher": cipher, "mac": mac} for cipher, mac in both.suites if mac]
    if Setting.KEX in settings:
        cases += [{"kex": kex} for kex in both.kex]
    if Setting.HOST_KEY in settings:
        cases += [{"host_key": key} for key in both.host_keys]
    return cases


def hybrid(part: int) -> Callable[[Shared], Iterable[Names]]:
    """Key exchanges of the method that few have: so many as the peer's data say, or a part of that."""
    name = "mlkem768x25519-sha256"
    return lambda both: [{"variant": str(both.storm // part), "kex": name}] if name in both.kex else []


# --- what the peer is told -----------------------------------------------------------------------------


def all_kex(case: Case, spec: RoleSpec) -> Mapping[Setting, str]:
    """Everything it has, where that is not its default."""
    usual = not case.kex.startswith("diffie-hellman")  # finite fields are on offer in no new server
    return {} if usual or Setting.KEX not in spec.settings else {Setting.KEX: ",".join(spec.offers.kex)}


def only_this(case: Case, spec: RoleSpec) -> Mapping[Setting, str]:
    """What the case names, and nothing else of its kind."""
    named = vars(case)
    return {kind: named[kind] for kind in Setting if kind in spec.settings and named.get(kind)}


def its_rekey(size: int) -> Callable[[Case, RoleSpec], Mapping[Setting, str]]:
    return lambda case, _: {} if case.variant == "ours" else {Setting.REKEY: str(size)}
