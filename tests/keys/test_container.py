"""The openssh-key-v1 format, against files that ssh-keygen made and against ssh-keygen itself."""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from cryptography.exceptions import UnsupportedAlgorithm
from hypothesis import given, settings
from hypothesis import strategies as st

from sshtransport.errors import KeyFileError, LocalError
from sshtransport.keys import BCRYPT_ROUNDS_MAX, KEY_FILE_CIPHERS, PrivateKey, PublicKey
from sshtransport.keys.algorithms import KEY_TYPES as KEY_ROWS
from sshtransport.keys.algorithms import PrivateMaterial
from sshtransport.wire import Reader, string, uint32
from tests.support.private_keys import KEY_TYPES, private_key

#: Made by ssh-keygen of OpenSSH 9.2 with the command each entry names.
FILES: dict[str, dict[str, str]] = json.loads(Path(__file__).with_name("key_files.json").read_text("utf-8"))
KEYGEN = shutil.which("ssh-keygen") or ""
needs_keygen = pytest.mark.skipif(not KEYGEN, reason="ssh-keygen is not installed")

BEGIN, END = "-----BEGIN OPENSSH PRIVATE KEY-----", "-----END OPENSSH PRIVATE KEY-----"


def keygen(*arguments: str) -> str:
    return subprocess.run([KEYGEN, *arguments], check=True, capture_output=True, text=True, encoding="utf-8").stdout


def body_of(text: str) -> bytes:
    return base64.b64decode("".join(text.splitlines()[1:-1]))


def armour(body: bytes) -> bytes:
    return f"{BEGIN}\n{base64.b64encode(body).decode()}\n{END}\n".encode()


def parts(text: str) -> tuple[bytes, bytes, bytes, bytes, bytes]:
    """Cipher, KDF, its options, private section, tag."""
    reader = Reader(body_of(text), 15)
    cipher, kdf, options = reader.string(), reader.string(), reader.string()
    reader.uint32()
    reader.string()
    return cipher, kdf, options, reader.string(), reader.rest()


def build(
    public: bytes,
    section: bytes,
    *,
    cipher: bytes = b"none",
    kdf: bytes = b"none",
    options: bytes = b"",
    count: int = 1,
    tail: bytes = b"",
) -> bytes:
    body = b"openssh-key-v1\0" + string(cipher) + string(kdf) + string(options) + uint32(count)
    return armour(body + string(public) + string(section) + tail)


ED = private_key("ssh-ed25519")
ED_BLOB = ED.public_key.blob
ED_TEXT = ED.to_openssh().decode()
ED_SECTION = parts(ED_TEXT)[3]


@pytest.mark.parametrize("name", FILES)
def test_reads_what_ssh_keygen_wrote(name: str) -> None:
    """known bugs L 154: every cipher of ssh-keygen -Z, the tag behind the blob."""
    file = FILES[name]
    key = PrivateKey.load(file["private"].encode(), file["passphrase"] or None)
    public = PublicKey.from_text(file["public"])
    assert (key.public_key, key.comment) == (public, public.comment)
    assert key.comment == f"{name} é"
    public.verify(key.signature_algorithms[0], b"data", key.sign(key.signature_algorithms[0], b"data"))


@pytest.mark.parametrize("name", FILES)
def test_writes_the_same_bytes_as_ssh_keygen(name: str) -> None:
    file = FILES[name]
    passphrase = file["passphrase"] or None
    key = PrivateKey.load(file["private"].encode(), passphrase)
    cipher, _, options, section, _ = parts(file["private"])
    if passphrase is None:
        assert key.to_openssh(random=lambda n: section[:n]).decode() == file["private"]
        return
    salt = options[4:-4]
    # The check integers are inside the encrypted part; whatever they are, one file gives the other.
    written = key.to_openssh(
        passphrase, cipher=cipher.decode(), rounds=1, random=lambda n: salt if n == 16 else b"chek"
    ).decode()
    again = parts(written)
    assert again[:3] == (cipher, b"bcrypt", options)
    assert (len(again[3]), len(again[4])) == (len(section), len(parts(file["private"])[4]))
    assert len(written) == len(file["private"])
    assert PrivateKey.load(written.encode(), passphrase).public_key == key.public_key


def test_every_cipher_has_a_file() -> None:
    assert set(FILES) == {*KEY_FILE_CIPHERS, *KEY_TYPES}


@needs_keygen
@pytest.mark.parametrize("name", [*KEY_TYPES, *KEY_FILE_CIPHERS])
def test_ssh_keygen_reads_ours(name: str, tmp_path: Path) -> None:
    key = private_key(name if name in KEY_TYPES else "ssh-ed25519")
    passphrase = "secret" if name in KEY_FILE_CIPHERS else ""
    path = tmp_path / "key"
    path.touch(0o600)
    path.write_bytes(key.to_openssh(passphrase, cipher=name, rounds=1) if passphrase else key.to_openssh())
    assert keygen("-y", "-P", passphrase, "-f", str(path)).strip() == key.public_key.to_text()
    assert keygen("-l", "-f", str(path)).split()[:2] == [str(key.public_key.bits), key.public_key.fingerprint()]


@needs_keygen
@pytest.mark.parametrize("cipher", KEY_FILE_CIPHERS)
def test_reads_fresh_files_of_ssh_keygen(cipher: str, tmp_path: Path) -> None:
    path = tmp_path / "key"
    keygen("-q", "-t", "ed25519", "-N", "pass é", "-Z", cipher, "-a", "1", "-C", "", "-f", str(path))
    key = PrivateKey.load(path, "pass é")
    assert key.public_key == PublicKey.from_text(path.with_suffix(".pub").read_text())
    assert key.comment == ""


# --- passphrases -----------------------------------------------------------------------------------------
@pytest.mark.parametrize("cipher", KEY_FILE_CIPHERS)
@pytest.mark.parametrize("passphrase", [None, "", b"", "wrong-secret", b"wrong-secret\0"])
def test_passphrase_absent_or_wrong(cipher: str, passphrase: str | bytes | None) -> None:
    with pytest.raises(KeyFileError) as caught:
        PrivateKey.load(FILES[cipher]["private"].encode(), passphrase)
    assert caught.value.passphrase_needed
    assert "wrong-secret" not in repr(caught.value)
    assert caught.value.__cause__ is None


def test_a_passphrase_for_a_plain_key_is_not_looked_at() -> None:
    assert PrivateKey.load(ED_TEXT.encode(), "anything").public_key == ED.public_key


def test_a_passphrase_that_is_not_text_is_not_shown() -> None:
    with pytest.raises(LocalError) as caught:
        PrivateKey.load(ED_TEXT.encode(), "top-secret\ud800")
    assert "top-secret" not in repr(caught.value)
    assert caught.value.__cause__ is None and caught.value.__suppress_context__


def test_surrogate_escapes_stand_for_bytes() -> None:
    text = ED.to_openssh(b"\xff\xfe", rounds=1)
    assert PrivateKey.load(text, b"\xff\xfe".decode("utf-8", "surrogateescape")).public_key == ED.public_key


def test_rounds_are_bounded_and_few_rounds_do_not_warn() -> None:
    cipher, kdf, options, section, _ = parts(FILES["aes256-ctr"]["private"])
    salt = options[4:20]

    def file(rounds: int, salt: bytes = salt) -> bytes:
        return build(ED_BLOB, section, cipher=cipher, kdf=kdf, options=string(salt) + uint32(rounds))

    for bad in (0, BCRYPT_ROUNDS_MAX + 1, 2**32 - 1):
        with pytest.raises(KeyFileError, match="rounds") as caught:
            PrivateKey.load(file(bad), "x")
        assert not caught.value.passphrase_needed
    for bad_salt in (b"", bytes(1025)):
        with pytest.raises(KeyFileError):
            PrivateKey.load(file(1, bad_salt), "x")
    with pytest.raises(KeyFileError) as caught:  # the bound itself is accepted: only the passphrase is missing
        PrivateKey.load(file(BCRYPT_ROUNDS_MAX))
    assert caught.value.passphrase_needed


@pytest.mark.parametrize(
    "arguments",
    [
        {"passphrase": ""},
        {"passphrase": "x", "cipher": "none"},
        {"passphrase": "x", "cipher": "aes256-xts"},
        {"passphrase": "x", "rounds": 0},
        {"passphrase": "x", "rounds": BCRYPT_ROUNDS_MAX + 1},
    ],
)
def test_refuses_to_write(arguments: dict[str, str | int]) -> None:
    with pytest.raises(LocalError):
        ED.to_openssh(**arguments)  # type: ignore[arg-type]


def test_written_files_differ_by_their_random_parts() -> None:
    assert ED.to_openssh() != ED.to_openssh()


def test_a_cipher_that_the_library_has_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """3DES lives in the library's attic; without it the other ciphers go on working."""
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.decrepit.ciphers.algorithms", None)
    with pytest.raises(KeyFileError, match="3des-cbc") as caught:
        PrivateKey.load(FILES["3des-cbc"]["private"].encode(), FILES["3des-cbc"]["passphrase"])
    assert not caught.value.passphrase_needed
    with pytest.raises(LocalError, match="3des-cbc"):
        ED.to_openssh("x", cipher="3des-cbc", rounds=1)
    assert PrivateKey.load(ED.to_openssh("x", rounds=1), "x").public_key == ED.public_key


def test_a_key_type_that_the_library_has_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(reader: Reader) -> PrivateMaterial:
        raise UnsupportedAlgorithm("gone")

    monkeypatch.setitem(KEY_ROWS, "ssh-ed25519", replace(KEY_ROWS["ssh-ed25519"], parse_private=gone))
    with pytest.raises(KeyFileError, match="not available"):
        PrivateKey.load(ED_TEXT.encode())


# --- hostile files ---------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "name", ["ssh-ed25519", "ecdsa-sha2-nistp521", "ssh-rsa", "aes256-ctr", "aes256-gcm@openssh.com"]
)
def test_truncated_and_prolonged(name: str) -> None:
    body = body_of(FILES[name]["private"])
    step = 1 if len(body) < 300 else 7
    for n in range(0, len(body), step):
        with pytest.raises(KeyFileError):
            PrivateKey.load(armour(body[:n]), FILES[name]["passphrase"])
    for tail in (b"\0", bytes(16)):
        with pytest.raises(KeyFileError):
            PrivateKey.load(armour(body + tail), FILES[name]["passphrase"])


@pytest.mark.parametrize("name", KEY_TYPES)
def test_each_changed_byte_is_seen_or_without_effect(name: str) -> None:
    """No changed file gives a key that signs under another public key than it says."""
    text = private_key(name).to_openssh(random=bytes).decode()
    body = body_of(text)
    for place in range(0, len(body), 1 if len(body) < 400 else 5):
        changed = bytearray(body)
        changed[place] ^= 0x40
        try:
            key = PrivateKey.load(armour(bytes(changed)))
        except KeyFileError as error:
            assert not error.passphrase_needed or place < 40
            continue
        assert key.public_key == private_key(name).public_key  # the comment changed


@pytest.mark.parametrize("cipher", KEY_FILE_CIPHERS)
def test_changes_of_an_encrypted_file_are_seen(cipher: str) -> None:
    body = body_of(FILES[cipher]["private"])
    start = body.index(b"ssh-ed25519") + 11 + 4 + 32 + 4
    # Without a tag the check integers, the two public halves and the padding are what can tell.
    for place in range(start, len(body), 29) if "@" in cipher else (start, start + 7):
        changed = bytearray(body)
        changed[place] ^= 1
        with pytest.raises(KeyFileError):
            PrivateKey.load(armour(bytes(changed)), FILES[cipher]["passphrase"])


def section_of(fields: bytes, *, comment: bytes = b"c", check: bytes = b"12341234", pad: bytes | None = None) -> bytes:
    section = check + fields + string(comment)
    return section + (bytes(range(1, 1 + -len(section) % 8)) if pad is None else pad)


POINT = ED_BLOB[-32:]
SEED = ED_SECTION[8 + 4 + 11 + 4 + 32 + 4 :][:32]
OTHER = private_key("ssh-ed25519", 1).public_key.blob[-32:]


def ed_fields(point: bytes = POINT, both: bytes = SEED + POINT, name: bytes = b"ssh-ed25519") -> bytes:
    return string(name) + string(point) + string(both)


def test_the_builder_of_these_tests_builds_good_files() -> None:
    assert PrivateKey.load(build(ED_BLOB, section_of(ed_fields()))).public_key == ED.public_key
    # Some writers pad a full block more.
    section = section_of(ed_fields(), pad=b"")
    section += bytes(range(1, 1 + -len(section) % 8 + 8))
    assert PrivateKey.load(build(ED_BLOB, section)).public_key == ED.public_key


@pytest.mark.parametrize(
    "file",
    [
        build(ED_BLOB, section_of(ed_fields(), check=b"12341235")),
        build(ED_BLOB, section_of(ed_fields(name=b"ssh-dss"))),
        build(ED_BLOB, section_of(ed_fields(name=b"ssh-rsa"))),
        build(ED_BLOB, section_of(ed_fields(point=OTHER))),
        build(ED_BLOB, section_of(ed_fields(both=SEED + OTHER))),
        build(string(b"ssh-ed25519") + string(OTHER), section_of(ed_fields(point=OTHER, both=SEED + OTHER))),
        build(ED_BLOB, section_of(ed_fields(point=POINT[:-1]))),
        build(ED_BLOB, section_of(ed_fields(both=SEED))),
        build(string(b"ssh-ed25519") + string(OTHER), section_of(ed_fields())),
        build(ED_BLOB, section_of(ed_fields(), pad=bytes(-len(section_of(ed_fields(), pad=b"")) % 8))),
        build(ED_BLOB, section_of(ed_fields(), pad=b"\1")),
        build(ED_BLOB, section_of(ed_fields(), pad=b"\1" * 512)),
        build(ED_BLOB, b""),
        build(ED_BLOB, ED_SECTION, count=0),
        build(ED_BLOB, ED_SECTION, count=2),
        build(ED_BLOB, ED_SECTION, count=2**32 - 1),
        build(ED_BLOB, ED_SECTION, options=b"x"),
        build(ED_BLOB, ED_SECTION, kdf=b"scrypt"),
        build(ED_BLOB, ED_SECTION, kdf=b"bcrypt", options=string(b"salt") + uint32(1)),
        build(ED_BLOB, ED_SECTION, cipher=b"aes256-ctr"),
        build(ED_BLOB, ED_SECTION, cipher=b"aes256-xts", kdf=b"bcrypt"),
        build(ED_BLOB, ED_SECTION, cipher=b"aes256-\xff", kdf=b"bcrypt"),
        build(ED_BLOB, ED_SECTION, cipher=b"aes256-ctr", kdf=b"bcrypt", options=b""),
        build(ED_BLOB, ED_SECTION, tail=b"x"),
        armour(b""),
        armour(b"openssh-key-v2\0"),
        ED_TEXT.replace(END, "").encode(),
        ED_TEXT.replace("AAA", "A!A", 1).encode(),
        BEGIN.encode(),
        f"{BEGIN}{END}".encode(),
    ],
)
def test_hostile_files(file: bytes) -> None:
    with pytest.raises(KeyFileError) as caught:
        PrivateKey.load(file, "passphrase")
    assert "passphrase" not in str(caught.value) and SEED.hex() not in repr(caught.value)


@settings(max_examples=50)
@given(st.binary(max_size=200))
def test_random_content(data: bytes) -> None:
    for file in (data, armour(data), armour(b"openssh-key-v1\0" + data), build(ED_BLOB, data)):
        with pytest.raises(KeyFileError):
            PrivateKey.load(file, "x")


def test_line_ends_and_blanks_do_not_matter() -> None:
    for text in (ED_TEXT.replace("\n", "\r\n"), "\n  " + ED_TEXT + "\n\n", ED_TEXT.strip()):
        assert PrivateKey.load(text.encode()).public_key == ED.public_key
