"""Programs that the harness runs: to their end, or as a client at work."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shlex
import signal
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path

from interop.model import HarnessError

END_TIMEOUT = 10.0  # from SIGTERM to SIGKILL
KILL_TIMEOUT = 5.0  # for an engine's help with a kill: Docker can wait for output that nobody reads
STREAM_LIMIT = 2**20


async def run(
    *command: str, stdin: int = asyncio.subprocess.DEVNULL, check: bool = True, cwd: Path | None = None
) -> tuple[int, str]:
    """Run to the end: exit status and what it wrote, stderr among stdout. HarnessError with that, if it failed.

    In a session of its own, so that Ctrl-C reaches this process alone, which then ends the others in order.
    """
    process = await asyncio.create_subprocess_exec(
        *command,
        stdin=stdin,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        cwd=cwd,
        start_new_session=True,
    )
    try:
        output, _ = await process.communicate()
    finally:
        await end(process)
    text = output.decode(errors="replace")
    assert process.returncode is not None
    if check and process.returncode:
        tail = "\n".join(text.splitlines()[-40:])
        raise HarnessError(f"{shlex.join(command)}: exit status {process.returncode}\n{tail}")
    return process.returncode, text


async def end(process: asyncio.subprocess.Process) -> None:
    """Let a child tidy up, and kill it when it does not; nothing when it has ended."""
    if process.returncode is not None:
        return
    with contextlib.suppress(ProcessLookupError):
        process.terminate()
    try:
        async with asyncio.timeout(END_TIMEOUT):
            await process.wait()
    except TimeoutError:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


class ChildProgram:
    """A ``model.Program``: a child process with pipes, and a way to kill what it stands for."""

    def __init__(
        self, process: asyncio.subprocess.Process, kill: Callable[[], Awaitable[object]] | None = None
    ) -> None:
        assert process.stdin and process.stdout and process.stderr
        self.stdin = process.stdin
        self.stdout = process.stdout
        self.stderr = process.stderr
        self._process = process
        self._kill = kill

    @classmethod
    async def start(
        cls,
        command: Sequence[str],
        *,
        kill: Callable[[], Awaitable[object]] | None = None,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
    ) -> ChildProgram:
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=env,
            cwd=cwd,
            limit=STREAM_LIMIT,
            start_new_session=True,
        )
        return cls(process, kill)

    async def wait(self) -> int:
        return await self._process.wait()

    async def kill(self) -> None:
        if self._process.returncode is not None:
            return
        if self._kill is not None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(KILL_TIMEOUT):
                    await self._kill()
        await self.close()

    async def close(self) -> None:
        """Kill the child and its own children if it still runs, and close its pipes.

        First the signal: at the end of its pipes it would end by itself. And nobody but the loop may ask for its
        status before it has ended, as the transport's close() does: the loop would then never learn it.
        """
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)  # it leads a session of its own
        for number in range(3):  # wait() waits for their end, read or not
            pipe = self._transport.get_pipe_transport(number)
            if pipe is not None and not pipe.is_closing():
                pipe.close()
        await self._process.wait()
        self._transport.close()

    @property
    def _transport(self) -> asyncio.SubprocessTransport:
        return self._process._transport  # type: ignore[attr-defined,no-any-return]  # no public way to it


def environment(**values: str) -> dict[str, str]:
    """Ours without what would change an SSH program's mind, and these."""
    return {key: value for key, value in os.environ.items() if not key.startswith("SSH_")} | {"LC_ALL": "C"} | values
