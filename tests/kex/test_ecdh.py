"""The NIST curves: exactly one form of point is taken, and only points of the curve."""

from __future__ import annotations

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from sshtransport.errors import DisconnectReason, ProtocolError
from sshtransport.kex import make_kex
from sshtransport.kex.ecdh import ECDH
from sshtransport.kex.registry import _replay_kex
from sshtransport.wire import string
from tests.support.kex import context, reply, run

CURVES: dict[str, tuple[ec.EllipticCurve, int]] = {
    "ecdh-sha2-nistp256": (ec.SECP256R1(), 2**256 - 2**224 + 2**192 + 2**96 - 1),
    "ecdh-sha2-nistp384": (ec.SECP384R1(), 2**384 - 2**128 - 2**96 + 2**32 - 1),
    "ecdh-sha2-nistp521": (ec.SECP521R1(), 2**521 - 1),
}
FAULTS = (
    "empty", "infinity", "infinity, padded", "compressed", "hybrid form", "odd hybrid form", "zero", "off the curve",
    "x not reduced", "y not reduced", "short", "long", "of another curve", "no prefix", "wrong prefix",
)  # fmt: skip


def spoiled(name: str, fault: str) -> bytes:
    """A value that must be refused (RFC 5656, section 4; SEC 1, section 3.2.2.1)."""
    curve, p = CURVES[name]
    key = ec.derive_private_key(5, curve).public_key()
    point = key.public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)
    size = len(point) // 2
    x, y = point[1 : 1 + size], point[1 + size :]

    def number(value: int) -> bytes:
        return value.to_bytes(size, "big")

    other = ec.SECP384R1() if name != "ecdh-sha2-nistp384" else ec.SECP256R1()
    room = 256**size  # a coordinate plus p may not fit into its octets
    return {
        "empty": b"",
        "infinity": b"\x00",
        "infinity, padded": bytes(len(point)),
        "compressed": key.public_bytes(Encoding.X962, PublicFormat.CompressedPoint),
        "hybrid form": b"\x06" + x + y,
        "odd hybrid form": b"\x07" + x + y,
        "zero": b"\x04" + bytes(2 * size),
        "off the curve": b"\x04" + x + number(int.from_bytes(y, "big") ^ 1),
        "x not reduced": b"\x04" + number((int.from_bytes(x, "big") + p) % room if p < room // 2 else p) + y,
        "y not reduced": b"\x04" + x + number((int.from_bytes(y, "big") + p) % room if p < room // 2 else p),
        "short": point[:-1],
        "long": point + b"\0",
        "of another curve": ec.derive_private_key(5, other)
        .public_key()
        .public_bytes(Encoding.X962, PublicFormat.UncompressedPoint),
        "no prefix": x + y,
        "wrong prefix": b"\x05" + x + y,
    }[fault]


@pytest.mark.parametrize("name", CURVES)
@pytest.mark.parametrize("fault", FAULTS)
def test_bad_points_are_refused(name: str, fault: str) -> None:
    point = spoiled(name, fault)
    client, server = make_kex(name, context("client")), make_kex(name, context("server"))
    client.start()
    for kex, payload in ((client, reply(name, point)), (server, b"\x1e" + string(point))):
        with pytest.raises(ProtocolError) as caught:
            kex.step(payload)
        assert caught.value.reason == DisconnectReason.KEY_EXCHANGE_FAILED
        assert kex.result is None


@pytest.mark.parametrize(("name", "size"), [(name, 65 + 32 * i + 4 * (i == 2)) for i, name in enumerate(CURVES)])
def test_our_points_are_uncompressed(name: str, size: int) -> None:
    init = make_kex(name, context("client")).start()
    assert init is not None
    assert len(init) == 1 + 4 + size
    assert init[:6] == b"\x1e" + size.to_bytes(4, "big") + b"\x04"


@pytest.mark.parametrize("name", CURVES)
def test_a_secret_with_a_leading_zero(name: str) -> None:
    """Known bugs C 35: the x coordinate is a number, its leading zeros are not hashed.

    On P-521 the top octet holds one bit; there the search is for two octets of zero.
    """
    curve, _ = CURVES[name]
    client = ECDH(curve, private=b"\x05")
    zeros = bytes(2 if name == "ecdh-sha2-nistp521" else 1)
    peers = ((n.to_bytes(4, "big"), ECDH(curve, private=n.to_bytes(4, "big")).public()) for n in range(1, 10_000))
    private, secret = next(
        (private, secret) for private, point in peers if (secret := client.finish(point)).startswith(zeros)
    )
    result, other = run(
        _replay_kex(name, context("client"), private=b"\x05"), _replay_kex(name, context("server"), private=private)
    )
    assert result == other
    body = result.secret[4:]
    assert body.lstrip(b"\0") == secret.lstrip(b"\0")
    assert len(body) <= len(secret) - len(zeros) + 1
    assert not body.startswith(zeros + b"\0")
