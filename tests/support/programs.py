"""Our own programs (examples, the command line) as processes, with warnings as errors."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

ROOT = Path(__file__).parents[2]

#: The child imports this checkout; no user's settings reach it.
ENVIRONMENT = {
    **{name: value for name, value in os.environ.items() if not name.startswith("SSH_")},
    "PYTHONPATH": str(ROOT),
    "PYTHONUNBUFFERED": "1",
    "NO_COLOR": "1",
}


def python(*arguments: str) -> list[str]:
    return [sys.executable, "-W", "error", *arguments]


def run_python(
    *arguments: str, input: str = "", timeout: float = 50.0, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run Python with these arguments to its end, in the checkout; ``env`` is added to the environment."""
    return subprocess.run(
        python(*arguments),
        cwd=ROOT,
        env={**ENVIRONMENT, **(env or {})},
        input=input,
        timeout=timeout,
        capture_output=True,
        text=True,
    )


@contextlib.asynccontextmanager
async def python_process(*arguments: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """The same as a running process with all three streams as pipes; killed at the end of the block."""
    process = await asyncio.create_subprocess_exec(
        *python(*arguments),
        cwd=ROOT,
        env=ENVIRONMENT,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        if process.stdin is not None:
            process.stdin.close()
        await process.communicate()
