"""AES-GCM as OpenSSH negotiates it: aes128-gcm@openssh.com, aes256-gcm@openssh.com (RFC 5647, section 7).

The 12-byte IV is a fixed 4-byte field and a 64-bit invocation counter that starts where the key
derivation says, counts packets modulo 2^64 and has nothing to do with the sequence number. The
length field travels in clear as associated data.
"""

from __future__ import annotations

from struct import Struct

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from ..errors import IntegrityError
from .base import MAC, CipherSpec, KnownAnswer, length_in_clear, register_cipher

__all__ = ("AESGCMOpener", "AESGCMSealer")

_NONCE = Struct(">4sQ").pack
_COUNTER_MASK = 2**64 - 1


class AESGCMSealer:
    """One ``AESGCM`` object for the life of the key; one library call a packet."""

    __slots__ = ("_counter", "_encrypt", "_fixed")
    block_size = 16
    length_aligned = False

    def __init__(self, key: bytes, iv: bytes, mac: MAC | None = None) -> None:
        self._encrypt = AESGCM(key).encrypt
        self._fixed = iv[:4]
        self._counter = int.from_bytes(iv[4:], "big")

    def seal(self, seq: int, head: bytes, body: bytes, /) -> bytes:
        counter = self._counter
        self._counter = (counter + 1) & _COUNTER_MASK
        return head + self._encrypt(_NONCE(self._fixed, counter), body, head)


class AESGCMOpener:
    """The other half. ``decrypt`` releases nothing before the tag is verified (``decrypt_into`` would)."""

    __slots__ = ("_counter", "_decrypt", "_fixed")
    head_size = 4
    block_size = 16
    length_aligned = False
    tag_size = 16

    def __init__(self, key: bytes, iv: bytes, mac: MAC | None = None) -> None:
        self._decrypt = AESGCM(key).decrypt
        self._fixed = iv[:4]
        self._counter = int.from_bytes(iv[4:], "big")

    length = length_in_clear

    def open(self, seq: int, frame: memoryview, /) -> bytes:
        counter = self._counter
        self._counter = (counter + 1) & _COUNTER_MASK
        try:
            return self._decrypt(_NONCE(self._fixed, counter), frame[4:], frame[:4])
        except InvalidTag:
            raise IntegrityError("AES-GCM tag does not verify") from None


# Known answers computed for this project (see tests/vectors).
_PACKET = bytes.fromhex("000000200e050000000c7373682d7573657261757468a0a1a2a3a4a5a6a7a8a9aaabacad")
_IV = bytes.fromhex("0a1b2c3d00000000fffffffe")

for _name, _size, _key, _frame in (
    (
        "aes256-gcm@openssh.com",
        32,
        "b27e55fd3a1831d408d59b2bb3230e36ed3bd3d728c75bcbf162af7a315a4da4",
        "000000202a8875236dc1e430a81059e102f27d021844f8aa232e1b1801de31efe715015b918ea3bbba24217220d50f91cebf018e",
    ),
    (
        "aes128-gcm@openssh.com",
        16,
        "b27e55fd3a1831d408d59b2bb3230e36",
        "00000020c1fcfdf02357c9b24d89a4b89ff71617e56d3cd09c48883f3d21ed7388a29edfa804427fa3dbda41a255a1f4d14c128e",
    ),
):
    register_cipher(
        CipherSpec(
            _name,
            _size,
            12,
            False,
            None,
            AESGCMSealer,
            AESGCMOpener,
            KnownAnswer(bytes.fromhex(_key), _IV, 0, _PACKET, bytes.fromhex(_frame)),
        )
    )
