"""Private keys: loading from files, making, signing, writing.

Files may be in OpenSSH's own format (:mod:`.container`) or in PEM form: PKCS#8, PKCS#1 and SEC 1,
plain or encrypted, which the library reads.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from typing import Final

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from ..errors import KeyFileError, LocalError, ProtocolError
from ..wire import Buffer, string
from .algorithms import KEY_TYPES, PrivateMaterial, wrap_private
from .container import is_openssh, read_openssh, write_openssh
from .public import PublicKey

__all__ = ("KEY_FILE_MAX", "PrivateKey")

#: Largest private-key file read, in bytes; OpenSSH's bound.
KEY_FILE_MAX: Final = 1024 * 1024

#: PKCS#8 says so in its first line, the older forms in a header line.
_PEM_ENCRYPTED: Final = re.compile(rb"^(?:-----BEGIN ENCRYPTED PRIVATE KEY-----|Proc-Type: 4,ENCRYPTED)", re.MULTILINE)


def _passphrase_bytes(passphrase: str | bytes | None) -> bytes | None:
    if not isinstance(passphrase, str):
        return passphrase
    try:
        return passphrase.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:  # carries the passphrase
        raise LocalError("passphrase cannot be encoded as UTF-8") from None


def _read_pem(data: bytes, passphrase: bytes | None) -> PrivateMaterial:
    encrypted = _PEM_ENCRYPTED.search(data) is not None
    if encrypted and not passphrase:
        raise KeyFileError("private key is encrypted and no passphrase was given", passphrase_needed=True)
    try:
        # RSA keys get the cheaper check of RSAPrivate instead of the library's.
        key = load_pem_private_key(data, passphrase if encrypted else None, unsafe_skip_rsa_key_validation=True)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        if encrypted:
            raise KeyFileError("wrong passphrase, or the file is damaged", passphrase_needed=True) from None
        raise KeyFileError("private key file is malformed or of an unsupported type") from None
    try:
        return wrap_private(key)
    except ProtocolError as error:
        raise KeyFileError(f"private key cannot be used: {error.message}") from None
    except ValueError:
        raise KeyFileError("private key is of an unsupported type or does not fit together") from None


def _read(data: bytes, passphrase: bytes | None) -> tuple[PrivateMaterial, str]:
    if len(data) > KEY_FILE_MAX:
        raise KeyFileError(f"private key file is larger than {KEY_FILE_MAX} bytes")
    if is_openssh(data):
        return read_openssh(data, passphrase)
    if b"-----BEGIN" in data:
        return _read_pem(data, passphrase), ""
    raise KeyFileError("not a private key in OpenSSH or PEM form")


class PrivateKey:
    """A private key, made by :meth:`load` or :meth:`generate`. Its repr shows the public half only."""

    __slots__ = ("_material", "_public_key")

    def __init__(self, material: PrivateMaterial, comment: str) -> None:
        self._material = material
        self._public_key = PublicKey.from_blob(material.public_blob(), comment=comment)

    @classmethod
    def load(
        cls, source: str | os.PathLike[str] | bytes | bytearray, passphrase: str | bytes | None = None
    ) -> PrivateKey:
        """Load a key from a path (``str`` or ``PathLike``) or from the content of a file (``bytes``).

        ``passphrase`` is not looked at if the key is not encrypted. An encrypted key takes 0.1 s
        and more by design: load it in a thread.

        Raises :class:`KeyFileError`; its ``passphrase_needed`` is True if the key is encrypted and
        the passphrase absent or wrong.
        """
        secret = _passphrase_bytes(passphrase)
        if isinstance(source, bytes | bytearray):
            return cls(*_read(bytes(source), secret))
        path = os.fspath(source)
        try:
            with open(path, "rb") as file:
                data = file.read(KEY_FILE_MAX + 1)
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or "invalid path"
            raise KeyFileError(f"{path}: {reason}", path=path) from error
        try:
            return cls(*_read(data, secret))
        except KeyFileError as error:
            raise KeyFileError(
                f"{path}: {error.message}", path=path, passphrase_needed=error.passphrase_needed
            ) from None

    @classmethod
    def generate(cls, algorithm: str, *, bits: int | None = None, comment: str = "") -> PrivateKey:
        """Make a key of the type ``algorithm``; ``bits`` is for ``ssh-rsa`` (default 3072).

        Raises :class:`LocalError` for an unknown type or a size it does not have.
        """
        row = KEY_TYPES.get(algorithm)
        if row is None:
            raise LocalError(f"no key type {algorithm!r}; there are {', '.join(KEY_TYPES)}")
        try:
            return cls(row.generate(bits), comment)
        except (ValueError, UnsupportedAlgorithm) as error:
            raise LocalError(f"cannot make the key: {error}") from error

    @property
    def public_key(self) -> PublicKey:
        """The public half."""
        return self._public_key

    @property
    def comment(self) -> str:
        """The comment of the file; empty for PEM files."""
        return self._public_key.comment

    @property
    def signature_algorithms(self) -> tuple[str, ...]:
        """The signature algorithms this key can sign with, best first."""
        return self._public_key.signature_algorithms

    def sign(self, algorithm: str, data: Buffer) -> bytes:
        """The signature blob over ``data``: algorithm name and signature (RFC 4253, section 6.6).

        Raises :class:`LocalError` for an algorithm that does not fit the key.
        """
        if algorithm not in self.signature_algorithms:
            raise LocalError(f"{algorithm!r} does not fit a key of type {self._public_key.algorithm}")
        return string(algorithm.encode("ascii")) + string(self._material.sign(algorithm, data))

    def to_openssh(
        self,
        passphrase: str | bytes | None = None,
        *,
        cipher: str = "aes256-ctr",
        rounds: int = 24,
        random: Callable[[int], bytes] = os.urandom,
    ) -> bytes:
        """The content of a key file in OpenSSH's format, encrypted if a passphrase is given.

        ``cipher`` is one of :data:`KEY_FILE_CIPHERS`, ``rounds`` the work of bcrypt_pbkdf (about
        10 ms each, at most :data:`BCRYPT_ROUNDS_MAX`). Raises :class:`LocalError` for others and
        for an empty passphrase.
        """
        return write_openssh(self._material, self.comment, _passphrase_bytes(passphrase), cipher, rounds, random)

    def __repr__(self) -> str:
        return f"<PrivateKey {self._public_key.algorithm} {self._public_key.fingerprint()}>"
