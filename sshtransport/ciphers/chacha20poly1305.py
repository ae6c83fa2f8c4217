"""chacha20-poly1305@openssh.com (draft-ietf-sshm-chacha20-poly1305).

Two keys: the first 32 bytes (``main``) for the body and the one-time Poly1305 keys, the last 32
(``header``) for the length field alone. The nonce of both is the packet's sequence number as a
64-bit big-endian integer. The tag covers the encrypted length and the ciphertext, nothing else, so
the AEAD of RFC 8439 computes something different and cannot be used.

``cryptography`` takes a 16-byte nonce: a little-endian 64-bit block counter, then the nonce. Both
contexts are kept for the life of the key and only get a new nonce per packet. Block 0 of the main
key stream is the Poly1305 key, so running 64 zero bytes through the context gives that key and
leaves the context at block 1, where the body starts.
"""

from __future__ import annotations

from struct import Struct

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.ciphers import Cipher, CipherContext
from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20
from cryptography.hazmat.primitives.poly1305 import Poly1305

from ..errors import IntegrityError
from .base import MAC, CipherSpec, KnownAnswer, register_cipher

__all__ = ("ChaCha20Poly1305Opener", "ChaCha20Poly1305Sealer")

_NONCE = Struct("<Q8x").size  # 16: block counter, then the sequence number
_SEQ = Struct(">8xQ").pack
_ZEROS = bytes(64)


def _context(key: bytes) -> CipherContext:
    return Cipher(ChaCha20(key, bytes(_NONCE)), None).encryptor()


class ChaCha20Poly1305Sealer:
    """Encrypts the length with one context, the body with the other, then tags both."""

    __slots__ = ("_header", "_main")
    block_size = 8
    length_aligned = False

    def __init__(self, key: bytes, iv: bytes = b"", mac: MAC | None = None) -> None:
        self._main = _context(key[:32])
        self._header = _context(key[32:])

    def seal(self, seq: int, head: bytes, body: bytes, /) -> bytes:
        nonce = _SEQ(seq)
        header, main = self._header, self._main
        header.reset_nonce(nonce)
        main.reset_nonce(nonce)
        one_time_key = main.update(_ZEROS)[:32]
        sealed = header.update(head) + main.update(body)
        return sealed + Poly1305.generate_tag(one_time_key, sealed)


class ChaCha20Poly1305Opener:
    """Decrypts the length at once; the body only after the tag has been verified."""

    __slots__ = ("_header", "_main")
    head_size = 4
    block_size = 8
    length_aligned = False
    tag_size = 16

    def __init__(self, key: bytes, iv: bytes = b"", mac: MAC | None = None) -> None:
        self._main = _context(key[:32])
        self._header = _context(key[32:])

    def length(self, seq: int, head: memoryview, /) -> int:
        header = self._header
        header.reset_nonce(_SEQ(seq))
        return int.from_bytes(header.update(head), "big")

    def open(self, seq: int, frame: memoryview, /) -> bytes:
        main = self._main
        main.reset_nonce(_SEQ(seq))
        one_time_key = main.update(_ZEROS)[:32]
        try:
            Poly1305.verify_tag(one_time_key, frame[:-16], bytes(frame[-16:]))
        except InvalidSignature:
            raise IntegrityError("Poly1305 tag does not verify") from None
        return main.update(frame[4:-16])


# A known answer computed for this project (see tests/vectors).
register_cipher(
    CipherSpec(
        "chacha20-poly1305@openssh.com",
        64,
        0,
        False,
        None,
        ChaCha20Poly1305Sealer,
        ChaCha20Poly1305Opener,
        KnownAnswer(
            bytes.fromhex(
                "6e3659c888b976aa26089924a3400ab5b4507a0dae7853144fded53874fb346b"
                "196d67d74b42b295098ff45fc22d49e55fc5f7fd8947d839887a56a5d4a08907"
            ),
            b"",
            0,
            bytes.fromhex("0000001806050000000c7373682d7573657261757468a0a1a2a3a4a5"),
            bytes.fromhex("47ceb1e59f90a0c633a667b14cc6bea1f4e6bf2318d25d54563fbea81ed5cd099a65491cb1e1c60868dc2ab0"),
        ),
    )
)
