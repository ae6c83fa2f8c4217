"""From measurements to ratios, verdicts and text."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from .jobs import Job, Measured
from .lines import OURS, Line

Results = dict[str, list[Measured]]  # by peer: one for each round


@dataclass(frozen=True)
class Verdict:
    line: str
    ours: str
    peer: str
    ratio: float
    budget: float

    @property
    def holds(self) -> bool:
        return self.ratio <= self.budget

    def __str__(self) -> str:
        return (
            f"{self.ours} / {self.peer}: {self.ratio:.2f} (budget {self.budget:.2f}) {'ok' if self.holds else 'OVER'}"
        )


def values(line: Line, measured: Sequence[Measured]) -> list[float]:
    """What counts in this line."""
    return [float(getattr(each, line.metric)) for each in measured]


def ratio(line: Line, ours: Sequence[Measured], other: Sequence[Measured]) -> float:
    """Paired: the ratio of each round, then the median of those. Nothing beside nothing is even."""
    pairs = zip(values(line, ours), values(line, other), strict=True)
    return statistics.median(1.0 if mine == its else mine / its if its > 0 else float("inf") for mine, its in pairs)


def verdicts(line: Line, results: Results) -> list[Verdict]:
    return [
        Verdict(line.name, ours, peer, ratio(line, results[ours], results[peer]), budget)
        for ours in OURS
        for peer, budget in line.budgets.items()
        if ours in results and peer in results
    ]


def amount(job: Job) -> str:
    return " x ".join(text for text in (f"{job.mib} MiB" * bool(job.mib), str(job.count or "")) if text)


def each(line: Line, job: Job, value: float) -> str:
    """The figure for one of what there are many, or as a rate."""
    if line.metric == "memory" or value <= 0:
        return ""
    if line.work == "messages":
        return f"{job.count / value:.0f}/s"
    return f"{value / job.count * 1e6:.0f} us each" if job.count else f"{job.mib / value:.0f} MiB/s"


def text(line: Line, job: Job, results: Results) -> Iterator[str]:
    """The block of a line."""
    units = {"cpu": "CPU seconds", "wall": "wall seconds", "memory": "KiB"}
    yield f"{line.name} ({amount(job)}); {units[line.metric]}: median [min - max]; wall; ratio of ours to it"
    scale = 1024 if line.metric == "memory" else 1
    for peer, measured in results.items():
        numbers = [value / scale for value in values(line, measured)]
        middle = statistics.median(numbers)
        wall = statistics.median(one.wall for one in measured)
        beside = f"{ratio(line, results[OURS[0]], measured):.2f}" if OURS[0] in results and peer not in OURS else ""
        row = f"  {peer:20} {middle:8.3f} [{min(numbers):.3f} - {max(numbers):.3f}]"
        yield f"{row:52} {wall:8.3f} {beside:>6}  {each(line, job, middle)}".rstrip()
    for verdict in verdicts(line, results):
        yield f"  {verdict}"
