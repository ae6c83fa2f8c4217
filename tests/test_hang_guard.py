"""A hanging test fails instead of blocking the run, on either loop and without one."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(not hasattr(signal, "SIGALRM"), reason="no SIGALRM here: only the hard limit works")

HANGING = """
import asyncio
import threading

import pytest

pytestmark = pytest.mark.time_limit(0.2)


def test_thread():
    threading.Event().wait(30)


async def test_await():
    await asyncio.Event().wait()


async def test_busy():
    while True:
        await asyncio.sleep(0)


async def test_blocks_its_loop():
    threading.Event().wait(30)


def test_quick():
    pass
"""


def run(folder: Path, source: str, grace: float) -> subprocess.CompletedProcess[str]:
    (folder / "conftest.py").write_text(
        "from tests.support.hang_guard import *\n"
        "from tests.support import hang_guard\n"
        "from tests.conftest import pytest_asyncio_loop_factories\n"
        f"hang_guard.GRACE = {grace}\n"
    )
    (folder / "test_hanging.py").write_text(source)
    root = Path(__file__).parent.parent
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", str(root / "pyproject.toml")]
    return subprocess.run(
        [*command, f"--rootdir={folder}", f"--confcutdir={folder}", str(folder)],
        cwd=root,
        capture_output=True,
        text=True,
        timeout=50,
    )


def test_each_hanging_test_fails_alone(tmp_path: Path) -> None:
    done = run(tmp_path, HANGING, 20.0)
    assert "still running after 0.2 s" in done.stdout
    assert "7 failed, 1 passed" in done.stdout, done.stdout + done.stderr


def test_a_hanging_fixture_ends_the_run_with_all_stacks(tmp_path: Path) -> None:
    done = run(
        tmp_path,
        "import threading, pytest\n"
        "@pytest.fixture\n"
        "def stuck(): threading.Event().wait(30)\n"
        "@pytest.mark.time_limit(0.2)\n"
        "def test_it(stuck): pass\n",
        0.5,
    )
    assert done.returncode == 1
    assert "Timeout" in done.stderr
    assert "in stuck" in done.stderr
