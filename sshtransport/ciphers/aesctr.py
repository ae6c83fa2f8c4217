"""aes128-ctr and aes256-ctr (RFC 4344, section 4), always with a MAC.

With an ``-etm@openssh.com`` MAC the length is in clear and the MAC is checked before anything is
decrypted. With a plain MAC (encrypt-and-MAC, RFC 4253, section 6.4) the receiver must decrypt
first: the length in the first block, then the rest, all of it kept private until the MAC, which
covers the plaintext, has been verified.
"""

from __future__ import annotations

from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import CTR

from ..errors import LocalError
from .base import MAC, CipherSpec, KnownAnswer, Opener, Sealer, length_in_clear, register_cipher

__all__ = ("CTROpener", "CTRSealer", "CTREtMOpener", "CTREtMSealer")


class CTRSealer:
    """Encrypt-and-MAC: length and body are encrypted, the MAC covers their plaintext."""

    __slots__ = ("_mac", "_update")
    block_size = 16
    length_aligned = True

    def __init__(self, key: bytes, iv: bytes, mac: MAC) -> None:
        self._update = Cipher(AES(key), CTR(iv)).encryptor().update
        self._mac = mac

    def seal(self, seq: int, head: bytes, body: bytes, /) -> bytes:
        packet = head + body
        return self._update(packet) + self._mac.sign(seq, packet)


class CTREtMSealer(CTRSealer):
    """Encrypt-then-MAC: the length is in clear, the MAC covers it and the ciphertext."""

    __slots__ = ()
    length_aligned = False

    def seal(self, seq: int, head: bytes, body: bytes, /) -> bytes:
        frame = head + self._update(body)
        return frame + self._mac.sign(seq, frame)


class CTROpener:
    """Encrypt-and-MAC. The decrypted first block waits in ``_first`` between ``length`` and ``open``."""

    __slots__ = ("_first", "_mac", "_update", "tag_size")
    head_size = 16
    block_size = 16
    length_aligned = True

    def __init__(self, key: bytes, iv: bytes, mac: MAC) -> None:
        self._update = Cipher(AES(key), CTR(iv)).decryptor().update
        self._mac = mac
        self._first = b""
        self.tag_size = mac.tag_size

    def length(self, seq: int, head: memoryview, /) -> int:
        self._first = first = self._update(head)
        return int.from_bytes(first[:4], "big")

    def open(self, seq: int, frame: memoryview, /) -> bytes:
        end = len(frame) - self.tag_size
        packet = self._first + self._update(frame[16:end])
        self._first = b""
        self._mac.verify(seq, packet, bytes(frame[end:]))
        return packet[4:]


class CTREtMOpener:
    """Encrypt-then-MAC: verify, then decrypt."""

    __slots__ = ("_mac", "_update", "tag_size")
    head_size = 4
    block_size = 16
    length_aligned = False

    def __init__(self, key: bytes, iv: bytes, mac: MAC) -> None:
        self._update = Cipher(AES(key), CTR(iv)).decryptor().update
        self._mac = mac
        self.tag_size = mac.tag_size

    length = length_in_clear

    def open(self, seq: int, frame: memoryview, /) -> bytes:
        end = len(frame) - self.tag_size
        self._mac.verify(seq, frame[:end], bytes(frame[end:]))
        return self._update(frame[4:end])


def _needed(mac: MAC | None) -> MAC:
    if mac is None:
        raise LocalError("AES-CTR needs a MAC")
    return mac


def _make_sealer(key: bytes, iv: bytes, mac: MAC | None) -> Sealer:
    mac = _needed(mac)
    return (CTREtMSealer if mac.etm else CTRSealer)(key, iv, mac)


def _make_opener(key: bytes, iv: bytes, mac: MAC | None) -> Opener:
    mac = _needed(mac)
    return CTREtMOpener(key, iv, mac) if mac.etm else CTROpener(key, iv, mac)


# Known answers computed for this project, verified with asyncssh (see tests/vectors).
_PACKET = bytes.fromhex("000000200e050000000c7373682d7573657261757468a0a1a2a3a4a5a6a7a8a9aaabacad")
_IV = bytes.fromhex("0a1b2c3d000000000000000000fffffe")

for _bits, _key, _frame in (
    (
        256,
        "b27e55fd3a1831d408d59b2bb3230e36ed3bd3d728c75bcbf162af7a315a4da4",
        "00000020244d4ba5e6343c369f2f019e27805500fe09828f62fd340ee4a2e87c"
        "862b2a7d7bd35cb39873f25a2a32e8c4c1969ff24aa486e566c88a548fb005ddbd577a4c",
    ),
    (
        128,
        "b27e55fd3a1831d408d59b2bb3230e36",
        "00000020aa66e6298ac71c1be7f7a9f4d9058a8803442948ad79fc0add645c32"
        "80965e39189dc8e1af21c29c99f1cf37092227c7cc77cc073af8b3afb9d9ec8c65893fda",
    ),
):
    register_cipher(
        CipherSpec(
            f"aes{_bits}-ctr",
            _bits // 8,
            16,
            True,
            None,
            _make_sealer,
            _make_opener,
            KnownAnswer(
                bytes.fromhex(_key),
                _IV,
                0,
                _PACKET,
                bytes.fromhex(_frame),
                "hmac-sha2-256-etm@openssh.com",
                bytes(range(32)),
            ),
        )
    )
