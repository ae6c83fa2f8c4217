"""Speed beside peers, in one run: ``python -m interop.bench``, ``make bench``.

The server is this machine's sshd. Peers take turns (A B C A B C ...), each measurement in a process
of its own; what counts is CPU seconds of the client, as a ratio to a peer in the same run, since
machines are noisy. Budgets are those of the design; a quick run is for a look, not for a verdict.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import platform
import shutil
import statistics
import sys
from dataclasses import dataclass
from pathlib import Path

from tests.support.openssh import Sshd

from .workers import Job, measure

OURS = ("sshtransport", "sshtransport+uvloop")
GCM, CHACHA = "aes256-gcm@openssh.com", "chacha20-poly1305@openssh.com"


@dataclass(frozen=True)
class Line:
    """One kind of work: who does it, and the ratios to peers that we promise."""

    name: str
    work: str
    cipher: str
    peers: tuple[str, ...]
    budgets: dict[str, float]


LINES = (
    Line("download, aes256-gcm", "download", GCM, (*OURS, "asyncssh", "ssh"), {"asyncssh": 0.50, "ssh": 0.90}),
    Line(
        "download, chacha20-poly1305", "download", CHACHA, (*OURS, "asyncssh", "ssh"), {"asyncssh": 0.55, "ssh": 0.75}
    ),
    Line("upload, aes256-gcm", "upload", GCM, (*OURS, "asyncssh", "ssh"), {"asyncssh": 0.50}),
    Line("upload, chacha20", "upload", CHACHA, (*OURS, "asyncssh", "ssh"), {"asyncssh": 0.50}),
    Line("64-byte echo round trip", "echo", GCM, (*OURS, "asyncssh"), {"asyncssh": 0.40}),
    Line("connect, login, close", "connect", GCM, (*OURS, "asyncssh"), {"asyncssh": 0.40}),
)
NEEDS = {"sshtransport+uvloop": "uvloop", "asyncssh": "asyncssh"}


def absent(peer: str) -> bool:
    if peer == "ssh":
        return shutil.which("ssh") is None
    return peer in NEEDS and importlib.util.find_spec(NEEDS[peer]) is None


def run_line(line: Line, job: Job, rounds: int, wanted: list[str] | None) -> dict[str, list[tuple[float, float]]]:
    """Every peer's measurements, taken in turns."""
    peers = [peer for peer in line.peers if not absent(peer) and (wanted is None or peer in wanted)]
    results: dict[str, list[tuple[float, float]]] = {peer: [] for peer in peers}
    for _ in range(rounds):
        for peer in peers:
            results[peer].append(measure(peer, line.work, job))
    return results


def show(line: Line, job: Job, results: dict[str, list[tuple[float, float]]]) -> list[dict[str, object]]:
    """Print one block; returns its verdicts."""
    amount = f"{job.mib} MiB" if line.work in ("download", "upload") else f"{job.count} times"
    print(f"\n{line.name} ({amount}); CPU seconds: median [min - max], wall median")
    medians = {peer: statistics.median(cpu for cpu, _ in values) for peer, values in results.items()}
    for peer, values in results.items():
        times = [cpu for cpu, _ in values]
        wall = statistics.median(wall for _, wall in values)
        unit = ""
        if line.work in ("echo", "connect"):
            unit = f"  ({medians[peer] / job.count * 1e6:.0f} us each)"
        print(f"  {peer:22} {medians[peer]:7.3f} [{min(times):.3f} - {max(times):.3f}]  {wall:7.3f}{unit}")
    verdicts: list[dict[str, object]] = []
    for ours in OURS:
        for peer, budget in line.budgets.items():
            if ours in medians and peer in medians:
                # Paired: the ratio of each round, then the median of those.
                ratio = statistics.median(a[0] / b[0] for a, b in zip(results[ours], results[peer], strict=True))
                holds = ratio <= budget
                print(f"  {ours} / {peer}: {ratio:.2f} (budget {budget:.2f}) {'ok' if holds else 'OVER'}")
                verdicts.append(
                    {"line": line.name, "ours": ours, "peer": peer, "ratio": ratio, "budget": budget, "holds": holds}
                )
    return verdicts


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m interop.bench", description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="a look: 256 MiB, 1 round")
    parser.add_argument("--mib", type=int, default=1024, help="MiB a transfer (default 1024)")
    parser.add_argument("--rounds", type=int, default=3, help="measurements of each peer (default 3)")
    parser.add_argument("--count", type=int, default=0, help="connects, and tenths of the echoes (default 100)")
    parser.add_argument("--peers", nargs="+", help="only these")
    parser.add_argument("--work", nargs="+", help="only lines with one of these words in their name")
    parser.add_argument("--json", type=Path, help="write all figures to this file")
    options = parser.parse_args(arguments)
    mib, rounds = (256, 1) if options.quick else (options.mib, options.rounds)
    count = options.count or (30 if options.quick else 100)
    print(f"Python {platform.python_version()}, {platform.machine()}, {mib} MiB, {rounds} rounds")
    for peer in sorted({peer for line in LINES for peer in line.peers}):
        if absent(peer):
            print(f"absent: {peer}")
    verdicts: list[dict[str, object]] = []
    figures: dict[str, object] = {}
    with Sshd(options={"MaxStartups": "1000"}) as sshd:
        for line in LINES:
            if options.work and not any(word in line.name for word in options.work):
                continue
            number = count * 10 if line.work == "echo" else count
            job = Job(
                sshd.host, sshd.port, sshd.username, str(sshd.user_key), str(sshd.known_hosts), line.cipher, mib, number
            )
            results = run_line(line, job, rounds, options.peers)
            figures[line.name] = results
            verdicts += show(line, job, results)
    over = [verdict for verdict in verdicts if not verdict["holds"]]
    print(f"\n{len(verdicts) - len(over)} of {len(verdicts)} budgets hold")
    if options.json:
        options.json.write_text(json.dumps({"figures": figures, "verdicts": verdicts}, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
