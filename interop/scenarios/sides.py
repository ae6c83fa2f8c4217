"""The two sides of a case. A scenario says what is to happen; who is client and who is server is told here.

A *session* runs commands. With a server peer it is one connection of ours; with a client peer it is a
server of ours, and each command is a connection of the peer's.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import secrets
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Protocol

import sshtransport
from interop.model import (
    Ability,
    Case,
    Credentials,
    Engine,
    Login,
    Peer,
    PeerClient,
    PeerServer,
    Program,
    RoleSpec,
    Setting,
    Target,
)
from interop.network import Network, bad_network

from .commands import handle

__all__ = (
    "Check",
    "ClientPeer",
    "Done",
    "Process",
    "ServerPeer",
    "Session",
    "Side",
    "complete",
    "digest",
    "feed",
    "key_at",
)

HOST = "127.0.0.1"
CHUNK = 65536
HOST_KEYS = ("ed25519", "ecdsa256", "ecdsa384", "ecdsa521", "rsa")
KEX_NAMES = sshtransport.TransportConfig().offered_kex("client")
SERVICE_REQUEST, SERVICE_ACCEPT = 5, 6
USERAUTH = b"\x00\x00\x00\x0cssh-userauth"
GOOD = Network()
AWAKE = 2.0  # seconds
LIMITS = sshtransport.ServerLimits(max_startups_per_address=100)  # every client here has the same one


class Check(AssertionError):
    """Something did not go as the scenario wants."""


class Process(Protocol):
    """A command at work, on either side: a ``ClientProcess`` of ours or a ``model.Program``."""

    @property
    def stdin(self) -> Any: ...
    @property
    def stdout(self) -> Any: ...
    @property
    def stderr(self) -> Any: ...
    async def wait(self) -> int | None: ...


@dataclass(frozen=True)
class Done:
    """How a command ended and what it wrote."""

    status: int | None
    stdout: bytes
    stderr: bytes


async def feed(process: Process, data: bytes) -> None:
    """Write all of it and the end. A process that has gone meanwhile says why by its status."""
    view = memoryview(data)
    with contextlib.suppress(ConnectionError):
        for start in range(0, len(view), CHUNK):
            process.stdin.write(view[start : start + CHUNK])
            await process.stdin.drain()
        process.stdin.write_eof()


async def digest(reader: Any) -> tuple[int, str]:
    """Read to the end: the size, and SHA-256 in hex."""
    size, sha = 0, hashlib.sha256()
    while data := await reader.read(4 * CHUNK):
        size += len(data)
        sha.update(data)
    return size, sha.hexdigest()


async def complete(process: Process, data: bytes = b"") -> Done:
    """Feed it, collect what it writes, wait for its end."""
    async with asyncio.TaskGroup() as group:
        group.create_task(feed(process, data))
        out = group.create_task(process.stdout.read())
        err = group.create_task(process.stderr.read())
    return Done(await process.wait(), out.result(), err.result())


@cache
def key_at(path: Path) -> sshtransport.PrivateKey:
    """A private key of the credentials, read once a run."""
    return sshtransport.PrivateKey.load(path)


class Session(ABC):
    """Where commands run."""

    @abstractmethod
    async def start(self, command: str) -> Process:
        """Run a command; it is ended with the session, if not before."""

    @property
    @abstractmethod
    def connection(self) -> sshtransport.ClientConnection | sshtransport.ServerConnection:
        """Our end of the connection, or of the latest one."""

    @abstractmethod
    async def connected(self) -> None:
        """Until there is a connection with a command."""

    async def run(self, command: str, data: bytes = b"") -> Done:
        return await complete(await self.start(command), data)


@dataclass(kw_only=True)
class Side(ABC):
    """A peer in one role, and us in the other one, for one case."""

    case: Case
    peer: Peer
    credentials: Credentials
    engine: Engine
    settings: Mapping[Setting, str] = field(default_factory=dict)  # what the peer is told in this case
    facts: dict[str, str] = field(default_factory=dict)  # what was settled on
    notes: list[str] = field(default_factory=list)  # for the log of a failure

    @property
    def spec(self) -> RoleSpec:
        return self.peer.roles[self.case.role]

    def can(self, ability: Ability) -> bool:
        return ability in self.spec.abilities

    def config(self, **changes: Any) -> sshtransport.TransportConfig:
        """Ours: what the case names alone on offer, else all that we have; and ``changes``."""
        case = self.case
        return sshtransport.TransportConfig(
            **{
                "kex": [case.kex] if case.kex else KEX_NAMES,
                "host_key_algorithms": [case.host_key] if case.host_key else None,
                "ciphers": [case.cipher] if case.cipher else None,
                "macs": [case.mac] if case.mac else None,
            }
            | changes
        )

    @abstractmethod
    def session(
        self,
        config: sshtransport.TransportConfig | None = None,
        login: Login = Login.ED25519,
        network: Network = GOOD,
    ) -> AbstractAsyncContextManager[Session]:
        """A session; at its good end what was settled on is compared with the case."""

    @abstractmethod
    async def greet(self, config: sshtransport.TransportConfig) -> None:
        """Exchange keys and the first two encrypted messages, no more; then DISCONNECT."""

    async def log(self) -> str:
        """All that may help to see why a case failed."""
        return "\n".join(self.notes)

    def settled(self, info: sshtransport.ConnectionInfo, strict_kex: str) -> None:
        """Note what the two sides settled on; Check where that is not what the case and the peer's abilities say."""
        names = info.algorithms
        if names is None:
            raise Check("no keys were exchanged")
        found = {
            "kex": names.kex,
            "host_key": names.host_key,
            "cipher": names.cipher_c2s,
            "mac": names.mac_c2s or "",
            "strict_kex": "on" if info.strict_kex else "off",
            "peer_ident": (info.peer_ident or b"").decode("ascii", "replace"),
        }
        self.facts.update(found)
        if (names.cipher_c2s, names.mac_c2s) != (names.cipher_s2c, names.mac_s2c):
            raise Check(f"the directions differ: {names}")
        for kind in ("kex", "host_key", "cipher", "mac"):
            wanted = getattr(self.case, kind)
            if wanted and wanted != found[kind]:
                raise Check(f"{kind} {found[kind]} was settled on, not {wanted}")
        strict = strict_kex != "off" and self.can(Ability.STRICT_KEX)
        if info.strict_kex is not strict:
            raise Check(f"strict KEX is {'on' if info.strict_kex else 'off'}; the peer's abilities say otherwise")


# --- the peer is the server ----------------------------------------------------------------------------


class _ToServer(Session):
    """On one connection of ours; where a server takes one session on a connection only, on a new one each time."""

    def __init__(self, connect: Callable[[], Awaitable[sshtransport.ClientConnection]], one_each: bool) -> None:
        self._connect = connect
        self._one_each = one_each
        self._conn: sshtransport.ClientConnection | None = None
        self._used = False

    @property
    def connection(self) -> sshtransport.ClientConnection:
        assert self._conn is not None
        return self._conn

    async def connected(self) -> None:
        if self._conn is None:
            self._conn = await self._connect()

    async def start(self, command: str) -> Process:
        if self._one_each and self._used:
            self._conn = None
        await self.connected()
        self._used = True
        return await self.connection.create_process(command)


@dataclass(kw_only=True)
class ServerPeer(Side):
    """We connect to a server that runs."""

    server: PeerServer
    gate: asyncio.Semaphore  # for the time until login: Dropbear closes the sixth connection that has not got there

    @contextlib.asynccontextmanager
    async def connect(
        self,
        config: sshtransport.TransportConfig | None = None,
        login: Login = Login.ED25519,
        port: int | None = None,
        server: PeerServer | None = None,
        **changes: Any,
    ) -> AsyncIterator[sshtransport.ClientConnection]:
        """``sshtransport.connect`` with the credentials of the run."""
        server = server or self.server
        if login is Login.PASSWORD:
            proof: dict[str, Any] = {"client_keys": (), "password": self.credentials.password}
        else:
            proof = {"client_keys": [key_at(self.credentials.path(f"user_{login}"))]}
        arguments: dict[str, Any] = {
            "username": server.username,
            "known_hosts": self.credentials.path("known_hosts"),
            "config": config or self.config(),
        }
        async with self.gate:
            conn = await sshtransport.connect(
                server.host, server.port if port is None else port, **arguments | proof | changes
            )
        try:
            yield conn
        finally:
            conn.close()
            await conn.wait_closed()

    @contextlib.asynccontextmanager
    async def session(
        self,
        config: sshtransport.TransportConfig | None = None,
        login: Login = Login.ED25519,
        network: Network = GOOD,
    ) -> AsyncIterator[Session]:
        config = config or self.config()
        async with contextlib.AsyncExitStack() as stack:
            port = None
            if network != GOOD:
                port = await stack.enter_async_context(bad_network(self.server.host, self.server.port, network))
            session = _ToServer(
                lambda: stack.enter_async_context(self.connect(config, login, port)), not self.can(Ability.CHANNELS)
            )
            await session.connected()
            yield session
            self.settled(session.connection.info, config.strict_kex)

    async def greet(self, config: sshtransport.TransportConfig) -> None:
        known_hosts = self.credentials.path("known_hosts")
        opening = sshtransport.open_packet_stream(
            self.server.host, self.server.port, known_hosts=known_hosts, config=config
        )
        async with self.gate, opening as stream:
            await stream.send(bytes([SERVICE_REQUEST]) + USERAUTH)
            answer = await stream.receive()
            if answer != bytes([SERVICE_ACCEPT]) + USERAUTH:
                raise Check(f"not SERVICE_ACCEPT: {answer[:80].hex()}")
            self.settled(stream.info, config.strict_kex)

    async def log(self) -> str:
        return "\n".join([*self.notes, "--- the server's log", *(await self.server.log()).splitlines()[-300:]])


# --- the peer is the client ----------------------------------------------------------------------------


class Users:
    """Lets in whoever has a key or the password of the run, by any name, and keeps what was tried."""

    def __init__(self, credentials: Credentials) -> None:
        self._keys = sshtransport.AuthorizedKeys(credentials.path("authorized_keys"))
        self._password = credentials.password
        self.tried: list[str] = []

    def check_public_key(self, username: str, key: sshtransport.PublicKey, info: sshtransport.AuthInfo) -> Any:
        self.tried.append(key.algorithm)
        return self._keys.check_public_key(username, key, info)

    def check_password(self, username: str, password: str, info: sshtransport.AuthInfo) -> Any:
        self.tried.append("password")
        return secrets.compare_digest(password, self._password)


@dataclass
class OurServer:
    """A server of ours, and who has been there."""

    server: sshtransport.Server
    users: Users
    port: int  # where clients shall go
    seen: list[sshtransport.ServerConnection]  # logged in, with a command
    arrived: asyncio.Event  # there is one


async def keep_awake(server: sshtransport.Server) -> None:
    """A sign of life now and then, as sshd's ClientAliveInterval gives it.

    dbclient (2022.83: 7 of 300 times) overlooks that its last channel is closed, and looks again only when
    something comes.
    """

    async def ping(conn: sshtransport.ServerConnection) -> None:
        with contextlib.suppress(sshtransport.SSHError, TimeoutError):
            async with asyncio.timeout(AWAKE):
                await conn.ping()

    while True:
        await asyncio.sleep(AWAKE)
        await asyncio.gather(*map(ping, server.connections))


class _ManyConnections(Session):
    def __init__(self, ours: OurServer, start: Callable[[str], Any]) -> None:
        self._ours = ours
        self._start = start

    async def start(self, command: str) -> Process:
        process: Process = await self._start(command)
        return process

    @property
    def connection(self) -> sshtransport.ServerConnection:
        if not self._ours.seen:
            raise Check("no client has logged in")
        return self._ours.seen[-1]

    async def connected(self) -> None:
        await self._ours.arrived.wait()


@dataclass(kw_only=True)
class ClientPeer(Side):
    """We serve; the client is started for each command."""

    client: PeerClient

    def host_keys(self) -> Sequence[sshtransport.PrivateKey]:
        return [key_at(self.credentials.path(f"host_{name}")) for name in HOST_KEYS]

    @contextlib.asynccontextmanager
    async def serve(
        self, config: sshtransport.TransportConfig | None = None, network: Network = GOOD
    ) -> AsyncIterator[OurServer]:
        """A server of ours for this case alone."""
        users = Users(self.credentials)
        seen: list[sshtransport.ServerConnection] = []
        arrived = asyncio.Event()

        async def handler(process: sshtransport.ServerProcess) -> int:
            seen.append(process.connection)
            arrived.set()
            return await handle(process)

        async with contextlib.AsyncExitStack() as stack:
            server = await sshtransport.listen(
                handler,
                HOST,
                0,
                host_keys=self.host_keys(),
                authenticator=users,
                config=config or self.config(),
                limits=LIMITS,
            )
            await stack.enter_async_context(server)
            waking = asyncio.create_task(keep_awake(server))
            stack.callback(waking.cancel)
            port = server.port
            if network != GOOD:
                port = await stack.enter_async_context(bad_network(HOST, port, network))
            yield OurServer(server, users, port, seen, arrived)

    @contextlib.asynccontextmanager
    async def program(
        self, command: str, port: int, login: Login = Login.ED25519, right_host_key: bool = True
    ) -> AsyncIterator[Program]:
        """The client at work; killed at the end of the block if it still runs."""
        program = await self.client.start(command, Target(port, login, self.settings, right_host_key))
        try:
            yield program
        except BaseException:
            with contextlib.suppress(Exception):
                await program.kill()
                async with asyncio.timeout(5):
                    self.notes.append(
                        f"--- stderr of {command!r}\n{(await program.stderr.read()).decode(errors='replace')}"
                    )
            raise
        finally:
            await program.kill()

    @contextlib.asynccontextmanager
    async def session(
        self,
        config: sshtransport.TransportConfig | None = None,
        login: Login = Login.ED25519,
        network: Network = GOOD,
    ) -> AsyncIterator[Session]:
        config = config or self.config()
        async with self.serve(config, network) as ours, contextlib.AsyncExitStack() as programs:

            async def start(command: str) -> Program:
                return await programs.enter_async_context(self.program(command, ours.port, login))

            session = _ManyConnections(ours, start)
            yield session
            self.settled(session.connection.info, config.strict_kex)
            method = ours.users.tried[-1]
            if (method == "password") is not (login is Login.PASSWORD):
                raise Check(f"logged in by {method}")

    async def greet(self, config: sshtransport.TransportConfig) -> None:
        got: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

        async def serve(stream: sshtransport.PacketStream) -> None:
            request = await stream.receive()
            await stream.send(bytes([SERVICE_ACCEPT]) + request[1:])
            await stream.receive()  # its first message behind that: it could read ours
            try:
                self.settled(stream.info, config.strict_kex)
            except Check as error:
                got.set_exception(error)
            else:
                got.set_result(request)

        server = await sshtransport.start_packet_server(serve, HOST, 0, host_keys=self.host_keys(), config=config)
        async with server, self.program("exit 0", server.port) as program:
            ended = asyncio.create_task(complete(program))
            try:
                await asyncio.wait((got, ended), return_when=asyncio.FIRST_COMPLETED)
                if not got.done():
                    raise Check(f"the client ended before it was greeted: {ended.result()}")
                if got.result() != bytes([SERVICE_REQUEST]) + USERAUTH:
                    raise Check(f"not SERVICE_REQUEST: {got.result()[:80].hex()}")
                await ended  # with whatever status: some take a DISCONNECT for success
            finally:
                ended.cancel()
