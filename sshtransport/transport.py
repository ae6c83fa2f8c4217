"""SSHTransport: the RFC 4253 machine. Bytes in, payloads and events out; no socket, clock or task.

Theory of operation. The user feeds received bytes (``get_buffer``/``buffer_updated`` or
``receive_data``) and gets a list of items: payloads (``bytes``) for the layers above, and events.
After any call the user takes ``data_to_send()`` and writes it. Nothing else leaves or enters.

Everything that depends on where the connection stands is in two tables, ``_gate`` for what may
arrive and ``_departure`` for what may leave, swapped by ``_swap_tables`` on each transition (see
``gates.py``). Most packets are judged by the first inside ``PacketReader.read`` and never touch
this module; the others come to ``_dispatch``.

A fault of the peer raises one of ``RemoteError``'s family somewhere below ``_parse``; it is caught
there and becomes a DISCONNECT in the output, exactly one ``Disconnected`` event, and silence. A
mistake of the caller raises ``LocalError`` and changes nothing.

A key exchange (``exchange.py``) shuts the departure table from our KEXINIT to our NEWKEYS: replies
and control messages are held, within bounds, and go out in order afterwards; channel data waits in
the channels (``can_send_data`` is False).
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence

from .config import Role, TransportConfig
from .constants import (
    EXT_INFO_ROOM,
    EXT_PING,
    EXT_SERVER_SIG_ALGS,
    HELD_OUTPUT_MAX,
    MSG_DEBUG,
    MSG_DISCONNECT,
    MSG_EXT_INFO,
    MSG_IGNORE,
    MSG_KEXINIT,
    MSG_NEWKEYS,
    MSG_PING,
    MSG_SERVICE_ACCEPT,
    MSG_SERVICE_REQUEST,
    MSG_UNIMPLEMENTED,
    MSG_USERAUTH_INFO_REQUEST,
    MSG_USERAUTH_INFO_RESPONSE,
    MSG_USERAUTH_REQUEST,
    MSG_USERAUTH_SUCCESS,
    PACKET_LENGTH_MAX,
    PAUSED_INPUT_MAX,
    PAYLOAD_SEND_MAX,
    READ_MAX_EARLY,
    REPLIES_MAX_EARLY,
    SEQUENCE_MODULUS,
    SERVICE_USERAUTH,
)
from .errors import (
    ConnectionLost,
    DisconnectReason,
    HostKeyError,
    LocalError,
    PeerDisconnected,
    ProtocolError,
    RemoteError,
    SSHError,
)
from .events import (
    DebugReceived,
    Disconnected,
    Event,
    ExtInfoReceived,
    HostKeyOffered,
    IdentificationReceived,
    KeysChanged,
    UnimplementedReceived,
)
from .gates import DEPARTURE, REKEY_DEPARTURE, REPLIES, Arrival, Departure, Phase, arrival_gate
from .ident import IdentReader, build_ident
from .keying import Keying
from .keys import HOST_KEY_ALGORITHMS, PrivateKey
from .messages import (
    decode_debug,
    decode_disconnect,
    decode_ext_info,
    decode_ping,
    decode_service,
    decode_unimplemented,
    disconnect,
    ext_info,
    pong,
    unimplemented,
)
from .outbox import Outbox
from .packets import PacketReader, PacketWriter, PaddingPool, payload_too_large
from .readings import Readings, TransportState
from .wire import Buffer

__all__ = (
    "Item",
    "SSHTransport",
    "TransportState",
)

_OWN_ARENA_SIZE = 64 * 1024
# Reading a member off its class costs 130 ns on CPython 3.11, a global 15.
_SEND, _SWITCH, _HOLD, _FORBID = Departure
_ALLOW, _IGNORE, _UNIMPLEMENTED, _FATAL = Arrival
_IDENTIFICATION, _KEX, _SERVICE, _AUTH, _PROMPT, _OPEN, _CLOSED = Phase

_NOTHING_LEAVES = bytes([_FORBID]) * 256
_SERVER_EXT_INFO = ext_info({EXT_SERVER_SIG_ALGS: ",".join(HOST_KEY_ALGORITHMS).encode(), EXT_PING: b"0"})

_REASONS = {int(reason): reason for reason in DisconnectReason}

Item = bytes | Event


class SSHTransport(Readings):
    """One end of an SSH transport (RFC 4253), sans-IO.

    Args:
        role: "client" or "server".
        config: what to offer and which limits to keep; None is ``TransportConfig()``.
        host_keys: a server's keys, at least one.
        random: source of cookies and padding, ``size -> bytes``. Keys never come from it.
        arena: a receive buffer to share with other transports of the same thread. Its content is
            only used between ``get_buffer`` and ``buffer_updated``. None: an own one, when needed.

    Set ``all_numbers`` where an upper layer of your own uses message numbers that SSH does not know:
    once login is done they are handed up; as it is they are answered with UNIMPLEMENTED. Set
    ``congested`` while output cannot be taken: ``can_send_data`` is False then.

    Raises:
        LocalError: a wrong role, a server without a usable host key, or an explicitly named
            algorithm that does not work here.
    """

    def __init__(
        self,
        role: Role,
        config: TransportConfig | None = None,
        *,
        host_keys: Sequence[PrivateKey] = (),
        random: Callable[[int], bytes] = os.urandom,
        arena: bytearray | memoryview | None = None,
    ) -> None:
        if role not in ("client", "server"):
            raise LocalError(f"role must be 'client' or 'server', not {role!r}")
        self.config = config = config or TransportConfig()
        self.role: Role = role
        self.phase = _IDENTIFICATION
        self.peer_ident: bytes | None = None
        self.peer_extensions: Mapping[str, bytes] = {}
        self.congested = False  # set by the shell while its socket takes no more
        self.all_numbers = False  # set by packet streams: numbers that SSH does not know go up too
        self.transitions = 0  # grows whenever phase, gates or ``want_read`` may have changed, or an event came up
        self._arena = None if arena is None else memoryview(arena)
        self._writer = PacketWriter(PaddingPool(config.padding or random))
        self._reader = PacketReader()
        self._ident_reader = IdentReader(skip_lines=role == "client")
        self._events: list[Item] = []  # what came up outside a receiving call
        self._outbox = Outbox()
        self._offered: bytes | None = None  # a host key that waits for its verdict
        self._kept = b""  # input behind it
        self._ext_info_count = 0
        self._first_packet = 0  # how many packets had come when the first keys did
        self._keying = Keying(role, config, host_keys, random, self._writer, self._reader)
        self._swap_tables()
        self.ident = build_ident(config.software_version)
        self._writer.write_raw(self.ident + b"\r\n")
        self._start_exchange()

    # --- input ------------------------------------------------------------------------------------

    def get_buffer(self, sizehint: int = -1) -> memoryview:
        """A buffer to receive into; valid until the next ``get_buffer`` on the same arena."""
        arena = self._arena
        if arena is None:
            self._arena = arena = memoryview(bytearray(_OWN_ARENA_SIZE))
        if self.role == "server" and self.phase is not _OPEN:
            # What one read can turn into must stay small for peers that have not logged in.
            return arena[:READ_MAX_EARLY]
        if self._keying.exchange is not None and len(arena) > PAUSED_INPUT_MAX:
            # What arrives behind a host key in doubt must fit the input that is kept.
            return arena[: max(PAUSED_INPUT_MAX - len(self._kept), 1)]
        return arena

    def buffer_updated(self, size: int) -> list[Item]:
        """``size`` bytes have been received into the buffer; returns payloads and events in order."""
        arena = self._arena
        if arena is None:
            raise LocalError("buffer_updated without get_buffer")
        if self.phase is _OPEN and self._offered is None:
            items, self._events = self._events, []
            return self._parse(arena[:size], items)
        return self._receive(arena[:size])

    def receive_data(self, data: Buffer) -> list[Item]:
        """The same for bytes that lie elsewhere; whole, cut or joined in any way."""
        return self._receive(memoryview(data).cast("B"))

    def receive_eof(self) -> list[Item]:
        """The peer will send no more bytes."""
        items = self.take_events()
        if self.phase is not _CLOSED:
            text = f"connection lost during {self.phase}"
            self._close(DisconnectReason.CONNECTION_LOST, text, ConnectionLost(text, phase=self.phase), items)
        return items

    def take_events(self) -> list[Item]:
        """Events that came up outside a receiving call; those calls return them too."""
        if not self._events:
            return []
        items, self._events = self._events, []
        return items

    def _receive(self, view: memoryview) -> list[Item]:
        items = self.take_events()
        if self.phase is _CLOSED:
            return items
        if self._offered is not None:
            self._keep(bytes(view), items)
            return items
        if self.phase is _IDENTIFICATION:
            try:
                ident, used = self._ident_reader.feed(view)
            except RemoteError as error:
                self._fail(_without_frames(error), items)
                return items
            if ident is None:
                return items
            self.peer_ident = ident
            self._keying.idents = (self.ident, ident) if self.role == "client" else (ident, self.ident)
            self.phase = _KEX
            self._swap_tables()
            items.append(IdentificationReceived(ident))
            view = view[used:]
        return self._parse(view, items)

    def _parse(self, view: memoryview, items: list[Item]) -> list[Item]:
        """Read packets until the bytes are used up, a host key needs a verdict, or the end."""
        reader = self._reader
        reader.feed(view)
        try:
            while (payload := reader.read(self._gate.deliver, items)) is not None:
                self._dispatch(payload, items)
                if self._offered is not None:
                    self._keep(reader.rest(), items)
                    return items
                if self.phase is _CLOSED:
                    break
            packets, total = self._keying.read_limits
            if reader.packets >= packets or reader.total >= total:
                self._limit_reached()
        except RemoteError as error:
            self._fail(_without_frames(error), items)
        if self._events:  # a reply on the way found a limit
            items += self.take_events()
        return items

    def _keep(self, data: bytes, items: list[Item]) -> None:
        if len(self._kept) + len(data) > PAUSED_INPUT_MAX:
            text = "too much input while the host key is being checked"
            self._fail(ProtocolError(text, limit=PAUSED_INPUT_MAX), items)
            return
        self._kept += data

    # --- output -----------------------------------------------------------------------------------

    def send(self, payload: bytes, /) -> None:
        """Send one message of the layers above (numbers 5, 6 and 50 to 255; also 2, 3, 4).

        During a key exchange it is held, within 64 KiB, and goes out after it in order.

        Raises:
            LocalError: the message may not leave in this phase, does not fit a packet, or too much
                is held already.
        """
        if not payload:
            raise LocalError("a payload has at least a message number")
        number = payload[0]
        outcome = self._departure[number]
        if outcome == _FORBID:
            raise LocalError(f"message {number} may not be sent during {self.phase}")
        if outcome == _HOLD:
            self._hold(payload)
            return
        self._writer.write(payload)
        if number in REPLIES:
            self._owe(len(payload))
        if outcome == _SWITCH:
            self._sent(number)
        self._check_write_limits()

    def send_data(self, head: bytes, data: Buffer, /) -> None:
        """Send the payload ``head + data``, joined only once, into its packet.

        Raises:
            LocalError: before login, in a rekey and after the end; or the payload does not fit a packet.
        """
        if not head or self._departure[head[0]] != _SEND:
            raise LocalError(f"no data can be sent during {self.phase}" if head else "a payload has at least a number")
        writer = self._writer
        writer.write(head, data)
        packets, total = self._keying.write_limits
        if writer.total >= total or writer.packets >= packets:
            self._check_write_limits()

    def data_to_send(self) -> bytes:
        """Bytes for the wire; empty when there are none."""
        self._outbox.taken()
        return self._writer.take()

    def frames_to_send(self) -> list[bytes]:
        """The same in pieces, for a shell that can write them without joining."""
        self._outbox.taken()
        return self._writer.take_frames()

    def rekey(self) -> None:
        """Start a key exchange (RFC 4253, section 9); nothing happens while one is running.

        Raises:
            LocalError: before login, unless the configuration allows it, and after the end.
        """
        if self._keying.exchange is not None and self.phase not in (_IDENTIFICATION, _KEX):
            return
        if not self.may_rekey:
            raise LocalError(f"no rekey during {self.phase}")
        self._start_exchange()

    def disconnect(self, reason: int = DisconnectReason.BY_APPLICATION, description: str = "") -> None:
        """End the connection: a DISCONNECT is the last thing in ``data_to_send`` (RFC 4253, section 11.1).

        Raises:
            LocalError: ``reason`` is no number of 32 bits.
        """
        if not 0 <= reason < 2**32:
            raise LocalError(f"not a disconnect reason: {reason!r}")
        if self.phase is not _CLOSED:
            self._write_disconnect(reason, description)
            self._close(reason, description, None, self._events)

    def accept_host_key(self) -> list[Item]:
        """The host key of the last ``HostKeyOffered`` is the right one: go on. Returns as ``receive_data``.

        Raises:
            LocalError: no host key is waiting.
        """
        self._keying.host_key = self._take_offered()
        items = self.take_events()
        kept, self._kept = self._kept, b""
        self._send_newkeys()
        return self._parse(memoryview(kept), items)

    def reject_host_key(self, why: str | HostKeyError = "refused") -> list[Item]:
        """It is not: disconnect with reason 9 and a :class:`HostKeyError`.

        Raises:
            LocalError: no host key is waiting.
        """
        self._take_offered()
        items = self.take_events()
        error = why if isinstance(why, HostKeyError) else HostKeyError(f"host key {why}", verdict="refused")
        self._fail(error, items)
        return items

    def _take_offered(self) -> bytes:
        if self._offered is None:
            raise LocalError("no host key is waiting for a verdict")
        host_key, self._offered = self._offered, None
        return host_key

    def _hold(self, payload: bytes) -> None:
        if len(payload) > PAYLOAD_SEND_MAX:  # it must fit when it leaves, too late for an error
            raise payload_too_large(len(payload))
        if payload[0] not in REPLIES:
            self._outbox.hold(payload)
        elif self._owe(len(payload)):
            self._outbox.hold_reply(payload)

    def _owe(self, size: int) -> bool:
        """Count a reply; a peer that lets too many pile up unread is cut off, and the answer is False."""
        limit = HELD_OUTPUT_MAX if self.phase is _OPEN else REPLIES_MAX_EARLY
        if self._outbox.owe(size, limit):
            return True
        self._fail(ProtocolError("too many replies are owed", limit=limit), self._events)
        return False

    def _check_write_limits(self) -> None:
        packets, total = self._keying.write_limits
        if self._writer.total >= total or self._writer.packets >= packets:
            try:
                self._limit_reached()
            except ProtocolError as error:
                self._fail(error, self._events)

    # --- the end ----------------------------------------------------------------------------------

    def fail(self, error: SSHError) -> None:
        """A layer above found a fault: end the connection as if it had been found here."""
        if isinstance(error, RemoteError):
            self._fail(error, self._events)
        elif self.phase is not _CLOSED:
            self._write_disconnect(DisconnectReason.BY_APPLICATION, error.message)
            self._close(DisconnectReason.BY_APPLICATION, error.message, error, self._events)

    def _fail(self, error: RemoteError, items: list[Item]) -> None:
        if self.phase is _CLOSED:
            return
        if error.phase is None:
            error.phase = str(self.phase)
        if isinstance(error, PeerDisconnected):
            self._close(error.code, error.description, error, items)
            return
        # A host key error names our files: that is for our side only.
        text = "host key not accepted" if isinstance(error, HostKeyError) else error.message
        self._write_disconnect(error.reason, text)
        self._close(error.reason, error.message, error, items)

    def _write_disconnect(self, reason: int, description: str) -> None:
        # A sealer that cannot count further must not keep the connection from ending.
        if self._writer.sequence < SEQUENCE_MODULUS - 1:
            self._writer.write(disconnect(reason, description[:512]))

    def _close(self, reason: int, description: str, error: SSHError | None, items: list[Item]) -> None:
        items.append(Disconnected(_REASONS.get(reason, reason), description, error))
        self.phase = _CLOSED
        self._offered = None
        self._keying.drop()
        self._kept = b""
        self._outbox.release()
        self._reader.drop()
        self._swap_tables()

    # --- dispatch ---------------------------------------------------------------------------------

    def _swap_tables(self) -> None:
        """Recompute what may arrive and leave; called on every transition."""
        self.transitions += 1
        phase, keying = self.phase, self._keying
        if phase is _CLOSED or phase is _IDENTIFICATION:
            self._departure = _NOTHING_LEAVES
            self._gate = arrival_gate(self.role, _KEX, in_exchange=True, strict=True)
            return
        self._gate = arrival_gate(
            self.role, phase, in_exchange=keying.shuts_input, strict=keying.strict, all_numbers=self.all_numbers
        )
        tables = REKEY_DEPARTURE if keying.shuts_output else DEPARTURE
        self._departure = tables.get((self.role, phase), _NOTHING_LEAVES)

    def _move(self, phase: Phase) -> None:
        self.phase = phase
        self._swap_tables()

    def _dispatch(self, payload: bytes, items: list[Item]) -> None:
        exchange = self._keying.exchange
        if exchange is not None and exchange.drop_next:
            exchange.drop_next = False
            return
        number = payload[0]
        outcome = self._gate.outcomes[number]
        if outcome == _ALLOW:
            if 30 <= number < 50:
                self._on_kex_message(payload, items)
            else:
                _HANDLERS[number](self, payload, items)
        elif outcome == _UNIMPLEMENTED:
            self._answer_unimplemented()
        elif outcome == _FATAL:
            raise ProtocolError(f"message {number} is not allowed during {self._where()}")

    def _where(self) -> str:
        return "a rekey" if self._keying.exchange is not None and self.phase is not _KEX else self.phase

    def _answer_unimplemented(self) -> None:
        payload = unimplemented((self._reader.sequence - 1) % SEQUENCE_MODULUS)
        self._writer.write(payload)
        self._owe(len(payload))

    def _on_disconnect(self, payload: bytes, items: list[Item]) -> None:
        raise PeerDisconnected(*decode_disconnect(payload), phase=str(self.phase))

    def _on_ignore(self, payload: bytes, items: list[Item]) -> None:
        """Nothing, on purpose; an empty body is tolerated too."""

    def _on_unimplemented(self, payload: bytes, items: list[Item]) -> None:
        items.append(UnimplementedReceived(decode_unimplemented(payload)))

    def _on_debug(self, payload: bytes, items: list[Item]) -> None:
        items.append(DebugReceived(*decode_debug(payload)))

    def _on_ping(self, payload: bytes, items: list[Item]) -> None:
        self.send(pong(decode_ping(payload)))

    def _on_ext_info(self, payload: bytes, items: list[Item]) -> None:
        """RFC 8308, section 2.4: right after the first NEWKEYS; from a server also before SUCCESS."""
        first_packet = self._reader.packets - self._first_packet == 1
        allowed = 1 if self.role == "server" else 2
        in_place = first_packet or (self.role == "client" and self.phase is _AUTH)
        if not in_place or self._ext_info_count >= allowed:
            self._answer_unimplemented()
            return
        extensions = decode_ext_info(payload, EXT_INFO_ROOM if self.role == "server" else math.inf)
        self._ext_info_count += 1
        self.peer_extensions = extensions
        items.append(ExtInfoReceived(extensions))

    def _on_service(self, payload: bytes, items: list[Item]) -> None:
        """SERVICE_REQUEST at a server, SERVICE_ACCEPT at a client: login may begin."""
        if decode_service(payload) == SERVICE_USERAUTH:
            self._move(_AUTH)
        items.append(payload)

    def _on_answer(self, payload: bytes, items: list[Item]) -> None:
        """A server's question is answered, or dropped by a new request."""
        self._move(_AUTH)
        items.append(payload)

    def _on_success(self, payload: bytes, items: list[Item]) -> None:
        if len(payload) != 1:
            raise ProtocolError("trailing bytes in message")
        self._move(_OPEN)
        items.append(payload)

    def _sent(self, number: int) -> None:
        """A message that moves the phase has left."""
        if number == MSG_USERAUTH_SUCCESS:
            self._reader.length_max = PACKET_LENGTH_MAX
            self._move(_OPEN)
        else:  # a question, or FAILURE, after which nobody waits for an answer any more
            self._move(_PROMPT if number == MSG_USERAUTH_INFO_REQUEST else _AUTH)

    # --- key exchange -----------------------------------------------------------------------------

    def _limit_reached(self) -> None:
        """A key has carried enough: change it, or, before login, end (design section 4)."""
        if self._keying.exchange is not None:
            return
        if not self.may_rekey:
            raise ProtocolError(f"too much traffic during {self.phase}")
        self._start_exchange()

    def _start_exchange(self) -> None:
        """Our KEXINIT leaves and shuts the departure gate in the same step."""
        self._keying.start()
        self._swap_tables()

    def _on_kexinit(self, payload: bytes, items: list[Item]) -> None:
        self._keying.on_kexinit(payload)
        self._swap_tables()

    def _on_kex_message(self, payload: bytes, items: list[Item]) -> None:
        keying = self._keying
        if not keying.on_message(payload):
            return
        exchange = keying.exchange
        assert exchange is not None and exchange.result is not None and exchange.algorithms is not None
        if self.role == "server" or exchange.result.host_key == keying.host_key:
            self._send_newkeys()
        else:
            self._offered = exchange.result.host_key
            self.transitions += 1
            items.append(HostKeyOffered(exchange.algorithms.host_key, exchange.result.host_key, exchange.first))

    def _send_newkeys(self) -> None:
        """The departure gate opens again: first EXT_INFO where one is due, then what was held."""
        keying, writer = self._keying, self._writer
        exchange = keying.exchange
        assert exchange is not None
        keying.send_newkeys()
        if exchange.first and self.role == "server" and keying.peer_takes_ext_info:
            writer.write(_SERVER_EXT_INFO)
        self._swap_tables()
        for payload in self._outbox.release():
            writer.write(payload)
            if self._departure[payload[0]] == _SWITCH:
                self._sent(payload[0])

    def _on_newkeys(self, payload: bytes, items: list[Item]) -> None:
        first = self._keying.on_newkeys(payload)
        if first:
            self.phase = _SERVICE
            self._first_packet = self._reader.packets
            if self.role == "client":
                self._reader.length_max = PACKET_LENGTH_MAX
        self._swap_tables()
        items.append(KeysChanged(first))


def _without_frames(error: RemoteError) -> RemoteError:
    """Drop the tracebacks of a fault of the peer, and of what led to it.

    Their frames would keep the input alive as long as the error, even a packet that did not verify.
    """
    link: BaseException | None = error
    while link is not None:
        link.__traceback__ = None
        link = link.__cause__ or link.__context__
    return error


_HANDLERS: dict[int, Callable[[SSHTransport, bytes, list[Item]], None]] = {
    MSG_DISCONNECT: SSHTransport._on_disconnect,
    MSG_IGNORE: SSHTransport._on_ignore,
    MSG_UNIMPLEMENTED: SSHTransport._on_unimplemented,
    MSG_DEBUG: SSHTransport._on_debug,
    MSG_SERVICE_REQUEST: SSHTransport._on_service,
    MSG_SERVICE_ACCEPT: SSHTransport._on_service,
    MSG_EXT_INFO: SSHTransport._on_ext_info,
    MSG_KEXINIT: SSHTransport._on_kexinit,
    MSG_NEWKEYS: SSHTransport._on_newkeys,
    MSG_USERAUTH_REQUEST: SSHTransport._on_answer,
    MSG_USERAUTH_INFO_RESPONSE: SSHTransport._on_answer,
    MSG_USERAUTH_SUCCESS: SSHTransport._on_success,
    MSG_PING: SSHTransport._on_ping,
}
