"""One exchange's state, and which key material goes where (RFC 4253, section 7.2)."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import Any

import pytest

from sshtransport.ciphers import MAC, CipherSpec, Opener, Sealer, cipher_names, get_cipher, get_mac, mac_names
from sshtransport.exchange import Exchange, Suite
from sshtransport.kex import KexResult
from sshtransport.messages import KexInit
from sshtransport.negotiation import Algorithms
from sshtransport.packets import PacketReader, PacketWriter, PaddingPool
from tests.support.read import read

SUITE = Suite({name: get_cipher(name) for name in cipher_names()}, {name: get_mac(name) for name in mac_names()})
OFFER = KexInit(bytes(16), ("k1",), ("h1",), ("aes128-ctr",), ("aes128-ctr",), ("hmac-sha2-256",), ("hmac-sha2-256",))
H, SESSION = b"exchange hash", b"session id"
SECRET = b"\0\0\0\x01\x05"


def material(letter: bytes, size: int) -> bytes:
    """The derivation by hand: K1 = HASH(K || H || X || session_id), K2 = HASH(K || H || K1)."""
    out = hashlib.sha256(SECRET + H + letter + SESSION).digest()
    while len(out) < size:
        out += hashlib.sha256(SECRET + H + out).digest()
    return out[:size]


def exchange(**names: Any) -> Exchange:
    made = Exchange(first=False)
    made.algorithms = replace(
        Algorithms("k1", "h1", "aes128-ctr", "aes256-ctr", "hmac-sha2-256", "hmac-sha2-512"), **names
    )
    made.result = KexResult(b"", b"", H, SECRET, "sha256")
    return made


class Noted:
    """A cipher that only notes what it was made from."""

    def __init__(self, name: str, needs_mac: bool) -> None:
        self.made: list[tuple[str, bytes, bytes, MAC | None]] = []
        self.spec = CipherSpec(name, 40, 20, needs_mac, None, self.sealer, self.opener)

    def sealer(self, key: bytes, iv: bytes, mac: MAC | None) -> Sealer:
        self.made.append(("sealer", key, iv, mac))
        return None  # type: ignore[return-value]

    def opener(self, key: bytes, iv: bytes, mac: MAC | None) -> Opener:
        self.made.append(("opener", key, iv, mac))
        return None  # type: ignore[return-value]


@pytest.mark.parametrize("role", ["client", "server"])
def test_letters(role: Any) -> None:
    """A, C, E from client to server, B, D, F back; known bugs C 42: material longer than one hash."""
    up, down = Noted("up", True), Noted("down", False)
    suite = Suite({"up": up.spec, "down": down.spec}, {"hmac-sha2-256": get_mac("hmac-sha2-256")})
    made = exchange(cipher_c2s="up", cipher_s2c="down", mac_c2s="hmac-sha2-256", mac_s2c=None)
    assert made.sealer(role, suite, SESSION)[0] is (up if role == "client" else down).spec
    assert made.opener(role, suite, SESSION)[0] is (down if role == "client" else up).spec
    ((what, key, iv, mac),) = up.made
    assert what == ("sealer" if role == "client" else "opener")
    assert (key, iv) == (material(b"C", 40), material(b"A", 20))
    assert mac is not None
    assert mac.sign(0, b"x") == get_mac("hmac-sha2-256").make(material(b"E", 32)).sign(0, b"x")
    ((_, key, iv, mac),) = down.made
    assert (key, iv, mac) == (material(b"D", 40), material(b"B", 20), None)


@pytest.mark.parametrize("cipher", cipher_names())
def test_what_one_side_seals_the_other_opens(cipher: str) -> None:
    mac = "hmac-sha2-512" if get_cipher(cipher).needs_mac else None
    made = exchange(cipher_c2s=cipher, cipher_s2c=cipher, mac_c2s=mac, mac_s2c=mac)
    frames = {}
    for sender, receiver in (("client", "server"), ("server", "client")):
        writer, reader = PacketWriter(PaddingPool(bytes)), PacketReader()
        writer.change(made.sealer(sender, SUITE, SESSION)[1], reset=False)  # type: ignore[arg-type]
        reader.change(made.opener(receiver, SUITE, SESSION)[1], reset=False)  # type: ignore[arg-type]
        writer.write(b"\x5e data")
        frames[sender] = writer.take()
        assert read(reader, frames[sender]) == [b"\x5e data"]
    assert frames["client"] != frames["server"]


def test_agree_takes_the_client_first_whoever_we_are() -> None:
    theirs = replace(OFFER, kex=("k2", "k1"), first_kex_packet_follows=True)
    ours = replace(OFFER, kex=("k1", "k2"))
    for role, wanted in (("client", "k1"), ("server", "k2")):
        made = Exchange(first=True, ours=ours, theirs=theirs)
        assert made.agree(role, SUITE).kex == wanted  # type: ignore[arg-type]
        assert made.algorithms is not None
        assert made.drop_next
    made = Exchange(first=True, ours=ours, theirs=replace(theirs, kex=("k1",)))
    made.agree("client", SUITE)
    assert not made.drop_next
    made = Exchange(
        first=True, ours=replace(ours, first_kex_packet_follows=True), theirs=replace(OFFER, kex=("k2", "k1"))
    )
    made.agree("server", SUITE)
    assert not made.drop_next  # only the peer's guess is the peer's next packet


def test_who_needs_a_mac() -> None:
    assert SUITE.needs_mac("aes128-ctr")
    assert not SUITE.needs_mac("aes256-gcm@openssh.com")
    assert not SUITE.needs_mac("unknown")


def test_done_is_both() -> None:
    made = Exchange(first=True)
    assert not made.done
    made.newkeys_sent = True
    assert not made.done
    made.newkeys_received = True
    assert made.done


def test_secrets_do_not_show() -> None:
    shown = repr(exchange())
    assert repr(SECRET) not in shown
    assert "result" not in shown
