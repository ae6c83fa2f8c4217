"""What the harness speaks of: peers, cases and results, and what an engine gives. Data only."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Protocol

USERNAME = "tester"  # who logs in, at every peer and at our server
MOUNT = "/interop"  # where a container sees the credentials' folder


class HarnessError(Exception):
    """The harness cannot go on: no engine, a broken ``peer.toml``. The text says what to do."""


class Role(StrEnum):
    """What the peer is in a case; we are the other one."""

    SERVER = "server"
    CLIENT = "client"


class Setting(StrEnum):
    """What a peer may be told at its start; ``peer.toml`` gives the arguments for each, with ``{value}`` in them."""

    CIPHER = "cipher"
    MAC = "mac"
    KEX = "kex"
    HOST_KEY = "host_key"
    REKEY = "rekey"  # bytes


class Ability(StrEnum):
    """What a peer can do in a role; a scenario names those that it needs."""

    PASSWORD = "password"  # logs in, or lets in, by password
    STDERR = "stderr"  # keeps stderr apart
    EXIT_STATUS = "exit-status"
    STDIN = "stdin"  # passes standard input through, and its end
    HALF_CLOSE = "half-close"  # goes on sending after it has seen, or sent, EOF
    CHANNELS = "channels"  # 20 sessions at once on one connection
    KNOWN_HOSTS = "known-hosts"  # a client that refuses a wrong host key
    STRICT_KEX = "strict-kex"
    EMPTY_MACS = "empty-macs"  # takes an empty MAC list where the cipher is an AEAD


class Login(StrEnum):
    """How to log in: by a key of this type (``user_<name>`` in the credentials), or by password."""

    ED25519 = "ed25519"
    ECDSA = "ecdsa"
    RSA = "rsa"
    PASSWORD = "password"


@dataclass(frozen=True)
class Offers:
    """Wire names that a peer has by itself or when told so."""

    kex: tuple[str, ...]
    host_keys: tuple[str, ...]
    ciphers: tuple[str, ...]
    macs: tuple[str, ...]


@dataclass(frozen=True)
class RoleSpec:
    """A peer in one role. A server's command starts it; a client's runs one command over SSH and passes
    stdin, stdout, stderr and the exit status through."""

    command: tuple[str, ...]
    settings: Mapping[Setting, tuple[str, ...]]
    abilities: frozenset[Ability]
    offers: Offers


@dataclass(frozen=True)
class Expectation:
    """A failure of the peer's own making. Each field empty or one of the case's; all that are given must match."""

    reason: str
    evidence: str
    scenario: str = ""
    role: str = ""
    variant: str = ""
    kex: str = ""
    host_key: str = ""
    cipher: str = ""
    mac: str = ""
    sometimes: bool = False  # a race in the peer: it may pass as well


@dataclass(frozen=True)
class Peer:
    """One implementation in one version; from a folder's ``peer.toml``, one for each of its variants."""

    name: str  # "openssh-trixie"
    title: str  # "OpenSSH, Debian trixie"
    folder: Path
    build: Mapping[str, str]  # build arguments of its Containerfile, SUITE among them; empty: of this machine
    roles: Mapping[Role, RoleSpec]
    expected: tuple[Expectation, ...] = ()
    storm: int = 100  # key exchanges of the scenario kex-storm
    rolling: bool = False  # from a rolling release: reports, and does not fail CI

    @property
    def hosted(self) -> bool:
        """A program of this machine: for the engine "host", and only for that one."""
        return not self.build


@dataclass(frozen=True)
class Case:
    """One thing to try. Empty names: whatever the two sides settle on."""

    peer: str
    role: Role
    scenario: str
    kex: str = ""
    host_key: str = ""
    cipher: str = ""
    mac: str = ""
    variant: str = ""  # of the scenario: a login, who rekeys, ...

    @property
    def id(self) -> str:
        """One line, the same for the same case: ``openssh-trixie/server/login[ed25519]/kex=.../cipher=...``."""
        variant = f"[{self.variant}]" if self.variant else ""
        names = [f"{key}={getattr(self, key)}" for key in ("kex", "host_key", "cipher", "mac") if getattr(self, key)]
        return "/".join([self.peer, self.role, self.scenario + variant, *names])


class Outcome(StrEnum):
    PASSED = "passed"
    FAILED = "failed"
    EXPECTED = "expected failure"  # failed, and peer.toml says so
    SURPRISE = "passed, though a failure was expected"  # counts as failed: the mark is out of date
    NOT_STARTED = "peer did not start"  # counts as failed


BAD = frozenset({Outcome.FAILED, Outcome.SURPRISE, Outcome.NOT_STARTED})


@dataclass(frozen=True)
class Result:
    """How a case went. ``log``: all that helps to see why (traceback, the peer's own log); empty when it passed."""

    case: Case
    outcome: Outcome
    seconds: float
    detail: str = ""  # one line: the error, or the reason of an expected failure
    log: str = ""
    facts: Mapping[str, str] = field(default_factory=dict)  # "strict_kex": "on", "peer_ident": ...


# --- what an engine gives -------------------------------------------------------------------------------


class Program(Protocol):
    """A client peer at work: one command over SSH."""

    @property
    def stdin(self) -> asyncio.StreamWriter: ...
    @property
    def stdout(self) -> asyncio.StreamReader: ...
    @property
    def stderr(self) -> asyncio.StreamReader: ...

    async def wait(self) -> int:
        """Its exit status; everything it wrote can still be read."""

    async def kill(self) -> None:
        """End it at once (SIGKILL to the client itself, not only to the engine's front end)."""


@dataclass(frozen=True)
class Target:
    """Where a client peer goes and how: our server, on loopback."""

    port: int
    login: Login = Login.ED25519
    settings: Mapping[Setting, str] = field(default_factory=dict)
    right_host_key: bool = True  # False: its known hosts say another key


class PeerClient(Protocol):
    """A client peer that stands ready (its container runs)."""

    async def start(self, command: str, target: Target) -> Program: ...


class PeerServer(Protocol):
    """A server peer that answers with an identification line."""

    @property
    def host(self) -> str: ...
    @property
    def port(self) -> int: ...
    @property
    def username(self) -> str:
        """``USERNAME``; with the engine "host" whoever runs it: a server without root lets nobody else in."""

    async def log(self) -> str: ...


class Engine(Protocol):
    """Runs peers: Podman, Docker, or the programs of this machine."""

    @property
    def name(self) -> str: ...

    async def prepare(self, peers: Sequence[Peer], say: Callable[[str], None]) -> Mapping[str, str]:
        """Build what is missing. The peers that cannot run, by name, with the reason; the others can."""

    async def version(self, peer: Peer) -> str:
        """What the peer's own package calls itself: ``1:10.0p1-7+deb13u4``."""

    def serve(
        self, peer: Peer, settings: Mapping[Setting, str] | None = None
    ) -> AbstractAsyncContextManager[PeerServer]: ...

    def client(self, peer: Peer) -> AbstractAsyncContextManager[PeerClient]: ...

    async def close(self) -> None:
        """Remove everything that was started."""


@dataclass(frozen=True)
class Credentials:
    """Throw-away keys of one run, in ``folder`` (mounted read-only at ``MOUNT`` in containers).

    There: ``user_ed25519``, ``user_ecdsa``, ``user_rsa`` (OpenSSH format, with ``.pub``), ``authorized_keys``;
    ``host_ed25519``, ``host_ecdsa256``, ``host_ecdsa384``, ``host_ecdsa521``, ``host_rsa`` for every server,
    the peers' and ours; ``wrong_*`` likewise: host keys that no server has; ``known_hosts`` and
    ``known_hosts_wrong``: the one or the other for every host name.
    """

    folder: Path
    password: str

    def path(self, name: str) -> Path:
        return self.folder / name
