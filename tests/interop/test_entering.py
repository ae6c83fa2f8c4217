"""Ways into a container: straight in where its process can be seen and says that it is the one, else by the engine."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from interop import entering
from interop.entering import NAMED, entrance, own_variables, variables

NAME = "sshtransport-interop-0123abcd-1-2-3"


def can_unshare() -> bool:
    if shutil.which("nsenter") is None or shutil.which("unshare") is None or os.geteuid() != 0:
        return False
    return subprocess.run(["unshare", "--mount", "--pid", "--fork", "true"], capture_output=True).returncode == 0


def children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


@pytest.fixture
def contained() -> Iterator[int]:
    """A process in namespaces of its own, as an engine makes them; its number."""
    if not can_unshare():
        pytest.skip("needs root, nsenter and unshare")
    command = ["unshare", "--mount", "--pid", "--ipc", "--uts", "--fork", "--kill-child", "sleep", "3600"]
    front = subprocess.Popen(command, env={**os.environ, NAMED: NAME, "OWN": "of the container"})
    try:
        while not (found := children(front.pid)) or b"sleep" not in Path(f"/proc/{found[0]}/cmdline").read_bytes():
            assert front.poll() is None
        yield found[0]
    finally:
        front.kill()
        front.wait()


def fake_engine(folder: Path, pid: int | str) -> str:
    """A command line that knows the process of every container, and tells what else it is asked."""
    script = folder / "engine"
    script.write_text(f'#!/bin/sh\nif [ "$1" = container ]; then echo {pid}; else echo "engine: $*"; fi\n')
    script.chmod(0o755)
    return str(script)


async def test_straight_in(contained: int, tmp_path: Path) -> None:
    way = await entrance(fake_engine(tmp_path, contained), NAME)
    assert isinstance(way, entering._Door)
    program = await way.start(["sh", "-c", 'cat; echo "$OWN $MORE" >&2; exit 7'], {"MORE": "and more"})
    program.stdin.write(b"passed through")
    program.stdin.write_eof()
    assert await program.stdout.read() == b"passed through"
    assert await program.stderr.read() == b"of the container and more\n"
    assert await program.wait() == 7
    await program.close()


async def test_a_kill_reaches_the_program_inside(contained: int, tmp_path: Path) -> None:
    way = await entrance(fake_engine(tmp_path, contained), NAME)
    program = await way.start(["sh", "-c", "echo here; trap '' TERM; sleep 3600; echo never"], {})
    assert await program.stdout.readline() == b"here\n"
    await program.kill()
    assert await program.wait() != 0
    # What was started in there is adopted by the first process, which here lets the dead lie.
    while states := {state(pid) for pid in children(contained)} - {"Z"}:
        await asyncio.sleep(0)
        assert states <= {"R", "S", "D"}


async def test_a_process_that_is_not_the_container(contained: int, tmp_path: Path) -> None:
    way = await entrance(fake_engine(tmp_path, contained), NAME + "0")
    assert isinstance(way, entering._Engine)


@pytest.mark.parametrize("pid", ["", "no number", 2**22 + 1, 1])
async def test_no_such_process(pid: int | str, tmp_path: Path) -> None:
    way = await entrance(fake_engine(tmp_path, pid), NAME)
    assert isinstance(way, entering._Engine)
    program = await way.start(["client"], {"A": "b"})
    said = (await program.stdout.read()).decode()
    assert said.startswith(f"engine: exec --interactive --env A=b {NAME} sh -c ")
    assert said.rstrip().endswith("client")
    assert await program.wait() == 0
    await program.close()


async def test_others_than_root_ask_the_engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert isinstance(await entrance(fake_engine(tmp_path, os.getpid()), NAME), entering._Engine)


def test_variables() -> None:
    assert own_variables(b"A=1\0B=x=y\0broken\0\0") == {"A": "1", "B": "x=y"}
    assert variables({"A": "1", "B": "2"}) == ["--env", "A=1", "--env", "B=2"]
