"""hmac-sha2-256 and hmac-sha2-512, plain and ``-etm@openssh.com`` (RFC 6668; OpenSSH PROTOCOL, section 1.5)."""

from __future__ import annotations

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.hashes import SHA256, SHA512, HashAlgorithm
from cryptography.hazmat.primitives.hmac import HMAC

from ..errors import IntegrityError
from ..wire import Buffer, uint32
from .base import MACSpec, register_mac

__all__ = ("HMACSHA2",)


class HMACSHA2:
    """One keyed context, copied for each packet: cheaper than keying anew."""

    __slots__ = ("_keyed", "etm", "tag_size")

    def __init__(self, algorithm: HashAlgorithm, key: bytes, etm: bool) -> None:
        self._keyed = HMAC(key, algorithm)
        self.tag_size = algorithm.digest_size
        self.etm = etm

    def sign(self, seq: int, data: Buffer, /) -> bytes:
        context = self._keyed.copy()
        context.update(uint32(seq))
        context.update(data)
        return context.finalize()

    def verify(self, seq: int, data: Buffer, tag: bytes, /) -> None:
        context = self._keyed.copy()
        context.update(uint32(seq))
        context.update(data)
        try:
            context.verify(tag)
        except InvalidSignature:
            raise IntegrityError("MAC does not verify") from None


def _register(name: str, algorithm: HashAlgorithm, etm: bool) -> None:
    size = algorithm.digest_size
    register_mac(MACSpec(name, size, size, etm, lambda key: HMACSHA2(algorithm, key, etm)))


for _etm in (True, False):
    for _bits, _algorithm in ((256, SHA256()), (512, SHA512())):
        _register(f"hmac-sha2-{_bits}" + ("-etm@openssh.com" if _etm else ""), _algorithm, _etm)
