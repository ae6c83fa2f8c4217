"""The public-key algorithms: what is behind a key blob and a signature blob.

Each algorithm is a pair of small classes, one for the public and one for the private half, and a
row of :data:`KEY_TYPES`. The classes know the fields that follow the key type's name (RFC 8709,
RFC 5656 section 3, RFC 4253 section 6.6) and call the library; names, outer framing and error
types are the business of :mod:`.public`, :mod:`.private` and :mod:`.container`.

A key blob has exactly one accepted form: minimal mpints, uncompressed points, nothing behind the
last field. Two spellings of one key would otherwise pass for two keys, and a revoked one could
come back in the other spelling.

Materials raise :class:`ProtocolError` for malformed fields and ``ValueError`` or
``UnsupportedAlgorithm`` where the library or an inconsistency says no; their callers turn the
latter into the error that fits.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature, encode_dss_signature

from ..constants import RSA_BITS_MAX, RSA_BITS_MIN
from ..errors import ProtocolError
from ..wire import Buffer, Reader, mpint, string

__all__ = (
    "KEY_TYPES",
    "RSA_BITS_DEFAULT",
    "RSA_EXPONENT_BITS_MAX",
    "ECDSAPrivate",
    "ECDSAPublic",
    "Ed25519Private",
    "Ed25519Public",
    "KeyType",
    "PrivateMaterial",
    "PublicMaterial",
    "RSAPrivate",
    "RSAPublic",
    "wrap_private",
)

#: Largest RSA public exponent, in bits; OpenSSL takes no larger one for big moduli either.
RSA_EXPONENT_BITS_MAX: Final = 64
#: Modulus size of a new RSA key, as ``ssh-keygen`` makes it.
RSA_BITS_DEFAULT: Final = 3072
_RSA_EXPONENT: Final = 65_537


class PublicMaterial(ABC):
    """The public half of a key. ``bits`` is its size as users know it."""

    __slots__ = ()

    @property
    @abstractmethod
    def bits(self) -> int: ...

    @abstractmethod
    def verify(self, algorithm: str, data: Buffer, raw: bytes) -> None:
        """Raise unless ``raw``, the inner part of a signature blob, signs ``data``."""


class PrivateMaterial(ABC):
    """The private half of a key."""

    __slots__ = ()

    @property
    @abstractmethod
    def key_type(self) -> str: ...

    @abstractmethod
    def public_blob(self) -> bytes:
        """The public key blob, type name included."""

    @abstractmethod
    def pack(self) -> bytes:
        """The fields of a private-key file after the type name."""

    @abstractmethod
    def sign(self, algorithm: str, data: Buffer) -> bytes:
        """The inner part of a signature blob."""


def _strict_mpint(reader: Reader, max_bits: int) -> int:
    """A positive mpint without surplus zeros, refused by its length before it becomes a number."""
    value = reader.string(max_bits // 8 + 1)
    if not value or value[0] & 0x80:
        raise ProtocolError("number is not positive")
    if value[0] == 0 and (len(value) == 1 or not value[1] & 0x80):
        raise ProtocolError("number is not in its shortest form")
    return int.from_bytes(value, "big")


# --- Ed25519 (RFC 8709) ------------------------------------------------------------------------------
_ED25519: Final = "ssh-ed25519"
_ED25519_SIZE: Final = 32


class Ed25519Public(PublicMaterial):
    __slots__ = ("_key", "_point")

    def __init__(self, point: bytes) -> None:
        self._point = point
        self._key: ed25519.Ed25519PublicKey | None = None

    @classmethod
    def parse(cls, reader: Reader, rsa_min_bits: int) -> Ed25519Public:
        point = reader.string()
        if len(point) != _ED25519_SIZE:
            raise ProtocolError("ssh-ed25519 key is not 32 bytes long")
        return cls(point)

    @property
    def bits(self) -> int:
        return 256

    def verify(self, algorithm: str, data: Buffer, raw: bytes) -> None:
        if len(raw) != 2 * _ED25519_SIZE:
            raise InvalidSignature
        if self._key is None:
            self._key = ed25519.Ed25519PublicKey.from_public_bytes(self._point)
        self._key.verify(raw, data)


class Ed25519Private(PrivateMaterial):
    __slots__ = ("_key",)

    def __init__(self, key: ed25519.Ed25519PrivateKey) -> None:
        self._key = key

    @classmethod
    def parse(cls, reader: Reader) -> Ed25519Private:
        point, both = reader.string(), reader.string()
        if len(point) != _ED25519_SIZE or len(both) != 2 * _ED25519_SIZE:
            raise ProtocolError("ssh-ed25519 key has a wrong length")
        self = cls(ed25519.Ed25519PrivateKey.from_private_bytes(both[:_ED25519_SIZE]))
        # Signing under a public half that is not the seed's own gives the seed away.
        if not self._public_point() == point == both[_ED25519_SIZE:]:
            raise ValueError("halves do not match")
        return self

    @classmethod
    def generate(cls, bits: int | None) -> Ed25519Private:
        if bits not in (None, 256):
            raise ValueError("ssh-ed25519 keys have 256 bits")
        return cls(ed25519.Ed25519PrivateKey.generate())

    @property
    def key_type(self) -> str:
        return _ED25519

    def _public_point(self) -> bytes:
        return self._key.public_key().public_bytes_raw()

    def public_blob(self) -> bytes:
        return string(_ED25519.encode()) + string(self._public_point())

    def pack(self) -> bytes:
        point = self._public_point()
        return string(point) + string(self._key.private_bytes_raw() + point)

    def sign(self, algorithm: str, data: Buffer) -> bytes:
        return self._key.sign(data)


# --- ECDSA on the NIST curves (RFC 5656, section 3) ----------------------------------------------------
@dataclass(frozen=True, slots=True)
class _Curve:
    name: str
    bits: int
    curve: ec.EllipticCurve
    hash: hashes.HashAlgorithm

    @property
    def key_type(self) -> str:
        return f"ecdsa-sha2-{self.name}"

    @property
    def size(self) -> int:
        """Bytes of one coordinate."""
        return (self.bits + 7) // 8


_CURVES: Final = {
    row.key_type: row
    for row in (
        _Curve("nistp256", 256, ec.SECP256R1(), hashes.SHA256()),
        _Curve("nistp384", 384, ec.SECP384R1(), hashes.SHA384()),
        _Curve("nistp521", 521, ec.SECP521R1(), hashes.SHA512()),
    )
}


def _read_point(reader: Reader, curve: _Curve) -> bytes:
    """The curve's name and an uncompressed point; the library would take compressed ones as well."""
    if reader.string(64) != curve.name.encode():
        raise ProtocolError("curve does not fit the key type")
    point = reader.string(2 * curve.size + 1)
    if len(point) != 2 * curve.size + 1 or point[0] != 4:
        raise ProtocolError("elliptic-curve point is not in uncompressed form")
    return point


class ECDSAPublic(PublicMaterial):
    """Whether the point is on the curve shows at the first use: that costs as much as a handshake step."""

    __slots__ = ("_curve", "_key", "_point")

    def __init__(self, curve: _Curve, point: bytes) -> None:
        self._curve = curve
        self._point = point
        self._key: ec.EllipticCurvePublicKey | None = None

    @property
    def bits(self) -> int:
        return self._curve.bits

    def verify(self, algorithm: str, data: Buffer, raw: bytes) -> None:
        reader = Reader(raw)
        r, s = _strict_mpint(reader, self._curve.bits), _strict_mpint(reader, self._curve.bits)
        reader.end()
        if self._key is None:
            self._key = ec.EllipticCurvePublicKey.from_encoded_point(self._curve.curve, self._point)
        self._key.verify(encode_dss_signature(r, s), data, ec.ECDSA(self._curve.hash))


class ECDSAPrivate(PrivateMaterial):
    __slots__ = ("_curve", "_key")

    def __init__(self, curve: _Curve, key: ec.EllipticCurvePrivateKey) -> None:
        self._curve = curve
        self._key = key

    @property
    def key_type(self) -> str:
        return self._curve.key_type

    def _fields(self) -> bytes:
        point = self._key.public_key().public_bytes(
            serialization.Encoding.X962, serialization.PublicFormat.UncompressedPoint
        )
        return string(self._curve.name.encode()) + string(point)

    def public_blob(self) -> bytes:
        return string(self.key_type.encode()) + self._fields()

    def pack(self) -> bytes:
        return self._fields() + mpint(self._key.private_numbers().private_value)

    def sign(self, algorithm: str, data: Buffer) -> bytes:
        r, s = decode_dss_signature(self._key.sign(data, ec.ECDSA(self._curve.hash)))
        return mpint(r) + mpint(s)


def _ecdsa_functions(
    curve: _Curve,
) -> tuple[
    Callable[[Reader, int], PublicMaterial],
    Callable[[Reader], PrivateMaterial],
    Callable[[int | None], PrivateMaterial],
]:
    def parse_public(reader: Reader, rsa_min_bits: int) -> PublicMaterial:
        return ECDSAPublic(curve, _read_point(reader, curve))

    def parse_private(reader: Reader) -> PrivateMaterial:
        point = _read_point(reader, curve)
        scalar = _strict_mpint(reader, curve.bits)
        public = ec.EllipticCurvePublicNumbers(
            int.from_bytes(point[1 : 1 + curve.size], "big"),
            int.from_bytes(point[1 + curve.size :], "big"),
            curve.curve,
        )
        # The library compares the point with the scalar's own.
        return ECDSAPrivate(curve, ec.EllipticCurvePrivateNumbers(scalar, public).private_key())

    def generate(bits: int | None) -> PrivateMaterial:
        if bits not in (None, curve.bits):
            raise ValueError(f"{curve.key_type} keys have {curve.bits} bits")
        return ECDSAPrivate(curve, ec.generate_private_key(curve.curve))

    return parse_public, parse_private, generate


# --- RSA (RFC 4253, section 6.6; RFC 8332) ---------------------------------------------------------------
_RSA: Final = "ssh-rsa"  # the key type; the signature algorithm of that name uses SHA-1 and is not here
_RSA_HASHES: Final[dict[str, hashes.HashAlgorithm]] = {
    "rsa-sha2-512": hashes.SHA512(),
    "rsa-sha2-256": hashes.SHA256(),
}


def _check_rsa(exponent: int, modulus: int, min_bits: int) -> None:
    """Size and shape, by comparisons alone: large or odd numbers cost no arithmetic."""
    bits = modulus.bit_length()
    if not min_bits <= bits <= RSA_BITS_MAX:
        limit = min_bits if bits < min_bits else RSA_BITS_MAX
        raise ProtocolError(f"RSA key has {bits} bits, {min_bits} to {RSA_BITS_MAX} are accepted", limit=limit)
    if exponent < 3 or not exponent & 1 or exponent.bit_length() > RSA_EXPONENT_BITS_MAX or not modulus & 1:
        raise ProtocolError("RSA key has an unusable exponent or modulus")


class RSAPublic(PublicMaterial):
    __slots__ = ("_exponent", "_key", "_modulus")

    def __init__(self, exponent: int, modulus: int) -> None:
        self._exponent = exponent
        self._modulus = modulus
        self._key: rsa.RSAPublicKey | None = None

    @classmethod
    def parse(cls, reader: Reader, rsa_min_bits: int) -> RSAPublic:
        exponent, modulus = _strict_mpint(reader, RSA_BITS_MAX), _strict_mpint(reader, RSA_BITS_MAX)
        _check_rsa(exponent, modulus, rsa_min_bits)
        return cls(exponent, modulus)

    @property
    def bits(self) -> int:
        return self._modulus.bit_length()

    def verify(self, algorithm: str, data: Buffer, raw: bytes) -> None:
        size = (self.bits + 7) // 8
        if len(raw) > size:
            raise InvalidSignature
        if self._key is None:
            self._key = rsa.RSAPublicNumbers(self._exponent, self._modulus).public_key()
        # Some signers drop leading zeros (RFC 8332, section 3).
        self._key.verify(raw.rjust(size, b"\0"), bytes(data), padding.PKCS1v15(), _RSA_HASHES[algorithm])


class RSAPrivate(PrivateMaterial):
    """An RSA key whose numbers fit together.

    The library's own check proves the primes prime and takes 0.1 to 1 second; it is skipped. What
    is checked instead, in microseconds, is what a damaged or doctored file could do harm with:
    that the modulus is the product of the primes and that every exponent and the coefficient
    belong to them, since one wrong CRT value makes a signature give the primes away.
    """

    __slots__ = ("_key",)

    def __init__(self, key: rsa.RSAPrivateKey) -> None:
        self._key = key

    @classmethod
    def from_numbers(cls, n: int, e: int, d: int, iqmp: int, p: int, q: int) -> RSAPrivate:
        _check_rsa(e, n, RSA_BITS_MIN)
        # Comparisons first: they bound what is multiplied below.
        if not (2 < p < n and 2 < q < n and 0 < d < n and 0 < iqmp < p) or p * q != n or iqmp * q % p != 1:
            raise ValueError("numbers do not match")
        dmp1, dmq1 = d % (p - 1), d % (q - 1)
        if e * dmp1 % (p - 1) != 1 or e * dmq1 % (q - 1) != 1:
            raise ValueError("numbers do not match")
        numbers = rsa.RSAPrivateNumbers(p, q, d, dmp1, dmq1, iqmp, rsa.RSAPublicNumbers(e, n))
        return cls(numbers.private_key(unsafe_skip_rsa_key_validation=True))

    @classmethod
    def parse(cls, reader: Reader) -> RSAPrivate:
        return cls.from_numbers(*(_strict_mpint(reader, RSA_BITS_MAX) for _ in range(6)))

    @classmethod
    def generate(cls, bits: int | None) -> RSAPrivate:
        bits = RSA_BITS_DEFAULT if bits is None else bits
        if not RSA_BITS_MIN <= bits <= RSA_BITS_MAX:
            raise ValueError(f"ssh-rsa keys have {RSA_BITS_MIN} to {RSA_BITS_MAX} bits")
        return cls(rsa.generate_private_key(_RSA_EXPONENT, bits))

    @property
    def key_type(self) -> str:
        return _RSA

    def public_blob(self) -> bytes:
        numbers = self._key.public_key().public_numbers()
        return string(_RSA.encode()) + mpint(numbers.e) + mpint(numbers.n)

    def pack(self) -> bytes:
        own = self._key.private_numbers()
        public = own.public_numbers
        return b"".join(map(mpint, (public.n, public.e, own.d, own.iqmp, own.p, own.q)))

    def sign(self, algorithm: str, data: Buffer) -> bytes:
        return self._key.sign(bytes(data), padding.PKCS1v15(), _RSA_HASHES[algorithm])


# --- the table -------------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class KeyType:
    """One key type: its name, the signature algorithms it can be used with (best first), its makers."""

    name: str
    signature_algorithms: tuple[str, ...]
    parse_public: Callable[[Reader, int], PublicMaterial]
    parse_private: Callable[[Reader], PrivateMaterial]
    generate: Callable[[int | None], PrivateMaterial]


#: Every key type, best first.
KEY_TYPES: Final = {
    row.name: row
    for row in (
        KeyType(_ED25519, (_ED25519,), Ed25519Public.parse, Ed25519Private.parse, Ed25519Private.generate),
        *(KeyType(name, (name,), *_ecdsa_functions(curve)) for name, curve in _CURVES.items()),
        KeyType(_RSA, tuple(_RSA_HASHES), RSAPublic.parse, RSAPrivate.parse, RSAPrivate.generate),
    )
}


def wrap_private(key: object) -> PrivateMaterial:
    """The material of a key that the library loaded; ``ValueError`` for a type not in the table."""
    if isinstance(key, ed25519.Ed25519PrivateKey):
        return Ed25519Private(key)
    if isinstance(key, ec.EllipticCurvePrivateKey):
        for curve in _CURVES.values():
            if curve.curve.name == key.curve.name:
                return ECDSAPrivate(curve, key)
    if isinstance(key, rsa.RSAPrivateKey):
        own = key.private_numbers()
        public = own.public_numbers
        return RSAPrivate.from_numbers(public.n, public.e, own.d, own.iqmp, own.p, own.q)
    raise ValueError("key type is not supported")
