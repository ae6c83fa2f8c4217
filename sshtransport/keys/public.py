"""Public keys: blobs, their one-line text form, fingerprints, signature verification."""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from typing import Final

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm

from ..constants import RSA_BITS_MIN
from ..errors import KeyFileError, LocalError, ProtocolError, SignatureError
from ..wire import Buffer, Reader, visible
from .algorithms import KEY_TYPES, PublicMaterial

__all__ = ("HOST_KEY_ALGORITHMS", "PublicKey", "key_type_of")

#: Signature algorithm names, best first: what is offered for host keys and accepted in logins.
HOST_KEY_ALGORITHMS: Final[tuple[str, ...]] = tuple(
    algorithm for row in KEY_TYPES.values() for algorithm in row.signature_algorithms
)

_KEY_TYPE_OF: Final = {algorithm: row.name for row in KEY_TYPES.values() for algorithm in row.signature_algorithms}

_BLANKS: Final = re.compile(r"[ \t]+")
#: A comment of a key file may hold anything; a text line may not.
_NO_CONTROLS: Final = dict.fromkeys((*range(32), 127), "?")


def key_type_of(signature_algorithm: str) -> str:
    """The type of the keys that sign with this algorithm: ``rsa-sha2-512`` -> ``ssh-rsa``.

    A name that is not known comes back as it is, as most algorithms are called like their key.
    """
    return _KEY_TYPE_OF.get(signature_algorithm, signature_algorithm)


class PublicKey:
    """A public key (RFC 4253, section 6.6). Immutable; equal to another with the same blob.

    Made by :meth:`from_blob` or :meth:`from_text`. The library's key object is made at the first
    :meth:`verify` and kept.
    """

    __slots__ = ("_algorithm", "_blob", "_comment", "_material")

    def __init__(self, algorithm: str, blob: bytes, comment: str, material: PublicMaterial) -> None:
        self._algorithm = algorithm
        self._blob = blob
        self._comment = comment
        self._material = material

    @classmethod
    def from_blob(cls, blob: bytes, *, comment: str = "", rsa_min_bits: int = RSA_BITS_MIN) -> PublicKey:
        """Parse a key blob; ``rsa_min_bits`` is the smallest RSA modulus accepted.

        Raises :class:`ProtocolError` for a blob that is malformed in any way or of an unknown type.
        """
        reader = Reader(blob)
        name = reader.ascii()
        row = KEY_TYPES.get(name)
        if row is None:
            raise ProtocolError(f"unsupported key type {visible(name, 64)!r}")
        material = row.parse_public(reader, rsa_min_bits)
        reader.end()
        return cls(name, bytes(blob), comment, material)

    @classmethod
    def from_text(cls, line: str, *, rsa_min_bits: int = RSA_BITS_MIN) -> PublicKey:
        """Parse ``type base64 [comment]``, the form of ``.pub`` files.

        Raises :class:`KeyFileError`.
        """
        fields = _BLANKS.split(line.strip(" \t\r\n"), maxsplit=2)
        if len(fields) < 2 or "\n" in line.rstrip("\n"):
            raise KeyFileError("not a public key: one line with a type and base64 data expected")
        try:
            blob = base64.b64decode(fields[1].encode("ascii"), validate=True)
        except (binascii.Error, UnicodeEncodeError):
            raise KeyFileError("public key is not valid base64") from None
        try:
            key = cls.from_blob(blob, comment=fields[2] if len(fields) == 3 else "", rsa_min_bits=rsa_min_bits)
        except ProtocolError as error:
            raise KeyFileError(f"public key cannot be used: {error.message}") from error
        if key.algorithm != fields[0]:
            raise KeyFileError("public key is of another type than its line says")
        return key

    @property
    def algorithm(self) -> str:
        """The key type: ``ssh-ed25519``, ``ecdsa-sha2-nistp256`` (384, 521) or ``ssh-rsa``."""
        return self._algorithm

    @property
    def blob(self) -> bytes:
        """The key as it goes over the wire, type name included."""
        return self._blob

    @property
    def comment(self) -> str:
        """The comment of the text form or file; not part of the key."""
        return self._comment

    @property
    def bits(self) -> int:
        """The key's size in bits."""
        return self._material.bits

    @property
    def signature_algorithms(self) -> tuple[str, ...]:
        """The signature algorithms that fit this key, best first (RFC 8332, section 3)."""
        return KEY_TYPES[self._algorithm].signature_algorithms

    def to_text(self) -> str:
        """``type base64 [comment]``, one line without a line end; control characters become ``?``."""
        text = f"{self._algorithm} {base64.b64encode(self._blob).decode('ascii')}"
        return f"{text} {self._comment.translate(_NO_CONTROLS)}" if self._comment else text

    def fingerprint(self, hash_name: str = "sha256") -> str:
        """The blob's hash as OpenSSH prints it: ``SHA256:...`` in base64 without padding.

        ``hash_name`` may be ``sha256``, ``sha384``, ``sha512``, or ``md5`` for ``MD5:aa:bb:...``.
        Raises :class:`LocalError` for another.
        """
        if hash_name == "md5":
            return "MD5:" + hashlib.md5(self._blob, usedforsecurity=False).digest().hex(":")
        if hash_name not in ("sha256", "sha384", "sha512"):
            raise LocalError(f"no fingerprint of kind {hash_name!r}")
        digest = hashlib.new(hash_name, self._blob).digest()
        return f"{hash_name.upper()}:{base64.b64encode(digest).decode('ascii').rstrip('=')}"

    def verify(self, algorithm: str, data: Buffer, signature: bytes) -> None:
        """Return if ``signature``, a signature blob, is this key's over ``data``.

        ``algorithm`` is what was negotiated or stated in the request; the blob must name the same
        one (RFC 8332, section 3.2). Raises :class:`SignatureError` otherwise.
        """
        if algorithm not in self.signature_algorithms:
            raise SignatureError(f"{visible(algorithm, 64)!r} does not fit a key of type {self._algorithm}")
        try:
            reader = Reader(signature)
            name, raw = reader.string(), reader.string()
            reader.end()
            if name != algorithm.encode("ascii"):
                raise SignatureError(f"signature is of another algorithm than {algorithm}")
            self._material.verify(algorithm, data, raw)
        except InvalidSignature:
            raise SignatureError("signature does not verify") from None
        except ProtocolError as error:
            raise SignatureError(f"malformed signature: {error.message}") from error
        except (ValueError, UnsupportedAlgorithm) as error:
            raise SignatureError(f"key of type {self._algorithm} cannot be used") from error

    def __eq__(self, other: object) -> bool:
        return self._blob == other._blob if isinstance(other, PublicKey) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._blob)

    def __repr__(self) -> str:
        return f"<PublicKey {self._algorithm} {self.fingerprint()}>"
