"""X25519 (RFC 8731), under its registered name and under the older one of libssh."""

from __future__ import annotations

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey

from .base import STRINGS, Agreement, Method, secret_mpint

__all__ = ("METHODS", "X25519")


class X25519(Agreement[bytes]):
    """Values and secret are 32 bytes. The library refuses other lengths and an all-zero secret."""

    def __init__(self, *, private: bytes | None = None) -> None:
        self._key = X25519PrivateKey.generate() if private is None else X25519PrivateKey.from_private_bytes(private)

    def public(self) -> bytes:
        return self._key.public_key().public_bytes_raw()

    def finish(self, peer: bytes) -> bytes:
        # The zero test is on the secret: several public values lead there (RFC 7748, section 6.1).
        return self._key.exchange(X25519PublicKey.from_public_bytes(peer))


METHODS = tuple(
    Method(name, "sha256", X25519, STRINGS, secret_mpint, probe=X25519)
    for name in ("curve25519-sha256", "curve25519-sha256@libssh.org")
)
