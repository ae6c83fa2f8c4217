"""The runner with peers of our own in this process: every case gets a result, and failures are told apart."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

import sshtransport
from interop.credentials import make_credentials
from interop.model import (
    USERNAME,
    Ability,
    Case,
    Credentials,
    Expectation,
    HarnessError,
    Login,
    Offers,
    Outcome,
    Peer,
    PeerClient,
    PeerServer,
    Program,
    Result,
    Role,
    RoleSpec,
    Setting,
    Target,
)
from interop.runner import Runner, expectation, judged, missing
from interop.scenarios import SCENARIOS, plan
from interop.scenarios.commands import handle
from interop.scenarios.sides import HOST, HOST_KEYS, Users, key_at
from interop.scenarios.table import shared

OFFERS = Offers(
    kex=("curve25519-sha256", "ecdh-sha2-nistp256", "sntrup761x25519-sha512"),
    host_keys=("ssh-ed25519", "ecdsa-sha2-nistp256"),
    ciphers=("aes256-gcm@openssh.com", "aes256-ctr", "3des-cbc"),
    macs=("hmac-sha2-256", "hmac-sha2-512-etm@openssh.com"),
)
ARGUMENTS = dict.fromkeys(Setting, ("{value}",))
SPEC = RoleSpec(("peer",), ARGUMENTS, frozenset(Ability), OFFERS)
PEER = Peer("ours", "sshtransport itself", Path("ours"), {"SUITE": "none"}, dict.fromkeys(Role, SPEC))

#: What needs no seconds of waiting and no seconds of CPU.
QUICK = (
    "handshake",
    "empty-macs",
    "login",
    "command",
    "channels",
    "kill",
    "wrong-host-key",
    "strict-kex",
    "strict-kex-required",
    "alone",
    "matrix",
)


@pytest.fixture(scope="module")
def credentials(tmp_path_factory: pytest.TempPathFactory) -> Credentials:
    return make_credentials(tmp_path_factory.mktemp("credentials"))


def config_of(settings: Mapping[Setting, str]) -> sshtransport.TransportConfig:
    """What a peer of ours makes of its settings."""
    names = {kind: settings[kind].split(",") for kind in Setting if kind in settings}
    rekey = names.pop(Setting.REKEY, None)
    return sshtransport.TransportConfig(
        kex=names.get(Setting.KEX, [name for name in OFFERS.kex if "sntrup" not in name]),
        host_key_algorithms=names.get(Setting.HOST_KEY),
        ciphers=names.get(Setting.CIPHER),
        macs=names.get(Setting.MAC),
        rekey_bytes=int(rekey[0]) if rekey else None,
    )


class OurServer:
    """A server peer, made of our server."""

    host, username = HOST, USERNAME

    def __init__(self, server: sshtransport.Server) -> None:
        self.port = server.port

    async def log(self) -> str:
        return "the log of the server"


class Pipe:
    """What a program writes ends, however its connection ended."""

    def __init__(self, reader: sshtransport.SSHReader[bytes]) -> None:
        self.readexactly = reader.readexactly
        self._reader = reader

    async def read(self, n: int = -1) -> bytes:
        try:
            return await self._reader.read(n)
        except sshtransport.ConnectionLost:
            return b""


class OurProgram:
    """A client peer at work, made of our client."""

    def __init__(self, conn: sshtransport.ClientConnection, process: sshtransport.ClientProcess) -> None:
        self._conn = conn
        self._process = process
        self.stdin: Any = process.stdin
        self.stdout: Any = Pipe(process.stdout)
        self.stderr: Any = Pipe(process.stderr)

    async def wait(self) -> int:
        try:
            status = await self._process.wait()
        except sshtransport.ConnectionLost:
            return 255
        self._conn.close()
        return 255 if status is None else status

    async def kill(self) -> None:
        self._conn.abort()


class Refused:
    """A client that got nowhere."""

    def __init__(self, error: Exception) -> None:
        self.stdin: Any = self
        self.stdout: Any = asyncio.StreamReader()
        self.stderr: Any = asyncio.StreamReader()
        self.stderr.feed_data(str(error).encode())
        for stream in (self.stdout, self.stderr):
            stream.feed_eof()

    def write(self, data: bytes) -> None: ...
    def write_eof(self) -> None: ...
    async def drain(self) -> None: ...
    async def kill(self) -> None: ...
    async def wait(self) -> int:
        return 255


class OurClient:
    def __init__(self, credentials: Credentials) -> None:
        self._credentials = credentials

    async def start(self, command: str, target: Target) -> Program:
        proof: dict[str, Any] = {"client_keys": (), "password": self._credentials.password}
        if target.login is not Login.PASSWORD:
            proof = {"client_keys": [key_at(self._credentials.path(f"user_{target.login}"))]}
        try:
            conn = await sshtransport.connect(
                HOST,
                target.port,
                username=USERNAME,
                known_hosts=self._credentials.path("known_hosts" if target.right_host_key else "known_hosts_wrong"),
                config=config_of(target.settings),
                **proof,
            )
            return OurProgram(conn, await conn.create_process(command))
        except (OSError, sshtransport.SSHError) as error:
            return Refused(error)


class OurEngine:
    """Runs us as a peer; ``broken``: servers that do not start."""

    name = "ours"

    def __init__(self, credentials: Credentials, broken: bool = False) -> None:
        self._credentials = credentials
        self._broken = broken
        self.running = 0

    async def prepare(self, peers: Sequence[Peer], say: Callable[[str], None]) -> Mapping[str, str]:
        return {}

    async def version(self, peer: Peer) -> str:
        return sshtransport.__version__

    @contextlib.asynccontextmanager
    async def serve(self, peer: Peer, settings: Mapping[Setting, str] | None = None) -> AsyncIterator[PeerServer]:
        if self._broken:
            raise HarnessError("no server answers\nits log")
        server = await sshtransport.listen(
            handle,
            HOST,
            0,
            host_keys=[key_at(self._credentials.path(f"host_{name}")) for name in HOST_KEYS],
            authenticator=Users(self._credentials),
            config=config_of(settings or {}),
        )
        self.running += 1
        async with server:
            yield OurServer(server)
        self.running -= 1

    @contextlib.asynccontextmanager
    async def client(self, peer: Peer) -> AsyncIterator[PeerClient]:
        yield OurClient(self._credentials)

    async def close(self) -> None: ...


class Seen:
    """A listener that remembers."""

    def __init__(self) -> None:
        self.begun: list[Case] = []
        self.results: list[Result] = []

    def started(self, case: Case) -> None:
        self.begun.append(case)

    def finished(self, result: Result) -> None:
        self.results.append(result)


async def run(
    credentials: Credentials, cases: Sequence[Case], peer: Peer = PEER, broken: bool = False
) -> tuple[list[Result], Seen]:
    seen = Seen()
    engine = OurEngine(credentials, broken)
    results = await Runner(engine, credentials, seen).run([peer], cases)
    assert engine.running == 0
    assert [result.case for result in results] == list(cases)
    assert sorted(result.case.id for result in seen.results) == sorted(case.id for case in cases)
    return results, seen


def quick_cases(role: Role, *names: str) -> list[Case]:
    return plan(PEER, [scenario for scenario in SCENARIOS if scenario.name in (names or QUICK)], [role], full=False)


@pytest.mark.parametrize("role", Role)
async def test_every_quick_scenario_passes_with_ourselves(credentials: Credentials, role: Role) -> None:
    cases = quick_cases(role)
    results, seen = await run(credentials, cases)
    assert [
        f"{result.case.id}: {result.detail}\n{result.log}" for result in results if result.outcome != "passed"
    ] == []
    assert len(seen.begun) == len(cases)
    for result in results:
        if result.case.scenario == "matrix":
            for kind in ("kex", "host_key", "cipher", "mac"):
                assert result.facts[kind] == getattr(result.case, kind)
            assert result.facts["strict_kex"] == "on"


async def test_a_failure_has_its_reason_and_the_log_of_the_peer(credentials: Credentials) -> None:
    case = Case("ours", Role.SERVER, "handshake", kex="ecdh-sha2-nistp521")  # which it does not offer
    ((result,), _) = await run(credentials, [case])
    assert result.outcome is Outcome.FAILED
    assert result.detail.startswith("NegotiationError: ")
    assert "Traceback" in result.log
    assert "the log of the server" in result.log


async def test_a_peer_that_does_not_start(credentials: Credentials) -> None:
    results, _ = await run(credentials, quick_cases(Role.SERVER, "handshake", "login"), broken=True)
    assert {result.outcome for result in results} == {Outcome.NOT_STARTED}
    assert {result.detail for result in results} == {"HarnessError: no server answers"}
    assert "its log" in results[0].log


async def test_expected_failures_and_surprises(credentials: Credentials) -> None:
    expected = (
        Expectation("it has no such method", "evidence", kex="ecdh-sha2-nistp521"),
        Expectation("no commands", "evidence", scenario="command"),
    )
    peer = Peer(PEER.name, PEER.title, PEER.folder, PEER.build, PEER.roles, expected)
    cases = [
        Case("ours", Role.SERVER, "handshake", kex="ecdh-sha2-nistp521"),
        Case("ours", Role.SERVER, "command"),
        Case("ours", Role.SERVER, "handshake"),
    ]
    results, _ = await run(credentials, cases, peer)
    assert [result.outcome for result in results] == [Outcome.EXPECTED, Outcome.SURPRISE, Outcome.PASSED]
    assert results[0].detail == "it has no such method"


async def test_cancelled_runs_leave_nothing(credentials: Credentials) -> None:
    seen = Seen()
    engine = OurEngine(credentials)
    case = Case("ours", Role.SERVER, "slow-reader", variant="down")
    task = asyncio.create_task(Runner(engine, credentials, seen).run([PEER], [case]))
    while not seen.begun:  # noqa: ASYNC110
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert seen.results == []


# --- without any peer ----------------------------------------------------------------------------------


def test_a_peer_that_cannot_be_made_ready_counts_once_a_role() -> None:
    cases = [*quick_cases(Role.SERVER), *quick_cases(Role.CLIENT)]
    results = list(missing(PEER, cases, "no image\nmore"))
    assert [result.case.id for result in results] == ["ours/server/start", "ours/client/start"]
    assert {(result.outcome, result.detail) for result in results} == {(Outcome.NOT_STARTED, "no image")}


def test_expectations_match_by_all_they_give() -> None:
    case = Case("ours", Role.CLIENT, "login", variant="rsa", cipher="aes256-ctr")
    fits = Expectation("", "", scenario="login", role="client", variant="rsa")
    others = [
        Expectation("", "", scenario="login", role="server"),
        Expectation("", "", cipher="aes128-ctr"),
        Expectation("", "", kex="curve25519-sha256"),
    ]
    assert expectation([*others, fits, Expectation("", "")], case) is fits
    assert expectation(others, case) is None


def test_judging_without_an_expectation_changes_nothing() -> None:
    result = Result(Case("ours", Role.CLIENT, "login"), Outcome.FAILED, 1.0, "why")
    assert judged(result, None) is result


def test_what_both_have() -> None:
    both = shared(SPEC)
    assert both.kex == ("curve25519-sha256", "ecdh-sha2-nistp256")
    assert both.aead == ("aes256-gcm@openssh.com",)
    assert both.suites == (
        ("aes256-gcm@openssh.com", ""),
        ("aes256-ctr", "hmac-sha2-512-etm@openssh.com"),
        ("aes256-ctr", "hmac-sha2-256"),
    )
    assert both.few == (("aes256-gcm@openssh.com", ""), ("aes256-ctr", "hmac-sha2-512-etm@openssh.com"))


def test_plans() -> None:
    every = [*SCENARIOS]
    thinned, full = (plan(PEER, every, Role, full) for full in (False, True))
    assert len({case.id for case in full}) == len(full) > len(thinned)
    assert len({case.id for case in thinned}) == len(thinned)
    rows = [(c.cipher, c.mac, c.kex, c.host_key) for c in thinned if c.scenario == "matrix" and c.role is Role.SERVER]
    every_row = [(c.cipher, c.mac, c.kex, c.host_key) for c in full if c.scenario == "matrix" and c.role is Role.SERVER]
    assert len(every_row) == 3 * 2 * 2
    for one, other in ((0, 2), (0, 3), (1, 2), (1, 3), (2, 3)):
        assert {(row[one], row[other]) for row in rows} == {(row[one], row[other]) for row in every_row}
    nothing = RoleSpec(("peer",), {}, frozenset(), Offers((), (), (), ()))
    poor = plan(Peer("poor", "", Path(), {}, {Role.CLIENT: nothing}), every, Role, full=True)
    assert {case.role for case in poor} == {Role.CLIENT}
    assert not {"transfer", "channels", "matrix", "alone", "kex-storm"} & {case.scenario for case in poor}
