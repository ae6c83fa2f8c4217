"""Key blobs, text lines, fingerprints, verification."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from hypothesis import given
from hypothesis import strategies as st

from sshtransport.errors import KeyFileError, LocalError, ProtocolError, SignatureError
from sshtransport.keys import HOST_KEY_ALGORITHMS, PublicKey, key_type_of
from sshtransport.wire import Reader, mpint, string
from tests.support.private_keys import KEY_TYPES, private_key

SIGNATURES = [(t, a) for t in KEY_TYPES for a in private_key(t).signature_algorithms]
BLOBS = {t: private_key(t).public_key.blob for t in KEY_TYPES}


def rsa_blob(exponent: int, modulus: int) -> bytes:
    return string(b"ssh-rsa") + mpint(exponent) + mpint(modulus)


def test_default_algorithms_are_in_the_agreed_order_and_without_sha1() -> None:
    assert HOST_KEY_ALGORITHMS == (
        "ssh-ed25519",
        "ecdsa-sha2-nistp256",
        "ecdsa-sha2-nistp384",
        "ecdsa-sha2-nistp521",
        "rsa-sha2-512",
        "rsa-sha2-256",
    )


def test_key_type_of() -> None:
    assert key_type_of("rsa-sha2-512") == key_type_of("rsa-sha2-256") == "ssh-rsa"
    assert key_type_of("ecdsa-sha2-nistp521") == "ecdsa-sha2-nistp521"
    assert key_type_of("no-such") == "no-such"


@pytest.mark.parametrize("algorithm", KEY_TYPES)
def test_blob_and_text_round_trip(algorithm: str) -> None:
    key = private_key(algorithm).public_key
    again = PublicKey.from_blob(key.blob)
    assert again == key and hash(again) == hash(key) and again.comment == ""
    read = PublicKey.from_text(key.to_text() + "\n")
    assert (read, read.comment, read.algorithm) == (key, "test 0", algorithm)
    assert key != private_key(algorithm, 1).public_key
    assert key != key.blob


def test_public_keys_cannot_be_changed() -> None:
    key = private_key("ssh-ed25519").public_key
    for name in ("algorithm", "blob", "comment", "bits", "other"):
        with pytest.raises(AttributeError):
            setattr(key, name, "x")


@pytest.mark.parametrize(("algorithm", "bits"), list(zip(KEY_TYPES, (256, 256, 384, 521, 2048), strict=True)))
def test_bits(algorithm: str, bits: int) -> None:
    assert private_key(algorithm).public_key.bits == bits


def test_fingerprints_look_like_openssh_prints_them() -> None:
    key = private_key("ssh-ed25519").public_key
    digest = hashlib.sha256(key.blob).digest()
    assert key.fingerprint() == "SHA256:" + base64.b64encode(digest).decode().rstrip("=")
    md5 = hashlib.md5(key.blob).hexdigest()
    assert key.fingerprint("md5") == "MD5:" + ":".join(md5[i : i + 2] for i in range(0, 32, 2))
    assert key.fingerprint("sha512").startswith("SHA512:")
    with pytest.raises(LocalError):
        key.fingerprint("crc32")


# --- signatures ------------------------------------------------------------------------------------------
@pytest.mark.parametrize(("key_type", "algorithm"), SIGNATURES)
def test_a_signature_verifies_and_no_other(key_type: str, algorithm: str) -> None:
    key = private_key(key_type)
    signature = key.sign(algorithm, b"data")
    for _ in range(2):  # the second time with the kept library object
        key.public_key.verify(algorithm, b"data", signature)
    key.public_key.verify(algorithm, memoryview(b"data"), signature)
    with pytest.raises(SignatureError):
        key.public_key.verify(algorithm, b"Data", signature)
    with pytest.raises(SignatureError):
        private_key(key_type, 1).public_key.verify(algorithm, b"data", signature)
    with pytest.raises(SignatureError):
        key.public_key.verify(algorithm, b"data", signature[:-1] + bytes([signature[-1] ^ 1]))


@pytest.mark.parametrize(("key_type", "algorithm"), SIGNATURES)
def test_three_names_must_agree(key_type: str, algorithm: str) -> None:
    """known bugs I 124: request, signature blob and key name one algorithm."""
    key = private_key(key_type)
    signature = key.sign(algorithm, b"data")
    for other in (*HOST_KEY_ALGORITHMS, "ssh-rsa", "ssh-dss", ""):
        if other != algorithm:
            with pytest.raises(SignatureError):
                key.public_key.verify(other, b"data", signature)
            renamed = string(other.encode()) + signature[4 + len(algorithm) :]
            with pytest.raises(SignatureError):
                key.public_key.verify(algorithm, b"data", renamed)


@pytest.mark.parametrize(("key_type", "algorithm"), SIGNATURES)
def test_hostile_signature_blobs(key_type: str, algorithm: str) -> None:
    key = private_key(key_type)
    signature = key.sign(algorithm, b"data")
    bad = [signature[:n] for n in range(len(signature))]
    bad += [signature + b"\0", string(algorithm.encode()) + string(b""), b"\xff" * 40]
    for blob in bad:
        with pytest.raises(SignatureError):
            key.public_key.verify(algorithm, b"data", blob)


@given(data=st.binary(max_size=100), signature=st.binary(max_size=200))
def test_random_signatures_raise_only_signature_errors(data: bytes, signature: bytes) -> None:
    for key_type, algorithm in SIGNATURES:
        for blob in (signature, string(algorithm.encode()) + string(signature)):
            with pytest.raises(SignatureError):
                private_key(key_type).public_key.verify(algorithm, data, blob)


def ecdsa_numbers(signature: bytes) -> tuple[int, int]:
    reader = Reader(signature)
    reader.string()
    inner = Reader(reader.string())
    return inner.mpint(), inner.mpint()


@pytest.mark.parametrize("key_type", KEY_TYPES[1:4])
def test_ecdsa_numbers_must_be_positive_minimal_and_below_the_order(key_type: str) -> None:
    """known bugs K 146: r and s as minimal mpints; r, s <= 0 or >= n and trailing bytes are refused."""
    key = private_key(key_type)
    r, s = ecdsa_numbers(key.sign(key_type, b"data"))
    order = {256: ec.SECP256R1(), 384: ec.SECP384R1(), 521: ec.SECP521R1()}[key.public_key.bits].group_order

    def blob(inner: bytes) -> bytes:
        return string(key_type.encode()) + string(inner)

    key.public_key.verify(key_type, b"data", blob(mpint(r) + mpint(s)))
    raw = r.to_bytes(67, "big").lstrip(b"\0")
    for inner in (
        mpint(0) + mpint(s),
        mpint(r) + mpint(0),
        mpint(r + order) + mpint(s),
        mpint(r) + mpint(order),
        mpint(r) + mpint(2**4000),
        string(b"\0\0" + raw) + mpint(s),  # surplus zeros
        string(b"\0") + mpint(s),
        string(b"\xff" + raw) + mpint(s),  # negative
        mpint(r) + mpint(s) + b"\0",
        mpint(r),
        b"",
    ):
        with pytest.raises(SignatureError):
            key.public_key.verify(key_type, b"data", blob(inner))


def test_ecdsa_numbers_vary() -> None:
    """known bugs K 146: nonces come from the library; no r repeats."""
    for key_type in KEY_TYPES[1:4]:
        key = private_key(key_type)
        assert len({ecdsa_numbers(key.sign(key_type, b"data"))[0] for _ in range(50)}) == 50


def test_rsa_signature_without_its_leading_zeros_verifies() -> None:
    """RFC 8332, section 3: some signers drop leading zeros; surplus bytes are refused."""
    key, algorithm, prefix = private_key("ssh-rsa"), "rsa-sha2-256", string(b"rsa-sha2-256")
    for number in range(5000):  # one in 256 begins with zero
        data = number.to_bytes(4, "big")
        raw = key.sign(algorithm, data)[len(prefix) + 4 :]
        if raw[0] == 0:
            break
    assert len(raw) == 256 and raw[0] == 0
    key.public_key.verify(algorithm, data, prefix + string(raw))
    key.public_key.verify(algorithm, data, prefix + string(raw.lstrip(b"\0")))
    for wrong in (b"\0" + raw, raw + b"\0", raw[:-1]):
        with pytest.raises(SignatureError):
            key.public_key.verify(algorithm, data, prefix + string(wrong))


# --- hostile blobs ---------------------------------------------------------------------------------------
@pytest.mark.parametrize("algorithm", KEY_TYPES)
def test_truncated_and_prolonged_blobs(algorithm: str) -> None:
    blob = BLOBS[algorithm]
    for n in range(len(blob)):
        with pytest.raises(ProtocolError):
            PublicKey.from_blob(blob[:n])
    for tail in (b"\0", blob):
        with pytest.raises(ProtocolError):
            PublicKey.from_blob(blob + tail)


@given(st.binary(max_size=300))
def test_random_blobs(data: bytes) -> None:
    for blob in (data, *(string(t.encode()) + data for t in KEY_TYPES)):
        with pytest.raises(ProtocolError):
            PublicKey.from_blob(blob)


@given(st.sampled_from(sorted(BLOBS)), st.integers(0, 10_000), st.integers(1, 255))
def test_blobs_with_one_byte_changed_are_refused_or_other_keys(algorithm: str, place: int, flip: int) -> None:
    blob = bytearray(BLOBS[algorithm])
    blob[place % len(blob)] ^= flip
    try:
        key = PublicKey.from_blob(bytes(blob))
    except ProtocolError:
        return
    assert key.blob == blob
    signature = private_key(algorithm).sign(key.signature_algorithms[0], b"data")
    with pytest.raises(SignatureError):
        key.verify(key.signature_algorithms[0], b"data", signature)


@pytest.mark.parametrize("name", ["ssh-dss", "rsa-sha2-256", "ssh-ed448", "", "ssh-ed25519\0", "x" * 10_000])
def test_unknown_key_types(name: str) -> None:
    with pytest.raises(ProtocolError) as caught:
        PublicKey.from_blob(string(name.encode()) + string(bytes(32)))
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize("size", [0, 31, 33, 64])
def test_ed25519_points_have_32_bytes(size: int) -> None:
    with pytest.raises(ProtocolError):
        PublicKey.from_blob(string(b"ssh-ed25519") + string(bytes(size)))


@pytest.mark.parametrize("algorithm", KEY_TYPES[1:4])
def test_only_uncompressed_points(algorithm: str) -> None:
    reader = Reader(BLOBS[algorithm])
    head = string(reader.string()) + string(reader.string())
    point = reader.string()
    size = len(point) // 2
    compressed = bytes([2 + (point[-1] & 1)]) + point[1 : 1 + size]
    hybrid = bytes([6 + (point[-1] & 1)]) + point[1:]
    for bad in (compressed, hybrid, b"\0", b"", point + b"\0", point[:-1], b"\4" * 10_000):
        with pytest.raises(ProtocolError):
            PublicKey.from_blob(head + string(bad))
    with pytest.raises(ProtocolError, match="curve"):
        PublicKey.from_blob(string(algorithm.encode()) + string(b"nistp257") + string(point))


def test_a_point_off_the_curve_verifies_nothing() -> None:
    blob = bytearray(BLOBS["ecdsa-sha2-nistp256"])
    blob[-1] ^= 1
    signature = private_key("ecdsa-sha2-nistp256").sign("ecdsa-sha2-nistp256", b"data")
    for _ in range(2):
        with pytest.raises(SignatureError):
            PublicKey.from_blob(bytes(blob)).verify("ecdsa-sha2-nistp256", b"data", signature)


ODD_2048 = 2**2047 + 1


@pytest.mark.parametrize(
    ("exponent", "modulus"),
    [
        (65537, 2**2047),  # even
        (65537, 2**2046 + 1),
        (65537, 2**16384 + 1),
        (65537, 2**80_000 + 1),
        (0, ODD_2048),
        (1, ODD_2048),
        (2, ODD_2048),
        (65536, ODD_2048),
        (2**64 + 1, ODD_2048),
        (ODD_2048, ODD_2048),
    ],
    ids=lambda n: f"{n.bit_length()}bit",
)
def test_rsa_numbers_out_of_bounds(exponent: int, modulus: int) -> None:
    with pytest.raises(ProtocolError):
        PublicKey.from_blob(rsa_blob(exponent, modulus))


def test_rsa_bounds_are_reached() -> None:
    for bits in (2048, 16384):
        assert PublicKey.from_blob(rsa_blob(65537, 2 ** (bits - 1) + 1)).bits == bits
    assert PublicKey.from_blob(rsa_blob(3, ODD_2048)).bits == 2048
    assert PublicKey.from_blob(rsa_blob(2**64 - 1, ODD_2048)).bits == 2048
    small = rsa_blob(65537, 2**1535 + 1)
    with pytest.raises(ProtocolError) as caught:
        PublicKey.from_blob(small)
    assert caught.value.limit == 2048
    assert PublicKey.from_blob(small, rsa_min_bits=1024).bits == 1536
    with pytest.raises(ProtocolError):
        PublicKey.from_blob(rsa_blob(65537, ODD_2048), rsa_min_bits=3072)


def test_rsa_numbers_have_one_spelling() -> None:
    """A revoked key must not come back as another blob of the same numbers."""
    reader = Reader(BLOBS["ssh-rsa"])
    name, e, n = reader.string(), reader.string(), reader.string()
    assert n[0] == 0
    for numbers in (
        string(b"\0" + e) + string(n),
        string(e) + string(b"\0" + n),
        string(e) + string(n[1:]),
        string(n) + string(e),
        string(b"") + string(n),
    ):
        with pytest.raises(ProtocolError):
            PublicKey.from_blob(string(name) + numbers)


def test_a_blob_is_parsed_in_the_bounds_of_the_library() -> None:
    """What from_blob accepts the library accepts at the first use, or verify says no."""
    signature = string(b"rsa-sha2-256") + string(bytes(256))
    for exponent in (3, 2**64 - 1):
        with pytest.raises(SignatureError):
            PublicKey.from_blob(rsa_blob(exponent, ODD_2048)).verify("rsa-sha2-256", b"", signature)


# --- text ------------------------------------------------------------------------------------------------
TEXT = private_key("ssh-ed25519").public_key.to_text().rsplit(" ", 2)[0]


@pytest.mark.parametrize(
    "spoil",
    [
        lambda t: "",
        lambda t: "ssh-ed25519",
        lambda t: t.replace("ssh-ed25519", "ssh-rsa"),
        lambda t: t + "!",
        lambda t: t[:-3],
        lambda t: t[:-4],
        lambda t: t + "\n" + t,
        lambda t: "ssh-ed25519 é",
        lambda t: "restrict " + t,
        lambda t: t.replace(" ", "\n"),
        lambda t: t.replace(" ", "\u2003"),
    ],
)
def test_bad_lines(spoil: Callable[[str], str]) -> None:
    with pytest.raises(KeyFileError):
        PublicKey.from_text(spoil(TEXT))


def test_text_details() -> None:
    assert PublicKey.from_text(f"  {TEXT.replace(' ', chr(9) + ' ')}\t a  b \r\n").comment == "a  b"
    assert PublicKey.from_text(TEXT).to_text() == TEXT
    small = f"ssh-rsa {base64.b64encode(rsa_blob(65537, 2**1535 + 1)).decode()}"
    assert PublicKey.from_text(small, rsa_min_bits=1024).bits == 1536


def test_a_comment_cannot_begin_a_new_line() -> None:
    key = PublicKey.from_blob(BLOBS["ssh-ed25519"], comment="a\nssh-ed25519 AAAA\r\x7f\0é")
    assert key.to_text() == TEXT + " a?ssh-ed25519 AAAA???é"


@given(st.text(max_size=200))
def test_random_text(line: str) -> None:
    with pytest.raises(KeyFileError):
        PublicKey.from_text(line)


def test_agrees_with_the_library_on_the_text_form() -> None:
    for key in (ec.generate_private_key(ec.SECP384R1()), rsa.generate_private_key(65537, 2048)):
        text = key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode()
        assert PublicKey.from_text(text).to_text() == text
