"""The table of methods and the public way to a key exchange."""

from __future__ import annotations

import inspect

import pytest
from cryptography.exceptions import UnsupportedAlgorithm

from sshtransport.constants import PSEUDO_KEX_NAMES
from sshtransport.errors import LocalError
from sshtransport.kex import CLIENT_DEFAULTS, KEX_NAMES, SERVER_DEFAULTS, kex_names, make_kex, registry
from sshtransport.kex.mlkem import METHODS as HYBRIDS
from tests.support.kex import context


def test_defaults_in_the_order_of_the_design() -> None:
    assert CLIENT_DEFAULTS == (
        "mlkem768x25519-sha256",
        "curve25519-sha256",
        "curve25519-sha256@libssh.org",
        "ecdh-sha2-nistp256",
        "ecdh-sha2-nistp384",
        "ecdh-sha2-nistp521",
        "diffie-hellman-group16-sha512",
        "diffie-hellman-group18-sha512",
        "diffie-hellman-group14-sha256",
    )
    assert CLIENT_DEFAULTS[:6] == SERVER_DEFAULTS
    assert set(CLIENT_DEFAULTS) <= set(KEX_NAMES)
    assert not any("sha1" in name or "group1-" in name for name in KEX_NAMES)


def test_names_are_names() -> None:
    """RFC 4251, section 6: printable, at most 64, and no marker among them."""
    for name in KEX_NAMES:
        assert name.isascii()
        assert name.isprintable()
        assert len(name) <= 64
        assert "," not in name
    assert not set(KEX_NAMES) & PSEUDO_KEX_NAMES


@pytest.mark.parametrize("name", ["", "none", "ext-info-c", "curve25519-sha256 ", "diffie-hellman-group1-sha1"])
def test_unknown_names_are_the_callers_mistake(name: str) -> None:
    with pytest.raises(LocalError):
        make_kex(name, context("client"))


def test_recorded_ephemerals_are_not_within_public_reach() -> None:
    assert list(inspect.signature(make_kex).parameters) == ["name", "context"]


def test_a_method_the_library_cannot_do_is_not_offered(monkeypatch: pytest.MonkeyPatch) -> None:
    """An OpenSSL without ML-KEM, say: the hybrid is missing from the names and cannot be made."""

    def unsupported() -> None:
        raise UnsupportedAlgorithm("not in this build")

    method = HYBRIDS[0]
    changed = type(method)(
        method.name, method.hash_name, method.agreement, method.values, method.encode_secret, unsupported
    )
    monkeypatch.setitem(registry.METHODS, method.name, changed)
    registry._available.cache_clear()
    try:
        assert kex_names() == KEX_NAMES[1:]
        with pytest.raises(LocalError):
            make_kex(method.name, context("client"))
    finally:
        registry._available.cache_clear()
