"""Host keys of ``connect``: where they are looked up, who is asked, and that every doubt refuses.

The plain cases (known, unknown, changed, revoked, only True trusts) are in ``test_client.py``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import sshtransport
from sshtransport import (
    INSECURE_ACCEPT_ANY_HOST_KEY,
    ConnectionLost,
    HandshakeTimeout,
    HostKeyError,
    KeyFileError,
    KnownHosts,
    PeerDisconnected,
    PublicKey,
    ServerConnection,
    accept_new,
)
from sshtransport.keying import _signers
from tests.support.openssh import Sshd, known_hosts_text
from tests.support.private_keys import private_key
from tests.support.servers import HOST, client, echo, serving

KEY = private_key("ssh-ed25519")
OTHER = private_key("ssh-ed25519", 1)
TEXT = KEY.public_key.to_text()
OTHER_TEXT = OTHER.public_key.to_text()


def trusts(host: str, port: int, key: PublicKey) -> bool:
    return True


# --- what known_hosts says ----------------------------------------------------------------------------------

TRUSTED = [
    "[127.0.0.1]:{port} {key}",
    "127.0.0.1 {other}\n[127.0.0.1]:{port} {key}",
    "127.0.0.1 {key}",  # without a port: good enough where no line has it
    "* {key}",
    "[127.0.0.*]:{port} {key}",
    "[127.?.0.1]:{port},else.example.org {key}",
    "nobody {other}\n\n# [127.0.0.1]:{port} {other}\n[127.0.0.1]:{port} {key} a comment",
    "[127.0.0.1]:{port} {other}\n[127.0.0.1]:{port} {key}",  # one of several keys of the host
]
REFUSED = [
    ("", "unknown", None),
    ("127.0.0.1 {other}", "unknown", None),
    ("[127.0.0.1]:1 {key}", "unknown", None),
    ("[127.0.0.*]:{port},![127.0.0.1]:{port} {key}", "unknown", None),
    ("[127.[0-9].0.1]:{port} {key}", "unknown", None),  # no classes: known bugs K 141
    ("@cert-authority [127.0.0.1]:{port} {key}", "unknown", None),  # known bugs K 139
    ("\n[127.0.0.*]:{port} {other}", "changed", 2),
    ("[127.0.0.1]:{port} {key}\n@revoked * {key}", "revoked", 2),  # known bugs K 138: wins over a good line
    ("@revoked [127.0.0.1]:{port} {key}\n[127.0.0.1]:{port} {key}", "revoked", 1),
]


@pytest.mark.parametrize("text", TRUSTED)
async def test_trusted(text: str, tmp_path: Path) -> None:
    path = tmp_path / "known_hosts"
    async with serving(echo) as server:
        path.write_text(text.format(port=server.port, key=TEXT, other=OTHER_TEXT))
        async with client(server, known_hosts=path) as connection:
            assert connection.info.host_key == KEY.public_key


@pytest.mark.parametrize(("text", "verdict", "line"), REFUSED)
async def test_refused(text: str, verdict: str, line: int | None, tmp_path: Path) -> None:
    """The error says which line decided."""
    path = tmp_path / "known_hosts"
    async with serving(echo) as server:
        path.write_text(text.format(port=server.port, key=TEXT, other=OTHER_TEXT))
        with pytest.raises(HostKeyError) as caught:
            await client(server, known_hosts=path)
        error = caught.value
        assert (error.verdict, error.line) == (verdict, line)
        assert error.path == (str(path) if line is not None else None)
        assert str(path) in str(error)
        assert error.fingerprint == KEY.public_key.fingerprint()
        assert error.phase == "key exchange"


async def test_the_peer_is_told_nothing_of_our_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "known_hosts"
    async with serving(echo) as server:
        path.write_text(f"[{HOST}]:{server.port} {OTHER_TEXT}\n")
        seen: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        ended = server.connection_ended

        def noting(connection: ServerConnection) -> None:
            seen.set_result(connection.link.error)
            ended(connection)

        monkeypatch.setattr(server, "connection_ended", noting)
        with pytest.raises(HostKeyError):
            await client(server, known_hosts=path)
        end = await seen
    assert isinstance(end, PeerDisconnected)
    assert (end.code, end.description) == (9, "host key not accepted")


async def test_hashed_names(tmp_path: Path) -> None:
    path = tmp_path / "known_hosts"
    async with serving(echo) as server:
        KnownHosts.load(path, missing_ok=True).add(HOST, server.port, KEY.public_key, hashed=True)
        assert HOST not in path.read_text()
        async with client(server, known_hosts=path):
            pass
        path.write_text("")
        KnownHosts.load(path).add(HOST, server.port, OTHER.public_key, hashed=True)
        with pytest.raises(HostKeyError) as caught:
            await client(server, known_hosts=path)
        assert (caught.value.verdict, caught.value.line) == ("changed", 1)


async def test_several_files(tmp_path: Path) -> None:
    """Revoked in the second file: known bugs K 138. A missing file is an error when named."""
    first, second = tmp_path / "first", tmp_path / "second"
    async with serving(echo) as server:
        first.write_text(f"[{HOST}]:{server.port} {TEXT}\n")
        second.write_text("")
        async with client(server, known_hosts=[first, str(second)]):
            pass
        second.write_text(f"\n@revoked * {TEXT}\n")
        with pytest.raises(HostKeyError) as caught:
            await client(server, known_hosts=[first, second])
        assert (caught.value.verdict, caught.value.path, caught.value.line) == ("revoked", str(second), 2)
        with pytest.raises(KeyFileError):
            await client(server, known_hosts=[first, tmp_path / "third"])


async def test_the_users_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """None stands for the user's own files, never for "off"; they need not exist."""
    monkeypatch.setenv("HOME", str(tmp_path))
    async with serving(echo) as server:
        with pytest.raises(HostKeyError) as caught:
            await client(server, known_hosts=None)
        assert caught.value.verdict == "unknown"
        async with client(server, known_hosts=None, host_key_verifier=accept_new):
            pass
        path = tmp_path / ".ssh" / "known_hosts"
        assert path.read_text().startswith(f"[{HOST}]:{server.port} ssh-ed25519 ")
        assert path.stat().st_mode & 0o077 == 0
        async with client(server, known_hosts=None):
            pass


async def test_nothing_is_trusted_without_a_file_and_without_a_verifier() -> None:
    """Known bugs K 141: none means refuse."""
    async with serving(echo) as server:
        nothings: list[Any] = [(), [], KnownHosts.from_text("")]
        for nothing in nothings:
            with pytest.raises(HostKeyError) as caught:
                await client(server, known_hosts=nothing)
            assert caught.value.verdict == "unknown"


async def test_the_insecure_constant_asks_nobody() -> None:
    def never(host: str, port: int, key: PublicKey) -> bool:
        pytest.fail("asked")

    async with (
        serving(echo) as server,
        client(server, known_hosts=INSECURE_ACCEPT_ANY_HOST_KEY, host_key_verifier=never) as connection,
    ):
        assert connection.info.host_key == KEY.public_key


async def test_an_alias_is_the_only_name_looked_up(tmp_path: Path) -> None:
    path = tmp_path / "known_hosts"
    async with serving(echo) as server:
        path.write_text(f"inner {TEXT}\n[{HOST}]:{server.port} {OTHER_TEXT}\n")
        async with client(server, known_hosts=path, host_key_alias="inner"):
            pass
        with pytest.raises(HostKeyError):
            await client(server, known_hosts=path, host_key_alias="outer")
        async with client(server, known_hosts=path, host_key_alias="outer", host_key_verifier=accept_new):
            pass
        assert KnownHosts.load(path).lookup("outer", 22).verdict(KEY.public_key)[0] == "trusted"


@pytest.mark.sshd
async def test_a_real_server_with_several_keys(tmp_path: Path) -> None:
    """Each type alone in known_hosts: it is the one that is asked for, whatever the server would rather use."""
    kinds = ["ssh-ed25519", "ecdsa-sha2-nistp256", "ssh-rsa"]
    async with Sshd(host_keys=kinds) as sshd:
        for path, kind in zip(sshd.host_keys, kinds, strict=True):
            public = Path(f"{path}.pub").read_text().strip()
            known = KnownHosts.from_text(known_hosts_text(sshd.port, [public]))
            async with sshtransport.connect(
                HOST, sshd.port, username=sshd.username, client_keys=[sshd.user_key], known_hosts=known
            ) as connection:
                assert connection.info.host_key is not None
                assert connection.info.host_key.algorithm == kind


# --- verifiers ----------------------------------------------------------------------------------------------


@pytest.fixture(params=["sync", "async", "later"])
def cancelled(request: pytest.FixtureRequest) -> Iterator[Any]:
    def at_once(host: str, port: int, key: PublicKey) -> bool:
        raise asyncio.CancelledError

    async def slowly(host: str, port: int, key: PublicKey) -> bool:
        raise asyncio.CancelledError

    async def later(host: str, port: int, key: PublicKey) -> bool:
        task = asyncio.create_task(asyncio.Event().wait())
        asyncio.get_running_loop().call_soon(task.cancel)
        return await task

    yield {"sync": at_once, "async": slowly, "later": later}[request.param]


async def test_a_cancelled_verifier_refuses(cancelled: Any) -> None:
    """Known bugs M 162: at once, not when the deadline comes; and there may be none."""
    async with serving(echo) as server:
        with pytest.raises(HostKeyError) as caught:
            await client(server, known_hosts=(), host_key_verifier=cancelled, timeout=None)
        assert caught.value.verdict == "refused"


async def test_a_verifier_cannot_make_a_changed_key_good() -> None:
    async with serving(echo) as server:
        known = KnownHosts.from_text(f"[{HOST}]:{server.port} {OTHER_TEXT}")
        with pytest.raises(HostKeyError) as caught:
            await client(server, known_hosts=known, host_key_verifier=trusts)
        assert caught.value.verdict == "changed"


async def test_connect_cancelled_while_the_verifier_thinks() -> None:
    asked, ended = asyncio.Event(), asyncio.Event()

    async def thinks(host: str, port: int, key: PublicKey) -> bool:
        asked.set()
        try:
            return await asyncio.Event().wait()
        finally:
            ended.set()

    async with serving(echo) as server:
        task = asyncio.create_task(client(server, known_hosts=(), host_key_verifier=thinks))
        await asked.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await ended.wait()


async def test_the_clock_goes_on_behind_a_verifier() -> None:
    """It stands still meanwhile, and then what is left of it counts."""

    async def verifier(host: str, port: int, key: PublicKey) -> bool:
        await asyncio.sleep(0)
        for peer in server.connections:
            assert peer.link.transport is not None
            peer.link.transport.pause_reading()
        return True

    async with serving(echo) as server:
        with pytest.raises(HandshakeTimeout) as caught:
            await client(server, known_hosts=(), host_key_verifier=verifier, timeout=0.5)
        assert caught.value.phase == "service request"
        for peer in server.connections:
            peer.abort()


async def test_what_the_verifier_gets() -> None:
    asked: list[tuple[str, int, PublicKey]] = []

    def verifier(host: str, port: int, key: PublicKey) -> bool:
        asked.append((host, port, key))
        return True

    async with serving(echo) as server:
        async with client(server, known_hosts=(), host_key_verifier=verifier, host_key_alias="alias"):
            pass
        assert asked == [(HOST, server.port, KEY.public_key)]


async def test_accept_new_that_cannot_write(tmp_path: Path) -> None:
    """What cannot be remembered is not accepted: there would be nothing to notice a change by."""
    async with serving(echo) as server:
        for nowhere in ((), KnownHosts.from_text("")):
            with pytest.raises(HostKeyError) as caught:
                await client(server, known_hosts=nowhere, host_key_verifier=accept_new)
            assert caught.value.verdict == "refused"


async def test_accept_new_keeps_what_is_in_the_file(tmp_path: Path) -> None:
    """Known bugs K 142: comments, markers, unknown types and the lack of a last line end."""
    path = tmp_path / "known_hosts"
    before = f"# mine\nother ssh-future AAAA\n@revoked * {OTHER_TEXT}\nhost {OTHER_TEXT}"
    path.write_text(before)
    async with serving(echo) as server:
        async with client(server, known_hosts=path, host_key_verifier=accept_new):
            pass
        assert path.read_text().startswith(before + f"\n[{HOST}]:{server.port} ssh-ed25519 ")


# --- rekeys -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("verifier", [None, trusts, accept_new], ids=["nobody", "verifier", "accept_new"])
async def test_another_key_in_a_rekey(verifier: Any, tmp_path: Path) -> None:
    """Design section 4: a second host key in a rekey must pass the same check."""
    path = tmp_path / "known_hosts"
    async with serving(echo) as server:
        path.write_text(f"[{HOST}]:{server.port} {TEXT}\n")
        async with client(server, known_hosts=path, host_key_verifier=verifier) as connection:
            (peer,) = server.connections
            peer.link.core._keying._signers = _signers([OTHER])
            with pytest.raises(ConnectionLost) as caught:
                await connection.rekey()
            cause = caught.value.__cause__
            assert isinstance(cause, HostKeyError)
            assert (cause.verdict, cause.line) == ("changed", 1)


async def test_a_slow_verifier_in_a_rekey() -> None:
    asked = 0

    async def verifier(host: str, port: int, key: PublicKey) -> bool:
        nonlocal asked
        asked += 1
        await asyncio.sleep(0)
        return asked < 3

    async with (
        serving(echo) as server,
        client(server, known_hosts=(), host_key_verifier=verifier) as connection,
    ):
        (peer,) = server.connections
        peer.link.core._keying._signers = _signers([OTHER])
        await connection.rekey()
        assert connection.info.host_key == OTHER.public_key
        assert (await connection.run("x", input=b"on")).stdout == b"on"
        peer.link.core._keying._signers = _signers([KEY])
        with pytest.raises(ConnectionLost) as caught:
            await connection.rekey()
        assert isinstance(caught.value.__cause__, HostKeyError)
        assert asked == 3
