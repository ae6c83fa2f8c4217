"""The hybrid: sizes, the encapsulation key's coefficients, the fixed width of both secrets."""

from __future__ import annotations

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sshtransport.errors import DisconnectReason, ProtocolError
from sshtransport.kex import make_kex
from sshtransport.kex.curve25519 import X25519
from sshtransport.kex.mlkem import MLKEM768X25519
from sshtransport.kex.registry import _replay_kex
from sshtransport.wire import string
from tests.support.kex import context, pair, reply, run, with_agreement

NAME = "mlkem768x25519-sha256"
KEY_SIZE, CIPHERTEXT_SIZE = 1184, 1088
MODULUS = 3329


def values() -> tuple[bytes, bytes]:
    """A client's and a server's good value."""
    client, server = pair(NAME)
    init = client.start()
    assert init is not None
    assert server.step(init)
    return init[5:], MLKEM768X25519().respond(init[5:])[0]


INIT, REPLY = values()
AGREEMENT = MLKEM768X25519()


def refused(role: str, value: bytes) -> DisconnectReason:
    if role == "server":
        kex, payload = with_agreement(NAME, AGREEMENT, "server"), b"\x1e" + string(value)
    else:
        kex, payload = with_agreement(NAME, AGREEMENT, "client"), reply(NAME, value)
    kex.start()
    with pytest.raises(ProtocolError) as caught:
        kex.step(payload)
    assert kex.result is None
    return caught.value.reason


def test_sizes_on_the_wire() -> None:
    assert (len(INIT), len(REPLY)) == (KEY_SIZE + 32, CIPHERTEXT_SIZE + 32)


@pytest.mark.parametrize(("role", "value"), [("server", INIT), ("client", REPLY)])
def test_every_other_length_is_refused(role: str, value: bytes) -> None:
    for size in (*range(0, len(value), 7), len(value) - 32, len(value) - 1):
        assert refused(role, value[:size]) == DisconnectReason.KEY_EXCHANGE_FAILED
    for surplus in (1, 32, 33, 1000):
        assert refused(role, value + bytes(surplus)) == DisconnectReason.KEY_EXCHANGE_FAILED


@pytest.mark.parametrize(("role", "value"), [("server", INIT), ("client", REPLY)])
@pytest.mark.parametrize("share", [bytes(32), b"\x01" + bytes(31), (2**255 - 20).to_bytes(32, "little")])
def test_a_zero_classical_secret_is_refused(role: str, value: bytes, share: bytes) -> None:
    """Known bugs C 37, inside the hybrid."""
    assert refused(role, value[:-32] + share) == DisconnectReason.KEY_EXCHANGE_FAILED


@given(index=st.integers(0, 767), coefficient=st.integers(MODULUS, 4095))
def test_an_unreduced_coefficient_is_refused(index: int, coefficient: int) -> None:
    """FIPS 203, section 7.2: the modulus check; Dropbear 2026.94 lets this pass."""
    key = int.from_bytes(INIT[:1152], "little")  # 768 coefficients of 12 bits, then a seed
    key = key & ~(0xFFF << (12 * index)) | coefficient << (12 * index)
    assert refused("server", key.to_bytes(1152, "little") + INIT[1152:]) == DisconnectReason.KEY_EXCHANGE_FAILED


@given(index=st.integers(0, 767), coefficient=st.integers(0, MODULUS - 1))
def test_every_reduced_coefficient_is_taken(index: int, coefficient: int) -> None:
    key = int.from_bytes(INIT[:1152], "little")
    key = key & ~(0xFFF << (12 * index)) | coefficient << (12 * index)
    assert AGREEMENT.respond(key.to_bytes(1152, "little") + INIT[1152:])


def test_a_spoiled_ciphertext_gives_another_secret() -> None:
    """FIPS 203 rejects implicitly: no error here, the signature over the hash will not fit."""
    client, server = pair(NAME)
    init = client.start()
    assert init is not None
    answer = bytearray(server.step(init) or b"")
    at = answer.index(b"\x00\x00\x04\x60") + 4  # behind the length of 1120
    answer[at] ^= 1
    client.step(bytes(answer))
    assert client.result is not None
    assert server.result is not None
    assert client.result.secret != server.result.secret
    assert client.result.exchange_hash != server.result.exchange_hash


def test_the_secret_is_a_string_over_fixed_widths() -> None:
    """Known bugs C 34 and 38: a leading zero of the X25519 secret stays in; nothing is an mpint."""
    private, seed = b"c" * 32, b"k" * 64
    client = X25519(private=private)
    peers = (n.to_bytes(32, "big") for n in range(5_000))
    server_private = next(p for p in peers if client.finish(X25519(private=p).public())[0] == 0)
    at_client, at_server = run(
        _replay_kex(NAME, context("client"), private=private, seed=seed),
        _replay_kex(NAME, context("server"), private=server_private),
    )
    assert at_client == at_server
    assert at_client.secret[:4] == b"\0\0\0\x20"
    assert len(at_client.secret) == 36
    # Recorded ephemerals of a server give the same exchange again.
    ours = MLKEM768X25519(private=private, seed=seed)
    secret, ciphertext = b"p" * 32, b"\1" * CIPHERTEXT_SIZE
    value, combined = MLKEM768X25519(private=server_private, encapsulated=(secret, ciphertext)).respond(ours.public())
    classical = client.finish(X25519(private=server_private).public())
    assert classical[0] == 0
    assert value == ciphertext + X25519(private=server_private).public()
    assert combined == hashlib.sha256(secret + classical).digest()


@pytest.mark.parametrize("first", [0x00, 0x7F, 0x80, 0xFF])
def test_combined_secrets_of_every_shape_stay_32_bytes(first: int) -> None:
    """The combined hash may start with zero or a top bit: as a string it stays as it is."""
    method_secret = bytes([first]) + bytes(31)

    class Fixed(MLKEM768X25519):
        def respond(self, peer: bytes) -> tuple[bytes, bytes]:
            return REPLY, method_secret

    server = with_agreement(NAME, Fixed(), "server")
    server.step(b"\x1e" + string(INIT))
    assert server.result is not None
    assert server.result.secret == b"\0\0\0\x20" + method_secret


def test_a_server_makes_no_key_pair() -> None:
    server = MLKEM768X25519()
    server.respond(INIT)
    assert "_decapsulator" not in vars(server)


def test_fresh_parts_in_every_exchange() -> None:
    inits = [make_kex(NAME, context("client")).start() or b"" for _ in range(3)]
    assert len({init[5 : 5 + KEY_SIZE] for init in inits}) == 3
    assert len({init[-32:] for init in inits}) == 3
