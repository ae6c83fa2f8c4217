"""Both sides of a key exchange in memory."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

from sshtransport.kex import KexContext, KexResult, KeyExchange, make_kex
from sshtransport.kex.base import Agreement
from sshtransport.kex.registry import METHODS
from sshtransport.wire import string

__all__ = ("HOST_KEY", "SIGNATURE", "context", "pair", "reply", "run", "with_agreement")

HOST_KEY = string(b"ssh-ed25519") + string(bytes(32))
SIGNATURE = b"signature of "


def context(role: Literal["client", "server"], **changed: Any) -> KexContext:
    """What both sides know after the KEXINITs, and a server that signs by repeating."""
    known = KexContext(role, b"SSH-2.0-a", b"SSH-2.0-b comment", b"\x14" + b"c" * 40, b"\x14" + b"s" * 50)
    if role == "server":
        known = replace(known, host_key=HOST_KEY, sign=lambda exchange_hash: SIGNATURE + exchange_hash)
    return replace(known, **changed)


def pair(name: str) -> tuple[KeyExchange, KeyExchange]:
    """A client and a server for one exchange."""
    return make_kex(name, context("client")), make_kex(name, context("server"))


def run(client: KeyExchange, server: KeyExchange) -> tuple[KexResult, KexResult]:
    """The whole exchange; the results of client and server."""
    init = client.start()
    assert init is not None
    assert server.start() is None
    answer = server.step(init)
    assert answer is not None
    assert client.step(answer) is None
    assert client.result is not None
    assert server.result is not None
    return client.result, server.result


def with_agreement(name: str, agreement: Agreement[Any], role: Literal["client", "server"]) -> KeyExchange:
    """A key exchange of the method ``name`` around a given agreement, which may serve many."""
    return KeyExchange(replace(METHODS[name], agreement=lambda: agreement), context(role))


def reply(name: str, value: Any, host_key: bytes = HOST_KEY, signature: bytes = SIGNATURE) -> bytes:
    """A server's REPLY with the public value ``value``."""
    return b"\x1f" + string(host_key) + METHODS[name].values.write(value) + string(signature)
