"""X25519: lengths, the zero test, secrets of every length."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from sshtransport.errors import DisconnectReason, ProtocolError
from sshtransport.kex import make_kex
from sshtransport.kex.base import secret_mpint
from sshtransport.kex.curve25519 import X25519
from sshtransport.kex.registry import _replay_kex
from sshtransport.wire import string
from tests.support.kex import context, reply, run

NAMES = ("curve25519-sha256", "curve25519-sha256@libssh.org")
P = 2**255 - 19


def u(value: int) -> bytes:
    return value.to_bytes(32, "little")


#: Public values whose secret is zero with every private key: the points of low order of the curve
#: and of its twist, with their other spellings in 32 bytes.
LOW_ORDER = [
    u(0),
    u(1),
    bytes.fromhex("e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800"),
    bytes.fromhex("5f9c95bca3508c24b1d0b1559c83ef5b04445cc4581c8e86d8224eddd09f1157"),
    u(P - 1),
    u(P),
    u(P + 1),
    u(2**255),
    u(2**255 + 1),
    u(2**255 + P - 1),
]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("point", LOW_ORDER, ids=bytes.hex)
def test_an_all_zero_secret_is_refused(name: str, point: bytes) -> None:
    """Known bugs C 37: the test is on the secret, as many values lead there."""
    client, server = make_kex(name, context("client")), make_kex(name, context("server"))
    client.start()
    for kex, payload in ((client, reply(name, point)), (server, b"\x1e" + string(point))):
        with pytest.raises(ProtocolError) as caught:
            kex.step(payload)
        assert caught.value.reason == DisconnectReason.KEY_EXCHANGE_FAILED
        assert kex.result is None


@pytest.mark.parametrize("size", [0, 1, 31, 33, 64, 1000])
def test_only_32_bytes_are_a_value(size: int) -> None:
    name = NAMES[0]
    client, server = make_kex(name, context("client")), make_kex(name, context("server"))
    client.start()
    for kex, payload in ((client, reply(name, b"\x09" * size)), (server, b"\x1e" + string(b"\x09" * size))):
        with pytest.raises(ProtocolError) as caught:
            kex.step(payload)
        assert caught.value.reason == DisconnectReason.KEY_EXCHANGE_FAILED


def test_unreduced_values_and_the_top_bit_are_taken() -> None:
    """RFC 7748, section 5: a receiver reduces and ignores bit 255, it does not refuse."""
    ours = X25519()
    base = ours.finish(u(9))
    assert ours.finish(u(9 + P)) == base
    assert ours.finish(u(9 + 2**255)) == base
    assert ours.public() == base


def test_the_two_names_are_one_method() -> None:
    client = _replay_kex(NAMES[0], context("client"), private=b"c" * 32)
    server = _replay_kex(NAMES[1], context("server"), private=b"s" * 32)
    at_client, at_server = run(client, server)
    assert at_client == at_server


def test_secrets_of_every_shape() -> None:
    """Known bugs C 34, 35: ephemerals searched until the secret starts with each kind of octet."""
    client = X25519(private=b"c" * 32)
    wanted: dict[str, Callable[[bytes], bool]] = {
        "zero": lambda secret: secret[0] == 0 and 0 < secret[1] < 0x80,
        "zero, then high": lambda secret: secret[0] == 0 and secret[1] >= 0x80,
        "high": lambda secret: secret[0] >= 0x80,
        "low": lambda secret: 0 < secret[0] < 0x80,
    }
    sizes = {"zero": 31, "zero, then high": 32, "high": 33, "low": 32}
    tries = 0
    while wanted:
        private = tries.to_bytes(32, "big")
        tries += 1
        secret = client.finish(X25519(private=private).public())
        for shape in [shape for shape, fits in wanted.items() if fits(secret)]:
            del wanted[shape]
            result, other = run(
                _replay_kex(NAMES[0], context("client"), private=b"c" * 32),
                _replay_kex(NAMES[0], context("server"), private=private),
            )
            assert result == other
            assert result.secret == secret_mpint(secret)
            assert len(result.secret) == 4 + sizes[shape]
