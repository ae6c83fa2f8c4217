"""Finite-field Diffie-Hellman in the MODP groups of RFC 3526 (RFC 4253, section 8; RFC 8268).

The library announces the end of its finite-field arithmetic and warns on the first access to it.
This module alone touches it; where it is gone these methods are not offered.
"""

from __future__ import annotations

import warnings
from functools import cache, partial
from typing import TYPE_CHECKING, NamedTuple

from cryptography.exceptions import UnsupportedAlgorithm

from .base import MPINTS, Agreement, Method, secret_mpint

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.dh import (
        DHParameterNumbers,
        DHParameters,
        DHPrivateKey,
        DHPrivateNumbers,
        DHPublicNumbers,
    )

__all__ = ("METHODS", "FiniteField", "modp_prime")

_GENERATOR = 2

#: Bits of the prime to the smallest constant of RFC 3526 that makes it a safe prime.
_CONSTANTS = {2048: 124_476, 4096: 240_904, 8192: 4_743_158}


def _pi(bits: int) -> int:
    """floor(pi * 2**bits), by Machin's formula with guard bits."""
    one = 1 << (bits + 64)

    def arccot(x: int) -> int:
        term = total = one // x
        n, sign = 3, -1
        while term:
            term //= x * x
            total += sign * (term // n)
            n, sign = n + 2, -sign
        return total

    return (16 * arccot(5) - 4 * arccot(239)) >> 64


@cache
def modp_prime(bits: int) -> int:
    """The prime of RFC 3526 with that many bits: 2048 (group 14), 4096 (16) or 8192 (18)."""
    return (1 << bits) - (1 << (bits - 64)) - 1 + ((_pi(bits - 130) + _CONSTANTS[bits]) << 64)


class _Library(NamedTuple):
    parameter_numbers: type[DHParameterNumbers]
    public_numbers: type[DHPublicNumbers]
    private_numbers: type[DHPrivateNumbers]


@cache
def _library() -> _Library:
    """The library's classes, looked up once: every access to the module warns, and will fail one day."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            from cryptography.hazmat.primitives.asymmetric import dh

            return _Library(dh.DHParameterNumbers, dh.DHPublicNumbers, dh.DHPrivateNumbers)
        except (ImportError, AttributeError):
            raise UnsupportedAlgorithm("the library has no finite-field Diffie-Hellman") from None


@cache
def _group(bits: int) -> tuple[DHParameterNumbers, DHParameters]:
    """The library's objects for one group; building them checks the prime."""
    numbers = _library().parameter_numbers(modp_prime(bits), _GENERATOR)
    return numbers, numbers.parameters()


class FiniteField(Agreement[int]):
    """Values are numbers mod p. The library draws exponents of twice the group's strength."""

    def __init__(self, bits: int, *, private: bytes | None = None) -> None:
        self._limit = modp_prime(bits) - 1
        self._numbers, parameters = _group(bits)
        self._key = parameters.generate_private_key() if private is None else self._load(private)

    def _load(self, private: bytes) -> DHPrivateKey:
        exponent = int.from_bytes(private, "big")
        public = _library().public_numbers(pow(_GENERATOR, exponent, self._numbers.p), self._numbers)
        return _library().private_numbers(exponent, public).private_key()

    def public(self) -> int:
        return self._key.public_key().public_numbers().y

    def finish(self, peer: int) -> bytes:
        # RFC 8268, section 4. 1 and p-1 are the whole subgroup of order 2; of any other value the
        # secret cannot fall into it either, as p is a safe prime and the exponent is far below it.
        if not 1 < peer < self._limit:
            raise ValueError("public value out of range")
        return self._key.exchange(_library().public_numbers(peer, self._numbers).public_key())


def _method(name: str, bits: int, hash_name: str) -> Method[int]:
    return Method(name, hash_name, partial(FiniteField, bits), MPINTS, secret_mpint, probe=_library)


METHODS = (
    _method("diffie-hellman-group16-sha512", 4096, "sha512"),
    _method("diffie-hellman-group18-sha512", 8192, "sha512"),
    _method("diffie-hellman-group14-sha256", 2048, "sha256"),
)
