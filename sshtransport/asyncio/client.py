"""connect: from a host name to a logged-in connection, under one deadline."""

from __future__ import annotations

import asyncio
import getpass
import inspect
import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, TypeVar

from ..config import TransportConfig
from ..connection import (
    Connection,
    DirectStreamLocal,
    DirectTCPIP,
    PtyRequest,
    encode_open,
)
from ..errors import HandshakeTimeout, SSHError
from ..events import Event, HostKeyOffered, KeysChanged
from ..keys import HOST_KEY_ALGORITHMS, PrivateKey
from ..transport import SSHTransport
from .connection import SSHConnection
from .dial import dial
from .login import KeyboardInteractive, Login, Passphrase, Password
from .opening import Opening
from .process import ClientProcess, CompletedProcess, open_process, run_process
from .protocol import Link, loop_arena
from .streams import SSHReader, SSHWriter, make_reader
from .trust import HostKeyVerifier, HostTrust, KnownHostsSource, PendingVerdict, checked
from .tunnel import LocalForward, forward_local, tunnel_socket

__all__ = (
    "ClientConnection",
    "Deadline",
    "HostKeyWatch",
    "client_core",
    "connect",
    "open_link",
)

_T = TypeVar("_T")


class Deadline:
    """One time limit over many awaits. It stands still while the caller's own callbacks run."""

    def __init__(self, timeout: float | None) -> None:
        self._limit = timeout
        self._scope: asyncio.Timeout | None = None

    @asynccontextmanager
    async def running(self, phase: Callable[[], str]) -> AsyncIterator[None]:
        """The scope of the limit; its end is a HandshakeTimeout that names the phase."""
        scope = asyncio.timeout(self._limit)
        try:
            async with scope as self._scope:
                try:
                    yield
                finally:
                    self._scope = None
        except TimeoutError as error:
            if not scope.expired() or isinstance(error, SSHError):
                raise
            text = f"no connection within {self._limit:g} seconds; it ended during {phase()}"
            raise HandshakeTimeout(text, phase=phase(), limit=self._limit) from None

    async def paused(self, answer: Awaitable[_T]) -> _T:
        """Await something of the caller's, off the clock."""
        scope = self._scope
        when = scope.when() if scope is not None else None
        if scope is None or when is None:
            return await answer
        loop = asyncio.get_running_loop()
        left = when - loop.time()
        scope.reschedule(None)
        try:
            return await answer
        finally:
            if scope is self._scope:  # it may be over: a verifier can outlive a connect that was cancelled
                scope.reschedule(loop.time() + left)

    async def ask(self, callback: Callable[..., Any], *args: Any) -> Any:
        """Call a sync or async callback of the caller, off the clock."""
        answer = callback(*args)
        return await self.paused(answer) if inspect.isawaitable(answer) else answer


class HostKeyWatch:
    """Answers HostKeyOffered, in the first key exchange and in rekeys alike."""

    def __init__(self, link: Link, trust: HostTrust, deadline: Deadline) -> None:
        self._link = link
        self._trust = trust
        self._deadline = deadline
        self._task: asyncio.Task[None] | None = None

    def offered(self, event: HostKeyOffered) -> None:
        try:
            slow = self._trust.check(event.host_key)
        except (Exception, asyncio.CancelledError) as error:
            self._answer(error)
            return
        if slow is None:
            self._answer(None)
        else:
            self._task = self._link.loop.create_task(self._wait(slow))
            self._task.add_done_callback(lambda _: slow.close())

    async def _wait(self, slow: PendingVerdict) -> None:
        try:
            await self._deadline.paused(slow)
        except (Exception, asyncio.CancelledError) as error:
            self._answer(error)  # cancelled by us, there is nobody to answer any more
        else:
            self._answer(None)

    def _answer(self, error: BaseException | None) -> None:
        core = self._link.core
        if core.want_read or not self._link.is_open:
            return  # the connection ended meanwhile
        self._link.verdict(core.accept_host_key() if error is None else core.reject_host_key(checked(error)))

    def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()


class ClientConnection(SSHConnection):
    """A connection to an SSH server. Made by :func:`connect`."""

    def __init__(self, link: Link, trust: HostTrust, deadline: Deadline) -> None:
        super().__init__(link)
        self._watch = HostKeyWatch(link, trust, deadline)
        self._keys: asyncio.Future[None] = link.loop.create_future()
        self._login: Login | None = None
        self.banner = ""  #: what the server wanted shown before login, control characters escaped

    def noticed(self, event: Event) -> None:
        if isinstance(event, HostKeyOffered):
            self._watch.offered(event)
        elif isinstance(event, KeysChanged) and event.first and not self._keys.done():
            self._keys.set_result(None)

    def ended(self, error: SSHError) -> None:
        super().ended(error)
        self._watch.stop()
        if not self._keys.done():
            self._keys.set_result(None)
        if self._login is not None:
            self._login.stop()

    async def handshake(self) -> None:
        """Until the first keys are in place.

        Raises:
            SSHError: what ended the connection instead.
        """
        await self._keys
        self._raise_cause()

    def _raise_cause(self) -> None:
        error = self.link.error
        if error is not None:
            raise error.renewed() from error

    async def log_in(self, login: Login) -> None:
        """Run the login, and open the connection protocol behind it."""
        self._login = login
        login.attach(self.link, self._logged_in)
        try:
            await login.run()
        finally:
            self._login = None
            self.banner = login.banner

    def _logged_in(self) -> None:
        core = self.link.core
        config = core.config
        self.start_connection(
            Connection("client", core, window_size=config.window_size, max_packet_size=config.max_packet_size)
        )

    # --- commands -----------------------------------------------------------------------------------

    def create_process(
        self,
        command: str | bytes | None = None,
        *,
        env: Mapping[str, str] | None = None,
        pty: bool | str | PtyRequest | None = None,
        subsystem: str | None = None,
        encoding: str | None = None,
        errors: str = "strict",
    ) -> Opening[ClientProcess]:
        """Start a command, a shell (no command) or a subsystem (RFC 4254, section 6.5).

        ``pty`` asks for a terminal: True, its type's name, or a ``PtyRequest``. With ``encoding``
        the streams take and give str.

        Raises, when awaited:
            ChannelOpenError: the peer refused the session, the terminal or the command.
            ConnectionLost: the connection ended.
        """

        async def leave(process: ClientProcess, error: BaseException | None) -> None:
            await process.leave()

        return Opening(
            lambda: open_process(
                self, command, env=env, pty=pty, subsystem=subsystem, encoding=encoding, errors=errors
            ),
            leave,
        )

    async def run(
        self,
        command: str | bytes | None = None,
        *,
        input: bytes | str | None = None,
        check: bool = False,
        env: Mapping[str, str] | None = None,
        timeout: float | None = None,
        encoding: str | None = None,
        errors: str = "strict",
        pty: bool | str | PtyRequest | None = None,
        subsystem: str | None = None,
        max_output: int | None = None,
    ) -> CompletedProcess:
        """Run a command to its end and return what it wrote, as ``subprocess.run`` does.

        ``input`` is written to its stdin, then EOF is sent. The channel is closed on every way out.

        Raises:
            ProcessError: ``check`` and the status is not 0, or more than ``max_output`` bytes came.
            TimeoutError: it took longer than ``timeout`` seconds.
            ChannelOpenError, ConnectionLost: as :meth:`create_process`.
        """
        async with asyncio.timeout(timeout):
            process = await open_process(
                self, command, env=env, pty=pty, subsystem=subsystem, encoding=encoding, errors=errors
            )
            done = await run_process(process, input, encoding=encoding, errors=errors, max_output=max_output)
        if check:
            done.check_returncode()
        return done

    # --- direct connections -------------------------------------------------------------------------

    def open_connection(
        self, host: str, port: int, *, encoding: str | None = None
    ) -> Opening[tuple[SSHReader[Any], SSHWriter[Any]]]:
        """A TCP connection from the server to ``host``, ``port`` (RFC 4254, section 7.2).

        Raises, when awaited:
            ChannelOpenError: the server refused, or could not connect.
        """
        return self._open_stream(DirectTCPIP(host, port), encoding)

    def open_unix_connection(
        self, path: str, *, encoding: str | None = None
    ) -> Opening[tuple[SSHReader[Any], SSHWriter[Any]]]:
        """A connection from the server to a Unix socket there (OpenSSH PROTOCOL, section 2.4)."""
        return self._open_stream(DirectStreamLocal(path), encoding)

    async def forward_local_port(
        self, listen_host: str, listen_port: int, dest_host: str, dest_port: int
    ) -> LocalForward:
        """Listen here, and have the server connect each connection to ``dest_host``, ``dest_port``.

        Port 0 takes a free one; the result's ``port`` tells which. It closes with the connection.
        """
        return await forward_local(self, listen_host, listen_port, DirectTCPIP(dest_host, dest_port))

    def _open_stream(
        self, target: DirectTCPIP | DirectStreamLocal, encoding: str | None
    ) -> Opening[tuple[SSHReader[Any], SSHWriter[Any]]]:
        async def start() -> tuple[SSHReader[Any], SSHWriter[Any]]:
            port = await self.open_port(*encode_open(target))
            return make_reader(port, 0, encoding), SSHWriter(port, 0, encoding)

        async def leave(pair: tuple[SSHReader[Any], SSHWriter[Any]], error: BaseException | None) -> None:
            pair[1].close()

        return Opening(start, leave)


async def open_link(
    core: SSHTransport,
    host: str,
    port: int,
    *,
    sock: socket.socket | None,
    local_addr: tuple[str, int] | None,
    make_owner: Callable[[Link], _T],
) -> _T:
    """Connect a socket and put the core on it; the owner is there before the first byte."""
    loop = asyncio.get_running_loop()
    if sock is None:
        sock = await dial(host, port, local_addr=local_addr)
    link = Link(core, loop)
    owner = make_owner(link)
    unix = getattr(socket, "AF_UNIX", None)
    try:
        if sock.family == unix:
            await loop.create_unix_connection(lambda: link, sock=sock)
        else:
            await loop.create_connection(lambda: link, sock=sock)
    except BaseException:
        sock.close()
        raise
    return owner


def client_core(config: TransportConfig, trust: HostTrust) -> SSHTransport:
    """A client's transport that prefers the host key types it can verify."""
    wanted = config.host_key_algorithms or HOST_KEY_ALGORITHMS
    preferred = trust.preferred(wanted)
    if preferred != tuple(wanted):
        config = replace(config, host_key_algorithms=preferred)
    return SSHTransport("client", config, arena=loop_arena(asyncio.get_running_loop()))


def connect(
    host: str = "",
    port: int = 22,
    *,
    username: str | None = None,
    client_keys: Sequence[str | os.PathLike[str] | PrivateKey] | None = None,
    passphrase: Passphrase = None,
    password: Password = None,
    keyboard_interactive: KeyboardInteractive | None = None,
    known_hosts: KnownHostsSource = None,
    host_key_verifier: HostKeyVerifier | None = None,
    host_key_alias: str | None = None,
    local_addr: tuple[str, int] | None = None,
    config: TransportConfig | None = None,
    timeout: float | None = 30.0,
    keepalive_interval: float | None = None,
    keepalive_count: int = 3,
    sock: socket.socket | None = None,
    tunnel: SSHConnection | None = None,
) -> Opening[ClientConnection]:
    """Connect to an SSH server and log in: ``async with connect(...) as conn`` or ``conn = await connect(...)``.

    Args:
        host, port: where the server is; also the name that its key is looked up by.
        username: default is the local user's name.
        client_keys: None tries the user's default key files, () none; else paths or keys.
        passphrase: for encrypted key files; str, or async callable ``path -> str | None``.
        password: str, or async callable ``() -> str | None``.
        keyboard_interactive: async callable ``(name, instructions, [(prompt, echo)]) -> list[str]``.
        known_hosts: None is the user's files; a path, paths, a ``KnownHosts``, or
            ``INSECURE_ACCEPT_ANY_HOST_KEY``.
        host_key_verifier: asked about a key that known_hosts does not know: sync or async callable
            ``(host, port, key)``; only True trusts. ``accept_new`` is a ready one.
        host_key_alias: look the key up under this name instead of host and port.
        local_addr: local address and port to connect from.
        config: algorithms and limits.
        timeout: seconds for DNS, TCP, identification, key exchange and login together; it stands
            still while the callables above run. None is no limit.
        keepalive_interval: ask a silent peer for a sign of life after so many seconds, and give up
            after ``keepalive_count`` without one.
        sock: a connected socket to use instead of connecting.
        tunnel: another connection to go through (ProxyJump): its server connects to host and port.

    Raises, when awaited:
        OSError: DNS or TCP failed.
        HandshakeTimeout: ``timeout`` passed; ``phase`` says during what.
        HostKeyError, NegotiationError, ProtocolError, IntegrityError, PeerDisconnected,
        ConnectionLost: the connection ended before login.
        AuthenticationFailed: the server refused all we had.
        LocalError: an argument cannot be used.
    """

    async def start() -> ClientConnection:
        settings = config or TransportConfig()
        deadline = Deadline(timeout)
        trust = HostTrust(known_hosts, host_key_verifier, host, port, host_key_alias, settings.rsa_min_bits)
        core = client_core(settings, trust)
        login = Login(
            username if username is not None else getpass.getuser(),
            core,
            deadline.ask,
            client_keys=client_keys,
            passphrase=passphrase,
            password=password,
            keyboard_interactive=keyboard_interactive,
        )
        phase: Callable[[], str] = lambda: "connect"  # noqa: E731
        connection: ClientConnection | None = None
        try:
            async with deadline.running(lambda: phase()):
                connection = await open_link(
                    core,
                    host,
                    port,
                    sock=sock if tunnel is None else await tunnel_socket(tunnel, host, port),
                    local_addr=local_addr,
                    make_owner=lambda link: ClientConnection(link, trust, deadline),
                )
                phase = lambda: str(core.phase)  # noqa: E731
                connection.remember_addresses()
                await connection.handshake()
                await connection.log_in(login)
        except BaseException:
            if connection is not None:
                connection.close()
                connection.link.drop()
            elif sock is not None:
                sock.close()
            raise
        if keepalive_interval is not None:
            connection.start_keepalive(keepalive_interval, keepalive_count)
        return connection

    return Opening(start, _leave)


async def _leave(connection: ClientConnection, error: BaseException | None) -> None:
    connection.close()
    await connection.wait_closed()
