"""TransportConfig: everything wrong is a LocalError when it is made."""

from __future__ import annotations

import math
from dataclasses import FrozenInstanceError, replace
from typing import Any

import pytest

from sshtransport import config as config_module
from sshtransport.ciphers import DEFAULT_CIPHERS, DEFAULT_MACS, NONE, get_cipher, get_mac
from sshtransport.config import TransportConfig
from sshtransport.errors import LocalError
from sshtransport.kex import CLIENT_DEFAULTS, KEX_NAMES, SERVER_DEFAULTS
from sshtransport.keys import HOST_KEY_ALGORITHMS
from sshtransport.transport import SSHTransport
from tests.support.pair import host_key

GCM = get_cipher("aes256-gcm@openssh.com")
HMAC = get_mac("hmac-sha2-256")

NO_NAMES: tuple[Any, ...] = ((), [], "", "aes256-ctr", b"x")
NOT_NAMES: tuple[Any, ...] = (5, True, "x", ["rot13"], [""], [None], [5], [["a"]], [b"aes256-ctr"], ["none"])
WRONG: list[tuple[str, Any]] = [
    *((field, value) for field in ("kex", "host_key_algorithms", "ciphers") for value in NO_NAMES),
    *((field, value) for field in ("kex", "host_key_algorithms", "ciphers", "macs") for value in NOT_NAMES),
    ("kex", ["curve25519-sha256", "curve25519-sha256"]),
    ("kex", ["kex-strict-c-v00@openssh.com"]),
    ("kex", ["ext-info-c"]),
    ("host_key_algorithms", ["ssh-ed25519"] * 2),
    ("ciphers", ["aes256-ctr", "aes256-ctr"]),
    ("ciphers", [GCM, "aes256-gcm@openssh.com"]),
    ("ciphers", [HMAC]),
    ("ciphers", [GCM, HMAC]),
    ("macs", [GCM]),
    ("macs", [HMAC, HMAC]),
    *(("ciphers", [replace(GCM, name=name)]) for name in ("", "a,b", "a b", "x" * 65, "caf\u00e9", "a\n")),
    *(("macs", [replace(HMAC, name=name)]) for name in ("", "a,b", "x" * 65)),
    *(("strict_kex", value) for value in ("", "on", True, None, 1, ["auto"])),
    *(("rekey_bytes", value) for value in (0, -1, 1023, 2**60 + 1, 4096.5, "1", True, math.nan)),
    *(("rekey_packets", value) for value in (0, 15, 2**32 - 2**20 + 1, 100.0, None, "16", True, math.inf)),
    *(("rekey_seconds", value) for value in (0, 0.001, -1, 1e10, math.nan, math.inf, "1", True)),
    *(("rekey_timeout", value) for value in (0, 0.001, None, 1e10, math.nan, "1")),
    *(("window_size", value) for value in (0, -1, 2**32, 1.5, None, "1", True)),
    *(("max_packet_size", value) for value in (0, 261_633, 1.5, None, 2**32)),
    *(("rsa_min_bits", value) for value in (0, 1023, 16_385, 2048.0, None)),
    *(("software_version", value) for value in ("", "a b", "a-b", None, 5, b"x", "x" * 246)),
    *(("padding", value) for value in (5, b"\0" * 100, "random")),
]


@pytest.mark.parametrize(("field", "value"), WRONG, ids=[f"{f}={v!r:.40}" for f, v in WRONG])
def test_wrong_values(field: str, value: Any) -> None:
    given: Any = {field: value}
    with pytest.raises(LocalError, match=field.replace("_", ".").replace("software.version", "software version")):
        TransportConfig(**given)


RIGHT: list[tuple[str, Any]] = [
    ("kex", ["curve25519-sha256"]),
    ("kex", KEX_NAMES),
    ("host_key_algorithms", HOST_KEY_ALGORITHMS[::-1]),
    ("ciphers", [GCM]),
    ("ciphers", ["aes256-ctr", replace(GCM, name="private@example.com")]),
    ("ciphers", [replace(GCM, name="x" * 64)]),
    ("macs", ()),
    ("macs", ["hmac-sha2-512", HMAC]),
    ("rekey_bytes", 1024),
    ("rekey_bytes", 2**60),
    ("rekey_packets", 16),
    ("rekey_packets", 2**32 - 2**20),
    ("rekey_seconds", None),
    ("rekey_seconds", 1),
    ("rekey_timeout", 0.5),
    ("window_size", 1),
    ("window_size", 2**32 - 1),
    ("max_packet_size", 261_632),
    ("rsa_min_bits", 1024),
    ("rsa_min_bits", 16_384),
    ("software_version", "x"),
    ("strict_kex", "require"),
    ("padding", bytes),
]


@pytest.mark.parametrize(("field", "value"), RIGHT, ids=[f"{f}={v!r:.40}" for f, v in RIGHT])
def test_right_values(field: str, value: Any) -> None:
    given: Any = {field: value}
    made = TransportConfig(**given)
    kept = getattr(made, field)
    assert kept == (tuple(value) if isinstance(value, (list, tuple)) else value)


def test_lists_are_copied_and_fields_frozen() -> None:
    names: list[Any] = ["aes256-ctr"]
    made = TransportConfig(ciphers=names)
    names.append("rot13")
    assert made.ciphers == ("aes256-ctr",)
    with pytest.raises(FrozenInstanceError):
        made.ciphers = None  # type: ignore[misc]
    assert made == TransportConfig(ciphers=["aes256-ctr"])
    with pytest.raises(TypeError):
        TransportConfig(["curve25519-sha256"])  # type: ignore[call-arg]


def test_defaults() -> None:
    """Design section 4; no SHA-1, no CBC, no ``none``."""
    made = TransportConfig()
    assert made.offered_kex("client") == CLIENT_DEFAULTS
    assert made.offered_kex("server") == SERVER_DEFAULTS
    assert tuple(made.offered_ciphers()) == DEFAULT_CIPHERS
    assert tuple(made.offered_macs()) == DEFAULT_MACS
    assert made.offered_host_key_algorithms() == HOST_KEY_ALGORITHMS
    assert DEFAULT_CIPHERS == (
        "aes256-gcm@openssh.com",
        "aes128-gcm@openssh.com",
        "chacha20-poly1305@openssh.com",
        "aes256-ctr",
        "aes128-ctr",
    )
    offered = (*CLIENT_DEFAULTS, *DEFAULT_CIPHERS, *DEFAULT_MACS, *HOST_KEY_ALGORITHMS)
    assert not [n for n in offered if "sha1" in n or "cbc" in n or n in ("none", "ssh-rsa")]
    assert all(len(name) <= 64 for name in offered)
    values = (made.strict_kex, made.rekey_bytes, made.rekey_packets, made.rekey_seconds, made.rekey_timeout)
    assert values == ("auto", None, 2**31, 3600.0, 120.0)
    assert (made.window_size, made.max_packet_size, made.rsa_min_bits) == (2**21, 32_768, 2048)
    assert not made.rekey_before_login


def test_the_version_is_the_packages() -> None:
    from sshtransport import __version__

    assert TransportConfig().software_version == f"sshtransport_{__version__}"


def test_a_server_offers_what_its_keys_can_do() -> None:
    made = TransportConfig(host_key_algorithms=["rsa-sha2-256", "ssh-ed25519"])
    assert made.offered_host_key_algorithms(["ssh-ed25519", "rsa-sha2-512"]) == ("ssh-ed25519",)
    with pytest.raises(LocalError, match="host key"):
        SSHTransport("server", TransportConfig(host_key_algorithms=["rsa-sha2-256"]), host_keys=[host_key()])
    with pytest.raises(LocalError, match="host key"):
        SSHTransport("server")


def test_rekey_bytes_for_a_cipher() -> None:
    """What the user says, 1 GiB, or less where the cipher says so."""
    small = replace(GCM, rekey_bytes=2**20)
    assert TransportConfig().rekey_bytes_for(GCM) == 2**30
    assert TransportConfig().rekey_bytes_for(small) == 2**20
    assert TransportConfig(rekey_bytes=2**40).rekey_bytes_for(GCM) == 2**40
    assert TransportConfig(rekey_bytes=2**40).rekey_bytes_for(small) == 2**20
    assert TransportConfig(rekey_bytes=4096).rekey_bytes_for(small) == 4096


def test_a_method_the_library_cannot_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """Left out of the defaults; an error where it was asked for."""
    monkeypatch.setattr(config_module, "kex_names", lambda: ("curve25519-sha256",))
    assert TransportConfig().offered_kex("client") == ("curve25519-sha256",)
    named = TransportConfig(kex=["curve25519-sha256", "ecdh-sha2-nistp256"])
    with pytest.raises(LocalError, match="ecdh-sha2-nistp256"):
        named.offered_kex("server")
    with pytest.raises(LocalError):
        SSHTransport("client", named)
    monkeypatch.setattr(config_module, "kex_names", lambda: ())
    with pytest.raises(LocalError, match="no key exchange method"):
        SSHTransport("client")


def test_plain_must_be_asked_for_as_an_object() -> None:
    assert tuple(TransportConfig(ciphers=[NONE]).offered_ciphers()) == ("none",)
