"""A hanging test fails instead of blocking the run, on either loop and without one."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(not hasattr(signal, "SIGALRM"), reason="no SIGALRM here: only the hard limit works")

CONFTEST = """
from tests.conftest import pytest_asyncio_loop_factories
from tests.support.hang_guard import *
"""

HANGING = """
import asyncio
import threading

import pytest

from tests.support import hang_guard

pytestmark = pytest.mark.time_limit(0.1)


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
    hang_guard.GRACE = 0.3


@pytest.fixture
def stuck():
    threading.Event().wait(30)


def test_stuck(stuck):
    pass


def test_never_reached():
    pass
"""


def test_hanging_tests_fail_and_a_hanging_fixture_ends_the_run(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_hanging.py").write_text(HANGING)
    root = Path(__file__).parent.parent
    command = [sys.executable, "-m", "pytest", "-v", "-p", "no:cacheprovider", "-c", str(root / "pyproject.toml")]
    done = subprocess.run(
        [*command, f"--rootdir={tmp_path}", f"--confcutdir={tmp_path}", str(tmp_path)],
        cwd=root,
        capture_output=True,
        text=True,
        timeout=50,
    )
    verdicts = re.findall(r"::(test_\w+(?:\[\w+\])?) (PASSED|FAILED|ERROR)?", done.stdout)
    coroutines = [
        f"test_{name}[{loop}]" for name in ("await", "busy", "blocks_its_loop") for loop in ("asyncio", "uvloop")
    ]
    assert dict(verdicts) == {
        "test_thread": "FAILED",
        **dict.fromkeys(coroutines, "FAILED"),
        "test_quick": "PASSED",
        "test_stuck": "",
    }, done.stdout + done.stderr
    assert done.returncode == 1
    assert "Timeout" in done.stderr
    assert "in stuck" in done.stderr
