"""ServerConnection: one client of a server, from the first byte to the last."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from ..auth import Grant
from ..config import TransportConfig
from ..connection import (
    SESSION,
    Channel,
    ChannelOpenRequested,
    ChannelRequestReceived,
    Connection,
    DirectTCPIP,
    GlobalRequestReceived,
)
from ..errors import ConnectionLost, HandshakeTimeout, OpenFailureReason, SSHError
from ..events import Event, KeysChanged
from ..keys import PrivateKey
from .connection import SSHConnection
from .limits import ServerLimits, client_address
from .ports import ChannelPort
from .protocol import Link
from .server_forwards import ForwardPolicy, ServerForwards
from .server_login import ServerLogin
from .server_process import Handler, Session

__all__ = ("Host", "ServerConnection", "ServerSettings")

_logger = logging.getLogger("sshtransport.server")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings:
    """What ``listen`` was given, checked; the same for all connections of a server."""

    handler: Handler
    subsystems: Mapping[str, Handler]
    host_keys: tuple[PrivateKey, ...]
    authenticator: object
    methods: frozenset[str]
    allow_direct_tcpip: ForwardPolicy
    allow_tcpip_forward: ForwardPolicy
    config: TransportConfig
    limits: ServerLimits
    encoding: str | None


class Host(Protocol):
    """What a connection needs of its server."""

    @property
    def settings(self) -> ServerSettings: ...

    @property
    def closing(self) -> bool:
        """Whether nothing new may begin."""

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run something of a connection; the server waits for its end before it has ended itself."""

    def logged_in(self, connection: ServerConnection) -> None:
        """The connection is nobody's stranger any more."""

    def session_ended(self) -> None:
        """One session less."""

    def connection_ended(self, connection: ServerConnection) -> None:
        """The connection is over."""


class ServerConnection(SSHConnection):
    """A client's connection to a server. Made by the server; handlers and checks get to see it.

    ``username`` and ``grant`` are None before login. ``peer_address`` (an IP address) and
    ``peer_port`` are None where the client came another way.
    """

    def __init__(self, link: Link, host: Host, peername: Any) -> None:
        super().__init__(link)
        self.username: str | None = None
        self.grant: Grant | None = None
        self.peer_address, self.peer_port = client_address(peername)
        self._host = host
        self._login: ServerLogin | None = None
        self._sessions: dict[ChannelPort, Session] = {}
        self._forwards: ServerForwards | None = None
        limits = host.settings.limits
        self._timer = link.loop.call_later(limits.login_grace, self._grace_over, limits.login_grace)

    def __repr__(self) -> str:
        return f"<ServerConnection from {self.peer_address}, port {self.peer_port}>"

    @property
    def sessions(self) -> int:
        """How many session channels are open: what ``shutdown`` waits for."""
        return len(self._sessions)

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run something for the connection."""
        return self._host.spawn(work)

    # --- login --------------------------------------------------------------------------------------

    def noticed(self, event: Event) -> None:
        if isinstance(event, KeysChanged) and event.first:
            settings = self._host.settings
            self._login = ServerLogin(self, settings.authenticator, settings.methods, settings.limits, self._logged_in)

    def _logged_in(self, username: str, grant: Grant) -> None:
        self.username, self.grant = username, grant
        self._login = None
        self._timer.cancel()
        settings, core = self._host.settings, self.link.core
        limits = settings.limits
        self.start_connection(
            Connection(
                "server",
                core,
                window_size=core.config.window_size,
                max_packet_size=core.config.max_packet_size,
                channels_max=limits.max_channels,
                pending_opens_max=limits.max_pending_opens,
                max_buffered=limits.max_buffered,
            )
        )
        self._forwards = ServerForwards(
            self, settings.allow_direct_tcpip, settings.allow_tcpip_forward, limits.max_remote_forwards
        )
        self._forwards.start()
        if limits.idle_timeout is not None:
            self._timer = self.link.loop.call_later(limits.idle_timeout, self._idle, limits.idle_timeout)
        self._host.logged_in(self)

    def _grace_over(self, limit: float) -> None:
        phase = str(self.link.core.phase)
        self.link.fail(HandshakeTimeout(f"no login within {limit:g} seconds", phase=phase, limit=limit))

    def _idle(self, limit: float) -> None:
        silent = self.link.silence
        if silent >= limit * 0.99:
            self.link.fail(ConnectionLost(f"nothing heard for {limit:g} seconds", phase="connection"))
        else:
            self._timer = self.link.loop.call_later(limit - silent, self._idle, limit)

    # --- channels -----------------------------------------------------------------------------------

    def open_requested(self, event: ChannelOpenRequested) -> None:
        channel = event.channel
        if self._host.closing:
            channel.refuse(OpenFailureReason.RESOURCE_SHORTAGE, "the server is shutting down")
        elif event.type == SESSION:
            assert self.grant is not None
            settings = self._host.settings
            port = self.accept(channel)
            self._sessions[port] = Session(port, self.grant, settings.handler, settings.subsystems, settings.encoding)
        elif isinstance(event.target, DirectTCPIP):
            assert self._forwards is not None
            self._forwards.open_direct(channel, event.target)
        else:
            channel.refuse(OpenFailureReason.UNKNOWN_CHANNEL_TYPE, "unknown channel type")

    def accept(self, channel: Channel) -> ChannelPort:
        """Confirm a channel that the client wants."""
        channel.accept()
        port = self._ports[channel.number] = ChannelPort(self, channel)
        return port

    def channel_requested(self, port: ChannelPort, event: ChannelRequestReceived) -> None:
        session = self._sessions.get(port)
        if session is not None:
            session.requested(event)
        elif event.want_reply:
            port.channel.reply(False)

    def channel_closed(self, port: ChannelPort) -> None:
        session = self._sessions.pop(port, None)
        if session is not None:
            session.closed()
            self._host.session_ended()

    def global_requested(self, event: GlobalRequestReceived) -> None:
        assert self._forwards is not None  # which asked for these events
        self._forwards.requested(event)

    # --- the end --------------------------------------------------------------------------------------

    def ended(self, error: SSHError) -> None:
        _logger.debug("%r ended: %s", self, error.message)
        self._timer.cancel()
        if self._login is not None:
            self._login.stop()
            self._login = None
        super().ended(error)
        if self._forwards is not None:
            self._forwards.stop()
        self._host.connection_ended(self)
