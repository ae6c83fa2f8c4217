"""chacha20-poly1305@openssh.com against its own definition, made from other pieces (known bugs B 20)."""

from __future__ import annotations

from typing import Any

import pytest
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20
from cryptography.hazmat.primitives.poly1305 import Poly1305

from sshtransport.ciphers.chacha20poly1305 import ChaCha20Poly1305Opener, ChaCha20Poly1305Sealer
from sshtransport.errors import IntegrityError

KEY = bytes(range(64))
HEAD, BODY = b"\0\0\0\x18", b"\x06" + bytes(range(23))
SEQUENCES = [0, 1, 0x00010203, 2**32 - 1, 2**32, 121932629754610590]


def stream(key: bytes, block: int, seq: int, data: bytes) -> bytes:
    return Cipher(ChaCha20(key, block.to_bytes(8, "little") + seq.to_bytes(8, "big")), None).encryptor().update(data)


def defined(seq: int) -> bytes:
    """A fresh context for each part; the block counter set, not run up to."""
    main, header = KEY[:32], KEY[32:]
    sealed = stream(header, 0, seq, HEAD) + stream(main, 1, seq, BODY)
    return sealed + Poly1305.generate_tag(stream(main, 0, seq, bytes(32)), sealed)


@pytest.mark.parametrize("seq", SEQUENCES)
def test_seal(seq: int) -> None:
    assert ChaCha20Poly1305Sealer(KEY).seal(seq, HEAD, BODY) == defined(seq)


def test_contexts_are_reused_in_any_order() -> None:
    sealer, opener = ChaCha20Poly1305Sealer(KEY), ChaCha20Poly1305Opener(KEY)
    for seq in SEQUENCES[::-1] + SEQUENCES:
        frame = memoryview(sealer.seal(seq, HEAD, BODY))
        assert frame == defined(seq)
        assert opener.length(seq, frame[:4]) == 24
        assert opener.open(seq, frame) == BODY


class Watched:
    """A cipher context that notes what it is given."""

    def __init__(self, context: Any) -> None:
        self.context = context
        self.reset_nonce = context.reset_nonce
        self.given: list[bytes] = []

    def update(self, data: bytes) -> Any:
        self.given.append(bytes(data))
        return self.context.update(data)


def test_the_tag_is_checked_before_the_body_is_decrypted() -> None:
    opener = ChaCha20Poly1305Opener(KEY)
    opener._main = watched = Watched(opener._main)  # type: ignore[assignment]
    frame = bytearray(defined(3))
    frame[-1] ^= 1
    opener.length(3, memoryview(frame)[:4])
    with pytest.raises(IntegrityError):
        opener.open(3, memoryview(frame))
    assert watched.given == [bytes(64)]  # the one-time key, nothing of the body
    assert opener.open(3, memoryview(defined(3))) == BODY
    assert len(watched.given) == 3


def test_another_sequence_number_is_refused() -> None:
    for seq in (2, 4, 2**32 + 3):
        with pytest.raises(IntegrityError):
            ChaCha20Poly1305Opener(KEY).open(seq, memoryview(defined(3)))
