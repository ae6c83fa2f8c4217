"""Keys for tests, made once a run (an RSA key takes a while)."""

from __future__ import annotations

from functools import cache

from sshtransport.keys import PrivateKey

KEY_TYPES = ("ssh-ed25519", "ecdsa-sha2-nistp256", "ecdsa-sha2-nistp384", "ecdsa-sha2-nistp521", "ssh-rsa")


@cache
def private_key(algorithm: str, number: int = 0) -> PrivateKey:
    """The key of this type; other ``number``s give other keys."""
    return PrivateKey.generate(algorithm, bits=2048 if algorithm == "ssh-rsa" else None, comment=f"test {number}")
