"""The command line, against servers of ours and as a program of its own."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

import sshtransport
from sshtransport import AuthorizedKeys, Passwords, Server, ServerProcess
from sshtransport.__main__ import main, parse_target
from tests.support.openssh import Sshd
from tests.support.private_keys import private_key
from tests.support.programs import ENVIRONMENT, ROOT, python, python_process, run_python
from tests.support.servers import serving

one_loop = pytest.mark.asyncio(loop_factories=["asyncio"])  # the program has its own


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("host", (None, "host", 22)),
        ("me@host", ("me", "host", 22)),
        ("me@host:2222", ("me", "host", 2222)),
        ("me@example.org@host:1", ("me@example.org", "host", 1)),
        ("::1", (None, "::1", 22)),
        ("[::1]", (None, "::1", 22)),
        ("me@[fe80::1%eth0]:65535", ("me", "fe80::1%eth0", 65535)),
        ("[host]:22", (None, "host", 22)),
    ],
)
def test_targets(text: str, parts: tuple[str | None, str, int]) -> None:
    assert parse_target(text) == parts


@pytest.mark.parametrize(
    "text",
    ["", "@host", "me@", ":22", "host:", "host:0", "host:65536", "host:ssh", "host:-1", "[::1", "[::1]22", "[]:22",
     "host:٢٢"],
)  # fmt: skip
def test_what_is_no_target(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ValueError, match=r"not|expected"):
        parse_target(text)
    with pytest.raises(SystemExit) as end:
        main(["run", text, "true"])
    assert end.value.code == 2
    assert "usage: sshtransport run" in capsys.readouterr().err


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(["--version"])
    assert end.value.code == 0
    assert capsys.readouterr().out == f"sshtransport {sshtransport.__version__}\n"


def test_ciphers(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert main(["ciphers"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == list(sshtransport.cipher_names())
    assert {line.split(maxsplit=1)[1] for line in lines} == {"works"}
    monkeypatch.setattr(
        sshtransport, "cipher_status", lambda name: sshtransport.CipherStatus(name, False, "no such primitive")
    )
    assert main(["ciphers"]) == 0
    assert "aes256-ctr                      does not work here: no such primitive\n" in capsys.readouterr().out


@pytest.mark.parametrize(
    "arguments", [[], ["nonsense"], ["run"], ["run", "--timeout", "0", "host"], ["run", "--timeout", "soon", "host"]]
)
def test_wrong_usage(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(arguments)
    assert end.value.code == 2
    assert "usage: sshtransport" in capsys.readouterr().err


# --- run --------------------------------------------------------------------------------------------


async def handler(process: ServerProcess) -> int | None:
    match process.command:
        case "cat":
            while data := await process.stdin.read(65536):
                process.stdout.write(data)
                await process.stdout.drain()
        case "no input wanted":
            process.stdout.write(b"out\n")
            process.stderr.write(b"err\n")
            return 7
        case "killed":
            process.exit_signal("TERM")
            return None
        case "for ever":
            process.stdout.write(b"begun\n")
            await asyncio.Event().wait()
        case "hang up":
            process.connection.abort()
        case None:
            process.stdout.write(b"a shell, told " + await process.stdin.read())
    return 0


class Client:
    """Runs ``python -m sshtransport run`` with the right key and known_hosts for a server."""

    def __init__(self, server: Server, folder: Path) -> None:
        self.folder = folder
        self.port = server.port
        self.target = f"tester@127.0.0.1:{server.port}"
        self.known_hosts = folder / "known_hosts"
        self.known_hosts.write_text(f"[127.0.0.1]:{server.port} {private_key('ssh-ed25519').public_key.to_text()}\n")
        key = folder / "key"
        key.write_bytes(private_key("ssh-ed25519", 1).to_openssh())
        self.options = ["run", "-i", str(key), "--known-hosts", str(self.known_hosts)]

    def arguments(self, *more: str) -> tuple[str, ...]:
        return ("-m", "sshtransport", *self.options, *more)

    async def run(self, *more: str, input: bytes = b"") -> tuple[int | None, bytes, bytes]:
        async with python_process(*self.arguments(*more)) as process:
            out, err = await process.communicate(input)
        return process.returncode, out, err


@asynccontextmanager
async def served(folder: Path) -> AsyncIterator[Client]:
    authenticator = AuthorizedKeys([private_key("ssh-ed25519", 1).public_key.to_text()])
    async with serving(handler, authenticator=authenticator) as server:
        yield Client(server, folder)


@one_loop
async def test_run(tmp_path: Path) -> None:
    async with served(tmp_path) as client:
        data = os.urandom(300_000)
        assert await client.run(client.target, "cat", input=data) == (0, data, b"")
        assert await client.run("-n", client.target, "no", "input", "wanted") == (7, b"out\n", b"err\n")
        assert await client.run(client.target, input=b"this") == (0, b"a shell, told this", b"")


@one_loop
async def test_ends_that_are_no_status(tmp_path: Path) -> None:
    async with served(tmp_path) as client:
        status, _, err = await client.run(client.target, "killed")
        assert (status, err) == (128 + signal.SIGTERM, b"sshtransport: the command was ended by signal TERM\n")
        status, out, err = await client.run("--timeout", "0.2", client.target, "for ever")
        assert (status, out) == (124, b"begun\n")
        assert err == b"sshtransport: the command took longer than 0.2 seconds\n"
        status, _, err = await client.run(client.target, "hang up")
        assert status == 255
        assert err.startswith(b"sshtransport: ") and b"Traceback" not in err


@one_loop
async def test_the_command_ends_before_its_input(tmp_path: Path) -> None:
    async with (
        served(tmp_path) as client,
        python_process(*client.arguments(client.target, "no input wanted")) as process,
    ):
        assert process.stdin is not None  # and stays open
        assert await process.wait() == 7
        assert process.stderr is not None
        assert await process.stderr.read() == b"err\n"


@one_loop
async def test_interrupted(tmp_path: Path) -> None:
    async with served(tmp_path) as client, python_process(*client.arguments(client.target, "for ever")) as process:
        assert process.stdout is not None and process.stderr is not None
        assert await process.stdout.readline() == b"begun\n"
        process.send_signal(signal.SIGINT)
        assert await process.wait() == 130
        assert await process.stderr.read() == b"sshtransport: interrupted\n"


@one_loop
async def test_nobody_reads_our_output(tmp_path: Path) -> None:
    async with served(tmp_path) as client:
        read, write = os.pipe()
        os.close(read)
        process = await asyncio.create_subprocess_exec(
            *python(*client.arguments("-n", client.target, "no input wanted")),
            cwd=ROOT,
            env=ENVIRONMENT,
            stdin=subprocess.DEVNULL,
            stdout=write,
            stderr=subprocess.PIPE,
        )
        os.close(write)
        _, err = await process.communicate()
    assert process.returncode == 255
    assert err.endswith(b"sshtransport: [Errno 32] Broken pipe\n") and b"Traceback" not in err


@one_loop
async def test_host_keys(tmp_path: Path) -> None:
    async with served(tmp_path) as client:
        line = client.known_hosts.read_text()
        client.known_hosts.unlink()
        status, _, err = await client.run(client.target, "cat")
        assert status == 255 and b"known_hosts" in err
        client.known_hosts.touch()
        status, _, err = await client.run(client.target, "cat")
        assert status == 255 and b"is not known" in err and b"--accept-new" in err
        assert await client.run("--accept-new", client.target, "cat") == (0, b"", b"")
        assert client.known_hosts.read_text() == line.removesuffix(" test 0\n") + "\n"
        client.known_hosts.write_text(
            f"[127.0.0.1]:{client.port} {private_key('ssh-ed25519', 2).public_key.to_text()}\n"
        )
        status, _, err = await client.run("--accept-new", client.target, "cat")
        assert status == 255 and b"has CHANGED" in err and b"line 1" in err and b"--accept-new" not in err


@one_loop
async def test_a_password_is_asked_for(tmp_path: Path) -> None:
    """On the terminal, and only there."""
    async with serving(handler, authenticator=Passwords({"tester": "sesame"})) as server:
        client = Client(server, tmp_path)
        status, _, err = await client.run(client.target, "no input wanted")
        assert status == 255 and b"login as 'tester' refused" in err
        ours, theirs = os.openpty()
        try:
            process = await asyncio.create_subprocess_exec(
                *python(*client.arguments("-n", client.target, "no input wanted")),
                cwd=ROOT,
                env=ENVIRONMENT,
                stdin=theirs,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
            assert process.stdout is not None and process.stderr is not None
            prompt = b"password of tester at 127.0.0.1: "
            assert await process.stderr.readexactly(len(prompt)) == prompt
            os.write(ours, b"sesame\n")
            out, err = await process.communicate()
            assert (process.returncode, out, err) == (7, b"out\n", b"\nerr\n")
        finally:
            os.close(ours)
            os.close(theirs)


@pytest.mark.sshd
def test_real_sshd() -> None:
    with Sshd() as sshd:
        done = run_python(
            *("-m", "sshtransport", "run", "-i", str(sshd.user_key), "--known-hosts", str(sshd.known_hosts)),
            *(f"{sshd.username}@{sshd.host}:{sshd.port}", "cat; echo oops >&2; exit 3"),
            input="hello",
        )
    assert (done.returncode, done.stdout, done.stderr) == (3, "hello", "oops\n")


def test_no_server() -> None:
    done = run_python("-m", "sshtransport", "run", "127.0.0.1:1", "true")
    assert done.returncode == 255
    assert done.stderr.startswith("sshtransport: ") and "Traceback" not in done.stderr
