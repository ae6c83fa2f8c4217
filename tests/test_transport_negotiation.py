"""What two offers lead to on the wire: guesses, markers, MAC lists, and no agreement at all."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from sshtransport.ciphers import get_cipher
from sshtransport.config import TransportConfig
from sshtransport.errors import DisconnectReason, NegotiationError, PeerDisconnected, ProtocolError
from sshtransport.events import Disconnected, KeysChanged
from sshtransport.gates import Phase
from sshtransport.kex import KexContext, KeyExchange, make_kex
from sshtransport.messages import decode_disconnect
from sshtransport.transport import SSHTransport
from tests.support.pair import CUTS, Cut, Pair, host_key, logged_in
from tests.support.phases import LOOSE, QUICK, before_keys
from tests.support.puppet import clear_packets, edit_kexinit, events, inject, say

FAST, OTHER = "curve25519-sha256", "ecdh-sha2-nistp256"
STRICT_C, STRICT_S = "kex-strict-c-v00@openssh.com", "kex-strict-s-v00@openssh.com"
CHACHA = "chacha20-poly1305@openssh.com"
CUT_PARAMS = [pytest.param(cut, id=name) for name, cut in CUTS.items()]
TWO = TransportConfig(kex=[FAST, OTHER], ciphers=[CHACHA])


def is_open(pair: Pair) -> None:
    assert pair.client.phase == pair.server.phase == Phase.SERVICE
    assert len(events(pair.client_items, KeysChanged)) == len(events(pair.server_items, KeysChanged)) == 1
    pair.client.send(b"\x05\x00\x00\x00\x0cssh-userauth")
    pair.pump()
    assert pair.server_items[-1] == b"\x05\x00\x00\x00\x0cssh-userauth"


# --- guesses ----------------------------------------------------------------------------------------


class Prepared:
    """An INIT sent before the peer's KEXINIT was seen: a right guess."""

    def __init__(self, end: SSHTransport, name: str) -> None:
        self.kex = make_kex(name, KexContext("client", b"", b"", b"", b""))
        init = self.kex.start()
        assert init is not None
        say(end, init)
        end._keying.make_kex = self.adopt

    def adopt(self, name: str, context: KexContext) -> KeyExchange:
        assert name == self.kex.name
        self.kex._context = context
        self.kex.start = lambda: None  # type: ignore[method-assign]
        return self.kex


GARBAGE = [b"\x1e" + b"\x80" * 40, b"\x1e", b"\x1f\0\0", b"\x02", b"\x5e data", b"\x15", b"\0", b"\x01\0\0\0\x0b"]


@pytest.mark.parametrize("cut", CUT_PARAMS)
@pytest.mark.parametrize("garbage", GARBAGE, ids=[f"number {g[0]}" for g in GARBAGE])
def test_a_wrong_guess_is_dropped_whatever_it_is(garbage: bytes, cut: Cut) -> None:
    """Known bugs C 30, 31: exactly one packet, unparsed, even under strict KEX."""
    pair = Pair(TWO, TWO, cut=cut)
    edit_kexinit(pair.client, kex=("unknown@example.com", FAST, STRICT_C),
                 first_kex_packet_follows=True)  # fmt: skip
    say(pair.client, garbage)
    pair.pump()
    assert pair.server.strict_kex
    is_open(pair)


def test_exactly_one_packet_is_dropped() -> None:
    pair = Pair(TWO, TWO)
    edit_kexinit(pair.client, kex=(OTHER, FAST, STRICT_C), first_kex_packet_follows=True)
    say(pair.client, b"\x1e one", b"\x1e two")
    pair.pump()
    end = Pair.end(pair.server_items)
    assert end is not None
    assert isinstance(end.error, ProtocolError)


@pytest.mark.parametrize(
    ("kex", "host_key"),
    [
        ((OTHER, FAST, STRICT_C), ("ssh-ed25519",)),  # another method first
        ((FAST, OTHER, STRICT_C), ("rsa-sha2-512", "ssh-ed25519")),  # right method, wrong host key
        (("kexguess2@matt.ucc.asn.au", FAST, STRICT_C), ("ssh-ed25519",)),  # a marker first counts as a name
    ],
)
def test_wrong_guesses(kex: tuple[str, ...], host_key: tuple[str, ...]) -> None:
    """Known bugs C 31: right on the method but not on the host key is wrong."""
    pair = Pair(TWO, TWO)
    edit_kexinit(pair.client, kex=kex, host_key=host_key, first_kex_packet_follows=True)
    say(pair.client, b"\x1e guess")
    is_open(pair.pump())


@pytest.mark.parametrize("cut", CUT_PARAMS)
def test_a_right_guess_is_used(cut: Cut) -> None:
    """Known bugs C 31."""
    pair = Pair(TWO, TWO, cut=cut)
    edit_kexinit(pair.client, first_kex_packet_follows=True)
    Prepared(pair.client, FAST)
    is_open(pair.pump())
    assert [p[0] for p in clear_packets(bytes(pair.to_server))] == [20, 30, 21]


def test_a_right_guess_that_is_nonsense_ends_the_connection() -> None:
    pair = Pair(TWO, TWO)
    edit_kexinit(pair.client, first_kex_packet_follows=True)
    say(pair.client, b"\x1e\0\0\0\x05guess")
    pair.pump()
    end = Pair.end(pair.server_items)
    assert end is not None
    assert end.reason == DisconnectReason.KEY_EXCHANGE_FAILED


def test_a_servers_wrong_guess_is_dropped_too() -> None:
    pair = Pair(TWO, TWO)
    edit_kexinit(pair.server, kex=(OTHER, FAST, STRICT_S), first_kex_packet_follows=True)
    say(pair.server, b"\x1f guess")
    is_open(pair.pump())


def test_the_flag_is_per_kexinit() -> None:
    """Known bugs C 31: also in rekeys, and not from one exchange to the next."""
    pair = Pair(TWO, TWO)
    edit_kexinit(pair.client, kex=(OTHER, FAST, STRICT_C), first_kex_packet_follows=True)
    say(pair.client, b"\x1e guess")
    pair.pump().login()
    for follows in (True, False, True, True):
        pair.clear()
        pair.client.rekey()
        if follows:
            edit_kexinit(pair.client, kex=(OTHER, FAST), first_kex_packet_follows=True)
            say(pair.client, b"\x1e guess")
        pair.client.send(b"\x5e behind")
        pair.pump()
        assert pair.server_items == [KeysChanged(False), b"\x5e behind"]
        assert pair.client_items == [KeysChanged(False)]


def test_a_right_guess_in_a_rekey() -> None:
    pair = logged_in(TWO, TWO)
    pair.clear()
    pair.client.rekey()
    edit_kexinit(pair.client, first_kex_packet_follows=True)
    Prepared(pair.client, FAST)
    pair.pump()
    assert pair.server_items == pair.client_items == [KeysChanged(False)]


# --- markers ----------------------------------------------------------------------------------------

MARKERS = (
    "ext-info-s",
    "ext-info-c",
    "kex-strict-c-v00@openssh.com",
    "kex-strict-s-v00@openssh.com",
    "kex-strict-c",
    "kex-strict-s",
)


@pytest.mark.parametrize("editor", ["client", "server"])
def test_markers_first_in_the_list_are_not_chosen(editor: str) -> None:
    """Known bugs C 33: ours, the other role's, both spellings."""
    pair = Pair(TWO, TWO)
    edit_kexinit(getattr(pair, editor), kex=(*MARKERS, FAST))
    pair.pump()
    assert pair.client.algorithms is not None
    assert pair.client.algorithms.kex == FAST
    is_open(pair)


def test_only_markers_are_no_offer() -> None:
    pair = Pair(TWO, TWO)
    edit_kexinit(pair.client, kex=MARKERS)
    pair.pump()
    end = Pair.end(pair.server_items)
    assert end is not None
    assert isinstance(end.error, NegotiationError)
    assert end.error.category == "kex"
    assert end.error.theirs == MARKERS


@pytest.mark.parametrize("names", [("kex-strict-c", FAST), ("kex-strict-s-v00@openssh.com", FAST), (FAST,)])
def test_what_does_not_make_strict_kex(names: tuple[str, ...]) -> None:
    """The plain spelling is not the pair of ours, and the server's marker is not a client's."""
    pair = Pair(TWO, TWO)
    edit_kexinit(pair.client, kex=names)
    pair.server.receive_data(pair.client.data_to_send())
    assert not pair.server.strict_kex
    assert pair.server.phase is Phase.KEX


def test_without_its_marker_the_client_gets_no_extensions() -> None:
    """RFC 8308, section 2.1."""
    pair = Pair(LOOSE, LOOSE)
    edit_kexinit(pair.client, kex=(FAST,))
    pair.pump()
    assert pair.client.peer_extensions == {}
    is_open(pair)


# --- MACs -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cipher", ["aes256-gcm@openssh.com", "aes128-gcm@openssh.com", CHACHA])
@pytest.mark.parametrize("macs", [(), ("hmac-sha2-512",), ("hmac-sha1",)])
def test_the_mac_lists_do_not_matter_under_aead(cipher: str, macs: tuple[str, ...]) -> None:
    """Known bugs B 16: an empty list, or nothing in common, and the login is secure all the same (B 17)."""
    config = TransportConfig(kex=[FAST], ciphers=[cipher], macs=["hmac-sha2-256"])
    pair = Pair(config, config)
    edit_kexinit(pair.client, mac_c2s=macs, mac_s2c=macs)
    is_open(pair.pump())
    assert pair.client.secure and pair.server.secure
    assert pair.server.algorithms is not None
    assert (pair.server.algorithms.mac_c2s, pair.server.algorithms.mac_s2c) == (None, None)


@pytest.mark.parametrize("macs", [("hmac-sha2-256", "hmac-sha2-512-etm@openssh.com"), ("hmac-sha2-512",)])
def test_one_direction_aead_and_the_other_ctr(macs: tuple[str, ...]) -> None:
    """Known bugs B 16: each direction for itself, in both roles."""
    config = TransportConfig(kex=[FAST], ciphers=["aes256-gcm@openssh.com", "aes128-ctr"], macs=macs)
    for first, second in (("aes256-gcm@openssh.com", "aes128-ctr"), ("aes128-ctr", "aes256-gcm@openssh.com")):
        pair = Pair(config, config)
        edit_kexinit(pair.client, cipher_c2s=(first,), cipher_s2c=(second,))
        pair.pump()
        names = pair.client.algorithms
        assert names is not None
        assert (names.cipher_c2s, names.cipher_s2c) == (first, second)
        assert (names.mac_c2s, names.mac_s2c) == ((None, macs[0]) if "gcm" in first else (macs[0], None))
        pair.login()
        for size in (1, 500, 30_000):
            pair.clear()
            pair.client.send(b"\x5e" * size)
            pair.server.send(b"\x5e" * size)
            pair.pump()
            assert pair.client_items == pair.server_items == [b"\x5e" * size]


def test_different_macs_each_way() -> None:
    config = TransportConfig(kex=[FAST], ciphers=["aes128-ctr"])
    pair = Pair(config, config)
    edit_kexinit(pair.client, mac_c2s=("hmac-sha2-512",), mac_s2c=("hmac-sha2-256-etm@openssh.com",))
    is_open(pair.pump())
    assert pair.client.algorithms is not None
    assert pair.client.algorithms.mac_c2s == "hmac-sha2-512"
    assert pair.client.algorithms.mac_s2c == "hmac-sha2-256-etm@openssh.com"


# --- no agreement -----------------------------------------------------------------------------------

NOTHING: dict[str, tuple[str, dict[str, Any]]] = {
    "kex": ("kex", {"kex": ("other-kex",)}),
    "host key": ("server host key", {"host_key": ("other-key",)}),
    "cipher c2s": ("cipher client to server", {"cipher_c2s": ("other-cipher",)}),
    "cipher s2c": ("cipher server to client", {"cipher_s2c": ("other-cipher",)}),
    "mac c2s": ("mac client to server", {"mac_c2s": ("other-mac",)}),
    "mac s2c": ("mac server to client", {"mac_s2c": ()}),
    "compression c2s": ("compression client to server", {"compression_c2s": ("zlib",)}),
    "compression s2c": ("compression server to client", {"compression_s2c": ("zlib@openssh.com",)}),
}
CTR = TransportConfig(kex=[FAST], ciphers=["aes128-ctr"], macs=["hmac-sha2-256"])


def fails(pair: Pair, target: SSHTransport, items: list[Any], category: str, change: dict[str, Any]) -> None:
    end = Pair.end(items)
    assert end is not None
    error = end.error
    assert isinstance(error, NegotiationError)
    assert (error.category, error.theirs) == (category, next(iter(change.values())))
    assert error.ours
    assert end.reason == DisconnectReason.KEY_EXCHANGE_FAILED
    assert category in end.description
    assert all(name in end.description for name in (*error.ours, *error.theirs))
    assert error.phase == "key exchange"
    assert target.phase is Phase.CLOSED


@pytest.mark.parametrize("target", ["client", "server"])
@pytest.mark.parametrize("name", NOTHING)
def test_nothing_in_common_at_first(name: str, target: str) -> None:
    """Known bugs C 44: DISCONNECT 3 with the category and both offers, and nothing behind it."""
    category, change = NOTHING[name]
    stage = before_keys(target, CTR)
    edit_kexinit_of(stage.peer, **change)
    stage.give(stage.peer.data_to_send() + inject(stage.peer, b"\x1e late"))
    fails(stage.pair, stage.target, stage.items, category, change)
    answers = stage.answers()
    assert [a[0] for a in answers] == [1]
    assert decode_disconnect(answers[0])[0] == 3


def edit_kexinit_of(end: SSHTransport, **changes: Any) -> None:
    """As ``edit_kexinit``, for a KEXINIT that was put back as raw bytes."""
    exchange = end._keying.exchange
    assert exchange is not None
    assert exchange.ours is not None
    end.data_to_send()
    end._writer.sequence = 0
    exchange.ours = replace(exchange.ours, **changes)
    exchange.our_payload = exchange.ours.encode()
    end._writer.write(exchange.our_payload)


@pytest.mark.parametrize("target", ["client", "server"])
@pytest.mark.parametrize("name", ["kex", "host key", "cipher c2s", "cipher s2c", "compression s2c"])
def test_nothing_in_common_in_a_rekey(name: str, target: str) -> None:
    """Known bugs C 44: the same later, when our own KEXINIT is the answer."""
    category, change = NOTHING[name]
    pair = logged_in(TWO, TWO)
    pair.clear()
    asked, asking = (pair.client, pair.server) if target == "client" else (pair.server, pair.client)
    asking.rekey()
    edit_kexinit(asking, **change)
    pair.deliver(asked, asking.data_to_send())
    items = pair.client_items if target == "client" else pair.server_items
    fails(pair, asked, items, category, change)
    pair.pump()
    other = pair.server_items if target == "client" else pair.client_items
    end = Pair.end(other)
    # The other side finds the same, or is told.
    assert end is not None
    assert isinstance(end.error, (NegotiationError, PeerDisconnected))
    assert end.reason == 3


@pytest.mark.parametrize("field", ["kex", "host_key", "ciphers", "macs"])
def test_both_ends_tell_the_same_story(field: str) -> None:
    """Configurations that do not meet: each side reports its own and the other's offer."""
    offers: dict[str, tuple[Any, Any, str]] = {
        "kex": ({"kex": [FAST]}, {"kex": [OTHER]}, "kex"),
        "host_key": ({"host_key_algorithms": ["ecdsa-sha2-nistp256"]}, {}, "server host key"),
        "ciphers": ({"ciphers": ["aes128-ctr"]}, {"ciphers": ["aes256-ctr"]}, "cipher client to server"),
        "macs": (
            {"ciphers": ["aes128-ctr"], "macs": ["hmac-sha2-256"]},
            {"ciphers": ["aes128-ctr"], "macs": ["hmac-sha2-512"]},
            "mac client to server",
        ),
    }
    client, server, category = offers[field]
    pair = Pair(TransportConfig(**client), TransportConfig(**server)).pump()
    at_client, at_server = (Pair.end(items) for items in (pair.client_items, pair.server_items))
    assert at_client is not None and at_server is not None
    for end in (at_client, at_server):
        assert isinstance(end.error, NegotiationError)
        assert end.error.category == category
    assert isinstance(at_client.error, NegotiationError) and isinstance(at_server.error, NegotiationError)
    assert at_client.error.ours == at_server.error.theirs
    assert at_client.error.theirs == at_server.error.ours


# --- KEXINIT itself ---------------------------------------------------------------------------------


@pytest.mark.parametrize("target", ["client", "server"])
def test_a_second_kexinit_in_the_first_exchange(target: str) -> None:
    """Known bugs C 46."""
    stage = before_keys(target, TransportConfig(kex=[FAST], strict_kex="off"))
    kexinit = stage.peer.data_to_send()
    stage.give(kexinit)
    (end,) = stage.give(kexinit)
    assert isinstance(end, Disconnected)
    assert isinstance(end.error, ProtocolError)
    assert "second KEXINIT" in end.description


@pytest.mark.parametrize("target", ["client", "server"])
def test_a_second_kexinit_in_a_rekey(target: str) -> None:
    """Known bugs C 46; OpenSSH 10.4 hangs up too."""
    pair = logged_in(TWO, TWO)
    pair.clear()
    asked, asking = (pair.client, pair.server) if target == "client" else (pair.server, pair.client)
    asking.rekey()
    exchange = asking._keying.exchange
    assert exchange is not None
    pair.deliver(asked, inject(asking, exchange.our_payload))
    end = Pair.end(pair.client_items if target == "client" else pair.server_items)
    assert end is not None
    assert isinstance(end.error, ProtocolError)


@pytest.mark.parametrize("damage", [lambda p: p[:-1], lambda p: p + b"\0", lambda p: p[:40], lambda p: p[:17]])
def test_a_damaged_kexinit(damage: Any) -> None:
    stage = before_keys("server", QUICK)
    stage.peer.data_to_send()
    exchange = stage.peer._keying.exchange
    assert exchange is not None
    (end,) = stage.give(inject(stage.peer, damage(exchange.our_payload)))
    assert isinstance(end, Disconnected)
    assert isinstance(end.error, ProtocolError)


def test_a_private_cipher_object() -> None:
    """Used by both ends under a name that no registry knows."""
    private = replace(get_cipher("aes256-gcm@openssh.com"), name="mine@example.com", rekey_bytes=2**20)
    config = TransportConfig(kex=[FAST], ciphers=[private])
    pair = Pair(config, config)
    is_open(pair.pump())
    assert pair.client.algorithms is not None
    assert pair.client.algorithms.cipher_c2s == "mine@example.com"
    public = Pair(config, QUICK, host_keys=[host_key()]).pump()
    assert isinstance(getattr(Pair.end(public.server_items), "error", None), NegotiationError)
