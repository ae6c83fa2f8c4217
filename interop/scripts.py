"""Small whole sessions without I/O: what we send depends on what we received and on nothing else.

That is what makes a recorded session repeatable. Each script holds the three machines (transport,
login, connection) and answers a batch of items: with a command, its input and its end as the client, by
giving input back as the server. Whoever carries the bytes calls ``handle`` after each read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from sshtransport import PublicKey, SSHTransport
from sshtransport.auth import (
    AuthEvent,
    AuthSucceeded,
    ClientAuth,
    KeyPresented,
    KeyQueried,
    ServerAuth,
    ServiceAccepted,
)
from sshtransport.connection import (
    Channel,
    ChannelClosed,
    ChannelEOFReceived,
    ChannelOpened,
    ChannelOpenRequested,
    ChannelReadable,
    ChannelReplied,
    ChannelRequestReceived,
    Connection,
    ConnectionEvent,
)
from sshtransport.connection.requests import Exec
from sshtransport.events import Disconnected, HostKeyOffered, KeysChanged
from sshtransport.keys import HOST_KEY_ALGORITHMS
from sshtransport.transport import Item

__all__ = ("ClientScript", "Script", "ScriptFailed", "ServerScript")


class ScriptFailed(AssertionError):
    """The session did not go as the script wants."""


class Signer(Protocol):
    """What a script needs of a private key."""

    @property
    def public_key(self) -> PublicKey: ...
    @property
    def signature_algorithms(self) -> tuple[str, ...]: ...
    def sign(self, algorithm: str, data: bytes) -> bytes: ...


class Script:
    """What both have in common: items go to the machine whose turn it is, then what can leave leaves."""

    def __init__(self, core: SSHTransport, *, rekey: bool) -> None:
        self.core = core
        self.mux: Connection | None = None
        self.over = False  # nothing more is to come
        self._rekey = rekey  # ours, once, in the middle of the session

    def handle(self, items: Sequence[Item]) -> None:
        """Act on what came up, in order."""
        pending = list(items)
        while pending:
            item = pending.pop(0)
            if isinstance(item, bytes):
                if self.mux is None:
                    self._log_in(item)
                else:
                    event = self.mux.receive(item)
                    if event is not None:
                        self._on_event(event)
            elif isinstance(item, HostKeyOffered):
                pending[:0] = self.core.accept_host_key()
            elif isinstance(item, KeysChanged) and item.first:
                self._begin()
            elif isinstance(item, Disconnected):
                self._ended(item)
        if self.mux is not None:
            self.mux.pump()

    def rekey_once(self) -> None:
        if self._rekey:
            self._rekey = False
            self.core.rekey()

    def _begin(self) -> None:
        raise NotImplementedError

    def _log_in(self, payload: bytes) -> None:
        raise NotImplementedError

    def _on_event(self, event: ConnectionEvent) -> None:
        raise NotImplementedError

    def _ended(self, event: Disconnected) -> None:
        raise NotImplementedError


class ClientScript(Script):
    """Log in with a key, run ``command`` with ``data`` as its input, keep what it writes, leave."""

    def __init__(
        self, core: SSHTransport, username: str, key: Signer, command: str, data: bytes, *, rekey: bool = False
    ) -> None:
        super().__init__(core, rekey=rekey)
        self._username = username
        self._key = key
        self._command = command
        self._data = data
        self._auth: ClientAuth | None = None
        self.output = b""

    def _begin(self) -> None:
        assert self.core.session_id is not None
        self._auth = ClientAuth(self._username, self.core.session_id, self.core, secure=self.core.secure)
        self._auth.start()

    def _log_in(self, payload: bytes) -> None:
        assert self._auth is not None
        event = self._auth.receive(payload)
        if isinstance(event, ServiceAccepted):
            key, algorithm = self._key, self._key.signature_algorithms[0]
            signature = key.sign(algorithm, self._auth.data_to_sign(key.public_key, algorithm))
            self._auth.try_signature(key.public_key, algorithm, signature)
        elif isinstance(event, AuthSucceeded):
            self.mux = Connection("client", self.core)
            self.mux.open_channel("session")

    def _on_event(self, event: ConnectionEvent) -> None:
        if isinstance(event, ChannelOpened):
            event.channel.request(Exec(self._command.encode()), want_reply=True)
        elif isinstance(event, ChannelReplied):
            if not event.success:
                raise ScriptFailed("the command was refused")
            self.rekey_once()
            event.channel.write(self._data)
            event.channel.send_eof()
        elif isinstance(event, ChannelReadable):
            self.output += event.channel.read(1 << 20, event.stream)
        elif isinstance(event, ChannelClosed):
            self.output += event.channel.read(1 << 20)
            self.core.disconnect()

    def _ended(self, event: Disconnected) -> None:
        if event.error is not None:
            raise ScriptFailed(f"the session failed: {event.error!r}") from event.error
        self.over = True


class ServerScript(Script):
    """Let one key in, and give back the input of whatever command."""

    def __init__(self, core: SSHTransport, key: PublicKey, *, rekey: bool = False) -> None:
        super().__init__(core, rekey=rekey)
        self._key = key
        self._auth: ServerAuth | None = None
        self.served = 0  # commands; some clients do not wait to close their channel

    def _begin(self) -> None:
        assert self.core.session_id is not None
        self._auth = ServerAuth(
            self.core.session_id,
            self.core,
            methods=frozenset({"publickey"}),
            signature_algorithms=HOST_KEY_ALGORITHMS,
            secure=self.core.secure,
        )

    def _log_in(self, payload: bytes) -> None:
        auth = self._auth
        assert auth is not None
        event = auth.receive(payload)
        while event is not None:
            self._judge(auth, event)
            event = auth.next_event()
        if auth.authenticated:
            self.mux = Connection("server", self.core)
            self.mux.allow_open("session")

    def _judge(self, auth: ServerAuth, event: AuthEvent) -> None:
        match event:
            case KeyQueried(key=key) if key == self._key:
                auth.key_ok()
            case KeyPresented(key=key) if key == self._key:
                auth.accept()
            case _:
                auth.refuse()

    def _on_event(self, event: ConnectionEvent) -> None:
        handler = _SERVES.get(type(event))
        if handler is not None:
            handler(self, event)

    def _opened(self, event: ChannelOpenRequested) -> None:
        event.channel.accept()

    def _requested(self, event: ChannelRequestReceived) -> None:
        if event.want_reply:
            event.channel.reply(isinstance(event.request, Exec))
        if isinstance(event.request, Exec):
            self.rekey_once()

    def _readable(self, event: ChannelReadable) -> None:
        event.channel.write(event.channel.read(1 << 20))

    def _at_eof(self, event: ChannelEOFReceived) -> None:
        self._finish(event.channel)

    def _finish(self, channel: Channel) -> None:
        channel.send_eof()
        channel.send_exit_status(0)
        channel.close()
        self.served += 1

    def _ended(self, event: Disconnected) -> None:
        if not self.served:
            raise ScriptFailed(f"the session ended early: {event.error!r}") from event.error
        self.over = True


_SERVES: dict[type[ConnectionEvent], Callable[..., None]] = {
    ChannelOpenRequested: ServerScript._opened,
    ChannelRequestReceived: ServerScript._requested,
    ChannelReadable: ServerScript._readable,
    ChannelEOFReceived: ServerScript._at_eof,
}
