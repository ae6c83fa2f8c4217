"""Keys and signatures against an independent implementation (asyncssh) and ssh-keygen's verdicts."""

from __future__ import annotations

import asyncssh
import pytest

from sshtransport.errors import SignatureError
from sshtransport.keys import KEY_FILE_CIPHERS, PrivateKey, PublicKey
from tests.support.private_keys import KEY_TYPES, private_key

SIGNATURES = [(t, a) for t in KEY_TYPES for a in private_key(t).signature_algorithms]


@pytest.mark.parametrize(("key_type", "algorithm"), SIGNATURES)
def test_signatures_both_ways(key_type: str, algorithm: str) -> None:
    ours = private_key(key_type)
    theirs = asyncssh.import_private_key(ours.to_openssh())
    assert theirs.public_data == ours.public_key.blob
    for number in range(20):
        data = bytes([number])
        assert asyncssh.import_public_key(ours.public_key.to_text()).verify(data, ours.sign(algorithm, data))
        signature = theirs.sign(data, algorithm.encode())
        ours.public_key.verify(algorithm, data, signature)
        with pytest.raises(SignatureError):
            ours.public_key.verify(algorithm, data + b"x", signature)


def test_sha1_signatures_are_refused() -> None:
    ours = private_key("ssh-rsa")
    signature = asyncssh.import_private_key(ours.to_openssh()).sign(b"data", b"ssh-rsa")
    for algorithm in ("ssh-rsa", "rsa-sha2-256"):
        with pytest.raises(SignatureError):
            ours.public_key.verify(algorithm, b"data", signature)


@pytest.mark.filterwarnings("ignore:.*bcrypt.kdf")  # asyncssh's own call; one round keeps the test fast
@pytest.mark.parametrize("key_type", KEY_TYPES)
def test_files_both_ways(key_type: str) -> None:
    ours = private_key(key_type)
    theirs = asyncssh.import_private_key(ours.to_openssh("secret", rounds=1), "secret")
    assert theirs.get_comment() == ours.comment
    again = PrivateKey.load(theirs.export_private_key("openssh", "secret", rounds=1), "secret")
    assert (again.public_key, again.comment) == (ours.public_key, ours.comment)
    for form in ("pkcs8-pem", "pkcs1-pem") if key_type != "ssh-ed25519" else ("pkcs8-pem",):
        assert PrivateKey.load(theirs.export_private_key(form)).public_key == ours.public_key
        assert PrivateKey.load(theirs.export_private_key(form, "pass"), "pass").public_key == ours.public_key
    text = theirs.export_public_key("openssh").decode()
    assert PublicKey.from_text(text) == ours.public_key


@pytest.mark.parametrize("cipher", KEY_FILE_CIPHERS)
def test_every_cipher_is_read_elsewhere(cipher: str) -> None:
    ours = private_key("ssh-ed25519")
    theirs = asyncssh.import_private_key(ours.to_openssh("secret", cipher=cipher, rounds=1), "secret")
    assert theirs.public_data == ours.public_key.blob


def test_fingerprints_agree() -> None:
    for key_type in KEY_TYPES:
        ours = private_key(key_type).public_key
        theirs = asyncssh.import_public_key(ours.to_text())
        for name in ("sha256", "sha512", "md5"):
            assert ours.fingerprint(name) == theirs.get_fingerprint(name)
