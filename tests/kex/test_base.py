"""One run of any method: order, parsing, the secret's encoding, the derivation."""

from __future__ import annotations

import gc
import hashlib
import weakref
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sshtransport.errors import DisconnectReason, LocalError, ProtocolError
from sshtransport.kex import KEX_NAMES, KeyExchange, derive, kex_names, make_kex
from sshtransport.kex.base import STRINGS, Agreement, Method, secret_mpint
from sshtransport.kex.registry import METHODS
from sshtransport.wire import Reader, mpint, string
from tests.support.kex import HOST_KEY, SIGNATURE, context, pair, reply, run, with_agreement

FAST = "curve25519-sha256"
#: Hash and exchange hash size by method (RFC 5656, 6.2.1; RFC 8268, 3; RFC 8731, 3).
HASHES = {
    "mlkem768x25519-sha256": "sha256",
    "curve25519-sha256": "sha256",
    "curve25519-sha256@libssh.org": "sha256",
    "ecdh-sha2-nistp256": "sha256",
    "ecdh-sha2-nistp384": "sha384",
    "ecdh-sha2-nistp521": "sha512",
    "diffie-hellman-group14-sha256": "sha256",
    "diffie-hellman-group16-sha512": "sha512",
    "diffie-hellman-group18-sha512": "sha512",
}


class Fixed(Agreement[bytes]):
    """An agreement on whatever the test says."""

    def __init__(self, secret: bytes) -> None:
        self.secret = secret

    def public(self) -> bytes:
        return b"ours"

    def finish(self, peer: bytes) -> bytes:
        return self.secret


def fixed(secret: bytes) -> Method[bytes]:
    return Method("test", "sha256", lambda: Fixed(secret), STRINGS, secret_mpint, probe=bytes)


# --- good exchanges ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", KEX_NAMES)
def test_both_sides_agree(name: str) -> None:
    seen = set()
    for _ in range(3 if "group18" in name else 20):
        at_client, at_server = run(*pair(name))
        assert at_client == at_server
        assert at_client.host_key == HOST_KEY
        assert at_client.signature == SIGNATURE + at_client.exchange_hash
        seen.add(at_client.secret)
    assert len(seen) > 2, "ephemerals are fresh"


@pytest.mark.parametrize("name", KEX_NAMES)
def test_the_hash_follows_the_method(name: str) -> None:
    """Known bugs C 42: P-384 and P-521 have hashes of their own."""
    result, _ = run(*pair(name))
    assert result.hash_name == HASHES[name]
    assert len(result.exchange_hash) == hashlib.new(HASHES[name]).digest_size


def test_everything_enters_the_exchange_hash() -> None:
    """The exchange hash of RFC 4253, section 8, and a change in each field changes it."""
    same = {"client_ident": b"V_C", "server_ident": b"V_S", "client_kexinit": b"I_C", "server_kexinit": b"I_S"}
    server = KeyExchange(fixed(b"\x80"), context("server", **same, host_key=b"K_S"))
    server.step(b"\x1e" + string(b"Q_C"))
    fields = (b"V_C", b"V_S", b"I_C", b"I_S", b"K_S", b"Q_C", b"ours", b"\0\x80")
    assert server.result is not None
    assert server.result.exchange_hash == hashlib.sha256(b"".join(map(string, fields))).digest()
    for changed in ("client_ident", "server_ident", "client_kexinit", "server_kexinit"):
        client = KeyExchange(fixed(b"\x80"), context("client", **same | {changed: b"else"}))
        client.start()
        client.step(reply(FAST, b"ours"))
        assert client.result is not None
        assert client.result.exchange_hash != server.result.exchange_hash


# --- the secret's encoding ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("secret", "encoded"),
    [
        (bytes(31) + b"\x01", "0000000101"),
        (bytes(31) + b"\x7f", "000000017f"),
        (bytes(31) + b"\x80", "000000020080"),
        (bytes(30) + b"\x80\x00", "00000003008000"),
        (b"\x00\x7f" + bytes(30), "0000001f7f" + "00" * 30),
        (b"\x00\xff" + bytes(30), "0000002000ff" + "00" * 30),
        (b"\x7f" + bytes(31), "000000207f" + "00" * 31),
        (b"\xff" + bytes(31), "0000002100ff" + "00" * 31),
    ],
)
def test_edges_of_the_secret(secret: bytes, encoded: str) -> None:
    """Known bugs C 35."""
    assert secret_mpint(secret).hex() == encoded


@given(zeros=st.integers(0, 4), rest=st.binary(max_size=66))
def test_the_secret_is_one_minimal_number(zeros: int, rest: bytes) -> None:
    """Known bugs C 35: no leading zero octet but the one that keeps the number positive."""
    encoded = secret_mpint(bytes(zeros) + rest)
    body = encoded[4:]
    assert int.from_bytes(encoded[:4], "big") == len(body)
    assert Reader(encoded).mpint() == int.from_bytes(rest, "big")
    if body:
        assert body[0] < 0x80
        assert body[0] or body[1] >= 0x80
    assert encoded == mpint(int.from_bytes(rest, "big"))


@given(st.binary(min_size=32, max_size=32))
def test_the_secret_reaches_hash_and_result_alike(secret: bytes) -> None:
    client, server = KeyExchange(fixed(secret), context("client")), KeyExchange(fixed(secret), context("server"))
    at_client, at_server = run(client, server)
    assert at_client == at_server
    assert at_client.secret == secret_mpint(secret)


def test_the_secret_is_not_shown() -> None:
    result, _ = run(*pair(FAST))
    assert result.secret.hex() not in repr(result)
    assert repr(result.secret) not in repr(result)
    assert "secret" not in repr(result)


# --- the derivation ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("hash_name", ["sha256", "sha384", "sha512"])
def test_derivation_by_the_letter(hash_name: str) -> None:
    """RFC 4253, section 7.2, with a session id of another size than the hash; known bugs C 42."""

    def digest(data: bytes) -> bytes:
        return hashlib.new(hash_name, data).digest()

    k, h, session = string(b"k" * 32), b"h" * 48, b"s" * 32
    k1 = digest(k + h + b"C" + session)
    k2 = digest(k + h + k1)
    k3 = digest(k + h + k1 + k2)
    whole = k1 + k2 + k3
    for size in (0, 1, 12, len(k1), len(k1) + 1, len(whole)):
        assert derive(hash_name, k, h, session, b"C", size) == whole[:size]


@given(size=st.integers(0, 200), letter=st.sampled_from([b"A", b"B", b"C", b"D", b"E", b"F"]))
def test_a_shorter_key_is_a_prefix(size: int, letter: bytes) -> None:
    assert derive("sha256", b"k", b"h", b"s", letter, 200).startswith(derive("sha256", b"k", b"h", b"s", letter, size))


def test_letters_differ() -> None:
    assert len({derive("sha256", b"k", b"h", b"s", bytes([letter]), 16) for letter in b"ABCDEF"}) == 6


# --- order ---------------------------------------------------------------------------------------------------


def test_a_client_must_start_first() -> None:
    client, _ = pair(FAST)
    with pytest.raises(ProtocolError):
        client.step(reply(FAST, bytes(32)))


@pytest.mark.parametrize("role", ["client", "server"])
def test_one_start_only(role: Literal["client", "server"]) -> None:
    kex = pair(FAST)[role == "server"]
    kex.start()
    with pytest.raises(LocalError):
        kex.start()


def test_a_server_needs_no_start() -> None:
    client, server = pair(FAST)
    init = client.start()
    assert init is not None
    assert server.step(init)


@pytest.mark.parametrize(("role", "due"), [("client", 31), ("server", 30)])
def test_only_the_message_that_is_due_is_taken(role: Literal["client", "server"], due: int) -> None:
    agreement = METHODS[FAST].agreement()
    for number in range(256):
        kex = with_agreement(FAST, agreement, role)
        kex.start()
        value = agreement.public()
        body = reply(FAST, value)[1:] if role == "client" else string(value)
        if number == due:
            kex.step(bytes([number]) + body)
            assert kex.result is not None
            continue
        with pytest.raises(ProtocolError) as caught:
            kex.step(bytes([number]) + body)
        assert caught.value.reason == DisconnectReason.PROTOCOL_ERROR
        assert kex.result is None


@pytest.mark.parametrize("name", ["curve25519-sha256", "mlkem768x25519-sha256"])
def test_nothing_comes_after_the_end(name: str) -> None:
    """A second INIT or REPLY is refused and changes nothing (RFC 4253, section 7.1)."""
    client, server = pair(name)
    init = client.start()
    assert init is not None
    answer = server.step(init)
    assert answer is not None
    client.step(answer)
    before = client.result, server.result
    for kex in (client, server):
        for payload in (init, answer, b"", b"\x15"):
            with pytest.raises(ProtocolError):
                kex.step(payload)
    assert (client.result, server.result) == before


def test_nothing_comes_after_a_failure() -> None:
    client, server = pair(FAST)
    init = client.start()
    assert init is not None
    answer = server.step(init)
    assert answer is not None
    with pytest.raises(ProtocolError):
        client.step(answer + b"\0")
    with pytest.raises(ProtocolError):
        client.step(answer)
    assert client.result is None


def test_the_two_roles_do_not_swap() -> None:
    """A server does not take a REPLY, a client no INIT, however well formed."""
    client, server = pair(FAST)
    init = client.start()
    assert init is not None
    with pytest.raises(ProtocolError):
        client.step(init)
    with pytest.raises(ProtocolError):
        server.step(reply(FAST, bytes(32)))


def test_a_server_without_signer_is_the_callers_mistake() -> None:
    with pytest.raises(LocalError):
        make_kex(FAST, context("server", sign=None))


# --- malformed messages --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", kex_names())
def test_truncated_and_prolonged_messages(name: str) -> None:
    agreement = METHODS[name].agreement()
    client = with_agreement(name, agreement, "client")
    init = client.start()
    assert init is not None
    server = with_agreement(name, METHODS[name].agreement(), "server")
    answer = server.step(init)
    assert answer is not None
    payloads: dict[Literal["client", "server"], bytes] = {"client": answer, "server": init}
    for role, payload in payloads.items():
        for bad in (*(payload[:size] for size in range(len(payload))), payload + b"\0", payload + payload):
            kex = with_agreement(name, agreement, role)
            kex.start()
            with pytest.raises(ProtocolError):
                kex.step(bad)
            assert kex.result is None


@pytest.mark.parametrize("role", ["client", "server"])
def test_huge_lengths_allocate_nothing(role: Literal["client", "server"]) -> None:
    number = b"\x1f" if role == "client" else b"\x1e"
    for length in (b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\x00\x01\x00\x00"):
        kex = pair(FAST)[role == "server"]
        kex.start()
        with pytest.raises(ProtocolError):
            kex.step(number + length + b"x" * 100)


AGREEMENTS = {name: METHODS[name].agreement() for name in kex_names() if "group18" not in name}


@pytest.mark.parametrize("name", AGREEMENTS)
@given(body=st.binary(max_size=200))
def test_arbitrary_bytes_raise_only_protocol_errors(name: str, body: bytes) -> None:
    agreement = AGREEMENTS[name]
    numbers: dict[Literal["client", "server"], bytes] = {"client": b"\x1f", "server": b"\x1e"}
    for role, number in numbers.items():
        for payload in (body, number + body, number + string(body), number + string(b"") + string(body) + string(b"")):
            kex = with_agreement(name, agreement, role)
            kex.start()
            try:
                kex.step(payload)
            except ProtocolError:
                assert kex.result is None


# --- ephemerals ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", kex_names())
def test_ephemerals_go_with_the_exchange(name: str) -> None:
    """The agreement is dropped by the step that used it, not when somebody drops the exchange."""
    client, server = pair(name)
    init = client.start()
    assert init is not None
    assert client._pending is not None
    used = weakref.ref(client._pending[0])
    answer = server.step(init)
    assert answer is not None
    gc.disable()
    try:
        client.step(answer)
        assert used() is None
    finally:
        gc.enable()


def test_an_exchange_is_no_reference_cycle() -> None:
    client, server = pair(FAST)
    run(client, server)
    gone = weakref.ref(client), weakref.ref(server)
    gc.disable()
    try:
        del client, server
        assert [ref() for ref in gone] == [None, None]
    finally:
        gc.enable()
