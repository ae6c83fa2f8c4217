"""The post-quantum hybrid of ML-KEM-768 and X25519 (mlkem768x25519-sha256)."""

from __future__ import annotations

import hashlib
from functools import cached_property

from cryptography.hazmat.primitives.asymmetric.mlkem import MLKEM768PrivateKey, MLKEM768PublicKey

from ..wire import string
from .base import STRINGS, Agreement, Method
from .curve25519 import X25519

__all__ = ("METHODS", "MLKEM768X25519")

_KEY_SIZE = 1184  # FIPS 203, table 3
_CIPHERTEXT_SIZE = 1088
_SHARE_SIZE = 32


class MLKEM768X25519(Agreement[bytes]):
    """The client sends an encapsulation key, the server a ciphertext, each with an X25519 share.

    The secret is one SHA-256 over both secrets at their fixed widths and enters the exchange hash
    as a string: nothing in a hybrid is an mpint. The library checks the encapsulation key's
    coefficients (FIPS 203, section 7.2); a spoiled ciphertext gives another secret, no error.

    ``seed`` and ``encapsulated``, (secret, ciphertext), are a recorded client's and server's.
    """

    def __init__(
        self,
        *,
        private: bytes | None = None,
        seed: bytes | None = None,
        encapsulated: tuple[bytes, bytes] | None = None,
    ) -> None:
        self._classical = X25519(private=private)
        self._seed = seed
        self._encapsulated = encapsulated

    @cached_property
    def _decapsulator(self) -> MLKEM768PrivateKey:
        # Only a client comes here: a server needs no key pair of its own.
        return MLKEM768PrivateKey.generate() if self._seed is None else MLKEM768PrivateKey.from_seed_bytes(self._seed)

    def public(self) -> bytes:
        return self._decapsulator.public_key().public_bytes_raw() + self._classical.public()

    def finish(self, peer: bytes) -> bytes:
        ciphertext, share = _split(peer, _CIPHERTEXT_SIZE)
        return _combine(self._decapsulator.decapsulate(ciphertext), self._classical.finish(share))

    def respond(self, peer: bytes) -> tuple[bytes, bytes]:
        key, share = _split(peer, _KEY_SIZE)
        encapsulator = MLKEM768PublicKey.from_public_bytes(key)
        classical = self._classical.finish(share)
        post_quantum, ciphertext = self._encapsulated or encapsulator.encapsulate()
        return ciphertext + self._classical.public(), _combine(post_quantum, classical)


def _split(value: bytes, size: int) -> tuple[bytes, bytes]:
    if len(value) != size + _SHARE_SIZE:
        raise ValueError(f"{len(value)} bytes instead of {size + _SHARE_SIZE}")
    return value[:size], value[size:]


def _combine(post_quantum: bytes, classical: bytes) -> bytes:
    return hashlib.sha256(post_quantum + classical).digest()


METHODS = (
    Method("mlkem768x25519-sha256", "sha256", MLKEM768X25519, STRINGS, string, probe=MLKEM768PrivateKey.generate),
)
