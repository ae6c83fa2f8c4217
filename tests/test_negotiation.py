"""Algorithm choice and the guess rule (RFC 4253, section 7.1)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sshtransport.constants import PSEUDO_KEX_NAMES
from sshtransport.errors import DisconnectReason, NegotiationError
from sshtransport.messages import KexInit
from sshtransport.negotiation import Algorithms, guess_is_wrong, negotiate

AEAD = frozenset({"gcm", "chacha"})
BASE = KexInit(bytes(16), ("k1", "k2"), ("h1", "h2"), ("gcm", "ctr"), ("gcm", "ctr"), ("m1", "m2"), ("m1", "m2"))


def needs_mac(name: str) -> bool:
    return name not in AEAD


def sent(kexinit: KexInit) -> KexInit:
    """As it looks after a trip over the wire."""
    return KexInit.decode(kexinit.encode())


def agree(client: KexInit, server: KexInit, *, at: str = "client") -> Algorithms:
    """What one side makes of its own offer and of the other's as it arrived."""
    if at == "client":
        return negotiate(client, sent(server), ours=client, needs_mac=needs_mac)
    received = sent(client)
    return negotiate(received, server, ours=server, needs_mac=needs_mac)


def both(client: KexInit, server: KexInit) -> Algorithms:
    """Both sides must come to the same result."""
    at_client, at_server = agree(client, server), agree(client, server, at="server")
    assert at_client == at_server
    return at_client


def test_equal_offers() -> None:
    assert both(BASE, BASE) == Algorithms("k1", "h1", "gcm", "gcm", None, None)


def test_the_client_decides_the_order() -> None:
    turned = replace(
        BASE,
        kex=("k2", "k1"),
        host_key=("h2", "h1"),
        cipher_c2s=("ctr", "gcm"),
        cipher_s2c=("ctr",),
        mac_c2s=("m2", "m1"),
    )
    assert both(turned, BASE) == Algorithms("k2", "h2", "ctr", "ctr", "m2", "m1")
    assert both(BASE, turned) == Algorithms("k1", "h1", "gcm", "ctr", None, "m1")


@pytest.mark.parametrize("client_macs", [(), ("m1",), ("hmac-etm",)])
@pytest.mark.parametrize("server_macs", [(), ("m9",)])
def test_macs_are_ignored_behind_aead(client_macs: tuple[str, ...], server_macs: tuple[str, ...]) -> None:
    """Known bugs B 15, 16: empty lists or nothing in common must not matter there."""
    client = replace(BASE, mac_c2s=client_macs, mac_s2c=client_macs)
    server = replace(BASE, mac_c2s=server_macs, mac_s2c=server_macs)
    made = both(client, server)
    assert (made.mac_c2s, made.mac_s2c) == (None, None)


def test_each_direction_for_itself() -> None:
    """Known bugs B 16: one direction AEAD, the other CTR with a MAC."""
    client = replace(BASE, cipher_c2s=("chacha", "gcm"), cipher_s2c=("ctr",), mac_c2s=())
    server = replace(BASE, mac_c2s=("m9",))
    assert both(client, server) == Algorithms("k1", "h1", "gcm", "ctr", None, "m1")


CATEGORIES = {
    "kex": "kex",
    "host_key": "server host key",
    "cipher_c2s": "cipher client to server",
    "cipher_s2c": "cipher server to client",
    "mac_c2s": "mac client to server",
    "mac_s2c": "mac server to client",
    "compression_c2s": "compression client to server",
    "compression_s2c": "compression server to client",
}


@pytest.mark.parametrize("at", ["client", "server"])
@pytest.mark.parametrize("offer", [("other", "more"), ()])
@pytest.mark.parametrize("field", CATEGORIES)
def test_nothing_in_common(field: str, offer: tuple[str, ...], at: str) -> None:
    """Known bugs C 44: the category and both offers are told, from our point of view."""
    ctr = replace(BASE, cipher_c2s=("ctr",), cipher_s2c=("ctr",))
    change: Any = {field: offer}
    server = replace(ctr, **change)
    with pytest.raises(NegotiationError) as caught:
        agree(ctr, server, at=at)
    error = caught.value
    assert error.category == CATEGORIES[field]
    offers = (tuple(getattr(ctr, field)), offer)
    assert (error.ours, error.theirs) == (offers if at == "client" else offers[::-1])
    assert error.reason == DisconnectReason.KEY_EXCHANGE_FAILED
    assert CATEGORIES[field] in error.message
    assert all(name in error.message for names in offers for name in names)


@pytest.mark.parametrize("field", ["languages_c2s", "languages_s2c"])
def test_languages_never_matter(field: str) -> None:
    change: Any = {field: ("tlh",)}
    assert both(replace(BASE, **change), BASE) == both(BASE, BASE)


@pytest.mark.parametrize("marker", sorted(PSEUDO_KEX_NAMES))
def test_markers_are_never_chosen(marker: str) -> None:
    """Known bugs C 33: of either role and spelling, first in both lists."""
    client = replace(BASE, kex=(marker, "k2"))
    assert both(client, replace(BASE, kex=(marker, "k1", "k2"))).kex == "k2"
    with pytest.raises(NegotiationError) as caught:
        agree(client, replace(BASE, kex=(marker, "k1")))
    assert caught.value.category == "kex"


def test_names_over_64_bytes_never_match() -> None:
    """RFC 4251, section 6."""
    longest, longer = "x" * 64, "x" * 65
    assert both(replace(BASE, kex=(longest,)), replace(BASE, kex=(longest,))).kex == longest
    with pytest.raises(NegotiationError):
        both(replace(BASE, kex=(longer,)), replace(BASE, kex=(longer,)))


def test_an_error_is_bounded_and_readable() -> None:
    """The peer's names go into a log line and an exception: escaped, and not all of them."""
    theirs = replace(BASE, kex=("evil\x1b[2J\r\nname", *(f"n{i}" for i in range(5000))))
    with pytest.raises(NegotiationError) as caught:
        agree(BASE, theirs)
    assert caught.value.message.isprintable()
    assert len(caught.value.message) < 2000
    assert len(caught.value.theirs) == 100
    assert caught.value.theirs[0] == "evil\x1b[2J\r\nname"


def test_a_long_list_is_searched_to_its_end() -> None:
    """Known bugs B 29: the common name at any place."""
    long = replace(BASE, kex=(*(f"n{i}" for i in range(3000)), "k2"))
    assert both(long, BASE).kex == both(BASE, long).kex == "k2"


# --- guesses ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("client", "server", "wrong"),
    [
        ((("k1", "k2"), ("h1", "h2")), (("k1",), ("h1",)), False),
        ((("k1", "k2"), ("h1",)), (("k2", "k1"), ("h1",)), True),
        ((("k1",), ("h1", "h2")), (("k1",), ("h2", "h1")), True),  # right KEX, wrong host key
        ((("unknown", "k1"), ("h1",)), (("k1",), ("h1",)), True),  # unknown names count (C 30)
        ((("ext-info-c", "k1"), ("h1",)), (("k1",), ("h1",)), True),  # and so do markers
        (((), ("h1",)), (("k1",), ("h1",)), True),
        (((), ()), ((), ()), False),
    ],
)
def test_the_guess_is_judged_on_raw_first_names(client: Any, server: Any, wrong: bool) -> None:
    """Known bugs C 30, 31."""
    c, s = (replace(BASE, kex=kex, host_key=host_key) for kex, host_key in (client, server))
    assert guess_is_wrong(c, sent(s)) is wrong
    assert guess_is_wrong(sent(c), s) is wrong


# --- any offers -------------------------------------------------------------------------------------

OFFER = st.lists(st.sampled_from(["a", "b", "c", "gcm", "ext-info-c"]), unique=True).map(tuple)
KEXINITS = st.builds(KexInit, st.just(bytes(16)), *[OFFER] * 6)


@given(KEXINITS, KEXINITS)
def test_both_sides_agree_or_both_fail(client: KexInit, server: KexInit) -> None:
    results: list[tuple[Algorithms | None, str | None]] = []
    for at in ("client", "server"):
        try:
            results.append((agree(client, server, at=at), None))
        except NegotiationError as error:
            results.append((None, error.category))
    assert results[0] == results[1]
    made, failed = results[0]
    if made is not None:
        assert made.kex == next(n for n in client.kex if n in server.kex and n not in PSEUDO_KEX_NAMES)
        assert (made.mac_c2s is None) == (made.cipher_c2s in AEAD)
    else:
        assert failed is not None
