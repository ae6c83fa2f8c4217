"""The table of methods, the default offers, and the way from a name to a key exchange."""

from __future__ import annotations

from functools import cache
from typing import Any

from cryptography.exceptions import UnsupportedAlgorithm

from ..errors import LocalError
from . import curve25519, dh, ecdh, mlkem
from .base import KexContext, KeyExchange, Method

__all__ = ("CLIENT_DEFAULTS", "KEX_NAMES", "METHODS", "SERVER_DEFAULTS", "kex_names", "make_kex")

_BEST_FIRST: tuple[Method[Any], ...] = (*mlkem.METHODS, *curve25519.METHODS, *ecdh.METHODS, *dh.METHODS)

METHODS: dict[str, Method[Any]] = {method.name: method for method in _BEST_FIRST}

KEX_NAMES: tuple[str, ...] = tuple(METHODS)
CLIENT_DEFAULTS: tuple[str, ...] = KEX_NAMES
#: Servers offer finite-field groups only when asked to: they are the costly ones.
SERVER_DEFAULTS: tuple[str, ...] = tuple(name for name in KEX_NAMES if not name.startswith("diffie-hellman-"))


@cache
def _available(name: str) -> bool:
    try:
        METHODS[name].probe()
    except UnsupportedAlgorithm:
        return False
    return True


def kex_names() -> tuple[str, ...]:
    """The methods that the installed crypto library can do, best first."""
    return tuple(name for name in KEX_NAMES if _available(name))


def make_kex(name: str, context: KexContext) -> KeyExchange:
    """A key exchange of the method ``name`` with fresh ephemerals.

    Raises LocalError for a name that is unknown or that the crypto library cannot do.
    """
    return _replay_kex(name, context)


def _replay_kex(name: str, context: KexContext, **recorded: Any) -> KeyExchange:
    """As :func:`make_kex`, with recorded ephemerals: for vectors and replays of sessions only.

    ``private`` is the X25519 or EC private key or the DH exponent, as big-endian bytes (X25519:
    raw bytes); the ML-KEM hybrid also takes a client's ``seed`` and a server's ``encapsulated``,
    the pair (secret, ciphertext).
    """
    if name not in METHODS or not _available(name):
        raise LocalError(f"key exchange method not available: {name!r}")
    return KeyExchange(METHODS[name], context, recorded)
