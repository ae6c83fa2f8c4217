"""Diffie-Hellman on the NIST curves (RFC 5656, section 4)."""

from __future__ import annotations

from functools import partial

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from .base import STRINGS, Agreement, Method, secret_mpint

__all__ = ("ECDH", "METHODS")

_UNCOMPRESSED = 4  # first octet of a point (SEC 1, section 2.3.3)


class ECDH(Agreement[bytes]):
    """Values are uncompressed points, the secret is the x coordinate at full width."""

    def __init__(self, curve: ec.EllipticCurve, *, private: bytes | None = None) -> None:
        self._key = (
            ec.generate_private_key(curve)
            if private is None
            else ec.derive_private_key(int.from_bytes(private, "big"), curve)
        )
        self._curve = curve
        self._point_size = 1 + 2 * ((curve.key_size + 7) // 8)

    def public(self) -> bytes:
        return self._key.public_key().public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)

    def finish(self, peer: bytes) -> bytes:
        # The library would take compressed points too; off the curve it refuses by itself.
        if len(peer) != self._point_size or peer[0] != _UNCOMPRESSED:
            raise ValueError(f"not an uncompressed point of {self._point_size} bytes")
        return self._key.exchange(ec.ECDH(), ec.EllipticCurvePublicKey.from_encoded_point(self._curve, peer))


def _method(name: str, curve: ec.EllipticCurve, hash_name: str) -> Method[bytes]:
    agreement = partial(ECDH, curve)
    return Method(name, hash_name, agreement, STRINGS, secret_mpint, probe=agreement)


METHODS = (
    _method("ecdh-sha2-nistp256", ec.SECP256R1(), "sha256"),
    _method("ecdh-sha2-nistp384", ec.SECP384R1(), "sha384"),
    _method("ecdh-sha2-nistp521", ec.SECP521R1(), "sha512"),
)
