"""The registry and the known-answer test."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from sshtransport.ciphers import (
    DEFAULT_CIPHERS,
    DEFAULT_MACS,
    MAC,
    NONE,
    CipherSpec,
    KnownAnswer,
    base,
    cipher_names,
    cipher_status,
    get_cipher,
    get_mac,
    mac_names,
    register_cipher,
    register_mac,
    spec_status,
)
from sshtransport.ciphers.plain import PlainOpener, PlainSealer
from sshtransport.config import TransportConfig
from sshtransport.errors import IntegrityError, LocalError
from sshtransport.transport import SSHTransport
from tests.support.pair import host_key, logged_in

GCM = get_cipher("aes256-gcm@openssh.com")
CHACHA = get_cipher("chacha20-poly1305@openssh.com")


class XorSealer:
    """A toy that seals with one byte and a checksum: enough to be a cipher, no more."""

    block_size = 24
    length_aligned = False

    def __init__(self, key: bytes, iv: bytes, mac: MAC | None) -> None:
        self.key = key[0]

    def mix(self, data: bytes) -> bytes:
        return bytes(byte ^ self.key for byte in data)

    def tag(self, seq: int, data: bytes) -> bytes:
        return ((sum(data) + seq) % 2**32).to_bytes(4, "big")

    def seal(self, seq: int, head: bytes, body: bytes, /) -> bytes:
        return head + self.mix(body) + self.tag(seq, head + body)


class XorOpener(XorSealer):
    head_size = 4
    tag_size = 4

    def length(self, seq: int, head: memoryview, /) -> int:
        return int.from_bytes(head, "big")

    def open(self, seq: int, frame: memoryview, /) -> bytes:
        body = self.mix(bytes(frame[4:-4]))
        if self.tag(seq, bytes(frame[:4]) + body) != frame[-4:]:
            raise IntegrityError("checksum")
        return body


XOR = CipherSpec("xor@example.com", 1, 0, False, None, XorSealer, XorOpener)


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A copy of the registry that is gone after the test."""
    copied = base._Registry(dict(base._registry.ciphers), dict(base._registry.macs), dict(base._registry.statuses))
    monkeypatch.setattr(base, "_registry", copied)
    return copied


def broken(spec: CipherSpec, error: Exception) -> CipherSpec:
    def fail(key: bytes, iv: bytes, mac: MAC | None) -> Any:
        raise error

    return replace(spec, make_sealer=fail)


def test_the_defaults_are_registered_and_work() -> None:
    assert set(DEFAULT_CIPHERS) <= set(cipher_names())
    assert set(DEFAULT_MACS) <= set(mac_names())
    for name in cipher_names():
        status = cipher_status(name)
        assert status
        assert (status.name, status.available, status.reason) == (name, True, None)


def test_no_weak_name_is_there() -> None:
    assert not [n for n in (*cipher_names(), *mac_names()) if "cbc" in n or "sha1" in n or "md5" in n or n == "none"]


def test_every_built_in_cipher_has_a_known_answer() -> None:
    assert all(get_cipher(name).known_answer for name in DEFAULT_CIPHERS)


@pytest.mark.parametrize("get", [get_cipher, get_mac, cipher_status])
def test_unknown_names(get: Any) -> None:
    with pytest.raises(LocalError, match=r"unknown .*; known: .*,"):
        get("rot13")


def test_registering_makes_a_name_usable_and_changes_no_default(registry: Any) -> None:
    register_cipher(XOR)
    assert get_cipher("xor@example.com") is XOR
    assert cipher_status("xor@example.com")
    assert "xor@example.com" not in TransportConfig().offered_ciphers()
    config = TransportConfig(ciphers=["xor@example.com"])
    pair = logged_in(config, config)
    pair.client.send(b"\x5e over xor")
    assert pair.pump().server_items[-1] == b"\x5e over xor"


def test_registering_a_name_twice(registry: Any) -> None:
    with pytest.raises(LocalError, match="already registered"):
        register_cipher(GCM)
    with pytest.raises(LocalError, match="already registered"):
        register_mac(get_mac("hmac-sha2-256"))
    register_cipher(XOR)
    with pytest.raises(LocalError):
        register_cipher(replace(XOR, rekey_bytes=4096))
    assert get_cipher(XOR.name) is XOR


def test_a_spec_can_be_used_without_being_registered() -> None:
    config = TransportConfig(ciphers=[XOR])
    pair = logged_in(config, config)
    assert pair.client.algorithms is not None
    assert pair.client.algorithms.cipher_c2s == "xor@example.com"
    assert pair.client.algorithms.mac_c2s is None
    assert XOR.name not in cipher_names()


def test_a_default_that_fails_is_not_offered_and_says_why(registry: Any) -> None:
    """A backend without a primitive (LibreSSL, FIPS) must not let a handshake fail."""
    registry.ciphers[CHACHA.name] = broken(CHACHA, NotImplementedError("no ChaCha20 here"))
    assert CHACHA.name not in TransportConfig().offered_ciphers()
    status = cipher_status(CHACHA.name)
    assert not status
    assert status.reason == "NotImplementedError: no ChaCha20 here"
    offered = SSHTransport("client")._keying.exchange
    assert offered is not None
    assert offered.ours is not None
    assert CHACHA.name not in offered.ours.cipher_c2s
    assert GCM.name in offered.ours.cipher_c2s


def test_an_explicit_one_that_fails_is_an_error(registry: Any) -> None:
    registry.ciphers[CHACHA.name] = broken(CHACHA, NotImplementedError("no ChaCha20 here"))
    config = TransportConfig(ciphers=[CHACHA.name, GCM.name])
    with pytest.raises(LocalError, match="does not work here: NotImplementedError: no ChaCha20 here"):
        SSHTransport("server", config, host_keys=[host_key()])


class Rotated(XorOpener):
    """Opens everything one off."""

    def open(self, seq: int, frame: memoryview, /) -> bytes:
        return super().open(seq, frame)[::-1]


class Deaf(XorOpener):
    """Takes any tag."""

    def open(self, seq: int, frame: memoryview, /) -> bytes:
        return self.mix(bytes(frame[4:-4]))


class Short(XorOpener):
    def length(self, seq: int, head: memoryview, /) -> int:
        return super().length(seq, head) - 8


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        (replace(XOR, make_opener=Rotated), "opening does not give the packet back"),
        (replace(XOR, make_opener=Deaf), "a flipped bit goes unnoticed"),
        (replace(XOR, make_opener=Short), "the length field does not come back"),
        (replace(GCM, known_answer=replace(GCM.known_answer, frame=bytes(52))), "sealing does not give"),  # type: ignore[type-var]
        (replace(CHACHA, known_answer=replace(CHACHA.known_answer, seq=1)), "sealing does not give"),  # type: ignore[type-var]
        (replace(get_cipher("aes128-ctr"), known_answer=None, key_size=15), "ValueError"),
    ],
    ids=["opens wrong", "takes any tag", "wrong length", "wrong frame", "wrong number", "wrong key size"],
)
def test_the_known_answer_test_sees(spec: CipherSpec, why: str) -> None:
    status = spec_status(spec)
    assert not status.available
    assert status.reason is not None
    assert why in status.reason


@pytest.mark.parametrize("name", DEFAULT_CIPHERS)
def test_without_a_known_answer_a_round_trip_does(name: str) -> None:
    assert spec_status(replace(get_cipher(name), known_answer=None))


def test_the_test_runs_once(registry: Any) -> None:
    made = []

    def make(key: bytes, iv: bytes, mac: MAC | None) -> XorSealer:
        made.append(key)
        return XorSealer(key, iv, mac)

    spec = replace(XOR, make_sealer=make)
    status = spec_status(spec)
    before = len(made)
    assert spec_status(spec) is status
    assert len(made) == before > 0


def test_plain_is_an_ordinary_cipher_that_cannot_be_named() -> None:
    assert not NONE.secure
    assert all(get_cipher(name).secure for name in cipher_names())
    assert spec_status(NONE)
    with pytest.raises(LocalError):
        TransportConfig(ciphers=["none"])
    sealer, opener = NONE.make_sealer(b"", b"", None), NONE.make_opener(b"", b"", None)
    assert (type(sealer), type(opener)) == (PlainSealer, PlainOpener)
    frame = sealer.seal(0, b"\0\0\0\x0c", b"\x0a" + bytes(11))
    assert opener.length(0, memoryview(frame)[:4]) == 12
    assert opener.open(0, memoryview(frame)) == frame[4:]


def test_keys_do_not_show() -> None:
    answer = KnownAnswer(b"key", b"iv", 0, b"packet", b"frame")
    assert answer == KnownAnswer(b"key", b"iv", 0, b"packet", b"frame")
    for name in cipher_names():
        spec = get_cipher(name)
        mac = get_mac("hmac-sha2-256").make(bytes(32)) if spec.needs_mac else None
        for made in (spec.make_sealer, spec.make_opener):
            assert "object at" in repr(made(bytes(spec.key_size), bytes(spec.iv_size), mac))
