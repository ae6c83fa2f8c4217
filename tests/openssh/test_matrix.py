"""Every algorithm against real OpenSSH, with us as client and as server.

Small transfers for every pair of (cipher and MAC, KEX, host key, role, event loop); 64 MiB both ways
for every cipher and MAC and every KEX, also with rekeys on the way that either side starts. FULL=1
runs the whole products.
"""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

import sshtransport
from tests.support.openssh import Sshd, keypair, known_hosts_text, run_ssh, supported
from tests.support.pairwise import FULL, pairwise

pytestmark = pytest.mark.sshd

AEAD_CIPHERS = ("aes256-gcm@openssh.com", "aes128-gcm@openssh.com", "chacha20-poly1305@openssh.com")
MAC_NAMES = ("hmac-sha2-256-etm@openssh.com", "hmac-sha2-512-etm@openssh.com", "hmac-sha2-256", "hmac-sha2-512")
CIPHERS_AND_MACS = [
    *((cipher, None) for cipher in AEAD_CIPHERS),
    *itertools.product(("aes256-ctr", "aes128-ctr"), MAC_NAMES),
]
KEX_NAMES = (
    "mlkem768x25519-sha256",
    "curve25519-sha256",
    "curve25519-sha256@libssh.org",
    "ecdh-sha2-nistp256",
    "ecdh-sha2-nistp384",
    "ecdh-sha2-nistp521",
    "diffie-hellman-group14-sha256",
    "diffie-hellman-group16-sha512",
    "diffie-hellman-group18-sha512",
)
HOST_KEY_TYPES = {
    "ssh-ed25519": "ssh-ed25519",
    "ecdsa-sha2-nistp256": "ecdsa-sha2-nistp256",
    "ecdsa-sha2-nistp384": "ecdsa-sha2-nistp384",
    "ecdsa-sha2-nistp521": "ecdsa-sha2-nistp521",
    "rsa-sha2-512": "ssh-rsa",
    "rsa-sha2-256": "ssh-rsa",
}
KEX_HERE = [name for name in KEX_NAMES if name in supported("kex")]
ROLES = ("client", "server")
LOOPS = ("asyncio", "uvloop")

MIB = 2**20
LARGE_LIMIT = 170.0  # seconds; rekeys with group18 alone take 20
COMMAND = "cat; echo oops >&2; exit 7"


@dataclass(frozen=True)
class Case:
    """One combination; ``rekey`` names whose limit of 1 MiB forces rekeys."""

    suite: tuple[str, str | None]  # cipher, MAC
    kex: str
    host_key: str
    role: str
    loop: str
    rekey: str = "nobody"

    @property
    def cipher(self) -> str:
        return self.suite[0]

    @property
    def mac(self) -> str | None:
        return self.suite[1]

    def __str__(self) -> str:
        parts = [self.role, self.cipher, self.mac, self.kex, self.host_key]
        return "-".join(part.removesuffix("@openssh.com") for part in parts if part)

    @property
    def config(self) -> sshtransport.TransportConfig:
        return sshtransport.TransportConfig(
            kex=[self.kex],
            host_key_algorithms=[self.host_key],
            ciphers=[self.cipher],
            macs=[self.mac] if self.mac else None,
            rekey_bytes=MIB if self.rekey == "we" else None,
        )


def _small_cases() -> list[Case]:
    return [Case(*row) for row in pairwise(CIPHERS_AND_MACS, KEX_HERE, tuple(HOST_KEY_TYPES), ROLES, LOOPS)]


def _large_cases() -> list[Case]:
    """Each cipher and MAC once and each KEX once, in each role; the loops in turn."""
    if FULL:
        pairs = list(itertools.product(CIPHERS_AND_MACS, KEX_HERE))
    else:
        count = max(len(CIPHERS_AND_MACS), len(KEX_HERE)) if KEX_HERE else 0
        pairs = list(itertools.islice(zip(itertools.cycle(CIPHERS_AND_MACS), itertools.cycle(KEX_HERE)), count))
    return [
        Case(suite, kex, "ssh-ed25519", role, LOOPS[(n + m) % 2])
        for n, (suite, kex) in enumerate(pairs)
        for m, role in enumerate(ROLES)
    ]


def on_loop(loop: str, cases: Sequence[Case]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("case", [case for case in cases if case.loop == loop], ids=str)


# --- the two roles: the same work, the same outcome ------------------------------------------------


@dataclass(frozen=True)
class Outcome:
    """``intact``: stdout is, byte for byte, what went in; kept as a fact, as a failed test prints what it compares."""

    status: int | None
    intact: bool
    stderr: bytes


@pytest.fixture(scope="module")
def servers() -> Iterator[dict[str, Sshd]]:
    """An sshd that knows all algorithms, and one that wants a rekey each MiB."""

    def sshd(**options: str) -> Sshd:
        return Sshd(
            host_keys=list(dict.fromkeys(HOST_KEY_TYPES.values())),
            ciphers=list(dict.fromkeys(cipher for cipher, _ in CIPHERS_AND_MACS)),
            macs=MAC_NAMES,
            kex=KEX_HERE,
            options=options,
        )

    with sshd() as plain, sshd(RekeyLimit="1M") as rekeying:
        yield {"nobody": plain, "we": plain, "they": rekeying}


@pytest.fixture(scope="module")
def block() -> bytes:
    return random.Random(64).randbytes(64 * MIB)


async def as_client(case: Case, sshd: Sshd, data: bytes) -> Outcome:
    async with sshtransport.connect(
        sshd.host,
        sshd.port,
        username=sshd.username,
        client_keys=[sshd.user_key],
        known_hosts=sshd.known_hosts,
        config=case.config,
    ) as conn:
        done = await conn.run(COMMAND, input=data)
        check(case, conn)
        return Outcome(done.exit_status, done.stdout == data, done.stderr)


async def as_server(case: Case, data: bytes, folder: Path) -> Outcome:
    async def handler(process: sshtransport.ServerProcess) -> int:
        """What a shell would make of COMMAND."""
        assert process.command == COMMAND
        while chunk := await process.stdin.read(65536):
            process.stdout.write(chunk)
            await process.stdout.drain()
        process.stderr.write(b"oops\n")
        check(case, process.connection)
        return 7

    user = keypair("ssh-ed25519", "user")
    host = keypair(HOST_KEY_TYPES[case.host_key])
    async with await sshtransport.listen(
        handler,
        "127.0.0.1",
        0,
        host_keys=[host.path],
        authenticator=sshtransport.AuthorizedKeys([user.public]),
        config=case.config,
    ) as server:
        port = server.sockets[0].getsockname()[1]
        known_hosts = folder / f"known_hosts-{port}"
        known_hosts.write_text(known_hosts_text(port, [host.public]))
        result = await run_ssh(
            port,
            COMMAND,
            stdin=data,
            key=user.path,
            known_hosts=known_hosts,
            ciphers=[case.cipher],
            macs=[case.mac] if case.mac else [],
            kex=[case.kex],
            host_key_algorithms=[case.host_key],
            rekey_limit="1M" if case.rekey == "they" else None,
            timeout=LARGE_LIMIT,
        )
    return Outcome(result.returncode, result.stdout == data, result.stderr)


def check(case: Case, conn: sshtransport.ClientConnection | sshtransport.ServerConnection) -> None:
    """The connection uses what the case says, and the rekeys it wants took place."""
    algorithms = conn.info.algorithms
    assert algorithms is not None
    assert (algorithms.kex, algorithms.host_key) == (case.kex, case.host_key)
    assert algorithms.cipher_c2s == algorithms.cipher_s2c == case.cipher
    assert algorithms.mac_c2s == algorithms.mac_s2c == case.mac
    assert conn.info.strict_kex
    if case.rekey == "nobody":
        assert conn.info.rekeys == 0
    else:
        assert conn.info.rekeys >= 32  # not 64: more than 1 MiB may pass until both have their new keys


async def run_case(case: Case, servers: dict[str, Sshd], data: bytes, folder: Path) -> None:
    if case.role == "client":
        outcome = await as_client(case, servers[case.rekey], data)
    else:
        outcome = await as_server(case, data, folder)
    assert outcome == Outcome(7, True, b"oops\n")


async def run_large(case: Case, servers: dict[str, Sshd], data: bytes, folder: Path) -> None:
    """Without rekeys, and with those that either side starts: at once, as each waits for its peer most of the time."""
    async with asyncio.TaskGroup() as group:
        for rekey in ("nobody", "we", "they"):
            group.create_task(run_case(dataclasses.replace(case, rekey=rekey), servers, data, folder), name=rekey)


# --- the tests -------------------------------------------------------------------------------------


@pytest.mark.asyncio(loop_factories=["asyncio"])
@on_loop("asyncio", _small_cases())
async def test_pairs_on_asyncio(case: Case, servers: dict[str, Sshd], block: bytes, tmp_path: Path) -> None:
    await run_case(case, servers, block[:MIB], tmp_path)


@pytest.mark.asyncio(loop_factories=["uvloop"])
@on_loop("uvloop", _small_cases())
async def test_pairs_on_uvloop(case: Case, servers: dict[str, Sshd], block: bytes, tmp_path: Path) -> None:
    await run_case(case, servers, block[:MIB], tmp_path)


@pytest.mark.slow64
@pytest.mark.time_limit(LARGE_LIMIT + 10)
@pytest.mark.asyncio(loop_factories=["asyncio"])
@on_loop("asyncio", _large_cases())
async def test_64_mib_on_asyncio(case: Case, servers: dict[str, Sshd], block: bytes, tmp_path: Path) -> None:
    await run_large(case, servers, block, tmp_path)


@pytest.mark.slow64
@pytest.mark.time_limit(LARGE_LIMIT + 10)
@pytest.mark.asyncio(loop_factories=["uvloop"])
@on_loop("uvloop", _large_cases())
async def test_64_mib_on_uvloop(case: Case, servers: dict[str, Sshd], block: bytes, tmp_path: Path) -> None:
    await run_large(case, servers, block, tmp_path)


def test_nothing_is_left_out() -> None:
    missing = [name for name in KEX_NAMES if name not in KEX_HERE]
    if missing:
        pytest.skip(f"not in this OpenSSH: {', '.join(missing)}")
