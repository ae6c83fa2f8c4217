"""Every code block of the README runs as it stands: names that it makes up lead to servers of ours."""

from __future__ import annotations

import ast
import asyncio
import contextlib
import inspect
import re
import shlex
import socket
import subprocess
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

import sshtransport
from sshtransport import AuthorizedKeys, Passwords, Server, ServerProcess, errors
from sshtransport.__main__ import main
from sshtransport.asyncio import dial
from sshtransport.ciphers import DEFAULT_CIPHERS, DEFAULT_MACS, base
from sshtransport.kex import KEX_NAMES
from sshtransport.keys import HOST_KEY_ALGORITHMS
from tests.support.private_keys import private_key
from tests.support.programs import ROOT
from tests.support.servers import loop_errors_seen, serving

README = (ROOT / "README.md").read_text()
BLOCK = re.compile(
    r"(?:<!-- test: (?P<name>.+?) -->\n)?```(?P<language>\w*)\n(?P<text>.*?)^```$", re.DOTALL | re.MULTILINE
)
BLOCKS = [found.groupdict() for found in BLOCK.finditer(README)]
PYTHON = {block["name"]: block["text"] for block in BLOCKS if block["language"] == "python"}


class Users:
    """The keys of "authorized_keys", and one password."""

    def __init__(self) -> None:
        keys = AuthorizedKeys("authorized_keys")
        passwords = Passwords({"me": "correct horse"})
        self.check_public_key = keys.check_public_key
        self.check_password = passwords.check_password


async def shell(process: ServerProcess) -> int:
    """The few commands that the README runs on a server."""
    match process.command:
        case "sort":
            lines = (await process.stdin.read()).splitlines(keepends=True)
            process.stdout.write(b"".join(sorted(lines)))
        case "uname -a" | "hostname":
            process.stdout.write(f"{process.command}\n".encode())
        case "exit 3":
            return 3
        case "true":
            pass
        case other:
            raise AssertionError(other)
    return 0


class World:
    """What the README's names stand for."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.monkeypatch = monkeypatch
        self.ports: dict[str, int] = {}
        self.listening: asyncio.Queue[Server] = asyncio.Queue()

        def routed(real: Any) -> Any:
            async def leading(host: str, port: int, **options: Any) -> socket.socket:
                result: socket.socket = await real(*self.route(host, port), **options)
                return result

            return leading

        for module in ("client", "server_forwards"):
            monkeypatch.setattr(f"sshtransport.asyncio.{module}.dial", routed(dial.dial))
        real = sshtransport.listen

        async def listen(*arguments: Any, **options: Any) -> Server:
            server = await real(arguments[0], "127.0.0.1", 0, **options)  # the README's port may be in use
            self.listening.put_nowait(server)
            return server

        monkeypatch.setattr(sshtransport, "listen", listen)

    def route(self, host: str, port: int) -> tuple[str, int]:
        return ("127.0.0.1", self.ports[host]) if host in self.ports else (host, port)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home and a working folder with the files that the README names."""
    home = tmp_path / "home"
    (home / ".ssh").mkdir(parents=True)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.chdir(tmp_path)
    user, other = private_key("ssh-ed25519", 1), private_key("ssh-ed25519", 3)
    (home / ".ssh" / "id_ed25519").write_bytes(user.to_openssh())
    known = private_key("ssh-ed25519").public_key.to_text()
    (home / ".ssh" / "known_hosts").write_text(f"server.example.org,inner.example.org {known}\n")
    (tmp_path / "authorized_keys").write_text(user.public_key.to_text() + "\n")
    (tmp_path / "host_key").write_bytes(private_key("ssh-ed25519").to_openssh())
    (tmp_path / "encrypted_key").write_bytes(other.to_openssh("of the key file", rounds=1))
    return tmp_path


@contextlib.asynccontextmanager
async def opened(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[World]:
    """A world with a server that the README's host names lead to."""

    async def page(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.0 200 OK\r\n\r\nhello")
        writer.close()

    web = await asyncio.start_server(page, "127.0.0.1", 0)
    async with web, serving(shell, authenticator=Users(), allow_direct_tcpip=lambda *_: True) as server:
        world = World(monkeypatch)
        names = ("server.example.org", "unknown.example.org", "inner.example.org")
        world.ports = dict.fromkeys(names, server.port) | {"intranet.example.org": web.sockets[0].getsockname()[1]}
        yield world


async def run(name: str, **names: Any) -> dict[str, Any]:
    """Run a block; one that is a program has its main function awaited here."""
    started: list[Any] = []
    namespace = {"sshtransport": sshtransport, "Path": Path, **names}
    code = compile(PYTHON[name], f"README, {name}", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(asyncio, "run", started.append)
        result = eval(code, namespace)
        if inspect.isawaitable(result):
            await result
    for main_function in started:
        await main_function
    return namespace


def connected(world: World) -> Any:
    return sshtransport.connect("server.example.org", username="me")


# --- the blocks ---------------------------------------------------------------------------------------


async def test_first_client(monkeypatch: pytest.MonkeyPatch, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async with opened(monkeypatch):
        await run("first client")
        assert capsys.readouterr().out == "uname -a\n\nb'one\\ntwo\\n'\n"


async def test_first_server(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch)
    async with loop_errors_seen():
        program = asyncio.create_task(run("first server"))
        server = await world.listening.get()
        world.ports["server.example.org"] = server.port
        async with connected(world) as conn:
            assert (await conn.run("anything")).stdout == b"hello me, you said anything\n"
        program.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await program
        assert server.sockets == ()


async def test_host_keys(monkeypatch: pytest.MonkeyPatch, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async with opened(monkeypatch):
        await run("host keys")
        fingerprint = private_key("ssh-ed25519").public_key.fingerprint()
        lines = capsys.readouterr().out.splitlines()
        assert lines == [f"unknown {fingerprint} None None", f"<PublicKey ssh-ed25519 {fingerprint}>"]
        assert (folder / "my_known_hosts").read_text().startswith("unknown.example.org ssh-ed25519 ")


@pytest.mark.parametrize("allowed", [1, 3, None])
async def test_login(
    monkeypatch: pytest.MonkeyPatch, folder: Path, allowed: int | None, capsys: pytest.CaptureFixture[str]
) -> None:
    """By the plain key, by the encrypted one, and by the password."""
    async with opened(monkeypatch):
        text = "" if allowed is None else private_key("ssh-ed25519", allowed).public_key.to_text()
        (folder / "authorized_keys").write_text(text + "\n")
        await run("login")
        assert "aes256-gcm@openssh.com" in capsys.readouterr().out


async def test_commands(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    async with opened(monkeypatch) as world:
        async with connected(world) as conn:
            names = await run("commands", conn=conn)
        assert (names["first"], len(names["rest"])) == ("0\n", 999)


async def test_through(monkeypatch: pytest.MonkeyPatch, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async with opened(monkeypatch) as world:
        async with connected(world) as conn:
            names = await run("through", conn=conn)
        assert names["page"].endswith(b"hello")
        assert capsys.readouterr().out.startswith("connections to port ")


async def test_server(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The block with a stop at its "...", where the server is tried out."""
    world = World(monkeypatch)
    tried = asyncio.Event()
    text = PYTHON["server"]
    assert text.count("\n...\n") == 1
    monkeypatch.setitem(PYTHON, "server", text.replace("\n...\n", "\nawait tried.wait()\n"))
    async with loop_errors_seen():
        program = asyncio.create_task(run("server", tried=tried))
        server = await world.listening.get()
        world.ports["server.example.org"] = server.port
        async with connected(world) as conn:
            done = await conn.run("upper", input=b"hello")
            assert (done.stdout, done.exit_status) == (b"HELLO", 0)
            assert (await conn.run("other")).exit_status == 127
        async with sshtransport.connect(
            "server.example.org", username="guest", password="correct horse", client_keys=()
        ) as conn:
            assert (await conn.run("whatever", input=b"forced")).stdout == b"FORCED"
            with pytest.raises(sshtransport.ChannelOpenError):
                await conn.create_process("upper", pty=True)
        with pytest.raises(sshtransport.AuthenticationFailed):
            await sshtransport.connect("server.example.org", username="guest", password="wrong", client_keys=())
        tried.set()
        await program
        assert server.sockets == () and server.connections == frozenset()


async def test_packet_stream() -> None:
    await run("packet stream")


async def test_sans_io() -> None:
    names = await run("sans-IO")
    assert not any(isinstance(item, sshtransport.Disconnected) for item in names["seen"])


async def test_own_cipher(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base._registry, "ciphers", dict(base._registry.ciphers))  # other tests go through all of them
    names = await run("own cipher")
    key = private_key("ssh-ed25519")
    async with serving(shell, config=names["config"], host_keys=[key]) as server:
        known = sshtransport.KnownHosts.from_text(f"[127.0.0.1]:{server.port} {key.public_key.to_text()}")
        async with sshtransport.connect(
            "127.0.0.1",
            server.port,
            username="tester",
            password="correct horse",
            client_keys=(),
            known_hosts=known,
            config=names["config"],
        ) as conn:
            assert conn.info.algorithms is not None
            assert conn.info.algorithms.cipher_c2s == "chacha20-often@example.org"


async def test_errors(monkeypatch: pytest.MonkeyPatch, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async with opened(monkeypatch):
        await run("errors")
        assert capsys.readouterr().out.startswith("tried ('password',) the server would take ")


# --- the rest -------------------------------------------------------------------------------------------


def test_no_python_block_is_left_out() -> None:
    """Each has a name, and a test above that runs it."""
    assert None not in PYTHON
    source = Path(__file__).read_text()
    assert [name for name in PYTHON if f'run("{name}"' not in source] == []
    assert {block["language"] for block in BLOCKS} == {"python", "sh", "text"}


SHELL = [
    line.partition("#")[0].strip()
    for block in BLOCKS
    if block["language"] == "sh"
    for line in block["text"].splitlines()
]


def check_make(words: list[str]) -> None:
    subprocess.run(["make", "--dry-run", *words[1:]], cwd=ROOT, check=True, capture_output=True)


def check_program(words: list[str]) -> None:
    """The command line is understood; only where it leads is replaced."""
    arguments = ["127.0.0.1:1" if "@" in word else word for word in words[1:]]
    if "run" in arguments:
        assert main(arguments) == 255
    elif "--version" in arguments:
        with pytest.raises(SystemExit):
            main(arguments)
    else:
        assert main(arguments) == 0


def check_install(words: list[str]) -> None:
    """Tried by whoever runs ``make``: it installs the same from the same place."""
    assert words == ["python3", "-m", "pip", "install", "."]


PROGRAMS: dict[str, Callable[[list[str]], None]] = {
    "make": check_make,
    "sshtransport": check_program,
    "python3": check_install,
}


@pytest.mark.parametrize("line", SHELL)
def test_shell_lines(line: str) -> None:
    words = shlex.split(line)
    PROGRAMS[words[0]](words)


def test_the_error_tree_is_the_one_of_the_code() -> None:
    (tree,) = [block["text"] for block in BLOCKS if block["language"] == "text"]
    assert tree in (errors.__doc__ or "").replace("\n    ", "\n")


def test_links_lead_somewhere() -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", README) + re.findall(r"`(tests/[\w/.]+|examples/[\w.]+)`", README):
        assert (ROOT / target).exists(), target


def test_the_first_screen() -> None:
    client, server = (PYTHON[name].strip().splitlines() for name in ("first client", "first server"))
    assert len(client) <= 14 and len(server) <= 12


def test_what_is_there_names_what_is_there() -> None:
    section = README.partition("## What is there")[2].partition("\n## ")[0]
    named = set(re.findall(r"`([\w@.-]+)`", section))
    for name in (*DEFAULT_CIPHERS, *DEFAULT_MACS, *KEX_NAMES, *HOST_KEY_ALGORITHMS):
        shortened = re.sub(r"^(ecdh-sha2-nistp|ecdsa-sha2-nistp|diffie-hellman)-?", "-", name)
        assert name in named or shortened in named or name == "curve25519-sha256@libssh.org", name
