"""The part of the transport that agrees on keys and changes them (RFC 4253, sections 7 to 9).

A :class:`Keying` writes KEX messages into the packet writer and changes the cipher objects of
writer and reader. It does not know phases, gates or events: the transport asks it and acts on
what it says.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from .ciphers import NONE, CipherSpec
from .config import Role, TransportConfig
from .constants import (
    EXT_INFO_CLIENT,
    EXT_INFO_SERVER,
    SEQUENCE_MODULUS,
    STRICT_KEX_CLIENT,
    STRICT_KEX_SERVER,
)
from .errors import DisconnectReason, HostKeyError, LocalError, NegotiationError, ProtocolError, SignatureError
from .exchange import Exchange, Suite
from .kex import KexContext, make_kex
from .keys import PrivateKey, PublicKey
from .messages import NEWKEYS, KexInit
from .negotiation import Algorithms, shown_offer
from .packets import PacketReader, PacketWriter

__all__ = ("Keying",)


class Keying:
    """Key exchanges of one connection: the running one, and what the last ones left.

    ``exchange`` is the running one or None, ``algorithms`` those in use, ``session_id`` the first
    exchange's hash for the life of the connection, ``host_key`` the server's blob once trusted.
    ``write_limits`` and ``read_limits`` are the absolute counts of packets and bytes at which the
    present keys have carried enough.
    """

    __slots__ = (
        "_config",
        "_host_key_offer",
        "_kex_offer",
        "_random",
        "_reader",
        "_role",
        "_signers",
        "_suite",
        "_writer",
        "algorithms",
        "ciphers",
        "exchange",
        "exchanges",
        "host_key",
        "idents",
        "make_kex",
        "peer_takes_ext_info",
        "read_limits",
        "session_id",
        "strict",
        "write_limits",
    )

    def __init__(
        self,
        role: Role,
        config: TransportConfig,
        host_keys: Sequence[PrivateKey],
        random: Callable[[int], bytes],
        writer: PacketWriter,
        reader: PacketReader,
    ) -> None:
        self._role = role
        self._config = config
        self._random = random
        self._writer = writer
        self._reader = reader
        self._suite = Suite(config.offered_ciphers(), config.offered_macs())
        self._kex_offer = config.offered_kex(role)
        self._signers = _signers(host_keys) if role == "server" else {}
        self._host_key_offer = config.offered_host_key_algorithms(self._signers if role == "server" else None)
        if not self._host_key_offer:
            raise LocalError("a server needs a host key of an offered algorithm")
        if not self._kex_offer:
            raise LocalError("no key exchange method works here")
        self.make_kex = make_kex  # replays of recorded sessions put their own here
        self.idents = (b"", b"")  # the client's and the server's line
        self.exchange: Exchange | None = None
        self.exchanges = 0  # complete ones
        self.algorithms: Algorithms | None = None
        self.session_id: bytes | None = None
        self.strict = False
        self.host_key: bytes | None = None
        self.peer_takes_ext_info = False
        self.ciphers: tuple[CipherSpec, CipherSpec] = (NONE, NONE)  # outgoing, incoming
        self.write_limits = self.read_limits = (SEQUENCE_MODULUS, 2**63)

    @property
    def shuts_output(self) -> bool:
        """From our KEXINIT to our NEWKEYS nothing but KEX may leave (RFC 4253, section 7.1)."""
        exchange = self.exchange
        return exchange is not None and exchange.ours is not None and not exchange.newkeys_sent

    @property
    def shuts_input(self) -> bool:
        """From the peer's KEXINIT to its NEWKEYS nothing but KEX may arrive."""
        exchange = self.exchange
        return exchange is not None and exchange.theirs is not None and not exchange.newkeys_received

    def start(self) -> None:
        """Send our KEXINIT."""
        exchange = self.exchange
        if exchange is None:
            exchange = self.exchange = Exchange(first=self.session_id is None)
        kex = self._kex_offer
        if exchange.first:
            # Markers stand last, or they would spoil the peer's guess, and only in the first KEXINIT.
            client = self._role == "client"
            kex += (EXT_INFO_CLIENT if client else EXT_INFO_SERVER,)
            if self._config.strict_kex != "off":
                kex += (STRICT_KEX_CLIENT if client else STRICT_KEX_SERVER,)
        ciphers, macs = tuple(self._suite.ciphers), tuple(self._suite.macs)
        exchange.ours = KexInit(self._random(16), kex, self._host_key_offer, ciphers, ciphers, macs, macs)
        exchange.our_payload = exchange.ours.encode()
        self._writer.write(exchange.our_payload)

    def on_kexinit(self, payload: bytes) -> None:
        """The peer's KEXINIT: answer with ours if it has not left, agree, and begin the method.

        Raises:
            ProtocolError, NegotiationError: see RFC 4253, section 7.1.
        """
        exchange = self.exchange
        if exchange is not None and exchange.theirs is not None:
            raise ProtocolError("second KEXINIT in one key exchange")
        theirs = KexInit.decode(payload)
        if exchange is None:
            exchange = self.exchange = Exchange(first=False)
        exchange.theirs, exchange.their_payload = theirs, payload
        if exchange.first:
            self._read_markers(theirs)
        if exchange.ours is None:
            self.start()
        algorithms = exchange.agree(self._role, self._suite)
        exchange.method = self.make_kex(algorithms.kex, self._context(exchange, algorithms))
        init = exchange.method.start()
        if init is not None:
            self._writer.write(init)

    def _read_markers(self, theirs: KexInit) -> None:
        """Strict KEX and extensions are decided here, once (RFC 8308, section 2.1; strict KEX draft)."""
        peer_is_server = self._role == "client"
        offered = (STRICT_KEX_SERVER if peer_is_server else STRICT_KEX_CLIENT) in theirs.kex
        self.peer_takes_ext_info = (EXT_INFO_SERVER if peer_is_server else EXT_INFO_CLIENT) in theirs.kex
        self.strict = offered and self._config.strict_kex != "off"
        if self._config.strict_kex == "require" and not offered:
            offer = shown_offer(theirs.kex)
            raise NegotiationError("the peer does not offer strict KEX", category="strict kex", theirs=offer)
        if self.strict and self._reader.sequence != 1:
            raise ProtocolError("strict KEX violation: KEXINIT was not the first packet")

    def _context(self, exchange: Exchange, algorithms: Algorithms) -> KexContext:
        client_ident, server_ident = self.idents
        ours, theirs = exchange.our_payload, exchange.their_payload
        if self._role == "client":
            return KexContext("client", client_ident, server_ident, ours, theirs)
        key, name = self._signers[algorithms.host_key], algorithms.host_key
        self.host_key = key.public_key.blob
        return KexContext(
            "server",
            client_ident,
            server_ident,
            theirs,
            ours,
            host_key=self.host_key,
            sign=lambda data: key.sign(name, data),
        )

    def on_message(self, payload: bytes) -> bool:
        """A message of the method; True when it gave the result, which is then proven by its signature.

        Raises:
            ProtocolError: out of order, or a value out of range.
            HostKeyError: the signature over the exchange is wrong.
        """
        exchange = self.exchange
        if exchange is None or exchange.method is None or exchange.result is not None:
            raise ProtocolError(f"message {payload[0]} is out of order in the key exchange")
        reply = exchange.method.step(payload)
        result = exchange.result = exchange.method.result
        if reply is not None:
            self._writer.write(reply)
        if result is None:
            return False
        if self._role == "client":
            self._verify(exchange)
        if self.session_id is None:
            self.session_id = result.exchange_hash
        return True

    def _verify(self, exchange: Exchange) -> None:
        result, names = exchange.result, exchange.algorithms
        assert result is not None and names is not None
        try:
            key = PublicKey.from_blob(result.host_key, rsa_min_bits=self._config.rsa_min_bits)
            key.verify(names.host_key, result.exchange_hash, result.signature)
        except SignatureError as error:
            raise HostKeyError(
                f"the server's signature over the key exchange is wrong: {error.message}",
                verdict="signature",
                reason=DisconnectReason.KEY_EXCHANGE_FAILED,
            ) from error

    def send_newkeys(self) -> None:
        """Our NEWKEYS: what leaves from here on uses the new keys (RFC 4253, section 7.3)."""
        exchange, session_id, writer = self.exchange, self.session_id, self._writer
        assert exchange is not None and session_id is not None
        writer.write(NEWKEYS)
        spec, sealer = exchange.sealer(self._role, self._suite, session_id)
        writer.change(sealer, reset=self.strict)
        exchange.newkeys_sent = True
        self.ciphers = (spec, self.ciphers[1])
        self.write_limits = self._limits(spec, writer.packets, writer.total)

    def on_newkeys(self, payload: bytes) -> bool:
        """The peer's NEWKEYS, the end of the exchange; True when it was the first one.

        Raises:
            ProtocolError: it came too early, or twice.
        """
        exchange, session_id, reader = self.exchange, self.session_id, self._reader
        if exchange is None or not exchange.newkeys_sent or len(payload) != 1:
            raise ProtocolError("NEWKEYS is out of order")
        assert session_id is not None
        spec, opener = exchange.opener(self._role, self._suite, session_id)
        reader.change(opener, reset=self.strict)
        exchange.newkeys_received = True
        self.algorithms = exchange.algorithms
        self.ciphers = (self.ciphers[0], spec)
        self.read_limits = self._limits(spec, reader.packets, reader.total)
        self.exchange = None
        self.exchanges += 1
        return exchange.first

    def _limits(self, spec: CipherSpec, packets: int, total: int) -> tuple[int, int]:
        return packets + self._config.rekey_packets, total + self._config.rekey_bytes_for(spec)

    def drop(self) -> None:
        """The connection is over: forget what is half done."""
        self.exchange = None


def _signers(host_keys: Sequence[PrivateKey]) -> dict[str, PrivateKey]:
    """Signature algorithm to key; the first key that can do it."""
    signers: dict[str, PrivateKey] = {}
    for key in host_keys:
        for name in key.signature_algorithms:
            signers.setdefault(name, key)
    return signers
