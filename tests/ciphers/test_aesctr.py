"""AES-CTR with both kinds of MAC (RFC 4253, section 6.4; RFC 4344, section 4)."""

from __future__ import annotations

import hashlib
import hmac
from typing import Any

import pytest
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import CTR

from sshtransport.ciphers import get_cipher, get_mac
from sshtransport.ciphers.aesctr import CTREtMOpener, CTREtMSealer, CTROpener, CTRSealer
from sshtransport.errors import IntegrityError, LocalError
from sshtransport.wire import Buffer

KEY, IV, MAC_KEY = bytes(range(32)), b"\xff" * 16, b"m" * 32
SPEC = get_cipher("aes256-ctr")
PLAIN, ETM = get_mac("hmac-sha2-256"), get_mac("hmac-sha2-256-etm@openssh.com")
HEAD, BODY = b"\0\0\0\x1c", b"\x06" + bytes(range(27))
ETM_HEAD, ETM_BODY = b"\0\0\0\x20", b"\x06" + bytes(range(31))


def tag(seq: int, data: bytes) -> bytes:
    return hmac.new(MAC_KEY, seq.to_bytes(4, "big") + data, hashlib.sha256).digest()


def test_the_mac_decides_the_construction() -> None:
    for mac, kinds in ((PLAIN, (CTRSealer, CTROpener)), (ETM, (CTREtMSealer, CTREtMOpener))):
        made = mac.make(MAC_KEY)
        assert type(SPEC.make_sealer(KEY, IV, made)) is kinds[0]
        assert type(SPEC.make_opener(KEY, IV, made)) is kinds[1]


@pytest.mark.parametrize("make", [SPEC.make_sealer, SPEC.make_opener])
def test_a_mac_is_needed(make: Any) -> None:
    with pytest.raises(LocalError, match="needs a MAC"):
        make(KEY, IV, None)


def test_both_constructions_by_their_definition() -> None:
    """The key stream goes on from packet to packet, and the 128-bit counter wraps."""
    stream = Cipher(AES(KEY), CTR(IV)).encryptor()
    sealer = SPEC.make_sealer(KEY, IV, PLAIN.make(MAC_KEY))
    for seq in (3, 2**32 - 1, 0):
        assert sealer.seal(seq, HEAD, BODY) == stream.update(HEAD + BODY) + tag(seq, HEAD + BODY)
    stream = Cipher(AES(KEY), CTR(IV)).encryptor()
    sealer = SPEC.make_sealer(KEY, IV, ETM.make(MAC_KEY))
    for seq in (3, 2**32 - 1, 0):
        sealed = ETM_HEAD + stream.update(ETM_BODY)
        assert sealer.seal(seq, ETM_HEAD, ETM_BODY) == sealed + tag(seq, sealed)


def test_encrypt_then_mac_decrypts_nothing_unchecked() -> None:
    opener = CTREtMOpener(KEY, IV, ETM.make(MAC_KEY))
    given: list[bytes] = []
    update = opener._update

    def watched(data: Buffer) -> bytes:
        given.append(bytes(data))
        return update(data)

    opener._update = watched
    frame = bytearray(SPEC.make_sealer(KEY, IV, ETM.make(MAC_KEY)).seal(0, ETM_HEAD, ETM_BODY))
    frame[20] ^= 1
    with pytest.raises(IntegrityError):
        opener.open(0, memoryview(frame))
    assert given == []
    frame[20] ^= 1
    assert opener.open(0, memoryview(frame)) == ETM_BODY


def test_encrypt_and_mac_keeps_nothing_of_a_bad_packet() -> None:
    opener = CTROpener(KEY, IV, PLAIN.make(MAC_KEY))
    frame = bytearray(SPEC.make_sealer(KEY, IV, PLAIN.make(MAC_KEY)).seal(0, HEAD, BODY))
    frame[-1] ^= 1
    assert opener.length(0, memoryview(frame)[:16]) == len(BODY)
    with pytest.raises(IntegrityError):
        opener.open(0, memoryview(frame))
    assert opener._first == b""
