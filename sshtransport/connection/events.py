"""What :class:`Connection` tells its user (RFC 4254).

Traffic makes few events: a channel reports new data once, until the application has emptied it,
and that event object is made only once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..errors import OpenFailureReason
from ..events import Event

if TYPE_CHECKING:
    from .channel import Channel
    from .opens import ChannelTarget
    from .requests import ChannelRequest, GlobalRequest

__all__ = (
    "ChannelClosed",
    "ChannelEOFReceived",
    "ChannelEvent",
    "ChannelOpenFailed",
    "ChannelOpenRequested",
    "ChannelOpened",
    "ChannelReadable",
    "ChannelReplied",
    "ChannelRequestReceived",
    "ChannelWritable",
    "ConnectionEvent",
    "GlobalReplied",
    "GlobalRequestReceived",
    "PongReceived",
)


@dataclass(slots=True)
class ConnectionEvent(Event):
    """Base of the events of this layer."""


@dataclass(slots=True)
class ChannelEvent(ConnectionEvent):
    """Base of those that concern one channel."""

    channel: Channel


@dataclass(slots=True)
class ChannelOpenRequested(ChannelEvent):
    """The peer wants a channel: call ``channel.accept()`` or ``channel.refuse()``, now or later.

    ``target`` is ``extra`` decoded, or None where the type has no payload or is unknown.
    """

    type: str
    extra: bytes
    target: ChannelTarget | None = None


@dataclass(slots=True)
class ChannelOpened(ChannelEvent):
    """The peer confirmed our open."""

    extra: bytes


@dataclass(slots=True)
class ChannelOpenFailed(ChannelEvent):
    """The peer refused our open. ``description`` has its control characters escaped."""

    reason: OpenFailureReason | int
    description: str


@dataclass(slots=True)
class ChannelReadable(ChannelEvent):
    """There is data in a stream that was empty: 0 is the data, 1 is stderr.

    Not repeated before ``channel.read()`` has emptied the stream.
    """

    stream: int


@dataclass(slots=True)
class ChannelEOFReceived(ChannelEvent):
    """The peer sends no more data; what came before can still be read."""


@dataclass(slots=True)
class ChannelWritable(ChannelEvent):
    """The output queue, once above its high-water mark, is down to the low one."""


@dataclass(slots=True)
class ChannelRequestReceived(ChannelEvent):
    """A request that is allowed now; answer it with ``channel.reply()`` if ``want_reply``.

    Exit status and exit signal come this way too, and stay readable in the channel.
    """

    request: ChannelRequest
    want_reply: bool


@dataclass(slots=True)
class ChannelReplied(ChannelEvent):
    """The answer to the oldest of our requests on this channel that wanted one."""

    success: bool


@dataclass(slots=True)
class ChannelClosed(ChannelEvent):
    """The peer closed the channel. The last event of a channel that was open, and it comes once.

    Nothing can be sent any more; what came before can still be read.
    """


@dataclass(slots=True)
class GlobalRequestReceived(ConnectionEvent):
    """A global request of a name passed to ``handle_global()``.

    Answer it with ``reply_global()`` if ``want_reply``. ``request`` is ``data`` decoded, or None
    for a name this package has no class for.
    """

    name: str
    data: bytes
    want_reply: bool
    request: GlobalRequest | None = None


@dataclass(slots=True)
class GlobalReplied(ConnectionEvent):
    """The answer to ``global_request()``, which returned this ``token``; data only on success."""

    token: object
    success: bool
    data: bytes


@dataclass(slots=True)
class PongReceived(ConnectionEvent):
    """The answer to a PING of ours, with its data (OpenSSH PROTOCOL, section 1.8)."""

    data: bytes
