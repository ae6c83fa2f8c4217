"""``connect`` against our own server and against servers that misbehave: trust, login, deadline, the end."""

from __future__ import annotations

import asyncio
import contextlib
import gc
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

import sshtransport
from sshtransport import (
    INSECURE_ACCEPT_ANY_HOST_KEY,
    AuthenticationFailed,
    AuthorizedKeys,
    ConnectionLost,
    HandshakeTimeout,
    HostKeyError,
    KnownHosts,
    NegotiationError,
    PeerDisconnected,
    ProcessError,
    ServerProcess,
    SSHError,
    TransportConfig,
    accept_new,
)
from sshtransport.errors import KeyFileError
from tests.support.private_keys import private_key
from tests.support.servers import HOST, PASSWORD, USERNAME, client, serving

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


async def echo(process: ServerProcess) -> int:
    while data := await process.stdin.read(65_536):
        process.stdout.write(data)
        await process.stdout.drain()
    return 0


@contextlib.asynccontextmanager
async def fake_server(serve: Serve) -> AsyncIterator[int]:
    """A TCP server that is no SSH server, or only the beginning of one."""
    writers: list[asyncio.StreamWriter] = []

    async def accepted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        with contextlib.suppress(OSError):
            await serve(reader, writer)

    server = await asyncio.start_server(accepted, HOST, 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for writer in writers:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()


# --- host keys ------------------------------------------------------------------------------------------


def line(server: Any, number: int = 0, kind: str = "ssh-ed25519") -> str:
    key = private_key(kind, number) if number else private_key(kind)
    return f"[{HOST}]:{server.port} {key.public_key.to_text()}\n"


async def test_a_known_host(tmp_path: Path) -> None:
    async with serving(echo) as server:
        path = tmp_path / "known_hosts"
        path.write_text("# a comment\n" + line(server))
        async with client(server, known_hosts=path) as connection:
            assert connection.info.host_key == private_key("ssh-ed25519").public_key


async def test_an_unknown_host_is_refused(tmp_path: Path) -> None:
    async with serving(echo) as server:
        path = tmp_path / "known_hosts"
        path.write_text("")
        with pytest.raises(HostKeyError) as caught:
            await client(server, known_hosts=path)
        error = caught.value
        assert (error.verdict, error.host, error.port) == ("unknown", HOST, server.port)
        assert error.fingerprint == private_key("ssh-ed25519").public_key.fingerprint()
        assert str(path) in str(error)


async def test_a_changed_key_names_file_and_line(tmp_path: Path) -> None:
    async with serving(echo) as server:
        path = tmp_path / "known_hosts"
        path.write_text("\n\n" + line(server, 1))
        for verifier in (None, accept_new, lambda host, port, key: True):
            with pytest.raises(HostKeyError) as caught:
                await client(server, known_hosts=path, host_key_verifier=verifier)
            assert (caught.value.verdict, caught.value.path, caught.value.line) == ("changed", str(path), 3)


async def test_a_revoked_key(tmp_path: Path) -> None:
    async with serving(echo) as server:
        path = tmp_path / "known_hosts"
        path.write_text(line(server) + "@revoked " + line(server))
        with pytest.raises(HostKeyError) as caught:
            await client(server, known_hosts=path, host_key_verifier=lambda host, port, key: True)
        assert (caught.value.verdict, caught.value.line) == ("revoked", 2)


@pytest.mark.parametrize("answer", [None, 1, "yes", False, ValueError("no")], ids=repr)
@pytest.mark.parametrize("slow", [False, True])
async def test_only_true_trusts(answer: object, slow: bool) -> None:
    """Known bugs M 162: anything but an explicit True is a refusal."""

    def said() -> Any:
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def slowly(host: str, port: int, key: object) -> Any:
        await asyncio.sleep(0)
        return said()

    async with serving(echo) as server:
        verifier: Any = slowly if slow else lambda host, port, key: said()
        with pytest.raises(HostKeyError) as caught:
            await client(server, known_hosts=(), host_key_verifier=verifier)
        assert caught.value.verdict == "refused"


@pytest.mark.parametrize("slow", [False, True])
async def test_a_verifier_that_trusts(slow: bool) -> None:
    asked: list[tuple[str, int]] = []

    async def slowly(host: str, port: int, key: sshtransport.PublicKey) -> bool:
        await asyncio.sleep(0)
        asked.append((host, port))
        return key == private_key("ssh-ed25519").public_key

    def at_once(host: str, port: int, key: sshtransport.PublicKey) -> bool:
        asked.append((host, port))
        return True

    async with serving(echo) as server:
        verifier: Any = slowly if slow else at_once
        async with client(server, known_hosts=(), host_key_verifier=verifier) as connection:
            await connection.rekey()  # the same key again: nobody is asked
            assert asked == [(HOST, server.port)]


async def test_accept_new_writes_and_then_knows(tmp_path: Path) -> None:
    async with serving(echo) as server:
        path = tmp_path / "new" / "known_hosts"
        async with client(server, known_hosts=path, host_key_verifier=accept_new):
            pass
        assert len(KnownHosts.load(path).lookup(HOST, server.port).trusted) == 1
        async with client(server, known_hosts=path):
            pass


async def test_accept_new_refuses_another_type(tmp_path: Path) -> None:
    """Who is known by one key does not become unknown by showing another type of key."""
    async with serving(echo) as server:
        path = tmp_path / "known_hosts"
        path.write_text(line(server, kind="ecdsa-sha2-nistp256"))
        with pytest.raises(HostKeyError):
            await client(server, known_hosts=path, host_key_verifier=accept_new)


async def test_the_known_type_is_asked_for(tmp_path: Path) -> None:
    keys = [private_key("ssh-ed25519"), private_key("ecdsa-sha2-nistp256")]
    async with serving(echo, host_keys=keys) as server:
        path = tmp_path / "known_hosts"
        path.write_text(line(server, kind="ecdsa-sha2-nistp256"))
        async with client(server, known_hosts=path) as connection:
            assert connection.info.algorithms is not None
            assert connection.info.algorithms.host_key == "ecdsa-sha2-nistp256"


async def test_an_alias() -> None:
    async with serving(echo) as server:
        known = KnownHosts.from_text(f"inner {private_key('ssh-ed25519').public_key.to_text()}")
        async with client(server, known_hosts=known, host_key_alias="inner"):
            pass


async def test_a_missing_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(KeyFileError):
        await sshtransport.connect(HOST, 1, known_hosts=tmp_path / "none")


# --- login ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["ssh-ed25519", "ecdsa-sha2-nistp256", "ecdsa-sha2-nistp521", "ssh-rsa"])
async def test_a_key(kind: str) -> None:
    key = private_key(kind)
    async with (
        serving(echo, authenticator=AuthorizedKeys([key.public_key.to_text()])) as server,
        client(server, client_keys=[key], password=None) as connection,
    ):
        assert (await connection.run("x", input=b"y")).stdout == b"y"


async def test_the_right_key_among_others_and_encrypted(tmp_path: Path) -> None:
    """The first keys are only asked about; the passphrase is asked for by a callable."""
    right = private_key("ssh-ed25519", 2)
    path = tmp_path / "id"
    path.write_bytes(right.to_openssh("secret", rounds=1))
    asked: list[str] = []

    async def passphrase(name: str) -> str:
        asked.append(name)
        return "secret"

    async with serving(echo, authenticator=AuthorizedKeys([right.public_key.to_text()])) as server:
        keys = [private_key("ssh-ed25519"), private_key("ssh-rsa"), path]
        async with client(server, client_keys=keys, passphrase=passphrase, password=None):
            assert asked == [str(path)]
        with pytest.raises(KeyFileError) as caught:
            await client(server, client_keys=[path], password=None)
        assert caught.value.passphrase_needed


async def test_nothing_fits() -> None:
    key = private_key("ssh-ed25519", 1)
    async with serving(echo, authenticator=AuthorizedKeys([private_key("ssh-rsa").public_key.to_text()])) as server:
        with pytest.raises(AuthenticationFailed) as caught:
            await client(server, client_keys=[key], password="wrong")
        assert caught.value.remaining == ("publickey",)
        assert len(caught.value.tried) == 1
        with pytest.raises(AuthenticationFailed) as caught:
            await client(server, client_keys=(), password=None)
        assert caught.value.tried == ("none",)


async def test_a_wrong_password_and_an_async_one() -> None:
    async def password() -> str:
        return PASSWORD

    async with serving(echo) as server:
        with pytest.raises(AuthenticationFailed) as caught:
            await client(server, password="wrong")
        assert caught.value.tried == ("password",)
        async with client(server, password=password) as connection:
            assert not connection.is_closed()


async def test_the_password_as_an_answer() -> None:
    """A server that asks for the password as a question gets it, once."""

    class Asks:
        async def check_keyboard_interactive(self, username: str, ask: Any, info: Any) -> bool:
            (answer,) = await ask("", "", [("Password: ", False)])
            return bool(answer == PASSWORD)

    async with serving(echo, authenticator=Asks()) as server:
        async with client(server):
            pass
        with pytest.raises(AuthenticationFailed):
            await client(server, password="wrong")


# --- faults and deadlines -----------------------------------------------------------------------------------


async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read()


async def ident_only(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"SSH-2.0-stuck\r\n")
    await reader.read()


@pytest.mark.parametrize(("serve", "phase"), [(silent, "identification"), (ident_only, "key exchange")])
async def test_the_deadline_names_the_phase(serve: Serve, phase: str) -> None:
    """Known bugs H 109."""
    async with fake_server(serve) as port:
        with pytest.raises(HandshakeTimeout) as caught:
            await sshtransport.connect(HOST, port, known_hosts=(), timeout=0.05)
        assert (caught.value.phase, caught.value.limit) == (phase, 0.05)
        assert isinstance(caught.value, TimeoutError)


async def test_a_callback_is_off_the_clock() -> None:
    """The timeout is far shorter than the callback takes."""
    done = asyncio.Event()

    async def verifier(host: str, port: int, key: object) -> bool:
        asyncio.get_running_loop().call_later(1.2, done.set)
        await done.wait()
        return True

    async with serving(echo) as server, client(server, known_hosts=(), host_key_verifier=verifier, timeout=1.0):
        assert done.is_set()


async def test_a_connection_refused_stays_an_oserror() -> None:
    async with fake_server(silent) as port:
        pass
    with pytest.raises(ConnectionRefusedError):
        await sshtransport.connect(HOST, port, known_hosts=())


@pytest.mark.parametrize(
    ("said", "error"),
    [
        (b"", ConnectionLost),
        (b"SSH-2.0-x\r\n", ConnectionLost),
        (b"SSH-1.5-x\r\n", sshtransport.ProtocolError),
        (b"SSH-2.0-x\r\n" + b"\xff" * 16, sshtransport.ProtocolError),
        (b"SSH-2.0-x\r\n\0\0\0\x24\x07\1\0\0\0\x0b\0\0\0\x0fgone for lunch\0\0\0\0" + bytes(7), SSHError),
    ],
)
async def test_a_server_that_goes_away(said: bytes, error: type[SSHError]) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(said)
        writer.write_eof()
        await reader.read()

    async with fake_server(serve) as port:
        with pytest.raises(error) as caught:
            await sshtransport.connect(HOST, port, known_hosts=())
        assert caught.value.phase in ("identification", "key exchange")


async def test_no_common_cipher() -> None:
    async with serving(echo, config=TransportConfig(ciphers=["aes128-ctr"])) as server:
        with pytest.raises((NegotiationError, PeerDisconnected)) as caught:
            await client(server, config=TransportConfig(ciphers=["aes256-gcm@openssh.com"]))
        assert caught.value.phase == "key exchange"


@pytest.mark.parametrize("how", ["close", "abort"])
async def test_every_waiter_hears_of_the_end(how: str) -> None:
    """Design section 3: a fresh exception each, from the first cause."""

    async def hang(process: ServerProcess) -> None:
        await process.stdin.read()
        await asyncio.Event().wait()

    async with serving(hang) as server, client(server) as connection:
        process = await connection.create_process("x")
        waiters = [
            asyncio.ensure_future(process.stdout.read(1)),
            asyncio.ensure_future(process.stderr.read(1)),
            asyncio.ensure_future(process.wait()),
            asyncio.ensure_future(connection.global_request("nobody@example.org")),
        ]
        assert (await waiters.pop()) == (False, b"")
        for peer in server.connections:
            getattr(peer, how)()
        results = await asyncio.gather(*waiters, return_exceptions=True)
        assert [type(result) for result in results] == [ConnectionLost] * 3
        assert len({id(result) for result in results}) == 3
        assert all(
            isinstance(result, BaseException) and result.__cause__ is connection.link.error for result in results
        )
        with pytest.raises(ConnectionLost):
            await connection.run("x")
        with pytest.raises(ConnectionLost):
            await connection.rekey()


async def test_the_rekey_timer_and_commands_meanwhile() -> None:
    """Known bugs E 63: an idle connection changes its keys by time, and lives on."""
    async with serving(echo) as server, client(server, config=TransportConfig(rekey_seconds=0.05)) as connection:
        while connection.info.rekeys < 3:
            await connection.ping()
        assert (await connection.run("x", input=bytes(100_000))).stdout == bytes(100_000)


async def test_a_keepalive_ends_a_dead_connection() -> None:
    async with serving(echo) as server, client(server, keepalive_interval=0.05, keepalive_count=2) as connection:
        for peer in server.connections:
            assert peer.link.transport is not None
            peer.link.transport.pause_reading()
        await connection.wait_closed()
        assert isinstance(connection.link.error, ConnectionLost)


# --- commands ---------------------------------------------------------------------------------------------


async def test_run() -> None:
    async def handler(process: ServerProcess) -> int:
        data = await process.stdin.read()
        process.stdout.write(data.upper())
        process.stderr.write(b"err")
        return int(process.command or 0)

    async with serving(handler) as server, client(server) as connection:
        done = await connection.run("7", input=b"abc")
        assert (done.stdout, done.stderr, done.exit_status, done.returncode) == (b"ABC", b"err", 7, 7)
        text = await connection.run("0", input="täxt", encoding="utf-8", check=True)
        assert text.stdout == "TäXT"  # bytes are upper-cased there, and only ASCII ones change
        with pytest.raises(ProcessError) as caught:
            await connection.run("3", check=True)
        assert (caught.value.exit_status, caught.value.stderr) == (3, b"err")
        with pytest.raises(ProcessError) as caught:
            await connection.run("0", input=bytes(5000), max_output=1000)
        assert caught.value.limit == 1000


async def test_fifty_commands_leave_no_channel() -> None:
    """Known bugs G 90: every way out closes its channel, also a cancelled one."""
    async with serving(echo) as server, client(server) as connection:
        for _ in range(50):
            assert (await connection.run("x", input=b"1")).exit_status == 0
        tasks = [asyncio.create_task(connection.run("x", input=bytes(100_000))) for _ in range(20)]
        await asyncio.sleep(0)
        for task in tasks[::2]:
            task.cancel()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        assert sum(isinstance(result, asyncio.CancelledError) for result in results) == 10
        assert (await connection.run("x", input=b"2")).stdout == b"2"
        assert connection.mux is not None
        while connection.mux.channels:
            await connection.ping()


async def test_cancel_at_every_step() -> None:
    """Known bugs J 126: cancelled wherever it waits, a call leaves the connection usable and no channel behind."""
    async with serving(echo) as server, client(server) as connection:
        for turns in range(12):
            task = asyncio.create_task(connection.run("x", input=b"1"))
            for _ in range(turns):
                await asyncio.sleep(0)
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
        assert (await connection.run("x", input=b"2")).stdout == b"2"
        assert connection.mux is not None
        while connection.mux.channels:
            await connection.ping()


async def test_cancelled_connects_leave_nothing() -> None:
    async with serving(echo) as server:
        for turns in range(25):
            task = asyncio.create_task(client(server))
            for _ in range(turns):
                await asyncio.sleep(0)
            task.cancel()
            try:
                connection = await task
            except asyncio.CancelledError:
                continue
            connection.close()
            await connection.wait_closed()
        await server.shutdown(10)
    gc.collect()


async def test_a_slow_reader_keeps_the_window_shut() -> None:
    """Known bugs G 96: what nobody reads stays with the peer; other channels go on."""
    written = 0

    async def pour(process: ServerProcess) -> None:
        nonlocal written
        if process.command == "pour":
            while True:
                process.stdout.write(bytes(32_768))
                await process.stdout.drain()
                written += 32_768
        process.stdout.write(await process.stdin.read())

    config = TransportConfig(window_size=2**18)
    async with serving(pour) as server, client(server, config=config) as connection:
        process = await connection.create_process("pour")
        for _ in range(30):
            assert (await connection.run("x", input=b"go on")).stdout == b"go on"
        before = written
        for _ in range(30):
            await connection.ping()
        assert written == before <= 2**18 + 2**17
        assert len(await process.stdout.readexactly(2**20)) == 2**20  # reading opens it again
        await process.leave()


async def test_lines_and_text() -> None:
    async def handler(process: ServerProcess) -> None:
        for char in "ä€𝄞\nzwei\nrest".encode():
            process.stdout.write(bytes([char]))
            await process.stdout.drain()

    async with serving(handler) as server, client(server) as connection:
        async with connection.create_process("x", encoding="utf-8") as process:
            assert [part async for part in process.stdout] == ["ä€𝄞\n", "zwei\n", "rest"]
            assert process.stdout.at_eof()
        async with connection.create_process("x") as process:
            assert await process.stdout.readexactly(2) == "ä".encode()
            assert await process.stdout.readuntil(b"zwei") == "€𝄞\nzwei".encode()
            with pytest.raises(asyncio.IncompleteReadError) as caught:
                await process.stdout.readexactly(100)
            assert caught.value.partial == b"\nrest"


async def test_an_opening_can_be_used_once_and_dropped() -> None:
    async with serving(echo) as server:
        opening = client(server)
        connection = await asyncio.wait_for(opening, 20)
        with pytest.raises(sshtransport.LocalError):
            await opening
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(connection.create_process("x")) for _ in range(3)]
        for task in tasks:
            await task.result().leave()
        client(server)  # starts nothing, warns of nothing
        gc.collect()
        connection.close()
        await connection.wait_closed()


async def test_through_another_connection() -> None:
    async def allow(connection: object, host: str, port: int) -> bool:
        return host == HOST

    async with serving(echo, allow_direct_tcpip=allow) as server, client(server) as outer:
        async with client(server, tunnel=outer) as inner:
            assert (await inner.run("x", input=bytes(300_000))).stdout == bytes(300_000)
        async with await outer.forward_local_port(HOST, 0, HOST, server.port) as forward:
            options: dict[str, Any] = {"username": USERNAME, "password": PASSWORD, "client_keys": ()}
            async with sshtransport.connect(
                HOST, forward.port, known_hosts=INSECURE_ACCEPT_ANY_HOST_KEY, **options
            ) as inner:
                assert (await inner.run("x", input=b"y")).stdout == b"y"
