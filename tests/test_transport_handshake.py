"""Handshakes in memory: every method, cipher and host key; idents and KEXINITs cut anywhere."""

from __future__ import annotations

from typing import Any

import pytest

from sshtransport.ciphers import cipher_names, get_cipher, mac_names
from sshtransport.config import TransportConfig
from sshtransport.constants import EXT_PING, EXT_SERVER_SIG_ALGS
from sshtransport.events import (
    Disconnected,
    ExtInfoReceived,
    HostKeyOffered,
    IdentificationReceived,
    KeysChanged,
)
from sshtransport.gates import Phase
from sshtransport.kex import CLIENT_DEFAULTS, KEX_NAMES, SERVER_DEFAULTS
from sshtransport.keys import HOST_KEY_ALGORITHMS, PublicKey, key_type_of
from sshtransport.messages import KexInit
from sshtransport.transport import SSHTransport, TransportState
from tests.support.pair import CUTS, Cut, Pair, by_byte, host_key, logged_in, random_cuts
from tests.support.pairwise import pairwise
from tests.support.phases import QUICK
from tests.support.puppet import clear_packets, events, listed

FAST = "curve25519-sha256"
CUT_PARAMS = [pytest.param(cut, id=name) for name, cut in CUTS.items()]


def kinds(items: list[Any]) -> list[type]:
    return [type(item) for item in items]


def check(pair: Pair) -> None:
    """Both ends know the same, in the right order, and can talk."""
    client, server = pair.client, pair.server
    assert kinds(pair.client_items) == [IdentificationReceived, HostKeyOffered, KeysChanged, ExtInfoReceived]
    assert kinds(pair.server_items) == [IdentificationReceived, KeysChanged]
    assert client.session_id == server.session_id is not None
    assert client.algorithms == server.algorithms is not None
    assert client.host_key == server.host_key is not None
    assert client.strict_kex and server.strict_kex
    assert client.secure and server.secure
    for end in (client, server):
        assert (end.state, end.phase, end.want_read) == (TransportState.OPEN, Phase.SERVICE, True)
    pair.clear()
    client.send(b"\x05\x00\x00\x00\x0cssh-userauth")
    pair.pump()
    server.send(b"\x06\x00\x00\x00\x0cssh-userauth")
    pair.pump()
    assert pair.server_items == [b"\x05\x00\x00\x00\x0cssh-userauth"]
    assert pair.client_items == [b"\x06\x00\x00\x00\x0cssh-userauth"]


@pytest.mark.parametrize("cut", CUT_PARAMS)
def test_with_defaults(cut: Cut) -> None:
    pair = Pair(cut=cut).pump()
    assert pair.client.algorithms is not None
    assert pair.client.algorithms.kex == "mlkem768x25519-sha256"
    assert pair.client.algorithms.cipher_c2s == pair.client.algorithms.cipher_s2c == "aes256-gcm@openssh.com"
    check(pair)


@pytest.mark.parametrize("name", KEX_NAMES)
def test_every_method(name: str) -> None:
    config = TransportConfig(kex=[name])
    pair = Pair(config, config).pump()
    assert pair.client.algorithms is not None
    assert pair.client.algorithms.kex == name
    check(pair)


SUITES = [(c, m) for c in cipher_names() for m in (mac_names() if get_cipher(c).needs_mac else mac_names()[:1])]


@pytest.mark.parametrize("cut", CUT_PARAMS)
@pytest.mark.parametrize(("cipher", "mac"), SUITES)
def test_every_cipher_and_mac(cipher: str, mac: str, cut: Cut) -> None:
    config = TransportConfig(kex=[FAST], ciphers=[cipher], macs=[mac])
    pair = Pair(config, config, cut=cut).pump()
    names = pair.client.algorithms
    assert names is not None
    assert (names.cipher_c2s, names.cipher_s2c) == (cipher, cipher)
    needed = get_cipher(cipher).needs_mac
    assert (names.mac_c2s, names.mac_s2c) == ((mac, mac) if needed else (None, None))
    check(pair)


@pytest.mark.parametrize("algorithm", HOST_KEY_ALGORITHMS)
def test_every_host_key_algorithm(algorithm: str) -> None:
    """The signature is by the negotiated algorithm, over a key of the type that fits."""
    config = TransportConfig(kex=[FAST], host_key_algorithms=[algorithm])
    key = host_key(key_type_of(algorithm))
    pair = Pair(config, config, host_keys=[key]).pump()
    (offered,) = events(pair.client_items, HostKeyOffered)
    assert (offered.algorithm, offered.first) == (algorithm, True)
    assert PublicKey.from_blob(offered.host_key) == key.public_key
    assert pair.client.host_key == key.public_key.blob
    check(pair)


@pytest.mark.parametrize(
    ("kex", "cipher", "algorithm", "cut"),
    pairwise([n for n in KEX_NAMES if "group1" not in n], cipher_names(), HOST_KEY_ALGORITHMS, [*CUTS]),
)
def test_combinations(kex: str, cipher: str, algorithm: str, cut: str) -> None:
    config = TransportConfig(kex=[kex], ciphers=[cipher], host_key_algorithms=[algorithm])
    check(Pair(config, config, host_keys=[host_key(key_type_of(algorithm))], cut=CUTS[cut]).pump())


@pytest.mark.parametrize("seed", range(20))
def test_random_cuts(seed: int) -> None:
    """From single bytes to several packets at once."""
    check(Pair(QUICK, QUICK, cut=random_cuts(seed, most=(2, 20, 300, 2000)[seed % 4])).pump())


def test_a_server_with_several_keys_signs_with_the_one_agreed() -> None:
    keys = [host_key("ssh-ed25519"), host_key("ecdsa-sha2-nistp256"), host_key("ecdsa-sha2-nistp384")]
    for key in keys:
        config = TransportConfig(kex=[FAST], host_key_algorithms=[key.public_key.algorithm])
        pair = Pair(config, host_keys=keys).pump()
        assert pair.client.host_key == key.public_key.blob


def test_the_first_key_of_a_type_is_used() -> None:
    from sshtransport.keys import PrivateKey

    first, second = PrivateKey.generate("ssh-ed25519"), PrivateKey.generate("ssh-ed25519")
    assert Pair(host_keys=[first, second]).pump().client.host_key == first.public_key.blob


# --- what goes over the wire ------------------------------------------------------------------------


def offers(stream: bytes) -> list[KexInit]:
    return [KexInit.decode(payload) for payload in clear_packets(stream) if payload[0] == 20]


def test_the_offers_of_both_roles() -> None:
    """Known bugs B 16, B 29, C 33: real MAC names all the same, short lists, markers at the end."""
    pair = Pair().pump()
    (client,), (server,) = offers(bytes(pair.to_server)), offers(bytes(pair.to_client))
    assert listed(client.kex) == (*CLIENT_DEFAULTS, "ext-info-c", "kex-strict-c-v00@openssh.com")
    assert listed(server.kex) == (*SERVER_DEFAULTS, "ext-info-s", "kex-strict-s-v00@openssh.com")
    assert listed(server.host_key) == ("ssh-ed25519",)
    for offer in (client, server):
        assert all(listed(names) for names in offer.lists[:8])
        assert all(len(listed(names)) <= 20 for names in offer.lists)
        assert listed(offer.compression_c2s) == listed(offer.compression_s2c) == ("none",)
        assert listed(offer.languages_c2s) == listed(offer.languages_s2c) == ()
        assert not offer.first_kex_packet_follows
    assert client.cookie != server.cookie


def test_strict_kex_off_leaves_the_marker_out() -> None:
    pair = Pair(TransportConfig(strict_kex="off")).pump()
    assert "kex-strict-c-v00@openssh.com" not in offers(bytes(pair.to_server))[0].kex
    assert "ext-info-c" in offers(bytes(pair.to_server))[0].kex
    assert not pair.client.strict_kex and not pair.server.strict_kex


def test_nothing_but_the_exchange_is_in_clear() -> None:
    """Known bugs D 47: no IGNORE, DEBUG or EXT_INFO of ours before NEWKEYS; the line ends in CR LF (A 5)."""
    pair = Pair().pump()
    assert [p[0] for p in clear_packets(bytes(pair.to_server))] == [20, 30, 21]
    assert [p[0] for p in clear_packets(bytes(pair.to_client))] == [20, 31, 21]
    for stream in (pair.to_server, pair.to_client):
        line = bytes(stream[: stream.index(b"\n") + 1])
        assert line.startswith(b"SSH-2.0-sshtransport_")
        assert line.endswith(b"\r\n")
        assert b" " not in line


def test_cookies_are_fresh() -> None:
    cookies = {offers(end.data_to_send())[0].cookie for end in (SSHTransport("client", QUICK) for _ in range(50))}
    assert len(cookies) == 50


def test_the_random_source_feeds_cookies_and_padding() -> None:
    """And no keys: with a constant source two sessions still have nothing in common."""

    def ones(size: int) -> bytes:
        return b"\x01" * size

    pairs = [Pair(QUICK, QUICK, random=ones).pump() for _ in range(2)]
    assert offers(bytes(pairs[0].to_server))[0].cookie == b"\x01" * 16
    assert pairs[0].client.session_id != pairs[1].client.session_id


def test_padding_from_the_configuration() -> None:
    """It feeds padding only; the cookie stays random."""
    config = TransportConfig(kex=[FAST], padding=lambda size: b"\xaa" * size)
    first, second = (SSHTransport("client", config).data_to_send() for _ in range(2))
    start = first.index(b"\n") + 1
    padding = first[start + 4]
    assert first[-padding:] == second[-padding:] == b"\xaa" * padding
    assert offers(first)[0].cookie != offers(second)[0].cookie


def test_the_first_bytes_are_there_at_once() -> None:
    """Neither side waits for the other: identification and KEXINIT stand in the output from the start."""
    for end in (SSHTransport("client", QUICK), SSHTransport("server", QUICK, host_keys=[host_key()])):
        data = end.data_to_send()
        assert data.startswith(b"SSH-2.0-")
        assert [p[0] for p in clear_packets(data)] == [20]
        assert end.data_to_send() == b""
        assert (end.state, end.phase) == (TransportState.HANDSHAKE, Phase.IDENTIFICATION)


# --- idents -----------------------------------------------------------------------------------------


def test_the_peers_line_is_reported_as_it_came() -> None:
    pair = Pair(TransportConfig(software_version="one"), TransportConfig(software_version="two")).pump()
    assert pair.client.peer_ident == b"SSH-2.0-two"
    assert pair.server.peer_ident == b"SSH-2.0-one"
    assert pair.client_items[0] == IdentificationReceived(b"SSH-2.0-two")
    assert pair.server_items[0] == IdentificationReceived(b"SSH-2.0-one")


@pytest.mark.parametrize("cut", CUT_PARAMS)
@pytest.mark.parametrize(
    ("line", "before"),
    [
        (b"SSH-2.0-peer with comments \xff\n", b""),
        (b"SSH-1.99-old\r\n", b""),
        (b"SSH-2.0-\n", b"Welcome\r\n\r\nHave fun, SSH- users\n"),
    ],
)
def test_odd_lines_enter_the_hash_byte_for_byte(line: bytes, before: bytes, cut: Cut) -> None:
    """Known bugs A 2, 4: LF alone, packets directly behind, comments kept, text before it left out."""
    pair = Pair(QUICK, QUICK, cut=cut)
    server = pair.server
    greeting = server.data_to_send()
    sent = line.rstrip(b"\n").removesuffix(b"\r")
    server.ident = sent
    server._writer.write_raw(before + line + greeting[greeting.index(b"\n") + 1 :])
    pair.pump()
    assert pair.client.peer_ident == sent
    check(pair)


def test_text_before_the_line_is_not_for_servers() -> None:
    pair = Pair(QUICK, QUICK)
    pair.deliver(pair.server, b"hello\r\n" + pair.client.data_to_send())
    end = Pair.end(pair.server_items)
    assert end is not None
    assert end.error is not None
    assert end.error.phase == "identification"
    assert kinds(pair.server_items) == [Disconnected]


def test_extensions_of_the_server() -> None:
    """Known bugs F 73: right behind the first NEWKEYS, with what it really accepts."""
    pair = Pair(QUICK, QUICK).pump()
    (event,) = events(pair.client_items, ExtInfoReceived)
    assert event.extensions == pair.client.peer_extensions
    assert event.extensions[EXT_SERVER_SIG_ALGS] == ",".join(HOST_KEY_ALGORITHMS).encode()
    assert event.extensions[EXT_PING] == b"0"
    assert pair.server.peer_extensions == {}


def test_by_byte_after_login() -> None:
    pair = logged_in(QUICK, QUICK, cut=by_byte)
    pair.clear()
    for number in range(5):
        pair.client.send(b"\x5e" + bytes([number]) * number * 50)
    pair.pump()
    assert pair.server_items == [b"\x5e" + bytes([number]) * number * 50 for number in range(5)]
