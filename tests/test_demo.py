"""The demo: everything equal, an exit status that says so, and nothing left behind."""

from __future__ import annotations

import contextlib
import hashlib
import signal
from pathlib import Path
from typing import Any

import pytest

from examples import demo
from tests.support.programs import python_process, run_python

CIPHERS = [
    "aes256-gcm",
    "aes128-gcm",
    "chacha20-poly1305",
    "aes256-ctr + hmac-sha2-256-etm",
    "aes128-ctr + hmac-sha2-256-etm",
]


def rows(output: str) -> list[list[str]]:
    """The cells of the table's rows."""
    lines = output.split("SHA-256 equal\n", 1)[1].split("\n\n", 1)[0].splitlines()[1:]
    return [[cell.strip() for cell in line.split("  ") if cell.strip()] for line in lines]


def processes_about(text: str) -> list[str]:
    """Command lines of running processes with this text in them (Linux)."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            found.append(path.read_bytes().replace(b"\0", b" ").decode(errors="replace"))
    return [line for line in found if text in line]


def test_without_sshd(tmp_path: Path) -> None:
    done = run_python("examples/demo.py", "--mib", "1", "--sshd", "none", env={"TMPDIR": str(tmp_path)})
    assert (done.returncode, done.stderr) == (0, "")
    assert "apt-get install openssh-server" in done.stdout
    table = rows(done.stdout)
    assert [row[3] for row in table] == CIPHERS
    for row in table:
        assert row[0].startswith("sshtransport_")
        assert (row[4], row[5], row[-1]) == ("yes", "1", "yes")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.sshd
def test_with_sshd(tmp_path: Path) -> None:
    done = run_python("examples/demo.py", "--mib", "1", env={"TMPDIR": str(tmp_path)})
    assert (done.returncode, done.stderr) == (0, "")
    table = rows(done.stdout)
    assert [row[3] for row in table] == CIPHERS * 2
    assert [row[0].partition("_")[0] for row in table] == ["sshtransport"] * 5 + ["OpenSSH"] * 5
    assert {row[-1] for row in table} == {"yes"}
    assert list(tmp_path.iterdir()) == []
    assert processes_about(str(tmp_path)) == []


@pytest.mark.sshd
@pytest.mark.asyncio(loop_factories=["asyncio"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_interrupted(tmp_path: Path, number: signal.Signals) -> None:
    """In the middle of a transfer with sshd."""
    arguments = (
        "-c",
        f"import sys, tempfile; tempfile.tempdir = {str(tmp_path)!r}; "
        "sys.path[:0] = ['examples']; import demo; sys.exit(demo.main(['--mib', '8']))",
    )
    async with python_process(*arguments) as process:
        assert process.stdout is not None and process.stderr is not None
        text = ""
        while "upload" not in text.partition("OpenSSH")[2]:
            line = (await process.stdout.readline()).decode()
            assert line, (await process.stderr.read()).decode()
            text += line
        assert processes_about(str(tmp_path)) != [] and list(tmp_path.iterdir()) != []
        process.send_signal(number)
        assert await process.wait() == 130
        assert await process.stderr.read() == b"demo: interrupted\n"
    assert list(tmp_path.iterdir()) == []
    assert processes_about(str(tmp_path)) == []


def test_a_difference_is_seen(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    class Corrupt(demo.Embedded):
        async def handle(self, process: Any) -> int:
            if process.command != "send":
                return await super().handle(process)
            process.stdout.write(bytes(int(process.env["SIZE"])))
            return 0

    monkeypatch.setattr(demo, "Embedded", Corrupt)
    before = signal.getsignal(signal.SIGTERM)
    try:
        assert demo.main(["--mib", "1", "--sshd", "none"]) == 1
    finally:
        signal.signal(signal.SIGTERM, before)
    assert {row[-1] for row in rows(capsys.readouterr().out)} == {"no"}


def test_an_sshd_that_does_not_start(tmp_path: Path) -> None:
    bad = tmp_path / "sshd"
    bad.write_text("#!/bin/sh\necho no such luck >&2\nexit 1\n")
    bad.chmod(0o755)
    done = run_python("examples/demo.py", "--mib", "1", "--sshd", str(bad))
    assert done.returncode == 1
    assert done.stderr == f"demo: {bad} did not start:\nno such luck\n\n"


def test_a_disk_that_is_full(tmp_path: Path) -> None:
    done = run_python("examples/demo.py", "--mib", str(2**33), env={"TMPDIR": str(tmp_path)})
    assert done.returncode == 1
    assert "MiB free; give the demo another TMPDIR" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_digest_command() -> None:
    """What is run on the other side of an upload."""
    done = run_python("-IS", "-c", demo.DIGEST, input="hello")
    assert done.stdout.strip() == hashlib.sha256(b"hello").hexdigest()
