"""Finite-field groups: the primes, the range of values, and life without the library's support."""

from __future__ import annotations

import hashlib
import sys
import warnings
from collections.abc import Iterator

import pytest
from cryptography.hazmat.primitives import asymmetric

from sshtransport.errors import DisconnectReason, LocalError, ProtocolError
from sshtransport.kex import CLIENT_DEFAULTS, KEX_NAMES, SERVER_DEFAULTS, kex_names, make_kex, registry
from sshtransport.kex.dh import FiniteField, _library, modp_prime
from sshtransport.kex.registry import METHODS
from sshtransport.wire import mpint, string
from tests.support.kex import HOST_KEY, SIGNATURE, context, run, with_agreement

NAMES = {
    "diffie-hellman-group14-sha256": 2048,
    "diffie-hellman-group16-sha512": 4096,
    "diffie-hellman-group18-sha512": 8192,
}
LIBRARY = "cryptography.hazmat.primitives.asymmetric.dh"


@pytest.mark.parametrize(
    ("bits", "digest"),
    [
        (2048, "d66436f79bbd6b2e38c0ffbd079be904d2641415e2e67140e09448be9a60890e"),
        (4096, "4ee95187682bcb230ad26a95205f6920e84708f6251b3894329b09ec23919e33"),
        (8192, "39ab4feab950a3128fb71accb9fc3965d857012e081998a85996e3ea8b3c3bcf"),
    ],
)
def test_the_primes_are_those_of_rfc_3526(bits: int, digest: str) -> None:
    p = modp_prime(bits)
    assert hashlib.sha256(p.to_bytes(bits // 8, "big")).hexdigest() == digest
    assert p >> (bits - 64) == p % 2**64 == 2**64 - 1


def bodies(field: bytes) -> tuple[bytes, bytes]:
    """INIT and REPLY around an encoded public value."""
    return b"\x1e" + field, b"\x1f" + string(HOST_KEY) + field + string(SIGNATURE)


def refused(name: str, agreement: FiniteField, init: bytes, answer: bytes) -> set[DisconnectReason]:
    """The reasons with which both roles refuse."""
    reasons = set()
    client, server = with_agreement(name, agreement, "client"), with_agreement(name, agreement, "server")
    client.start()
    for kex, payload in ((client, answer), (server, init)):
        with pytest.raises(ProtocolError) as caught:
            kex.step(payload)
        assert kex.result is None
        reasons.add(caught.value.reason)
    return reasons


@pytest.mark.parametrize("name", NAMES)
def test_values_out_of_range_are_refused(name: str) -> None:
    """RFC 8268, section 4: 1 < e, f < p-1."""
    p = modp_prime(NAMES[name])
    agreement = FiniteField(NAMES[name])
    for value in (0, 1, p - 1, p, p + 1, p + 2, 2 * p, 2 ** (NAMES[name] + 8), 2**100_000):
        assert refused(name, agreement, *bodies(mpint(value))) == {DisconnectReason.KEY_EXCHANGE_FAILED}
    for value in (-1, -2, -p, 2 - p):
        field = string(value.to_bytes(NAMES[name] // 8 + 1, "big", signed=True))
        assert refused(name, agreement, *bodies(field)) == {DisconnectReason.PROTOCOL_ERROR}


@pytest.mark.parametrize("name", NAMES)
def test_the_ends_of_the_range_are_taken(name: str) -> None:
    p = modp_prime(NAMES[name])
    agreement = FiniteField(NAMES[name])
    for value in (2, p - 2):
        server = with_agreement(name, agreement, "server")
        assert server.step(bodies(mpint(value))[0])
        assert server.result is not None


def test_a_surplus_zero_is_taken_and_not_hashed() -> None:
    """A value that is not minimal counts as the number it is (protocol facts 11.2, 21b)."""
    name = "diffie-hellman-group14-sha256"
    agreement = FiniteField(2048)
    value = agreement.public()
    surplus = string(bytes(3) + value.to_bytes(257, "big"))
    results = []
    for init in (b"\x1e" + surplus, b"\x1e" + mpint(value)):
        server = with_agreement(name, agreement, "server")
        server.step(init)
        assert server.result is not None
        results.append(server.result.exchange_hash)
    assert results[0] == results[1]


@pytest.mark.parametrize(("name", "bits"), NAMES.items())
def test_exponents_have_twice_the_strength_of_the_group(name: str, bits: int) -> None:
    """112, 152 and 200 bits of strength (NIST SP 800-56A, appendix D; RFC 7919, appendix A)."""
    exponent = FiniteField(bits)._key.private_numbers().x
    strength = {2048: 112, 4096: 152, 8192: 200}[bits]
    # The library draws below 2**length; 30 leading zeros in a row will not be seen.
    assert exponent.bit_length() > 2 * strength - 30


# --- with and without the library's support ----------------------------------------------------------------


@pytest.fixture
def forgotten() -> Iterator[None]:
    """The library is looked up anew, in this test and after it."""
    for cached in (_library, registry._available):
        cached.cache_clear()
    yield
    for cached in (_library, registry._available):
        cached.cache_clear()


@pytest.mark.usefixtures("forgotten")
def test_nobody_sees_the_deprecation_warning() -> None:
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        assert kex_names() == KEX_NAMES
        name = "diffie-hellman-group14-sha256"
        run(make_kex(name, context("client")), make_kex(name, context("server")))
    assert seen == []


@pytest.mark.usefixtures("forgotten")
@pytest.mark.parametrize("gone", ["module", "classes"])
def test_where_the_library_has_no_finite_fields(gone: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The methods are not offered and cannot be made; everything else goes on."""
    if gone == "module":
        monkeypatch.delattr(asymmetric, "dh", raising=False)
        monkeypatch.setitem(sys.modules, LIBRARY, None)
    else:
        monkeypatch.setitem(sys.modules, LIBRARY, type(sys)(LIBRARY))
        monkeypatch.setattr(asymmetric, "dh", sys.modules[LIBRARY], raising=False)
    assert kex_names() == SERVER_DEFAULTS
    for name in NAMES:
        with pytest.raises(LocalError):
            make_kex(name, context("client"))
    run(make_kex("curve25519-sha256", context("client")), make_kex("curve25519-sha256", context("server")))


def test_servers_offer_finite_fields_only_when_asked() -> None:
    assert set(CLIENT_DEFAULTS) - set(SERVER_DEFAULTS) == set(NAMES) == {n for n in METHODS if n.startswith("diffie")}
