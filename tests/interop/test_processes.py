"""Child processes of the harness: their end does not depend on whether anybody reads what they write."""

from __future__ import annotations

import asyncio
import sys

from interop.processes import STREAM_LIMIT, ChildProgram

FLOOD = f"import sys, time; sys.stdout.buffer.write(bytes({STREAM_LIMIT * 4})); sys.stdout.flush(); time.sleep(60)"


async def test_kill_a_program_whose_output_nobody_reads() -> None:
    killed: list[str] = []

    async def kill() -> None:
        killed.append("in the container")

    program = await ChildProgram.start([sys.executable, "-c", FLOOD], kill=kill)
    try:
        assert await program.stdout.readexactly(1) == b"\0"
        async with asyncio.timeout(10):
            await program.kill()
            await program.kill()
        assert killed == ["in the container"]
        assert await program.wait() != 0
    finally:
        await program.close()
