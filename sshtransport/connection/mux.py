"""The connection protocol (RFC 4254) without I/O: messages in, events out, channels in between."""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Callable, Sized
from typing import Final

from ..constants import (
    CHANNELS_MAX,
    MAX_PACKET_SIZE,
    MAX_PACKET_SIZE_LIMIT,
    MSG_CHANNEL_CLOSE,
    MSG_CHANNEL_DATA,
    MSG_CHANNEL_EOF,
    MSG_CHANNEL_EXTENDED_DATA,
    MSG_CHANNEL_FAILURE,
    MSG_CHANNEL_OPEN,
    MSG_CHANNEL_OPEN_CONFIRMATION,
    MSG_CHANNEL_OPEN_FAILURE,
    MSG_CHANNEL_REQUEST,
    MSG_CHANNEL_SUCCESS,
    MSG_CHANNEL_WINDOW_ADJUST,
    MSG_GLOBAL_REQUEST,
    MSG_PONG,
    MSG_REQUEST_FAILURE,
    MSG_REQUEST_SUCCESS,
    PENDING_OPENS_MAX,
    WINDOW_MAX,
    WINDOW_SIZE,
)
from ..errors import LocalError, OpenFailureReason, ProtocolError
from ..messages import decode_ping
from ..sink import PacketSink
from ..wire import Reader, boolean, byte, string, uint32, visible
from .buffers import MERGE_BELOW
from .channel import Channel, ChannelState
from .events import (
    ChannelClosed,
    ChannelEOFReceived,
    ChannelOpened,
    ChannelOpenFailed,
    ChannelOpenRequested,
    ChannelReplied,
    ChannelWritable,
    ConnectionEvent,
    GlobalReplied,
    GlobalRequestReceived,
    PongReceived,
)
from .opens import SESSION, decode_open, refusal
from .requests import decode_global
from .shared import ReplyQueue, Role, Shared

__all__ = ("Connection",)

_DATA_HEAD: Final = struct.Struct(">xII")  # recipient, size
_DATA_HEAD_SIZE: Final = _DATA_HEAD.size
_PHASE: Final = "connection"


class Connection:
    """All channels and global requests of one connection, after login.

    ``sink`` takes the payloads to send. ``window_size`` and ``max_packet_size`` (bytes) are what
    each channel grants the peer. ``max_buffered`` bounds window and unread data over all channels:
    near it, channels get no more than 64 KiB each. ``channels_max`` and ``pending_opens_max`` bound
    the channels the peer opens.

    :meth:`receive` raises ProtocolError for whatever the peer may not send; the connection has to
    end then. Other methods raise LocalError for what the caller may not do.
    """

    def __init__(
        self,
        role: Role,
        sink: PacketSink,
        *,
        window_size: int = WINDOW_SIZE,
        max_packet_size: int = MAX_PACKET_SIZE,
        channels_max: int = CHANNELS_MAX,
        pending_opens_max: int = PENDING_OPENS_MAX,
        max_buffered: int | None = None,
    ) -> None:
        if not 0 < window_size <= WINDOW_MAX:
            raise LocalError("window_size must be between 1 and 2^32 - 1")
        if not 0 < max_packet_size <= MAX_PACKET_SIZE_LIMIT:
            raise LocalError(f"max_packet_size must be between 1 and {MAX_PACKET_SIZE_LIMIT}")
        self._shared = Shared(
            role, sink, window_size=window_size, max_packet_size=max_packet_size, max_buffered=max_buffered
        )
        #: By our number: all that are not closed in both directions.
        self.channels = self._shared.channels
        #: The channels that wait for the sink; while there are any, ``pump`` is due.
        self.waiting: Sized = self._shared.pending
        self._sink = sink
        self._max_packet_size = max_packet_size
        self._channels_max = channels_max
        self._pending_opens_max = pending_opens_max
        self._next_number = 0
        self._allowed_opens: set[str] = set()
        self._handled_globals: set[str] = set()
        self._awaited_replies: deque[object] = deque()
        self._replies = ReplyQueue(sink.send)

    # --- what the application does -----------------------------------------------------------------
    def allow_open(self, channel_type: str) -> None:
        """Let the peer ask for channels of this type. A client refuses all others, and every session."""
        self._allowed_opens.add(channel_type)

    def forbid_open(self, channel_type: str) -> None:
        """Take :meth:`allow_open` back."""
        self._allowed_opens.discard(channel_type)

    def handle_global(self, name: str) -> None:
        """Have global requests of this name reported; all others are answered with a failure here."""
        self._handled_globals.add(name)

    def open_channel(self, channel_type: str, extra: bytes = b"") -> Channel:
        """Ask for a channel; it ends in ChannelOpened or ChannelOpenFailed (RFC 4254, section 5.1)."""
        if not channel_type.isascii():
            raise LocalError("a channel type is US-ASCII")
        channel = Channel(self._shared, self._number(), channel_type, from_peer=False)
        window = channel._ask()
        self.channels[channel.number] = channel
        numbers = uint32(channel.number) + uint32(window) + uint32(self._max_packet_size)
        self._sink.send(byte(MSG_CHANNEL_OPEN) + string(channel_type.encode("ascii")) + numbers + extra)
        return channel

    def global_request(self, name: str, data: bytes = b"", want_reply: bool = True) -> object:
        """Send a global request; a wanted reply comes as GlobalReplied with the token returned here."""
        if not name.isascii():
            raise LocalError("a request name is US-ASCII")
        token = object()
        if want_reply:
            self._awaited_replies.append(token)
        self._sink.send(byte(MSG_GLOBAL_REQUEST) + string(name.encode("ascii")) + boolean(want_reply) + data)
        return token

    def reply_global(self, success: bool, data: bytes = b"") -> None:
        """Answer the oldest reported global request that wanted a reply; ``data`` goes with success only."""
        self._replies.settle(byte(MSG_REQUEST_SUCCESS) + data if success else byte(MSG_REQUEST_FAILURE))

    def lost(self) -> None:
        """The transport is closed: what channels hold can be read, and gives no window back."""
        for channel in (*self.channels.values(), *self._shared.lingering):
            channel._end_input()

    def pump(self) -> list[ChannelWritable]:
        """Send what the channels hold while the sink takes it, one message of each in turn.

        To be called whenever ``sink.can_send_data`` has become true again.
        """
        events: list[ChannelWritable] = []
        pending = self._shared.pending
        sink = self._sink
        while pending and sink.can_send_data:
            channel = pending.popleft()
            channel._send_next()
            if channel._congested and (event := channel._relief()) is not None:
                events.append(event)
            if channel._out.ready(channel._send_window):
                pending.append(channel)
            else:
                channel._scheduled = False
        return events

    def _number(self) -> int:
        """A channel number. Numbers are not reused before 2^32 of them have passed: a message for an
        old channel never meets a new one."""
        while self._next_number & WINDOW_MAX in self.channels:
            self._next_number += 1
        number = self._next_number & WINDOW_MAX
        self._next_number += 1
        return number

    # --- what the peer does --------------------------------------------------------------------------
    def receive(self, payload: bytes) -> ConnectionEvent | None:
        """Take one message of 80 to 100, or a PONG; returns what the application should know, mostly nothing."""
        number = payload[0] if payload else 0
        if number == MSG_CHANNEL_DATA and len(payload) > _DATA_HEAD_SIZE:
            recipient, size = _DATA_HEAD.unpack_from(payload)
            channel = self.channels.get(recipient)
            if (
                channel is not None
                and size <= channel._recv_window
                and size <= self._max_packet_size
                and size == len(payload) - _DATA_HEAD_SIZE
                and not channel._discarding
            ):
                channel._recv_window -= size
                box = channel._data
                if size < MERGE_BELOW and box.chunks:
                    box.add(payload[_DATA_HEAD_SIZE:])
                else:
                    box.chunks.append(payload[_DATA_HEAD_SIZE:])
                    box.size += size
                if box.notified:
                    return None
                box.notified = True
                return box.event
        handler = _HANDLERS.get(number)
        try:
            if handler is None:
                raise ProtocolError(f"message {number} is not one of the connection protocol")
            return handler(self, payload)
        except ProtocolError as error:
            error.phase = error.phase or _PHASE
            raise

    def _channel(self, reader: Reader) -> Channel:
        """The open channel that a message is for; nothing but window and replies may miss."""
        number = reader.uint32()
        channel = self.channels.get(number)
        if channel is None or channel.state in (ChannelState.OPENING, ChannelState.REQUESTED):
            raise ProtocolError(f"message for channel {number}, which is not open")
        return channel

    def _opening(self, reader: Reader) -> Channel:
        number = reader.uint32()
        channel = self.channels.get(number)
        if channel is None or channel.state is not ChannelState.OPENING:
            raise ProtocolError(f"answer to an open of channel {number}, which was not asked for")
        return channel

    # --- opening ---------------------------------------------------------------------------------
    def _on_open(self, payload: bytes) -> ConnectionEvent | None:
        reader = Reader(payload, 1)
        channel_type = reader.ascii()
        peer_number, window, max_packet = reader.uint32(), reader.uint32(), reader.uint32()
        extra = reader.rest()
        if self._shared.is_client and (channel_type == SESSION or channel_type not in self._allowed_opens):
            reason = OpenFailureReason.ADMINISTRATIVELY_PROHIBITED
            self._sink.send(refusal(peer_number, reason, "not requested"))
            return None
        target = decode_open(channel_type, extra)
        if max_packet == 0 or self._is_full():
            self._sink.send(refusal(peer_number, OpenFailureReason.RESOURCE_SHORTAGE, "no resources"))
            return None
        channel = Channel(self._shared, self._number(), channel_type, from_peer=True)
        channel._set_peer(peer_number, window, max_packet)
        self.channels[channel.number] = channel
        return ChannelOpenRequested(channel, channel_type, extra, target)

    def _is_full(self) -> bool:
        theirs = [channel for channel in self.channels.values() if channel.from_peer]
        undecided = sum(channel.state is ChannelState.REQUESTED for channel in theirs)
        total = len(theirs) + len(self._shared.lingering)
        return total >= self._channels_max or undecided >= self._pending_opens_max

    def _on_confirmation(self, payload: bytes) -> ConnectionEvent | None:
        reader = Reader(payload, 1)
        channel = self._opening(reader)
        peer_number, window, max_packet = reader.uint32(), reader.uint32(), reader.uint32()
        if max_packet == 0:
            raise ProtocolError("maximum packet size of 0")
        wanted = not channel._abandoned
        channel._confirmed(peer_number, window, max_packet)
        return ChannelOpened(channel, reader.rest()) if wanted else None

    def _on_open_failure(self, payload: bytes) -> ConnectionEvent | None:
        reader = Reader(payload, 1)
        channel = self._opening(reader)
        reason, description = reader.uint32(), reader.string()
        if reader.remaining:  # some peers leave the language tag out
            reader.string()
        reader.end()
        channel._open_failed()
        known = {int(r): r for r in OpenFailureReason}
        return ChannelOpenFailed(channel, known.get(reason, reason), visible(description))

    # --- data and the end ----------------------------------------------------------------------------
    def _on_data(self, payload: bytes) -> ConnectionEvent | None:
        """What the fast path did not take: odd, wrong, or not wanted."""
        reader = Reader(payload, 1)
        channel = self._channel(reader)
        data = reader.string()
        reader.end()
        return channel._received(0, data)

    def _on_extended_data(self, payload: bytes) -> ConnectionEvent | None:
        reader = Reader(payload, 1)
        channel = self._channel(reader)
        stream, data = reader.uint32(), reader.string()
        reader.end()
        # Type 0 is not one: it must not pass for ordinary data.
        return channel._received(stream or WINDOW_MAX, data)

    def _on_adjust(self, payload: bytes) -> ConnectionEvent | None:
        reader = Reader(payload, 1)
        number, amount = reader.uint32(), reader.uint32()
        reader.end()
        channel = self.channels.get(number)
        if channel is None or channel.state is not ChannelState.OPEN:
            return None  # may cross our CLOSE
        return channel._adjusted(amount)

    def _on_eof(self, payload: bytes) -> ConnectionEvent | None:
        channel = self._ending_channel(payload)
        return ChannelEOFReceived(channel) if channel is not None and channel._eof() else None

    def _on_close(self, payload: bytes) -> ConnectionEvent | None:
        channel = self._ending_channel(payload)
        return ChannelClosed(channel) if channel is not None and channel._close() else None

    def _ending_channel(self, payload: bytes) -> Channel | None:
        """The channel of an EOF or CLOSE; None for one that is over, where a second does no harm."""
        reader = Reader(payload, 1)
        number = reader.uint32()
        reader.end()
        if number not in self.channels and number < self._next_number:
            return None
        return self._channel(Reader(payload, 1))

    # --- requests ------------------------------------------------------------------------------------
    def _on_request(self, payload: bytes) -> ConnectionEvent | None:
        reader = Reader(payload, 1)
        channel = self._channel(reader)
        name, want_reply = reader.ascii(), reader.boolean()
        return channel._requested(name, want_reply, reader.rest())

    def _on_channel_success(self, payload: bytes) -> ConnectionEvent | None:
        return self._on_reply(payload, True)

    def _on_channel_failure(self, payload: bytes) -> ConnectionEvent | None:
        return self._on_reply(payload, False)

    def _on_reply(self, payload: bytes, success: bool) -> ConnectionEvent | None:
        reader = Reader(payload, 1)
        number = reader.uint32()
        reader.end()
        channel = self.channels.get(number)
        return ChannelReplied(channel, success) if channel is not None and channel._replied() else None

    def _on_global_request(self, payload: bytes) -> ConnectionEvent | None:
        reader = Reader(payload, 1)
        name, want_reply = reader.ascii(), reader.boolean()
        data = reader.rest()
        if name not in self._handled_globals:  # keepalives among them: any answer counts as life
            if want_reply:
                self._replies.answer(byte(MSG_REQUEST_FAILURE))
            return None
        request = decode_global(name, data)
        if want_reply:
            self._replies.owe(request)
        return GlobalRequestReceived(name, data, want_reply, request)

    def _on_request_success(self, payload: bytes) -> ConnectionEvent | None:
        if not self._awaited_replies:
            return None
        return GlobalReplied(self._awaited_replies.popleft(), True, payload[1:])

    def _on_request_failure(self, payload: bytes) -> ConnectionEvent | None:
        Reader(payload, 1).end()
        if not self._awaited_replies:
            return None
        return GlobalReplied(self._awaited_replies.popleft(), False, b"")

    def _on_pong(self, payload: bytes) -> ConnectionEvent:
        return PongReceived(decode_ping(payload))


_HANDLERS: Final[dict[int, Callable[[Connection, bytes], ConnectionEvent | None]]] = {
    MSG_GLOBAL_REQUEST: Connection._on_global_request,
    MSG_REQUEST_SUCCESS: Connection._on_request_success,
    MSG_REQUEST_FAILURE: Connection._on_request_failure,
    MSG_CHANNEL_OPEN: Connection._on_open,
    MSG_CHANNEL_OPEN_CONFIRMATION: Connection._on_confirmation,
    MSG_CHANNEL_OPEN_FAILURE: Connection._on_open_failure,
    MSG_CHANNEL_WINDOW_ADJUST: Connection._on_adjust,
    MSG_CHANNEL_DATA: Connection._on_data,
    MSG_CHANNEL_EXTENDED_DATA: Connection._on_extended_data,
    MSG_CHANNEL_EOF: Connection._on_eof,
    MSG_CHANNEL_CLOSE: Connection._on_close,
    MSG_CHANNEL_REQUEST: Connection._on_request,
    MSG_CHANNEL_SUCCESS: Connection._on_channel_success,
    MSG_CHANNEL_FAILURE: Connection._on_channel_failure,
    MSG_PONG: Connection._on_pong,
}
