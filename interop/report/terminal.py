"""The terminal: what runs now, what has failed, and tables at the end.

On a terminal a bar and the running cases move at the bottom, and failures scroll above; without one,
or with NO_COLOR or CI set, there are plain lines, few enough for a log. Text of peers is made
harmless and is never taken for markup.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from ..model import BAD, Case, Outcome, Result
from .data import count, printable

__all__ = ("Progress", "make_console", "print_summary")

_RUNNING_SHOWN = 8
_ALIKE_SHOWN = 3
_PLAIN_EVERY = 15.0  # seconds between plain lines that say how far it is

#: Each outcome's sign and colour; the sign alone says it too.
_LOOKS = {
    Outcome.PASSED: ("ok", "green"),
    Outcome.FAILED: ("FAIL", "bold red"),
    Outcome.EXPECTED: ("known", "yellow"),
    Outcome.SURPRISE: ("SURPRISE", "bold magenta"),
    Outcome.NOT_STARTED: ("NO PEER", "bold red"),
}


def make_console() -> Console:
    """Standard output; plain where nobody looks at it or colours are not wanted."""
    plain = bool(os.environ.get("NO_COLOR") or os.environ.get("CI"))
    console = Console(highlight=False, markup=False, emoji=False, force_terminal=False if plain else None)
    if not console.is_terminal:
        console = Console(highlight=False, markup=False, emoji=False, force_terminal=False, width=160)
    return console


class Progress:
    """A run as it goes; a context manager. ``total``: how many cases there will be, if known."""

    def __init__(self, total: int | None = None, console: Console | None = None) -> None:
        self.console = console or make_console()
        self.total = total
        self._running: dict[Case, float] = {}
        self._counts: Counter[Outcome] = Counter()
        self._begun = self._said = time.monotonic()
        self._live: Live | None = None

    def __enter__(self) -> Self:
        self._begun = self._said = time.monotonic()
        if self.console.is_terminal:
            self._live = Live(console=self.console, get_renderable=self._view, refresh_per_second=5, transient=True)
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()
        self.console.print(Text(self._line()))

    def say(self, text: str) -> None:
        """A line for the user: "building openssh-trixie"."""
        self.console.print(Text(printable(text)))

    def started(self, case: Case) -> None:
        """The case runs now."""
        self._running[case] = time.monotonic()

    def finished(self, result: Result) -> None:
        """It is over; anything but a pass gets a line at once."""
        self._running.pop(result.case, None)
        self._counts[result.outcome] += 1
        if result.outcome in BAD:
            self.console.print(_entry(result), soft_wrap=True)
        if self._live is None and time.monotonic() - self._said >= _PLAIN_EVERY:
            self._said = time.monotonic()
            self.console.print(Text(self._line()))

    def _line(self) -> str:
        parts = [f"{self._counts[outcome]} {outcome}" for outcome in Outcome if self._counts[outcome]]
        of = "" if self.total is None else f" of {self.total}"
        return f"{self._counts.total()}{of} cases in {time.monotonic() - self._begun:.0f} s: {', '.join(parts) or '-'}"

    def _view(self) -> RenderableType:
        now = time.monotonic()
        oldest = sorted(self._running.items(), key=lambda item: item[1])
        lines = [
            Text(f"  {now - since:5.1f} s  {printable(case.id)}", style="dim", no_wrap=True, overflow="ellipsis")
            for case, since in oldest[:_RUNNING_SHOWN]
        ]
        if len(oldest) > _RUNNING_SHOWN:
            lines.append(Text(f"           and {len(oldest) - _RUNNING_SHOWN} more", style="dim"))
        bar = ProgressBar(total=self.total, completed=self._counts.total(), width=40)
        head = Table.grid(padding=(0, 1))
        head.add_row(bar, Text(self._line(), no_wrap=True, overflow="ellipsis"))
        return Group(head, *lines)


def _entry(result: Result) -> Text:
    sign, style = _LOOKS[result.outcome]
    text = f"{result.case.id}: {result.detail}" if result.detail else result.case.id
    return Text.assemble((f"{sign:8} ", style), printable(text))


def print_summary(
    results: Sequence[Result], facts: Mapping[str, str] | None = None, console: Console | None = None
) -> None:
    """The final table, a row for each peer and role; then what failed, and what was expected to."""
    console = console or make_console()
    table = Table(title="interop", title_justify="left", caption=_facts_line(facts or {}), caption_justify="left")
    table.add_column("peer", no_wrap=True)
    table.add_column("as")
    for outcome in Outcome:
        table.add_column(_LOOKS[outcome][0], justify="right", style=_LOOKS[outcome][1])
    table.add_column("seconds", justify="right")
    groups: dict[tuple[str, str], list[Result]] = {}
    for result in results:
        groups.setdefault((result.case.peer, str(result.case.role)), []).append(result)
    for (peer, role), group in sorted(groups.items()):
        table.add_row(Text(printable(peer)), Text(role), *_cells(group))
    table.add_section()
    table.add_row("all", "", *_cells(results))
    console.print(table)
    known = [r for r in results if r.outcome is Outcome.EXPECTED]
    _print_list(console, "Expected failures, each with its evidence in peer.toml:", known)
    _print_list(console, "Not as it should be:", [r for r in results if r.outcome in BAD])


def _cells(results: Sequence[Result]) -> list[Text]:
    numbers = [Text(str(number) if number else "") for number in count(results).values()]
    return [*numbers, Text(f"{sum(result.seconds for result in results):.1f}")]


def _facts_line(facts: Mapping[str, str]) -> Text:
    return Text(printable("; ".join(f"{name} {value}" for name, value in facts.items())), style="dim")


def _print_list(console: Console, title: str, results: Sequence[Result]) -> None:
    """A line for each case; cases of one peer with the same words, when there are many, share one."""
    alike: dict[tuple[str, str, str, str], list[Result]] = {}
    for result in sorted(results, key=lambda r: r.case.id):
        case = result.case
        alike.setdefault((case.peer, str(case.role), str(result.outcome), result.detail), []).append(result)
    if alike:
        console.print(Text(f"\n{title}"))
    for (peer, role, _, detail), group in alike.items():
        if len(group) <= _ALIKE_SHOWN:
            lines = [_entry(result) for result in group]
        else:
            sign, style = _LOOKS[group[0].outcome]
            scenarios = ", ".join(sorted({result.case.scenario for result in group}))
            text = f"{peer}/{role}, {len(group)} cases ({scenarios}): {detail}"
            lines = [Text.assemble((f"{sign:8} ", style), printable(text))]
        for line in lines:
            console.print(line, soft_wrap=True)
