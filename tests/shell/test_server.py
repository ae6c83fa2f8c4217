"""listen and Server: arguments, the front door, the end; and other programs as clients."""

from __future__ import annotations

import asyncio
import hashlib
import os
import socket
from pathlib import Path
from typing import Any

import asyncssh
import pytest

import sshtransport
from sshtransport import (
    AuthorizedKeys,
    ChannelOpenError,
    ConnectionLost,
    KeyFileError,
    LocalError,
    Passwords,
    PeerDisconnected,
    SSHTransport,
)
from sshtransport.asyncio.limits import FrontDoor, ServerLimits, client_address
from sshtransport.asyncio.server import Server, listen
from sshtransport.asyncio.server_process import ServerProcess
from sshtransport.connection import Env
from tests.support.openssh import free_port, keypair, run_ssh, ssh_process, write_known_hosts
from tests.support.private_keys import private_key
from tests.support.servers import HOST, PASSWORD, USERNAME, client, loop_errors_seen, serving

KEY = private_key("ssh-ed25519")


async def nothing(process: ServerProcess) -> None:
    pass


async def echo(process: ServerProcess) -> int:
    while data := await process.stdin.read(65536):
        process.stdout.write(data)
        await process.stdout.drain()
    return 0


async def forever(process: ServerProcess) -> None:
    await asyncio.Event().wait()


# --- arguments ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"handler": None}, "handler"),
        ({"subsystems": {"sftp": None}}, "sftp"),
        ({"authenticator": None}, "authenticator"),
        ({"authenticator": object()}, "check_password"),
        ({"host_keys": []}, "host key"),
        ({"allow_direct_tcpip": True}, "allow_direct_tcpip"),
        ({"allow_tcpip_forward": "yes"}, "allow_tcpip_forward"),
        ({"config": {}}, "config"),
        ({"config": "fast"}, "config"),
        ({"limits": "few"}, "limits"),
        ({"encoding": "no-such-encoding"}, "encoding"),
        ({"port": None}, "port"),
        ({"config": sshtransport.TransportConfig(host_key_algorithms=["rsa-sha2-512"])}, "host key"),
    ],
)
async def test_wrong_arguments_are_found_at_once(change: dict[str, Any], complaint: str) -> None:
    arguments: dict[str, Any] = {
        "handler": nothing,
        "host": HOST,
        "port": 0,
        "host_keys": [KEY],
        "authenticator": Passwords({USERNAME: PASSWORD}),
    } | change
    with pytest.raises(LocalError, match=complaint):
        await listen(**arguments)


async def test_host_keys_from_files(tmp_path: Path) -> None:
    path = tmp_path / "host_key"
    path.write_bytes(KEY.to_openssh())
    async with serving(nothing, host_keys=path) as server, client(server) as conn:
        assert conn.info.host_key == KEY.public_key
    with pytest.raises(KeyFileError):
        await listen(nothing, HOST, 0, host_keys=[tmp_path / "none"], authenticator=Passwords({}))
    path.write_bytes(KEY.to_openssh("secret", rounds=1))
    with pytest.raises(KeyFileError) as caught:
        await listen(nothing, HOST, 0, host_keys=[path], authenticator=Passwords({}))
    assert caught.value.passphrase_needed


async def test_an_address_in_use_is_an_os_error() -> None:
    async with serving(nothing) as server:
        with pytest.raises(OSError):
            await listen(nothing, HOST, server.port, host_keys=[KEY], authenticator=Passwords({}))


async def test_an_own_socket() -> None:
    sock = socket.create_server((HOST, 0))
    auth = Passwords({USERNAME: PASSWORD})
    with pytest.raises(LocalError):
        await listen(nothing, HOST, 0, host_keys=[KEY], authenticator=auth, sock=sock)
    async with await listen(nothing, host_keys=[KEY], authenticator=auth, sock=sock) as server:
        assert server.port == sock.getsockname()[1]
        async with client(server) as conn:
            assert (await conn.run("x")).exit_status == 0
    assert server.sockets == ()
    with pytest.raises(LocalError):
        _ = server.port


@pytest.mark.parametrize(
    "wrong",
    [
        {"login_grace": 0},
        {"login_grace": None},
        {"login_grace": True},
        {"login_grace": float("nan")},
        {"max_startups": 0},
        {"max_startups": 1.5},
        {"max_auth_tries": True},
        {"max_buffered": -1},
        {"max_remote_forwards": -1},
        {"idle_timeout": "1"},
        {"on_refused": 1},
    ],
)
def test_wrong_limits(wrong: dict[str, Any]) -> None:
    with pytest.raises(LocalError, match=next(iter(wrong))):
        ServerLimits(**wrong)


# --- the front door ----------------------------------------------------------------------------------


def test_the_door_counts_by_network_and_forgets() -> None:
    door = FrontDoor(ServerLimits(max_startups=4, max_startups_per_address=2))
    assert [door.enter("192.0.2.1") for _ in range(3)] == [None, None, "max_startups_per_address"]
    assert [door.enter(f"2001:db8::{n}") for n in range(2)] == [None, None]
    assert door.enter("2001:db8:0:1::1") == "max_startups"
    assert (door.inside, door.networks) == (4, 2)
    door.leave("192.0.2.1")
    assert door.enter("2001:db8::9") == "max_startups_per_address"
    assert door.enter(None) is None
    for address in ("192.0.2.1", "2001:db8::5", "2001:db8::6", None):
        door.leave(address)
    assert (door.inside, door.networks) == (0, 0)


@pytest.mark.parametrize(
    ("peername", "expected"),
    [
        (("192.0.2.1", 22), ("192.0.2.1", 22)),
        (("::ffff:192.0.2.1", 22, 0, 0), ("192.0.2.1", 22)),
        (("fe80::1%eth0", 22, 0, 2), ("fe80::1", 22)),
        ("", (None, None)),
        (None, (None, None)),
        (("x", 1), (None, None)),
    ],
)
def test_client_addresses(peername: Any, expected: Any) -> None:
    assert client_address(peername) == expected


async def test_max_startups_closes_at_once_and_logins_make_room() -> None:
    refused: list[tuple[str | None, str]] = []
    limits = ServerLimits(max_startups=2, on_refused=lambda *what: refused.append(what))
    async with serving(echo, limits=limits) as server, client(server), client(server) as second:
        pairs = [await asyncio.open_connection(HOST, server.port) for _ in range(2)]
        for reader, _ in pairs:
            assert (await reader.readline()).startswith(b"SSH-2.0-")
        reader, writer = await asyncio.open_connection(HOST, server.port)
        with pytest.raises(ConnectionError):
            if not await reader.read():
                raise ConnectionResetError
        writer.close()
        assert refused == [(HOST, "max_startups")]
        assert (await second.run("x", input=b"still here")).stdout == b"still here"
        assert sorted(str(connection.username) for connection in server.connections) == [
            "None",
            "None",
            USERNAME,
            USERNAME,
        ]
        for _, writer in pairs:
            writer.close()
            await writer.wait_closed()
        while server._door.inside:
            await server._change()
        async with client(server):
            pass


async def test_max_startups_per_address() -> None:
    async with serving(echo, limits=ServerLimits(max_startups_per_address=1)) as server:
        reader, writer = await asyncio.open_connection(HOST, server.port)
        await reader.readline()
        with pytest.raises(ConnectionError):
            await client(server)
        writer.close()
        await writer.wait_closed()


@pytest.mark.parametrize("phase", ["identification", "key exchange", "authentication"])
async def test_login_grace_covers_all_phases(phase: str) -> None:
    async with serving(echo, limits=ServerLimits(login_grace=0.3)) as server:
        reader, writer = await asyncio.open_connection(HOST, server.port)
        core = SSHTransport("client")
        seen: list[Any] = []
        if phase == "key exchange":
            writer.write(core.data_to_send())
        while data := await reader.read(65536):
            seen += core.receive_data(data)
            if phase == "authentication":
                if any(isinstance(item, sshtransport.HostKeyOffered) for item in seen):
                    seen = core.accept_host_key()
                writer.write(core.data_to_send())
        seen += core.receive_eof()
        end = seen[-1].error
        assert isinstance(end, PeerDisconnected)
        assert end.description == "no login within 0.3 seconds"
        writer.close()
        await writer.wait_closed()
        while server.connections:
            await server._change()


async def test_login_ends_the_grace() -> None:
    async with serving(echo, limits=ServerLimits(login_grace=0.2)) as server, client(server) as conn:
        await asyncio.sleep(0.3)
        assert not conn.is_closed()


async def test_an_idle_client_is_disconnected() -> None:
    async with serving(forever, limits=ServerLimits(idle_timeout=0.2)) as server, client(server) as conn:
        process = await conn.create_process("x")
        with pytest.raises(ConnectionLost, match="nothing heard"):
            await process.wait()


# --- the end -----------------------------------------------------------------------------------------


async def test_close_cancels_handlers_and_disconnects() -> None:
    cancelled = asyncio.Event()

    async def handler(process: ServerProcess) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    async with serving(handler) as server, client(server) as conn:
        process = await conn.create_process("x")
        port = server.port
        server.close()
        server.close()
        with pytest.raises(ConnectionLost, match="shutting down"):
            await process.wait()
        await server.wait_closed()
        assert cancelled.is_set()
        with pytest.raises(OSError):
            await asyncio.open_connection(HOST, port)


async def test_shutdown_lets_sessions_end() -> None:
    started, release = asyncio.Event(), asyncio.Event()

    async def handler(process: ServerProcess) -> int:
        started.set()
        await release.wait()
        process.stdout.write(bytes(3_000_000))  # more than a window: the client has to read it
        return 3

    async with serving(handler) as server, client(server) as conn, client(server) as idle:
        running = asyncio.create_task(conn.run("x"))
        await started.wait()
        ending = asyncio.create_task(server.shutdown(30))
        await asyncio.sleep(0.02)
        with pytest.raises(ChannelOpenError, match="shutting down"):
            await idle.run("x")
        release.set()
        done = await running
        assert (len(done.stdout), done.exit_status) == (3_000_000, 3)
        await ending
        await conn.wait_closed()
        assert isinstance(conn.link.error, PeerDisconnected)
        assert conn.link.error.code == 11


async def test_shutdown_gives_up_waiting() -> None:
    async with serving(forever) as server, client(server) as conn:
        process = await conn.create_process("x")
        await server.shutdown(0.05)
        with pytest.raises(ConnectionLost):
            await process.wait()


async def test_serve_forever_ends_with_close_and_with_cancel() -> None:
    async with serving(nothing) as server:
        task = asyncio.create_task(server.serve_forever())
        await asyncio.sleep(0)
        server.close()
        await task
    async with serving(nothing) as server, client(server) as conn:
        task = asyncio.create_task(server.serve_forever())
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await conn.wait_closed()


async def test_a_handler_may_close_its_server() -> None:
    servers: list[Server] = []

    async def handler(process: ServerProcess) -> None:
        await servers[0].shutdown(0)

    async with serving(handler) as server, client(server) as conn:
        servers.append(server)
        with pytest.raises(ConnectionLost):
            await conn.run("x")


async def test_a_disconnect_together_with_requests() -> None:
    """A client that asks for something and leaves in the same breath: the answer has nowhere to go."""
    async with serving(echo) as server, client(server) as conn:
        process = await conn.create_process("x")
        core = conn.link.core
        process._port.channel.request(Env("A", b"b"), want_reply=True)
        conn.mux.open_channel("session")  # type: ignore[union-attr]
        core.disconnect()
        conn.link.settle()
        while server.connections:
            await server._change()


# --- other clients -----------------------------------------------------------------------------------


async def test_asyncssh_as_the_client() -> None:
    data = os.urandom(2**20)
    async with serving(echo) as server:
        options: dict[str, Any] = {"known_hosts": None, "client_keys": None, "agent_path": None, "config": None}
        async with asyncssh.connect(HOST, server.port, username=USERNAME, password=PASSWORD, **options) as conn:
            done = await conn.run("cat", input=data, encoding=None)
            assert isinstance(done.stdout, bytes)
            assert hashlib.sha256(done.stdout).digest() == hashlib.sha256(data).digest()
            assert done.exit_status == 0


@pytest.mark.sshd
async def test_ssh_as_the_client(tmp_path: Path) -> None:
    async def handler(process: ServerProcess) -> int:
        data = await process.stdin.read()
        process.stderr.write(b"heard: " + str(process.command).encode())
        process.stdout.write(hashlib.sha256(data).hexdigest().encode())
        return 42

    user = keypair("ssh-ed25519", "user")
    data = os.urandom(2**20)
    async with serving(handler, authenticator=AuthorizedKeys([user.public])) as server:
        known = write_known_hosts(tmp_path / "known_hosts", server.port, [KEY.public_key.to_text()])
        done = await run_ssh(
            server.port, "some command", stdin=data, key=user.path, known_hosts=known, username=USERNAME
        )
        assert (done.returncode, done.stderr) == (42, b"heard: some command")
        assert done.stdout == hashlib.sha256(data).hexdigest().encode()
        other = keypair("ssh-ed25519", "stranger")
        done = await run_ssh(server.port, "x", key=other.path, known_hosts=known, username=USERNAME)
        assert done.returncode == 255
        assert b"Permission denied (publickey)" in done.stderr


async def test_the_loop_sees_no_error_from_garbage() -> None:
    async with loop_errors_seen(), serving(nothing) as server:
        for garbage in (b"GET / HTTP/1.0\r\n\r\n", b"SSH-2.0-x\r\n" + bytes(2000), b""):
            reader, writer = await asyncio.open_connection(HOST, server.port)
            writer.write(garbage)
            writer.write_eof()
            await reader.read()
            writer.close()
            await writer.wait_closed()


async def listening(port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A connection to that port, as soon as somebody listens there: ssh runs its command without waiting for a -R."""
    async with asyncio.timeout(20):
        while True:
            try:
                return await asyncio.open_connection(HOST, port)
            except ConnectionRefusedError:
                await asyncio.sleep(0.02)


@pytest.mark.sshd
async def test_ssh_with_rekeys_and_forwards(tmp_path: Path) -> None:
    started = asyncio.Event()

    async def handler(process: ServerProcess) -> int:
        started.set()
        seen, sent = hashlib.sha256(), hashlib.sha256()
        while data := await process.stdin.read(65536):
            seen.update(data)
        for _ in range(64):
            data = os.urandom(65536)
            sent.update(data)
            process.stdout.write(data)
            await process.stdout.drain()
        process.stderr.write(f"{seen.hexdigest()} {sent.hexdigest()}".encode())
        return 0

    async def upper(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write((await reader.read()).upper())
        writer.close()

    user = keypair("ssh-ed25519", "user")
    data = os.urandom(2**22)
    allowed: dict[str, Any] = {"allow_direct_tcpip": lambda *_: True, "allow_tcpip_forward": lambda *_: True}
    async with serving(handler, authenticator=AuthorizedKeys([user.public]), **allowed) as server:
        known = write_known_hosts(tmp_path / "known_hosts", server.port, [KEY.public_key.to_text()])
        options: dict[str, Any] = {"key": user.path, "known_hosts": known, "username": USERNAME}
        done = await run_ssh(server.port, "x", stdin=data, rekey_limit="512K", **options)
        assert done.stderr.decode() == f"{hashlib.sha256(data).hexdigest()} {hashlib.sha256(done.stdout).hexdigest()}"
        target = await asyncio.start_server(upper, HOST, 0)
        to = f"{HOST}:{target.sockets[0].getsockname()[1]}"
        ports = free_port(), free_port()
        forwards = {"RemoteForward": f"{HOST}:{ports[0]} {to}", "LocalForward": f"{HOST}:{ports[1]} {to}"}
        options["options"] = {"ExitOnForwardFailure": "yes", **forwards}
        started.clear()
        async with ssh_process(server.port, "x", **options) as ssh:
            await started.wait()
            for port in ports:
                reader, writer = await listening(port)
                writer.write(b"word\n" * 10_000)
                writer.write_eof()
                assert await reader.read() == b"WORD\n" * 10_000
                writer.close()
                await writer.wait_closed()
            assert ssh.returncode is None
        target.close()
        await target.wait_closed()
