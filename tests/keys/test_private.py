"""Loading, making, signing."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed448, ed25519, rsa
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    KeySerializationEncryption,
    NoEncryption,
    PrivateFormat,
)

from sshtransport.errors import KeyFileError, LocalError, ProtocolError
from sshtransport.keys import KEY_FILE_MAX, PrivateKey, PublicKey
from sshtransport.keys.algorithms import RSAPrivate
from sshtransport.wire import Reader
from tests.support.private_keys import KEY_TYPES, private_key

FILES: dict[str, dict[str, str]] = json.loads(Path(__file__).with_name("key_files.json").read_text("utf-8"))

Key = ed25519.Ed25519PrivateKey | ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey | ed448.Ed448PrivateKey
LIBRARY_KEYS: dict[str, Key] = {
    "ssh-ed25519": ed25519.Ed25519PrivateKey.generate(),
    "ecdsa-sha2-nistp256": ec.generate_private_key(ec.SECP256R1()),
    "ecdsa-sha2-nistp384": ec.generate_private_key(ec.SECP384R1()),
    "ecdsa-sha2-nistp521": ec.generate_private_key(ec.SECP521R1()),
    "ssh-rsa": rsa.generate_private_key(65537, 2048),
}


def pem(key: Key, form: PrivateFormat, passphrase: bytes = b"") -> bytes:
    encryption: KeySerializationEncryption = BestAvailableEncryption(passphrase) if passphrase else NoEncryption()
    return key.private_bytes(Encoding.PEM, form, encryption)


PEM_FORMS = [(t, PrivateFormat.PKCS8) for t in KEY_TYPES] + [
    (t, PrivateFormat.TraditionalOpenSSL) for t in KEY_TYPES[1:]
]


@pytest.mark.parametrize(("name", "form"), PEM_FORMS)
def test_pem_forms(name: str, form: PrivateFormat) -> None:
    key = PrivateKey.load(pem(LIBRARY_KEYS[name], form), "not looked at")
    algorithm = key.signature_algorithms[0]
    key.public_key.verify(algorithm, b"data", key.sign(algorithm, b"data"))
    assert (key.public_key.algorithm, key.comment) == (name, "")


@pytest.mark.parametrize(("name", "form"), PEM_FORMS)
def test_encrypted_pem_forms(name: str, form: PrivateFormat) -> None:
    text = pem(LIBRARY_KEYS[name], form, b"secret-one")
    assert PrivateKey.load(text, "secret-one").public_key.algorithm == name
    for passphrase in (None, "", "secret-two"):
        with pytest.raises(KeyFileError) as caught:
            PrivateKey.load(text, passphrase)
        assert caught.value.passphrase_needed and "secret-" not in repr(caught.value)


@pytest.mark.parametrize("name", KEY_TYPES)
def test_pem_and_openssh_forms_give_one_key(name: str) -> None:
    key = PrivateKey.load(pem(LIBRARY_KEYS[name], PrivateFormat.PKCS8))
    other = PrivateKey.load(pem(LIBRARY_KEYS[name], PrivateFormat.OpenSSH))
    assert other.to_openssh(random=bytes) == key.to_openssh(random=bytes)
    assert other.public_key == key.public_key


def test_pem_of_unsupported_types() -> None:
    for key in (
        ed448.Ed448PrivateKey.generate(),
        ec.generate_private_key(ec.SECP256K1()),
        rsa.generate_private_key(65537, 1024),
    ):
        with pytest.raises(KeyFileError) as caught:
            PrivateKey.load(pem(key, PrivateFormat.PKCS8))
        assert not caught.value.passphrase_needed


def test_damaged_pem() -> None:
    text = pem(LIBRARY_KEYS["ssh-ed25519"], PrivateFormat.PKCS8)
    for n in range(1, len(text) - 1):
        with pytest.raises(KeyFileError):
            PrivateKey.load(text[:n])
    for content in (
        b"",
        b"-----BEGIN PRIVATE KEY-----",
        b"-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----",
        b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----",
        private_key("ssh-ed25519").public_key.to_text().encode(),
        b"PuTTY-User-Key-File-3: ssh-ed25519\n",
        bytes(100),
    ):
        with pytest.raises(KeyFileError):
            PrivateKey.load(content, "x")


# --- RSA numbers -----------------------------------------------------------------------------------------
def numbers() -> list[int]:
    reader = Reader(RSAPrivate(LIBRARY_KEYS["ssh-rsa"]).pack())  # type: ignore[arg-type]
    return [reader.mpint() for _ in range(6)]


def test_rsa_numbers_are_checked_without_the_library() -> None:
    """known bugs L 156: the library's check is skipped, what a damaged file could leak is not."""
    good = numbers()
    RSAPrivate.from_numbers(*good)
    n, e, d, iqmp, p, q = good
    bad = [
        [n, e, d, iqmp, q, p],
        [n, e, d + 2, iqmp, p, q],
        [n, e, d ^ (1 << 700), iqmp, p, q],
        [n, e, 0, iqmp, p, q],
        [n, e, n + d, iqmp, p, q],
        [n, e, d, 0, p, q],
        [n, e, d, iqmp + 1, p, q],
        [n, e, d, iqmp + p, p, q],
        [n, e + 2, d, iqmp, p, q],
        [n, e, d, iqmp, n, 1],
        [n, e, d, iqmp, 1, n],
        [n, e, d, iqmp, 0, q],
        [n, e, d, iqmp, p, 2**100_000],
        [n - 2, e, d, iqmp, p, q],
        [p * p, e, d, 1, p, p],
    ]
    for row in bad:
        with pytest.raises((ValueError, ProtocolError)):
            RSAPrivate.from_numbers(*row)


# --- paths -----------------------------------------------------------------------------------------------
def test_load_from_paths(tmp_path: Path) -> None:
    path = tmp_path / "key"
    path.write_text(FILES["ssh-ed25519"]["private"], "utf-8")
    public = PublicKey.from_text(FILES["ssh-ed25519"]["public"])
    for source in (path, str(path), path.read_bytes(), bytearray(path.read_bytes())):
        assert PrivateKey.load(source).public_key == public


def test_errors_name_the_path(tmp_path: Path) -> None:
    missing, broken, encrypted, huge = (tmp_path / n for n in ("missing", "broken", "encrypted", "huge"))
    broken.write_bytes(b"nothing")
    encrypted.write_text(FILES["aes256-ctr"]["private"], "utf-8")
    with huge.open("wb") as file:
        file.truncate(KEY_FILE_MAX + 1)
    for path in (missing, broken, encrypted, huge, tmp_path):
        with pytest.raises(KeyFileError) as caught:
            PrivateKey.load(path)
        assert caught.value.path == str(path) and str(path) in str(caught.value)
        assert caught.value.passphrase_needed is (path is encrypted)
    with pytest.raises(KeyFileError):
        PrivateKey.load("a\0b")


# --- making and signing ----------------------------------------------------------------------------------
@pytest.mark.parametrize("name", KEY_TYPES)
def test_generated_keys(name: str) -> None:
    key = PrivateKey.generate(name, comment="c") if name != "ssh-rsa" else private_key(name)
    assert key.public_key.algorithm == name
    assert key.comment == key.public_key.comment
    assert PrivateKey.load(key.to_openssh()).comment == key.comment
    assert key.signature_algorithms == key.public_key.signature_algorithms


@pytest.mark.parametrize(
    ("name", "bits"),
    [
        ("ssh-dss", None),
        ("rsa-sha2-512", None),
        ("ssh-ed25519", 255),
        ("ecdsa-sha2-nistp256", 384),
        ("ssh-rsa", 2047),
        ("ssh-rsa", 1024),
        ("ssh-rsa", 16385),
    ],
)
def test_keys_that_cannot_be_made(name: str, bits: int | None) -> None:
    with pytest.raises(LocalError):
        PrivateKey.generate(name, bits=bits)


@pytest.mark.parametrize("name", KEY_TYPES)
def test_algorithms_that_do_not_fit_are_not_signed_with(name: str) -> None:
    for algorithm in ("ssh-rsa", "ssh-dss", "", "none"):
        with pytest.raises(LocalError):
            private_key(name).sign(algorithm, b"data")


def test_signs_any_buffer() -> None:
    for name in KEY_TYPES:
        key = private_key(name)
        for algorithm in key.signature_algorithms:
            key.public_key.verify(algorithm, b"data", key.sign(algorithm, memoryview(b"data")))


def test_repr_shows_the_public_half_only() -> None:
    key = private_key("ssh-ed25519")
    assert repr(key) == f"<PrivateKey ssh-ed25519 {key.public_key.fingerprint()}>"
    assert repr(key.public_key) == f"<PublicKey ssh-ed25519 {key.public_key.fingerprint()}>"


@pytest.mark.parametrize("name", KEY_TYPES)
def test_plain_keys_load_quickly(name: str) -> None:
    """known bugs L 156: well under the 0.2 s of the library's RSA check, even on a loaded machine."""
    text = FILES[name]["private"].encode()
    best = min(timed(text) for _ in range(5))
    assert best < 0.02


def timed(text: bytes) -> float:
    start = time.perf_counter()
    PrivateKey.load(text)
    return time.perf_counter() - start
