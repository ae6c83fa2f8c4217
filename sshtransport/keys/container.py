"""The openssh-key-v1 file format: armour, key derivation, encryption (OpenSSH's PROTOCOL.key).

Unlike a packet, the encrypted part has no length field that would be authenticated with it; the
tag of an AEAD cipher stands behind the encrypted string, not inside it, and ChaCha20-Poly1305
works with sequence number 0 and no IV.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Final

import bcrypt
from cryptography.exceptions import InvalidSignature, InvalidTag, UnsupportedAlgorithm
from cryptography.hazmat.primitives.ciphers import Cipher, CipherAlgorithm, algorithms, modes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.poly1305 import Poly1305

from ..errors import KeyFileError, LocalError, ProtocolError
from ..wire import Reader, string, text, uint32
from .algorithms import KEY_TYPES, PrivateMaterial

__all__ = (
    "BCRYPT_ROUNDS_MAX",
    "KEY_FILE_CIPHERS",
    "FileCipher",
    "is_openssh",
    "read_openssh",
    "write_openssh",
)

#: Most bcrypt_pbkdf rounds accepted: about ten seconds of work. ``ssh-keygen`` writes 16 or 24.
BCRYPT_ROUNDS_MAX: Final = 1024
_SALT_SIZE: Final = 16
_SALT_SIZE_MAX: Final = 1024

_MAGIC: Final = b"openssh-key-v1\0"
_BEGIN: Final = b"-----BEGIN OPENSSH PRIVATE KEY-----"
_END: Final = b"-----END OPENSSH PRIVATE KEY-----"
_LINE_SIZE: Final = 70
_PADDING: Final = bytes(range(1, 256))


# --- ciphers ---------------------------------------------------------------------------------------------
class FileCipher(ABC):
    """One use of a cipher: sizes, and whole-text encryption."""

    def __init__(self, key_size: int, iv_size: int, block_size: int, tag_size: int = 0) -> None:
        self.key_size = key_size
        self.iv_size = iv_size
        self.block_size = block_size
        self.tag_size = tag_size

    @abstractmethod
    def encrypt(self, key: bytes, iv: bytes, data: bytes) -> bytes:
        """The encrypted text with its tag, if there is one, behind it."""

    @abstractmethod
    def decrypt(self, key: bytes, iv: bytes, data: bytes, tag: bytes) -> bytes:
        """The plain text; ``InvalidTag`` or ``InvalidSignature`` if the tag does not verify."""


class _Plain(FileCipher):
    """The cipher called ``none``."""

    def encrypt(self, key: bytes, iv: bytes, data: bytes) -> bytes:
        return data

    def decrypt(self, key: bytes, iv: bytes, data: bytes, tag: bytes) -> bytes:
        return data


def _triple_des(key: bytes) -> CipherAlgorithm:
    # On its way out of the library, hence imported only for a file that needs it.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            from cryptography.hazmat.decrepit.ciphers.algorithms import TripleDES
        except ImportError:
            raise UnsupportedAlgorithm("3DES is gone from the library") from None
        return TripleDES(key)


class _Block(FileCipher):
    """AES or 3DES in a mode without a tag."""

    def __init__(
        self,
        key_size: int,
        block_size: int,
        algorithm: Callable[[bytes], CipherAlgorithm],
        mode: Callable[[bytes], modes.CBC | modes.CTR],
    ) -> None:
        super().__init__(key_size, block_size, block_size)
        self._algorithm = algorithm
        self._mode = mode

    def encrypt(self, key: bytes, iv: bytes, data: bytes) -> bytes:
        context = Cipher(self._algorithm(key), self._mode(iv)).encryptor()
        return context.update(data) + context.finalize()

    def decrypt(self, key: bytes, iv: bytes, data: bytes, tag: bytes) -> bytes:
        context = Cipher(self._algorithm(key), self._mode(iv)).decryptor()
        return context.update(data) + context.finalize()


class _GCM(FileCipher):
    def __init__(self, key_size: int) -> None:
        super().__init__(key_size, 12, 16, 16)

    def encrypt(self, key: bytes, iv: bytes, data: bytes) -> bytes:
        return AESGCM(key).encrypt(iv, data, None)

    def decrypt(self, key: bytes, iv: bytes, data: bytes, tag: bytes) -> bytes:
        return AESGCM(key).decrypt(iv, data + tag, None)


class _ChaCha20Poly1305(FileCipher):
    """The packet cipher at sequence number 0, without a length field; half of the key is not used."""

    def __init__(self) -> None:
        super().__init__(64, 0, 8, 16)

    def _crypt(self, key: bytes, data: bytes) -> tuple[bytes, bytes]:
        """The one-time Poly1305 key (block 0) and the data put through block 1 and on."""
        context = Cipher(algorithms.ChaCha20(key[:32], bytes(16)), mode=None).encryptor()
        return context.update(bytes(64))[:32], context.update(data)

    def encrypt(self, key: bytes, iv: bytes, data: bytes) -> bytes:
        one_time, sealed = self._crypt(key, data)
        return sealed + Poly1305.generate_tag(one_time, sealed)

    def decrypt(self, key: bytes, iv: bytes, data: bytes, tag: bytes) -> bytes:
        one_time, plain = self._crypt(key, data)
        Poly1305.verify_tag(one_time, data, tag)
        return plain


_NONE: Final = "none"
_CIPHERS: Final[dict[str, FileCipher]] = {
    _NONE: _Plain(0, 0, 8),
    "aes128-cbc": _Block(16, 16, algorithms.AES, modes.CBC),
    "aes192-cbc": _Block(24, 16, algorithms.AES, modes.CBC),
    "aes256-cbc": _Block(32, 16, algorithms.AES, modes.CBC),
    "3des-cbc": _Block(24, 8, _triple_des, modes.CBC),
    "aes128-ctr": _Block(16, 16, algorithms.AES, modes.CTR),
    "aes192-ctr": _Block(24, 16, algorithms.AES, modes.CTR),
    "aes256-ctr": _Block(32, 16, algorithms.AES, modes.CTR),
    "aes128-gcm@openssh.com": _GCM(16),
    "aes256-gcm@openssh.com": _GCM(32),
    "chacha20-poly1305@openssh.com": _ChaCha20Poly1305(),
}

#: The ciphers an encrypted file may use: all that ``ssh-keygen -Z`` takes.
KEY_FILE_CIPHERS: Final = tuple(name for name in _CIPHERS if name != _NONE)


def _derive(cipher: FileCipher, passphrase: bytes, salt: bytes, rounds: int) -> tuple[bytes, bytes]:
    # The rounds are the file's or the caller's choice; the library would warn below 50, which is
    # more than ssh-keygen writes.
    material = bcrypt.kdf(passphrase, salt, cipher.key_size + cipher.iv_size, rounds, ignore_few_rounds=True)
    return material[: cipher.key_size], material[cipher.key_size :]


# --- reading ---------------------------------------------------------------------------------------------
def is_openssh(data: bytes) -> bool:
    """Whether the text is an openssh-key-v1 file."""
    return data.lstrip().startswith(_BEGIN)


def _unarmour(data: bytes) -> bytes:
    data = data.strip()
    if not data.endswith(_END):
        raise KeyFileError("private key file has no end line")
    try:
        body = base64.b64decode(b"".join(data[len(_BEGIN) : -len(_END)].split()), validate=True)
    except binascii.Error:
        raise KeyFileError("private key file is not valid base64") from None
    if not body.startswith(_MAGIC):
        raise KeyFileError("private key file has an unknown format")
    return body


def _file_key(cipher_name: str, kdf: str, options: bytes, passphrase: bytes | None) -> tuple[bytes, bytes]:
    """Key and IV of the file's cipher."""
    if kdf == _NONE and cipher_name == _NONE:
        if options:
            raise KeyFileError("private key file has options for no key derivation")
        return b"", b""
    if kdf != "bcrypt" or cipher_name == _NONE:
        raise KeyFileError("private key file uses an unknown key derivation")
    reader = Reader(options)
    salt, rounds = reader.string(_SALT_SIZE_MAX), reader.uint32()
    reader.end()
    if not salt or not 1 <= rounds <= BCRYPT_ROUNDS_MAX:
        raise KeyFileError(f"private key file asks for {rounds} bcrypt rounds, 1 to {BCRYPT_ROUNDS_MAX} are accepted")
    if not passphrase:
        raise KeyFileError("private key is encrypted and no passphrase was given", passphrase_needed=True)
    return _derive(_CIPHERS[cipher_name], passphrase, salt, rounds)


def _private_section(body: bytes, passphrase: bytes | None) -> tuple[bytes, bytes, bool]:
    """The public blob, the decrypted private section, and whether it was encrypted."""
    reader = Reader(body, len(_MAGIC))
    cipher_name, kdf, options = reader.ascii(), reader.ascii(), reader.string()
    if reader.uint32() != 1:
        raise KeyFileError("private key file does not hold exactly one key")
    public, sealed = reader.string(), reader.string()
    cipher = _CIPHERS.get(cipher_name)
    if cipher is None:
        raise KeyFileError("private key file uses an unknown cipher")
    tag = reader.raw(cipher.tag_size)
    reader.end()
    if len(sealed) < cipher.block_size or len(sealed) % cipher.block_size:
        raise KeyFileError("private key file has a private part of a wrong size")
    key, iv = _file_key(cipher_name, kdf, options, passphrase)
    try:
        return public, cipher.decrypt(key, iv, sealed, tag), bool(key)
    except (InvalidTag, InvalidSignature):
        raise KeyFileError("wrong passphrase, or the file is damaged", passphrase_needed=True) from None
    except UnsupportedAlgorithm:
        raise KeyFileError(f"cipher {cipher_name} of the private key file is not available here") from None


def read_openssh(data: bytes, passphrase: bytes | None) -> tuple[PrivateMaterial, str]:
    """The key of an openssh-key-v1 file, and its comment.

    Raises :class:`KeyFileError`, with ``passphrase_needed`` set if the passphrase is absent or wrong.
    """
    try:
        public, section, encrypted = _private_section(_unarmour(data), passphrase)
        reader = Reader(section)
        if not hmac.compare_digest(reader.raw(4), reader.raw(4)):
            if encrypted:
                raise KeyFileError("wrong passphrase", passphrase_needed=True)
            raise KeyFileError("private key file is damaged")
        row = KEY_TYPES.get(reader.ascii())
        if row is None:
            raise KeyFileError("private key is of an unsupported type")
        material = row.parse_private(reader)
        comment = reader.text()
        padding = reader.rest()
    except ProtocolError as error:
        raise KeyFileError(f"private key file is malformed: {error.message}") from None
    except ValueError:
        raise KeyFileError("private key file holds a key that does not fit together") from None
    except UnsupportedAlgorithm:
        raise KeyFileError("private key is of a type that is not available here") from None
    # A multiple of the block is enough for some writers, who pad a full block more.
    if padding != _PADDING[: len(padding)]:
        raise KeyFileError("private key file has wrong padding")
    if material.public_blob() != public:
        raise KeyFileError("private key file names another public key than its own")
    return material, comment


# --- writing ---------------------------------------------------------------------------------------------
def write_openssh(
    material: PrivateMaterial,
    comment: str,
    passphrase: bytes | None,
    cipher_name: str,
    rounds: int,
    random: Callable[[int], bytes],
) -> bytes:
    """The text of an openssh-key-v1 file, as ``ssh-keygen`` would write it.

    Raises :class:`LocalError` for an unknown cipher, for rounds out of range, and for an empty
    passphrase.
    """
    if passphrase is None:
        cipher_name = _NONE
    elif not passphrase or cipher_name not in KEY_FILE_CIPHERS or not 1 <= rounds <= BCRYPT_ROUNDS_MAX:
        raise LocalError(
            f"a private key file is encrypted with a non-empty passphrase, one of {', '.join(KEY_FILE_CIPHERS)}, "
            f"and 1 to {BCRYPT_ROUNDS_MAX} rounds"
        )
    cipher = _CIPHERS[cipher_name]
    section = random(4) * 2 + string(material.key_type.encode("ascii")) + material.pack() + text(comment)
    section += _PADDING[: -len(section) % cipher.block_size]
    if passphrase is None:
        kdf, options, key, iv = _NONE, b"", b"", b""
    else:
        salt = random(_SALT_SIZE)
        kdf, options = "bcrypt", string(salt) + uint32(rounds)
        key, iv = _derive(cipher, passphrase, salt, rounds)
    try:
        sealed = cipher.encrypt(key, iv, section)
    except UnsupportedAlgorithm:
        raise LocalError(f"cipher {cipher_name} is not available here") from None
    body = b"".join(
        (
            _MAGIC,
            string(cipher_name.encode("ascii")),
            string(kdf.encode("ascii")),
            string(options),
            uint32(1),
            string(material.public_blob()),
            uint32(len(section)),
            sealed,
        )
    )
    encoded = base64.b64encode(body)
    lines = [encoded[at : at + _LINE_SIZE] for at in range(0, len(encoded), _LINE_SIZE)]
    return b"\n".join((_BEGIN, *lines, _END, b""))
