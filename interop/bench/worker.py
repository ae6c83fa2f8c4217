"""One measurement in a process of its own: ``python -m interop.bench.worker PEER WORK JSON`` prints it as JSON."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path

from interop.processes import run as run_program

from . import blocking, streams
from .jobs import Job, Measured

TIMEOUT = 600.0  # seconds, for one measurement
ROOT = Path(__file__).parents[2]
CONNECTS = {
    "sshtransport": streams.connect_ours,
    "sshtransport+uvloop": streams.connect_ours,
    "asyncssh": streams.connect_asyncssh,
}
IMPORT = "import time; start = time.process_time(); import {}; print(time.process_time() - start)"


def imports(peer: str, job: Job) -> Measured:
    """CPU seconds of ``count`` fresh interpreters for the import, from compiled files."""
    with tempfile.TemporaryDirectory() as folder:
        env = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        env["PYTHONPYCACHEPREFIX"] = folder

        def once() -> float:
            words = [sys.executable, "-c", IMPORT.format(peer)]
            return float(subprocess.run(words, env=env, check=True, stdout=subprocess.PIPE).stdout)

        once()  # compiles
        return Measured(cpu=sum(once() for _ in range(job.count)))


def run(peer: str, work: str, job: Job) -> Measured:
    """Do it here and now."""
    if work == "import":
        return imports(peer, job)
    if peer in blocking.CLIENTS:
        return blocking.client(blocking.CLIENTS[peer], work, job)
    if peer in ("ssh", "node-ssh2"):
        from . import programs  # brings pytest along, which takes longer than many a measurement

        return programs.ssh(work, job) if peer == "ssh" else programs.node(work, job)
    if peer in CONNECTS and (work in streams.ON_A_CONNECTION or work in streams.WITH_CONNECTIONS):
        doing = streams.client(CONNECTS[peer], work, job)
    else:
        from . import servers

        doing = servers.sshd(work, job) if peer == "sshd" else servers.WORKS[work](servers.STARTS[peer], work, job)
    if peer.endswith("+uvloop"):
        import uvloop

        return uvloop.run(doing)
    return asyncio.run(doing)


async def measure(peer: str, work: str, job: Job) -> Measured:
    """The same in a process of its own; HarnessError with what it said when it failed."""
    words = [sys.executable, "-m", "interop.bench.worker", peer, work, json.dumps(asdict(job))]
    async with asyncio.timeout(TIMEOUT):
        _, output = await run_program(*words, cwd=ROOT)
    return Measured(**json.loads(output.splitlines()[-1]))


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that blocks are left in order
    print(json.dumps(asdict(run(sys.argv[1], sys.argv[2], Job(**json.loads(sys.argv[3]))))))
