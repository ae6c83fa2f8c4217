"""Algorithm choice and the guess rule (RFC 4253, section 7.1)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice

from .constants import ALGORITHM_NAME_MAX, OFFER_SHOWN_MAX, PSEUDO_KEX_NAMES
from .errors import NegotiationError
from .messages import KexInit, Names
from .wire import visible

__all__ = ("Algorithms", "guess_is_wrong", "negotiate", "shown_offer")


@dataclass(frozen=True, slots=True)
class Algorithms:
    """What one key exchange agreed on. A MAC is None where the cipher authenticates by itself."""

    kex: str
    host_key: str
    cipher_c2s: str
    cipher_s2c: str
    mac_c2s: str | None
    mac_s2c: str | None
    compression_c2s: str = "none"
    compression_s2c: str = "none"


def negotiate(client: KexInit, server: KexInit, *, ours: KexInit, needs_mac: Callable[[str], bool]) -> Algorithms:
    """The first of the client's names that the server lists too, in each category.

    The cipher of a direction is chosen before its MAC: where it needs none, the MAC lists of that
    direction are ignored, even when they are empty or have nothing in common.

    Raises:
        NegotiationError: a category has no common name; it keeps at most 100 names of an offer.
    """

    def choose(category: str, wanted: Names, available: Names) -> str:
        known = frozenset(available) if isinstance(available, tuple) else available
        for name in wanted:
            if name in known and name not in PSEUDO_KEX_NAMES and len(name) <= ALGORITHM_NAME_MAX:
                return name
        own, theirs = map(shown_offer, (wanted, available) if ours is client else (available, wanted))
        raise NegotiationError(
            f"no common {category}: we offer {_listed(own)}, the peer {_listed(theirs)}",
            category=category,
            ours=own,
            theirs=theirs,
        )

    kex = choose("kex", client.kex, server.kex)
    host_key = choose("server host key", client.host_key, server.host_key)
    cipher_c2s = choose("cipher client to server", client.cipher_c2s, server.cipher_c2s)
    cipher_s2c = choose("cipher server to client", client.cipher_s2c, server.cipher_s2c)
    mac_c2s = mac_s2c = None
    if needs_mac(cipher_c2s):
        mac_c2s = choose("mac client to server", client.mac_c2s, server.mac_c2s)
    if needs_mac(cipher_s2c):
        mac_s2c = choose("mac server to client", client.mac_s2c, server.mac_s2c)
    return Algorithms(
        kex,
        host_key,
        cipher_c2s,
        cipher_s2c,
        mac_c2s,
        mac_s2c,
        choose("compression client to server", client.compression_c2s, server.compression_c2s),
        choose("compression server to client", client.compression_s2c, server.compression_s2c),
    )


def guess_is_wrong(client: KexInit, server: KexInit) -> bool:
    """Whether a packet sent on a guess must be dropped: the first KEX or host key names differ.

    Judged on the raw lists, before unknown names or markers are taken out: both sides must come
    to the same answer.
    """
    return _first(client.kex) != _first(server.kex) or _first(client.host_key) != _first(server.host_key)


def shown_offer(names: Names) -> tuple[str, ...]:
    """As much of a list as an error keeps: the peer decides how long it is."""
    return tuple(islice(names, OFFER_SHOWN_MAX))


def _first(names: Names) -> str | None:
    return next(iter(names), None)


def _listed(names: tuple[str, ...]) -> str:
    shown = ", ".join(visible(name, ALGORITHM_NAME_MAX) for name in names[:20])
    return (shown or "nothing") + (", ..." if len(names) > 20 else "")
