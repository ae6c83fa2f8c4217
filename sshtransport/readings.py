"""What can be read off a transport: where it stands, what was agreed, how much has passed."""

from __future__ import annotations

from enum import StrEnum

from .config import TransportConfig
from .constants import MSG_CHANNEL_DATA, OUTPUT_HIGH_WATER
from .gates import Departure, Phase
from .keying import Keying
from .negotiation import Algorithms
from .outbox import Outbox
from .packets import PacketReader, PacketWriter

__all__ = ("Readings", "TransportState")

_SEND = Departure.SEND  # reading a member off its class costs 130 ns on CPython 3.11, a global 15


class TransportState(StrEnum):
    """Where the transport itself stands; ``phase`` says what the connection is busy with."""

    HANDSHAKE = "handshake"  # no keys yet
    OPEN = "open"
    REKEY = "rekey"
    CLOSED = "closed"


class Readings:
    """Base of SSHTransport: its read-only properties."""

    config: TransportConfig
    phase: Phase
    congested: bool
    _departure: bytes
    _keying: Keying
    _offered: bytes | None
    _outbox: Outbox
    _reader: PacketReader
    _writer: PacketWriter

    @property
    def state(self) -> TransportState:
        """Whether keys are in place, being changed, or the connection is over."""
        if self.phase is Phase.CLOSED:
            return TransportState.CLOSED
        if self.phase in (Phase.IDENTIFICATION, Phase.KEX):
            return TransportState.HANDSHAKE
        return TransportState.OPEN if self._keying.exchange is None else TransportState.REKEY

    @property
    def session_id(self) -> bytes | None:
        """The hash of the first key exchange, for the life of the connection (RFC 4253, section 7.2)."""
        return self._keying.session_id

    @property
    def algorithms(self) -> Algorithms | None:
        """What the last complete key exchange agreed on."""
        return self._keying.algorithms

    @property
    def strict_kex(self) -> bool:
        """Whether strict KEX is in force."""
        return self._keying.strict

    @property
    def host_key(self) -> bytes | None:
        """The server's public key blob; at a client only once it has been accepted."""
        return self._keying.host_key

    @property
    def want_read(self) -> bool:
        """False while a host key waits for its verdict, and after the end."""
        return self._offered is None and self.phase is not Phase.CLOSED

    @property
    def rekeying(self) -> bool:
        """Whether a key exchange other than the first one is running."""
        exchange = self._keying.exchange
        return exchange is not None and not exchange.first

    @property
    def rekeys(self) -> int:
        """Key exchanges completed after the first one."""
        return max(self._keying.exchanges - 1, 0)

    @property
    def may_rekey(self) -> bool:
        """Whether ``rekey()`` can be called now."""
        login = (Phase.SERVICE, Phase.AUTH, Phase.PROMPT)
        return self.phase is Phase.OPEN or (self.config.rekey_before_login and self.phase in login)

    @property
    def held_size(self) -> int:
        """Bytes of messages that wait for our NEWKEYS."""
        return self._outbox.size

    @property
    def output(self) -> PacketWriter:
        """For a shell that looks at ``output.pending`` with every read: the same, a property call less."""
        return self._writer

    @property
    def pending_output(self) -> int:
        """Bytes that ``data_to_send`` would give."""
        return self._writer.pending

    @property
    def secure(self) -> bool:
        """Whether both directions are encrypted and authenticated now."""
        return all(spec.secure for spec in self._keying.ciphers)

    @property
    def can_send_data(self) -> bool:
        """Whether ``send_data`` may be called: login done, no rekey of ours, output below its mark."""
        return (
            self._departure[MSG_CHANNEL_DATA] == _SEND
            and not self.congested
            and self._writer.pending < OUTPUT_HIGH_WATER
        )

    @property
    def packets_sent(self) -> int:
        return self._writer.packets

    @property
    def packets_received(self) -> int:
        return self._reader.packets

    @property
    def bytes_sent(self) -> int:
        """Bytes of all packets sent, framing included."""
        return self._writer.total

    @property
    def bytes_received(self) -> int:
        """Bytes of all packets received, framing included."""
        return self._reader.total
