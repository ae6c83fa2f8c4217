"""Recorded and computed exchanges, replayed with their ephemerals: INIT, REPLY, K, H and the keys."""

from __future__ import annotations

from typing import Any, Literal

import pytest
from _pytest.mark.structures import ParameterSet

from sshtransport.kex import KEX_NAMES, KexContext, KexResult, derive
from sshtransport.kex.registry import METHODS, _replay_kex
from sshtransport.wire import string
from tests.support.vectors import Vector, cases

unhex = bytes.fromhex
CIPHERTEXT_SIZE = 1088


def recorded(entry: Vector, role: Literal["client", "server"]) -> dict[str, Any] | None:
    """The ephemerals of one side, or None where the entry does not know them."""
    own = entry.get("go_role") == role
    private = entry.get(f"{role}_private") or entry.get({"client": "x", "server": "y"}[role])
    if own:
        private = entry.get("x25519_private") or entry.get("dh_private")
    if private is None:
        return None
    found: dict[str, Any] = {"private": unhex(private)}
    if entry["kex"].startswith("mlkem"):
        if role == "client":
            found["seed"] = unhex(entry.get("mlkem_seed") or entry["mlkem768_seed"])
        else:
            found["encapsulated"] = unhex(entry["mlkem_shared"]), unhex(entry["S_REPLY"])[:CIPHERTEXT_SIZE]
    return found


def replayable(role: Literal["client", "server"]) -> list[ParameterSet]:
    """The entries of our methods that know the secrets of that side."""
    return cases("kex_vectors.json", lambda entry: entry["kex"] in KEX_NAMES and recorded(entry, role) is not None)


def values(entry: Vector) -> tuple[bytes, bytes]:
    """Both public values as they stand in their messages."""
    write = METHODS[entry["kex"]].values.write
    if "e" in entry:
        return write(int(entry["e"], 16)), write(int(entry["f"], 16))
    client, server = (entry.get("Q_C") or entry["C_INIT"]), (entry.get("Q_S") or entry["S_REPLY"])
    return write(unhex(client)), write(unhex(server))


def known(entry: Vector, role: Literal["client", "server"]) -> KexContext:
    made = KexContext(role, entry["V_C"].encode(), entry["V_S"].encode(), unhex(entry["I_C"]), unhex(entry["I_S"]))
    if role == "server":
        made.host_key = unhex(entry["K_S"])
        made.sign = lambda exchange_hash: unhex(entry["signature"])
    return made


def check(result: KexResult | None, entry: Vector) -> None:
    assert result is not None
    assert result.hash_name == entry["hash"]
    assert result.secret.hex() == entry["K_encoded"]
    assert result.exchange_hash.hex() == entry["H"]
    assert result.host_key.hex() == entry["K_S"]
    assert result.signature.hex() == entry["signature"]
    h = result.exchange_hash
    for way, letters in (("c2s", b"ACE"), ("s2c", b"BDF")):
        for kind, letter in zip(("iv", "key", "mac"), letters, strict=True):
            wanted = unhex(entry["keys"][way][kind])
            assert derive(result.hash_name, result.secret, h, h, bytes([letter]), len(wanted)) == wanted


@pytest.mark.parametrize("entry", replayable("client"))
def test_as_client(entry: Vector) -> None:
    """Known bugs C 34, 35, 38, 42: every shape of secret, every hash."""
    ephemerals = recorded(entry, "client")
    assert ephemerals is not None
    client_value, server_value = values(entry)
    kex = _replay_kex(entry["kex"], known(entry, "client"), **ephemerals)
    assert kex.start() == b"\x1e" + client_value
    reply = b"\x1f" + string(unhex(entry["K_S"])) + server_value + string(unhex(entry["signature"]))
    assert kex.step(reply) is None
    check(kex.result, entry)


@pytest.mark.parametrize("entry", replayable("server"))
def test_as_server(entry: Vector) -> None:
    ephemerals = recorded(entry, "server")
    assert ephemerals is not None
    client_value, server_value = values(entry)
    kex = _replay_kex(entry["kex"], known(entry, "server"), **ephemerals)
    reply = kex.step(b"\x1e" + client_value)
    assert reply == b"\x1f" + string(unhex(entry["K_S"])) + server_value + string(unhex(entry["signature"]))
    check(kex.result, entry)
