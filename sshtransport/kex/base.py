"""One key exchange of the shape "one INIT, one REPLY", and the key derivation.

Every method here runs the same way (RFC 4253, section 8): the client sends a public value, the
server answers with its host key, its own value and a signature over the exchange hash. What
differs between methods stands in a :class:`Method`: the hash, how a value and the secret are
encoded, and the :class:`Agreement` that does the arithmetic.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Generic, Literal, TypeVar

from ..constants import MSG_KEX_INIT, MSG_KEX_REPLY
from ..errors import DisconnectReason, LocalError, ProtocolError
from ..wire import Reader, byte, mpint, string

__all__ = (
    "MPINTS",
    "STRINGS",
    "Agreement",
    "KexContext",
    "KexResult",
    "KeyExchange",
    "Method",
    "Values",
    "derive",
    "secret_mpint",
)

_V = TypeVar("_V")

_PHASE = "key exchange"


@dataclass(slots=True)
class KexContext:
    """What enters the exchange hash besides the method's own values.

    The idents are the identification lines without CR LF, the KEXINITs whole payloads, all byte
    for byte as they went over the wire. A server also gives ``host_key``, its public key blob K_S,
    and ``sign``, which turns the exchange hash into a signature blob.
    """

    role: Literal["client", "server"]
    client_ident: bytes
    server_ident: bytes
    client_kexinit: bytes
    server_kexinit: bytes
    host_key: bytes = b""
    sign: Callable[[bytes], bytes] | None = None


@dataclass(slots=True)
class KexResult:
    """The outcome. On the client nothing of it is trusted before ``signature`` was verified.

    ``secret`` is K exactly as it is hashed: an mpint or a string, length prefix included.
    """

    host_key: bytes
    signature: bytes
    exchange_hash: bytes
    secret: bytes = field(repr=False)
    hash_name: str


class Agreement(ABC, Generic[_V]):
    """One side's share of one exchange: made fresh, used once, then dropped.

    ``_V`` is the type of a public value. A value of the peer that cannot be used raises ValueError,
    from our own checks or from the library's; :class:`KeyExchange` turns it into a ProtocolError.
    """

    @abstractmethod
    def public(self) -> _V:
        """Our public value; on the client the first thing asked for."""

    @abstractmethod
    def finish(self, peer: _V) -> bytes:
        """The shared secret from the peer's value, at the method's fixed width."""

    def respond(self, peer: _V) -> tuple[_V, bytes]:
        """The server's public value and the shared secret.

        Diffie-Hellman treats both sides alike; a key encapsulation does not and overrides this.
        """
        secret = self.finish(peer)
        return self.public(), secret


@dataclass(frozen=True, slots=True)
class Values(Generic[_V]):
    """How a method's public values stand in its messages and in the exchange hash."""

    read: Callable[[Reader], _V]
    write: Callable[[_V], bytes]


STRINGS: Values[bytes] = Values(Reader.string, string)
#: Integers are hashed as we write them: minimal, also where the peer's mpint was not.
MPINTS: Values[int] = Values(Reader.mpint, mpint)


def secret_mpint(secret: bytes) -> bytes:
    """K of all classical methods: the octets read as one big-endian number (RFC 8731, section 3.1).

    Leading zeros vanish and a set top bit gains one: the same place serves every method.
    """
    return mpint(int.from_bytes(secret, "big"))


@dataclass(frozen=True, slots=True)
class Method(Generic[_V]):
    """One key exchange method.

    ``agreement`` takes only recorded ephemerals, as keywords, for replays; without any it is
    fresh. ``probe`` raises UnsupportedAlgorithm where the crypto library cannot do the method.
    """

    name: str
    hash_name: str
    agreement: Callable[..., Agreement[_V]]
    values: Values[_V]
    encode_secret: Callable[[bytes], bytes]
    probe: Callable[[], object]


class KeyExchange:
    """One run of one method, for one side.

    A client calls :meth:`start` and sends what it returns; then either side hands each message of
    the method to :meth:`step` and sends what that returns. ``result`` is set at the end.
    """

    def __init__(self, method: Method[Any], context: KexContext, recorded: dict[str, Any] | None = None) -> None:
        if context.role == "server" and context.sign is None:
            raise LocalError("a server's key exchange needs a signing function")
        self.name = method.name
        self.result: KexResult | None = None
        self._method = method
        self._context = context
        self._recorded = recorded or {}
        self._started = False
        #: The message number due next: a server waits for INIT from the beginning.
        self._due: int | None = None if context.role == "client" else MSG_KEX_INIT
        #: A client's ephemeral and its public value, between INIT and REPLY.
        self._pending: tuple[Agreement[Any], Any] | None = None

    def start(self) -> bytes | None:
        """The client's INIT; None on a server, which speaks second.

        Raises LocalError when called a second time.
        """
        if self._started:
            raise LocalError("this key exchange has been started before")
        self._started = True
        if self._context.role == "server":
            return None
        agreement = self._method.agreement(**self._recorded)
        value = agreement.public()
        self._pending = agreement, value
        self._due = MSG_KEX_REPLY
        return byte(MSG_KEX_INIT) + self._method.values.write(value)

    def step(self, payload: bytes) -> bytes | None:
        """Take the peer's next message (its number included); a server returns the REPLY.

        Raises ProtocolError for a message that is not the one due, does not parse, or holds a
        value that must be refused. The exchange is over then: every later message is refused too.
        """
        due, self._due = self._due, None
        pending, self._pending = self._pending, None
        reader = Reader(payload)
        if reader.byte() != due:
            raise ProtocolError("key exchange message out of order", phase=_PHASE)
        if pending is None:
            return self._on_init(reader)
        self._on_reply(reader, *pending)
        return None

    def _on_init(self, reader: Reader) -> bytes:
        """Server: KEXDH_INIT, KEX_ECDH_INIT and their likes."""
        method, context = self._method, self._context
        assert context.sign is not None
        theirs = method.values.read(reader)
        reader.end()
        try:
            ours, raw = method.agreement(**self._recorded).respond(theirs)
        except ValueError as error:
            raise _refused(error) from None
        secret = method.encode_secret(raw)
        exchange_hash = self._hash(context.host_key, theirs, ours, secret)
        signature = context.sign(exchange_hash)
        self.result = KexResult(context.host_key, signature, exchange_hash, secret, method.hash_name)
        return byte(MSG_KEX_REPLY) + string(context.host_key) + method.values.write(ours) + string(signature)

    def _on_reply(self, reader: Reader, agreement: Agreement[_V], ours: _V) -> None:
        """Client: KEXDH_REPLY, KEX_ECDH_REPLY and their likes."""
        method: Method[_V] = self._method
        host_key = reader.string()
        theirs = method.values.read(reader)
        signature = reader.string()
        reader.end()
        try:
            raw = agreement.finish(theirs)
        except ValueError as error:
            raise _refused(error) from None
        secret = method.encode_secret(raw)
        exchange_hash = self._hash(host_key, ours, theirs, secret)
        self.result = KexResult(host_key, signature, exchange_hash, secret, method.hash_name)

    def _hash(self, host_key: bytes, client_value: Any, server_value: Any, secret: bytes) -> bytes:
        """The exchange hash H (RFC 4253, section 8; RFC 5656, section 4)."""
        context, write = self._context, self._method.values.write
        fields = (context.client_ident, context.server_ident, context.client_kexinit, context.server_kexinit, host_key)
        hashed = b"".join((*map(string, fields), write(client_value), write(server_value), secret))
        return hashlib.new(self._method.hash_name, hashed).digest()


def _refused(error: ValueError) -> ProtocolError:
    return ProtocolError(
        f"key exchange value refused: {error}", reason=DisconnectReason.KEY_EXCHANGE_FAILED, phase=_PHASE
    )


def derive(hash_name: str, secret: bytes, exchange_hash: bytes, session_id: bytes, letter: bytes, size: int) -> bytes:
    """``size`` bytes of key material for one ``letter`` of A to F (RFC 4253, section 7.2).

    ``secret`` is :attr:`KexResult.secret`; ``session_id`` the exchange hash of the connection's
    first exchange, whatever its hash was.
    """
    prefix = secret + exchange_hash
    material = hashlib.new(hash_name, prefix + letter + session_id).digest()
    while len(material) < size:
        material += hashlib.new(hash_name, prefix + material).digest()
    return material[:size]
