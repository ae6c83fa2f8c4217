"""One channel (RFC 4254, section 5): its two windows, its ordered output, its unread input.

Names with an underscore are shared with ``mux.py``, which reads the messages, and with nobody else.
"""

from __future__ import annotations

import struct
from enum import Enum
from typing import Final

from ..constants import (
    CHANNEL_HIGH_WATER,
    CHANNEL_LOW_WATER,
    EXTENDED_DATA_STDERR,
    MAX_PACKET_SIZE,
    MSG_CHANNEL_CLOSE,
    MSG_CHANNEL_DATA,
    MSG_CHANNEL_EOF,
    MSG_CHANNEL_EXTENDED_DATA,
    MSG_CHANNEL_FAILURE,
    MSG_CHANNEL_OPEN_CONFIRMATION,
    MSG_CHANNEL_REQUEST,
    MSG_CHANNEL_SUCCESS,
    MSG_CHANNEL_WINDOW_ADJUST,
    WINDOW_MAX,
)
from ..errors import LocalError, OpenFailureReason, ProtocolError
from ..wire import Buffer, boolean, string
from .buffers import CONTROL, Inbox, Outbox
from .events import ChannelReadable, ChannelRequestReceived, ChannelWritable
from .opens import SESSION, refusal
from .requests import (
    CLIENT_REQUESTS,
    SERVER_REQUESTS,
    ChannelRequest,
    ExitSignal,
    ExitStatus,
    UnknownRequest,
    decode_request,
    encode_request,
)
from .session import SessionRules
from .shared import ReplyQueue, Shared

__all__ = ("Channel", "ChannelState")

_DATA_HEAD: Final = struct.Struct(">BII")  # message, recipient, size
_EXTENDED_HEAD: Final = struct.Struct(">BIII")  # message, recipient, type, size
_NUMBER: Final = struct.Struct(">BI")  # message, recipient
_ADJUST: Final = struct.Struct(">BII")  # message, recipient, bytes
_CONFIRMATION: Final = struct.Struct(">BIIII")  # message, recipient, sender, window, maximum packet
_NEVER: Final = 2**63  # more bytes than can be read: no more credit goes out


class ChannelState(Enum):
    """The life of a channel."""

    OPENING = "opening"  # we asked, the peer has not answered
    REQUESTED = "requested"  # the peer asked, accept() or refuse() is due
    OPEN = "open"
    CLOSING = "closing"  # CLOSE has passed in one direction
    CLOSED = "closed"  # in both, or the open was refused


# Reading a member off its class costs 130 ns on CPython 3.11, a global 15.
_OPENING, _REQUESTED, _OPEN, _CLOSING, _CLOSED = ChannelState


class Channel:
    """A channel; made by :class:`Connection`, never by the application.

    ``number`` is ours, ``peer_number`` the peer's (-1 while it is not known), ``type`` the channel
    type, ``from_peer`` who opened it. ``exit_status`` and ``exit_signal`` are what the peer
    reported, kept in whatever order it came; None if it did not.

    Methods raise LocalError when the channel is not in a state for them.
    """

    __slots__ = (
        "_abandoned",
        "_awaited_replies",
        "_close_queued",
        "_close_received",
        "_close_sent",
        "_congested",
        "_consumed",
        "_credit_at",
        "_data",
        "_discarding",
        "_eof_queued",
        "_out",
        "_packet_limit",
        "_recv_window",
        "_replies",
        "_rules",
        "_scheduled",
        "_send_window",
        "_shared",
        "_stderr",
        "_target",
        "eof_received",
        "exit_signal",
        "exit_status",
        "from_peer",
        "number",
        "peer_number",
        "state",
        "type",
    )

    def __init__(self, shared: Shared, number: int, channel_type: str, *, from_peer: bool) -> None:
        self._shared = shared
        self.number = number
        self.peer_number = -1
        self.type = channel_type
        self.from_peer = from_peer
        self.state = _REQUESTED if from_peer else _OPENING
        self.eof_received = False
        self.exit_status: int | None = None
        self.exit_signal: ExitSignal | None = None
        # Input. The window is 0 until the channel is open and after the peer's EOF or CLOSE, so that
        # one comparison on the fast path finds all data that must not come.
        self._data = Inbox(ChannelReadable(self, 0))
        self._stderr: Inbox | None = None
        self._recv_window = 0
        self._target = 0  # window left + unread data at the last grant
        self._consumed = 0  # read, or dropped, since then
        self._credit_at = _NEVER
        self._discarding = False
        # Output.
        self._out = Outbox()
        self._send_window = 0
        self._packet_limit = 0
        self._congested = False  # went above the high-water mark, not yet below the low one
        self._scheduled = False  # stands in shared.pending
        self._eof_queued = False
        self._close_queued = False
        self._close_sent = False
        self._close_received = False
        self._abandoned = False  # close() came before the peer's confirmation
        # Requests.
        self._awaited_replies = 0
        self._replies = ReplyQueue(shared.sink.send)
        self._rules = SessionRules() if channel_type == SESSION and not shared.is_client else None

    def __repr__(self) -> str:
        return f"<Channel {self.number} ({self.type}, peer's {self.peer_number}, {self.state.value})>"

    # --- opening -----------------------------------------------------------------------------------
    def accept(self, extra: bytes = b"") -> None:
        """Confirm the peer's open (RFC 4254, section 5.1)."""
        self._need_requested()
        window = self._shared.grantable(0)
        self._open(window)
        self._shared.sink.send(
            _CONFIRMATION.pack(
                MSG_CHANNEL_OPEN_CONFIRMATION, self.peer_number, self.number, window, self._shared.max_packet_size
            )
            + extra
        )

    def refuse(self, reason: OpenFailureReason, description: str = "") -> None:
        """Refuse the peer's open; the channel is gone then."""
        self._need_requested()
        payload = refusal(self.peer_number, reason, description)
        self.state = _CLOSED
        del self._shared.channels[self.number]
        self._shared.sink.send(payload)

    def _need_requested(self) -> None:
        if self.state is not _REQUESTED:
            raise LocalError(f"channel {self.number} does not wait to be accepted")

    def _ask(self) -> int:
        """The window that our OPEN grants; it takes effect with the confirmation."""
        self._target = self._shared.grantable(0)
        return self._target

    def _open(self, window: int) -> None:
        self.state = _OPEN
        self._recv_window = self._target = window
        self._credit_at = (window + 1) // 2

    def _set_peer(self, number: int, window: int, max_packet: int) -> None:
        self.peer_number = number
        self._send_window = window
        # The peer's maximum counts the data string alone; ours keeps the whole packet below 35,000 bytes.
        self._packet_limit = min(max_packet, MAX_PACKET_SIZE)

    def _confirmed(self, number: int, window: int, max_packet: int) -> None:
        """The peer confirmed our open; if nobody wants it any more, close it at once."""
        self._set_peer(number, window, max_packet)
        self._open(self._target)
        if self._abandoned:
            self.close()

    def _open_failed(self) -> None:
        self.state = _CLOSED
        del self._shared.channels[self.number]

    # --- output ------------------------------------------------------------------------------------
    @property
    def queued(self) -> int:
        """Bytes written that wait for the peer's window or for the sink."""
        return self._out.size

    @property
    def can_write(self) -> bool:
        """Whether write() and send_eof() are allowed: open, and neither side closed or ended it."""
        return self.state is _OPEN and not self._eof_queued and not self._close_queued

    def write(self, data: Buffer, stream: int = 0) -> None:
        """Send data, or queue what cannot leave now; 1 as ``stream`` is stderr, for a server only.

        There is no bound: a caller that respects ``queued`` and :class:`ChannelWritable` keeps the
        queue small. Bytes and read-only views are not copied, so what is behind a read-only view
        must not change before it is sent.
        """
        if self.state is not _OPEN or self._eof_queued or self._close_queued:
            raise LocalError(f"channel {self.number} is not open for writing")
        if stream and (stream != EXTENDED_DATA_STDERR or self._shared.is_client):
            raise LocalError(f"stream {stream} cannot be written to")
        view = data if type(data) is bytes else memoryview(data).cast("B")
        size = len(view)
        sent = 0
        if not self._out and not self._shared.pending:
            if 0 < size <= self._send_window and size <= self._packet_limit and self._shared.sink.can_send_data:
                self._send_piece(stream, view, size)
                return
            sent = self._send_now(view, size, stream)
        if sent < size:
            self._out.add(stream, memoryview(view)[sent:] if sent else view)
            if self._out.size > CHANNEL_HIGH_WATER:
                self._congested = True
            self._schedule()

    def send_eof(self) -> None:
        """Say that no more data follows, after what is queued. Once is enough; more do nothing."""
        self._need_open()
        if not self._eof_queued:
            self._eof_queued = True
            self._send_in_order(_NUMBER.pack(MSG_CHANNEL_EOF, self.peer_number))

    def send_exit_status(self, status: int) -> None:
        """Report the exit status (0 to 2^32 - 1), after what is queued (RFC 4254, section 6.10)."""
        self.request(ExitStatus(status))

    def send_exit_signal(self, name: str, core_dumped: bool = False, message: str = "") -> None:
        """Report that a signal, named without "SIG", ended the command, after what is queued."""
        self.request(ExitSignal(name, core_dumped, message))

    def close(self) -> None:
        """Close the channel after what is queued, and stop reading. More calls do nothing.

        Unread input is thrown away: read first what is still wanted. A channel that the peer has
        not confirmed yet is closed as soon as it does.
        """
        if self.state is _REQUESTED:
            raise LocalError(f"channel {self.number} waits to be accepted or refused")
        if self.state is _OPENING:
            self._abandoned = True
            return
        if self.state is _OPEN and not self._close_queued:
            self._close_queued = True
            self._send_in_order(_NUMBER.pack(MSG_CHANNEL_CLOSE, self.peer_number))
        self.discard()

    def _need_open(self) -> None:
        if self.state is not _OPEN or self._close_queued:
            raise LocalError(f"channel {self.number} is not open")

    def _send_now(self, view: bytes | memoryview, size: int, stream: int) -> int:
        """Send what the window and the sink take, without the queue; returns how much that was."""
        sink = self._shared.sink
        sent = 0
        while sent < size and self._send_window and sink.can_send_data:
            piece: Buffer = view
            amount = min(size - sent, self._send_window, self._packet_limit)
            if amount < size:
                piece = memoryview(view)[sent : sent + amount]
            self._send_piece(stream, piece, amount)
            sent += amount
        return sent

    def _send_piece(self, stream: int, piece: Buffer, size: int) -> None:
        self._send_window -= size
        if stream:
            head = _EXTENDED_HEAD.pack(MSG_CHANNEL_EXTENDED_DATA, self.peer_number, stream, size)
        else:
            head = _DATA_HEAD.pack(MSG_CHANNEL_DATA, self.peer_number, size)
        self._shared.sink.send_data(head, piece)

    def _send_in_order(self, payload: bytes) -> None:
        self._out.add_message(payload)
        self._schedule()

    def _schedule(self) -> None:
        """Send what may go, unless others wait for the sink: then get in line."""
        if self._scheduled:
            return
        if not self._shared.pending:
            sink = self._shared.sink
            while sink.can_send_data and self._send_next():
                pass
        if self._out.ready(self._send_window):
            self._scheduled = True
            self._shared.pending.append(self)

    def _send_next(self) -> bool:
        """Send one message of the queue; False if none may go."""
        if not self._out.ready(self._send_window):
            return False
        stream, piece = self._out.take(min(self._send_window, self._packet_limit))
        if stream != CONTROL:
            self._send_piece(stream, piece, len(piece))
            return True
        payload = bytes(piece)
        self._shared.sink.send(payload)
        if payload[0] == MSG_CHANNEL_CLOSE:
            self._close_sent = True
            self._end_input()
            self._close_passed()
        return True

    def _relief(self) -> ChannelWritable | None:
        """The event that is due when the queue has shrunk enough."""
        if self._congested and self._out.size <= CHANNEL_LOW_WATER:
            self._congested = False
            return ChannelWritable(self)
        return None

    def _adjusted(self, amount: int) -> ChannelWritable | None:
        """The peer grants more window (RFC 4254, section 5.2)."""
        if self._send_window + amount > WINDOW_MAX:
            raise ProtocolError("channel window beyond 2^32 - 1")
        self._send_window += amount
        self._schedule()
        return self._relief()

    # --- input -------------------------------------------------------------------------------------
    @property
    def read_closed(self) -> bool:
        """True when no more data can come; what is buffered can still be read."""
        return self.eof_received or self._close_received or self._close_sent or self.state is _CLOSED

    def buffered(self, stream: int = 0) -> int:
        """Received bytes that were not read."""
        box = self._stderr if stream else self._data
        return box.size if box is not None else 0

    def read(self, limit: int, stream: int = 0) -> bytes:
        """Up to ``limit`` bytes, b"" when nothing is there; 1 as ``stream`` is stderr.

        Reading is what gives the peer its window back.
        """
        if limit < 1:
            raise LocalError("the limit of a read must be positive")
        box = self._stderr if stream else self._data
        if box is None or not box.chunks:
            return b""
        data = box.take(limit)
        self._consumed += len(data)
        if self._consumed >= self._credit_at:
            self._return_credit()
        if not box.chunks:
            box.notified = False
            if self.state is _CLOSED:
                self._forget_if_empty()
        return data

    def discard(self) -> None:
        """Stop reading: what is unread and what still comes is thrown away, and credited at once."""
        self._discarding = True
        dropped = self._data.clear()
        if self._stderr is not None:
            dropped += self._stderr.clear()
        self._consume(dropped)
        if self.state is _CLOSED:
            self._forget_if_empty()

    def _check_data(self, size: int) -> None:
        """Raise unless the peer may send so much now; the fast path repeats these tests."""
        if self._close_received:
            raise ProtocolError("channel data after CLOSE")
        if self.eof_received:
            raise ProtocolError("channel data after EOF")
        if size > self._shared.max_packet_size:
            raise ProtocolError("channel data above the maximum packet size", limit=self._shared.max_packet_size)
        if size > self._recv_window:
            raise ProtocolError("channel data beyond the window", limit=self._recv_window)

    def _received(self, stream: int, data: bytes) -> ChannelReadable | None:
        """Take data of any stream, the slow way (RFC 4254, section 5.2)."""
        if not data or (self._close_sent and not self._close_received):
            return None  # what was under way when we closed is legal and of no use
        self._check_data(len(data))
        self._recv_window -= len(data)
        box = self._box(stream)
        if box is None:
            self._consume(len(data))
            return None
        box.add(data)
        if box.notified:
            return None
        box.notified = True
        return box.event

    def _box(self, stream: int) -> Inbox | None:
        """Where a stream's data go; None throws them away."""
        if self._discarding:
            return None
        if not stream:
            return self._data
        # Only a command has a stderr, and it is on the server's side.
        if stream != EXTENDED_DATA_STDERR or not self._shared.is_client or self.type != SESSION:
            return None
        if self._stderr is None:
            self._stderr = Inbox(ChannelReadable(self, stream))
        return self._stderr

    def _consume(self, size: int) -> None:
        self._consumed += size
        if self._consumed >= self._credit_at:
            self._return_credit()

    def _outstanding(self) -> int:
        """Window left plus unread data."""
        return self._target - self._consumed

    def _return_credit(self) -> None:
        """Give window back once half of it is used, or less if the budget has only less."""
        shared = self._shared
        outstanding = self._target - self._consumed
        grant = shared.grantable(outstanding)
        least = shared.floor // 2
        if grant * 2 < shared.window_size and outstanding > least:
            # The budget is short. Ask again after the next packet's worth, at the latest where the
            # floor guarantees a grant.
            self._credit_at = min(self._consumed + MAX_PACKET_SIZE, self._target - least)
            return
        self._recv_window += grant
        self._target = outstanding + grant
        self._consumed = 0
        self._credit_at = (self._target + 1) // 2
        shared.sink.send(_ADJUST.pack(MSG_CHANNEL_WINDOW_ADJUST, self.peer_number, grant))

    def _end_input(self) -> None:
        """No more credit, and the window still open goes back to the budget."""
        self._credit_at = _NEVER
        self._target -= self._recv_window
        self._recv_window = 0

    def _eof(self) -> bool:
        """The peer's EOF (RFC 4254, section 5.3); True if the application wants to know."""
        if self.eof_received or self._close_received:
            return False
        self.eof_received = True
        self._end_input()
        return not self._close_sent

    def _close(self) -> bool:
        """The peer's CLOSE: answered with ours at once, window or not; True if it is the first."""
        if self._close_received:
            return False
        self._close_received = True
        self._end_input()
        if not self._close_sent:
            self._out.clear()
            self._congested = False
            self._close_queued = True
            self._send_in_order(_NUMBER.pack(MSG_CHANNEL_CLOSE, self.peer_number))
        self._close_passed()
        return True

    def _close_passed(self) -> None:
        if not (self._close_sent and self._close_received):
            self.state = _CLOSING
        elif self.state is not _CLOSED:
            self.state = _CLOSED
            del self._shared.channels[self.number]
            if self.from_peer and (self.buffered(0) or self.buffered(1)):
                self._shared.lingering.add(self)

    def _forget_if_empty(self) -> None:
        if not self.buffered(0) and not self.buffered(1):
            self._shared.lingering.discard(self)

    # --- requests ----------------------------------------------------------------------------------
    def request(self, request: ChannelRequest, want_reply: bool = False) -> None:
        """Send a request; the reply, if wanted, comes as :class:`ChannelReplied`, in order.

        Exit status and exit signal wait for the data before them, other requests do not.
        """
        self._need_open()
        name, data = encode_request(request)
        head = _NUMBER.pack(MSG_CHANNEL_REQUEST, self.peer_number)
        payload = head + string(name.encode("ascii")) + boolean(want_reply) + data
        self._awaited_replies += want_reply
        if isinstance(request, ExitStatus | ExitSignal):
            self._send_in_order(payload)
        else:
            self._shared.sink.send(payload)

    def reply(self, success: bool) -> None:
        """Answer the oldest request that wanted a reply. Without effect once the channel is closing."""
        if self._close_sent or self.state is _CLOSED:
            return
        request = self._replies.settle(self._reply_payload(success))
        if not success and self._rules is not None:
            self._rules.refused(request)

    def _reply_payload(self, success: bool) -> bytes:
        return _NUMBER.pack(MSG_CHANNEL_SUCCESS if success else MSG_CHANNEL_FAILURE, self.peer_number)

    def _requested(self, name: str, want_reply: bool, data: bytes) -> ChannelRequestReceived | None:
        """A request of the peer: pass it on, or refuse it here."""
        if self._close_received:
            raise ProtocolError("channel request after CLOSE")
        known = SERVER_REQUESTS if self._shared.is_client else CLIENT_REQUESTS
        if self.type != SESSION:
            request: ChannelRequest = UnknownRequest(name, data)
        else:
            request = decode_request(name, data, known)
        if isinstance(request, UnknownRequest) or (self._rules is not None and not self._rules.admit(request)):
            if want_reply and not self._close_sent:
                self._replies.answer(self._reply_payload(False))
            return None
        if isinstance(request, ExitStatus | ExitSignal):
            return self._exited(request, want_reply)
        if self._close_sent:
            return None
        if want_reply:
            self._replies.owe(request)
        return ChannelRequestReceived(self, request, want_reply)

    def _exited(self, request: ExitStatus | ExitSignal, want_reply: bool) -> ChannelRequestReceived | None:
        """Keep how the command ended, even after our CLOSE; only the first word counts."""
        if want_reply and not self._close_sent:
            self._replies.answer(self._reply_payload(True))
        if self.exit_status is not None or self.exit_signal is not None:
            return None
        if isinstance(request, ExitStatus):
            self.exit_status = request.status
        else:
            self.exit_signal = request
        return None if self._close_sent else ChannelRequestReceived(self, request, False)

    def _replied(self) -> bool:
        """A reply of the peer; True if one was due (others have no effect)."""
        if not self._awaited_replies or self._close_sent:
            return False
        self._awaited_replies -= 1
        return True
