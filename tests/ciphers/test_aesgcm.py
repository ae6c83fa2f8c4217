"""AES-GCM's invocation counter (RFC 5647, section 7.1; known bugs B 18)."""

from __future__ import annotations

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from sshtransport.ciphers.aesgcm import AESGCMOpener, AESGCMSealer
from sshtransport.errors import IntegrityError

KEY = bytes(range(32))
FIXED = b"\xff\xff\xff\xff"
HEAD, BODY = b"\0\0\0\x10", b"\x0e\x15" + bytes(14)


def expected(counter: int) -> bytes:
    return HEAD + AESGCM(KEY).encrypt(FIXED + counter.to_bytes(8, "big"), BODY, HEAD)


@pytest.mark.parametrize("start", [0, 1, 2**32 - 2, 2**63 - 1, 2**64 - 3])
def test_the_counter_counts_packets_modulo_2_64(start: int) -> None:
    """It starts where the key derivation says, wraps, never carries into the fixed field, ignores the sequence."""
    iv = FIXED + start.to_bytes(8, "big")
    sealer, opener = AESGCMSealer(KEY, iv), AESGCMOpener(KEY, iv)
    for step in range(6):
        frame = sealer.seal(7 - step, HEAD, BODY)
        assert frame == expected((start + step) % 2**64)
        assert opener.length(0, memoryview(frame)[:4]) == 16
        assert opener.open(99, memoryview(frame)) == BODY


def test_a_bad_tag_leaves_the_frame_as_it_is() -> None:
    """``decrypt_into`` would have written the plaintext somewhere by the time it raises."""
    frame = bytearray(AESGCMSealer(KEY, bytes(12)).seal(0, HEAD, BODY))
    frame[-1] ^= 1
    before = bytes(frame)
    with pytest.raises(IntegrityError):
        AESGCMOpener(KEY, bytes(12)).open(0, memoryview(frame))
    assert frame == before
