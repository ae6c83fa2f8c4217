"""The command."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import importlib.metadata
import importlib.util
import json
import platform
import signal
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from dataclasses import asdict, replace
from pathlib import Path

import interop.bench
from interop.model import HarnessError
from interop.network import Network, bad_network
from sshtransport import PrivateKey
from sshtransport.constants import WINDOW_SIZE
from tests.support.openssh import USERNAME, find_program

from .figures import Results, Verdict, text, verdicts
from .jobs import HOST, Job, Measured
from .lines import LIMIT, LINES, PEERS, Line, Scale, absent
from .plot import plot
from .servers import sshd_at
from .worker import measure

RTT = 0.1
FAR = Network(delay=RTT / 2, waiting=1024)  # more on its way than any peer's window


@contextlib.contextmanager
def key_folder() -> Iterator[Path]:
    """Keys of this run, in the files that :class:`Job` knows."""
    with tempfile.TemporaryDirectory(prefix="sshtransport-bench-") as name:
        folder = Path(name)
        keys = {role: PrivateKey.generate("ssh-ed25519") for role in ("user", "host")}
        for role, key in keys.items():
            (folder / role).touch(mode=0o600)
            (folder / role).write_bytes(key.to_openssh())
            (folder / f"{role}.pub").write_text(key.public_key.to_text() + "\n")
        (folder / "authorized_keys").write_text(keys["user"].public_key.to_text() + "\n")
        (folder / "known_hosts").write_text(f"* {keys['host'].public_key.to_text()}\n")
        yield folder


@contextlib.asynccontextmanager
async def ports(folder: Path, lines: list[Line]) -> AsyncIterator[dict[str, int]]:
    """Where the servers are that these lines want."""
    async with contextlib.AsyncExitStack() as stack:
        there = {"": 0}
        if find_program("sshd") and any(line.server for line in lines):
            sshd = sshd_at(folder, MaxStartups="1000", MaxSessions="100")
            await stack.enter_async_context(sshd)
            there["sshd"] = sshd.port
            if any(line.server == "far sshd" for line in lines):
                there["far sshd"] = await stack.enter_async_context(bad_network(HOST, sshd.port, FAR))
        yield there


async def run_line(line: Line, job: Job, rounds: int, wanted: list[str] | None) -> tuple[Results, dict[str, str]]:
    """Every peer's measurements, taken in turns; a peer that failed is out, with the reason."""
    results: Results = {}
    failed: dict[str, str] = {}
    peers = [peer for peer in line.peers if not absent(peer) and (wanted is None or peer in (*wanted, LIMIT))]
    for _ in range(rounds):
        for peer in peers:
            if peer in failed:
                continue
            try:
                figures = limit(job) if peer == LIMIT else await measure(peer, line.work, job)
                results.setdefault(peer, []).append(figures)
            except (HarnessError, TimeoutError) as error:
                failed[peer] = str(error) or "took too long"
                results.pop(peer, None)
    return results, failed


def limit(job: Job) -> Measured:
    """The least time for as many bytes when a window is all that can be on its way."""
    return Measured(wall=job.size / (WINDOW_SIZE / RTT))


async def bench(options: argparse.Namespace, scale: Scale) -> int:
    lines = [line for line in LINES if not options.work or any(word in line.name for word in options.work)]
    done: list[tuple[Line, Results]] = []
    judged: list[Verdict] = []
    failures: dict[str, dict[str, str]] = {}
    with key_folder() as folder:
        async with ports(folder, lines) as there:
            for line in lines:
                print()
                if line.server not in there or (line.client and not find_program(line.client)):
                    print(f"{line.name}: left out, needs {line.client or 'sshd'}")
                    continue
                job = Job(str(folder), USERNAME, line.cipher, line.mib(scale), line.count(scale), there[line.server])
                results, failed = await run_line(line, job, scale.rounds, options.peers)
                for row in text(line, job, results):
                    print(row)
                for peer, reason in failed.items():
                    print(f"  {peer}: FAILED\n{reason}")
                sys.stdout.flush()
                done.append((line, results))
                judged += verdicts(line, results)
                failures |= {line.name: failed} if failed else {}
    over = [verdict for verdict in judged if not verdict.holds]
    print(f"\n{len(judged) - len(over)} of {len(judged)} budgets hold")
    for verdict in over:
        print(f"  over: {verdict.line}: {verdict}")
    if options.json:
        figures = {line.name: {peer: [asdict(one) for one in all_] for peer, all_ in got.items()} for line, got in done}
        judgements = [asdict(verdict) | {"holds": verdict.holds} for verdict in judged]
        about = {"machine": machine(), "scale": asdict(scale)}
        options.json.write_text(
            json.dumps(about | {"figures": figures, "verdicts": judgements, "failures": failures}, indent=1)
        )
    if options.plot:
        plot(done, f"{machine()}; less is better", options.plot)
    return 1 if failures else 0


def machine() -> str:
    """Versions that matter, in a line."""
    words = [f"CPython {platform.python_version()}", platform.machine()]
    for package in ("cryptography", "uvloop", "asyncssh", "paramiko", "ssh-python", "ssh2-python"):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            words.append(f"{package} {importlib.metadata.version(package)}")
    return ", ".join(words)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m interop.bench", description=(interop.bench.__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("--quick", action="store_true", help="a look: 128 MiB, one round, less of the rest")
    parser.add_argument("--mib", type=int, default=1024, help="MiB a transfer (default 1024)")
    parser.add_argument("--rounds", type=int, default=3, help="measurements of each peer (default 3)")
    parser.add_argument("--count", type=int, default=100, help="connects, and tenths of the echoes (default 100)")
    parser.add_argument("--peers", nargs="+", choices=PEERS, help="only these", metavar="PEER")
    parser.add_argument("--work", nargs="+", help="only lines with one of these words in their name", metavar="WORD")
    parser.add_argument("--json", type=Path, help="write all figures to this file", metavar="FILE")
    parser.add_argument("--plot", type=Path, help="draw them; needs matplotlib", metavar="FILE.png")
    options = parser.parse_args(arguments)
    scale = Scale(options.mib, options.count, options.rounds, options.quick)
    if options.quick:
        scale = replace(scale, mib=min(scale.mib, 128), count=min(scale.count, 30), rounds=1)
    if min(scale.mib, scale.count, scale.rounds) < 1:
        parser.error("less than one is nothing to measure")
    if options.plot and importlib.util.find_spec("matplotlib") is None:
        parser.error("--plot needs matplotlib: pip install 'sshtransport[bench]'")
    print(f"{machine()}; {scale.mib} MiB, rounds: {scale.rounds}")
    for peer in PEERS:
        if absent(peer):
            print(f"absent: {peer}")
    return asyncio.run(bench(options, scale))


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # what was started ends in order then, too
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
