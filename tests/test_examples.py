"""Every example runs as a program, and does what it says."""

from __future__ import annotations

import asyncio
import re
import signal
from pathlib import Path

import pytest

import sshtransport
from sshtransport import ClientConnection, KnownHosts, PrivateKey
from tests.support.openssh import Sshd
from tests.support.private_keys import private_key
from tests.support.programs import ROOT, python_process, run_python

TESTED = {
    "custom_cipher",
    "demo",
    "embedded_server",
    "packet_stream",
    "run_command",
    "sansio_pair",
}  # demo: test_demo.py


def test_no_example_is_left_out() -> None:
    assert {path.stem for path in (ROOT / "examples").glob("*.py")} == TESTED


@pytest.mark.parametrize(
    ("name", "lines"),
    [
        ("packet_stream", ["HELLO", "AND AGAIN, UNDER NEW KEYS", "cipher aes256-gcm@openssh.com, 2 rekeys"]),
        (
            "sansio_pair",
            [
                "client: first keys, mlkem768x25519-sha256",
                "server: new keys, mlkem768x25519-sha256",
                "server: global request hello@example.org",
                "server: global request during-a-rekey@example.org",
                "server: disconnected, 'that was all'",
            ],
        ),
        (
            "custom_cipher",
            ["in use: aes256-gcm-example@example.org aes256-gcm-example@example.org", "HELLO", "WORLD"],
        ),
    ],
)
def test_programs_that_end_by_themselves(name: str, lines: list[str]) -> None:
    done = run_python(f"examples/{name}.py")
    assert (done.returncode, done.stderr) == (0, "")
    assert [line for line in done.stdout.splitlines() if line in lines] == lines


# --- run_command ------------------------------------------------------------------------------------


def run_command(sshd: Sshd, *command: str, input: str = "", known_hosts: Path | None = None) -> tuple[int, str, str]:
    done = run_python(
        "examples/run_command.py",
        *("--host", sshd.host, "--port", str(sshd.port), "--user", sshd.username, "--key", str(sshd.user_key)),
        *("--known-hosts", str(known_hosts or sshd.known_hosts)),
        *command,
        input=input,
    )
    return done.returncode, done.stdout, done.stderr


@pytest.mark.sshd
def test_run_command(tmp_path: Path) -> None:
    with Sshd() as sshd:
        assert run_command(sshd, "echo", "two  words") == (0, "two  words\n", "")
        assert run_command(sshd, "sh", "-c", "cat; echo oops >&2; exit 7", input="hello") == (7, "hello", "oops\n")
        assert run_command(sshd, "sh", "-c", "kill -TERM $$")[0] == (-signal.SIGTERM) % 256
        status, out, err = run_command(sshd, "true", known_hosts=tmp_path / "missing")
        assert (status, out) == (255, "")
        assert "missing" in err
        (tmp_path / "empty").touch()
        status, out, err = run_command(sshd, "true", known_hosts=tmp_path / "empty")
        assert (status, out) == (255, "")
        assert "is not known" in err
        # Said once, it is known from then on.
        new = tmp_path / "new"
        assert run_command(sshd, "true", known_hosts=new)[0] == 255
        status, _, err = run_command(sshd, "--accept-new", "true", known_hosts=new)
        assert (status, err) == (0, "")
        assert run_command(sshd, "true", known_hosts=new) == (0, "", "")


def test_run_command_without_a_server() -> None:
    done = run_python("examples/run_command.py", "--host", "127.0.0.1", "--port", "1", "true")
    assert done.returncode == 255
    assert done.stderr.startswith("run_command: ")
    assert "Traceback" not in done.stderr


# --- embedded_server --------------------------------------------------------------------------------


class Embedded:
    """The example as a running program, with keys of ours."""

    def __init__(self, process: asyncio.subprocess.Process, key: PrivateKey) -> None:
        self.process = process
        self.key = key

    async def started(self) -> tuple[int, int]:
        """Its ports: for lines and for SSH."""
        assert self.process.stdout is not None
        text = ""
        while not (found := re.search(r"lines on port (\d+)\nssh on port (\d+)\n", text)):
            line = await self.process.stdout.readline()
            assert line, text
            text += line.decode()
        assert self.key.public_key.fingerprint() in text
        return int(found[1]), int(found[2])

    async def connect(self, port: int) -> ClientConnection:
        known = KnownHosts.from_text(f"[127.0.0.1]:{port} {self.key.public_key.to_text()}")
        return await sshtransport.connect(
            "127.0.0.1", port, username="admin", client_keys=[private_key("ssh-ed25519", 1)], known_hosts=known
        )


@pytest.mark.asyncio(loop_factories=["asyncio"])
@pytest.mark.parametrize("end", ["SIGTERM", "SIGINT", "stop"])
async def test_embedded_server(tmp_path: Path, end: str) -> None:
    key = private_key("ssh-ed25519")
    (tmp_path / "key").write_bytes(key.to_openssh())
    (tmp_path / "authorized_keys").write_text(private_key("ssh-ed25519", 1).public_key.to_text() + "\n")
    files = ("--host-key", str(tmp_path / "key"), "--authorized-keys", str(tmp_path / "authorized_keys"))
    async with python_process("examples/embedded_server.py", "--port", "0", "--line-port", "0", *files) as process:
        assert process.stdout is not None
        example = Embedded(process, key)
        line_port, port = await example.started()
        conn = await example.connect(port)
        async with conn.create_process("tail") as tail:
            assert await tail.stdout.readline() == b"following\n"
            _, writer = await asyncio.open_connection("127.0.0.1", line_port)
            writer.write(b"one\ntwo\n")
            assert [await tail.stdout.readline() for _ in range(2)] == [b"one\n", b"two\n"]
            assert (await conn.run("status")).stdout == b"2 lines\n"
            assert (await conn.run("nonsense")).exit_status == 127
            assert (await conn.run()).exit_status == 0
            writer.close()
            await writer.wait_closed()
            if end == "stop":
                assert (await conn.run("stop")).exit_status == 0
            else:
                process.send_signal(getattr(signal, end))
            # The running console is told, and comes to an orderly end.
            assert await tail.stdout.read() == b"the program is ending\n"
            assert await tail.wait() == 0
        await conn.wait_closed()
        assert await process.wait() == 0
        assert await process.stdout.read() == b"ended; lines collected: 2\n"


@pytest.mark.asyncio(loop_factories=["asyncio"])
async def test_embedded_server_makes_up_a_password() -> None:
    async with python_process("examples/embedded_server.py", "--port", "0", "--line-port", "0") as process:
        assert process.stdout is not None
        lines = [(await process.stdout.readline()).decode().split() for _ in range(4)]
        password, fingerprint, port = lines[0][-1], lines[1][-1], int(lines[3][-1])
        async with sshtransport.connect(
            "127.0.0.1",
            port,
            username="admin",
            password=password,
            client_keys=(),
            known_hosts=(),
            host_key_verifier=lambda host, port, key: key.fingerprint() == fingerprint,
        ) as conn:
            assert (await conn.run("status")).stdout == b"0 lines\n"
        process.terminate()
        assert await process.wait() == 0
