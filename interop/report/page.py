"""Results as one HTML page that needs nothing else: the matrix, and the log of whatever did not pass.

A row is a peer in a role; a column is a scenario or an algorithm; a cell stands for all cases that
have both, and shows the worst of them. Colours are chosen to differ in brightness and on the
blue-yellow axis, and each has a sign, so that no one needs to see the colours. All text goes
through ``_text``; should markup of a peer ever slip through, the page's policy runs only our script.
"""

from __future__ import annotations

import hashlib
from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

from ..model import BAD, Outcome, Result
from .data import count, printable, settled

__all__ = ("to_html",)

_LOG_MAX = 60_000  # characters of one log in the page: its two ends; results.json has all


@dataclass(frozen=True)
class _Look:
    """How an outcome is shown: CSS class, sign, words of the legend."""

    style: str
    sign: str
    words: str


#: The worst first: a cell shows the first of these that it has.
_LOOKS = {
    Outcome.FAILED: _Look("failed", "✗", "failed"),
    Outcome.NOT_STARTED: _Look("absent", "∅", "the peer did not start"),
    Outcome.SURPRISE: _Look("surprise", "!", "passed, though peer.toml expects a failure"),
    Outcome.EXPECTED: _Look("expected", "≈", "failed as peer.toml says, for the peer's own reason"),
    Outcome.PASSED: _Look("passed", "✓", "passed"),
}

#: Column groups: title, and what a result has there.
_GROUPS = ("scenario", "cipher", "mac", "kex", "host_key")
_TITLES = {"scenario": "Scenario", "cipher": "Cipher", "mac": "MAC", "kex": "Key exchange", "host_key": "Host key"}


def to_html(results: Sequence[Result], facts: Mapping[str, str]) -> str:
    """The whole page."""
    page = _Page(results)
    style, script = (Path(__file__).with_name(name).read_text(encoding="utf-8") for name in ("page.css", "page.js"))
    policy = f"default-src 'none'; style-src {_digest(style)}; script-src {_digest(script)}"
    shown = "".join(f"<span>{_text(name)} <b>{_text(value)}</b></span> " for name, value in facts.items())
    body = (
        f"<h1>{_text(page.verdict())}</h1>\n<p class=facts>{shown}</p>\n",
        f"<ul class=legend>{''.join(page.legend())}</ul>\n",
        f"<div class=scroll tabindex=0><table class=matrix>\n{''.join(page.matrix())}</table></div>\n",
        "<p id=choice hidden><span></span><button>show all</button></p>\n",
        *page.lists(),
    )
    return (
        '<!doctype html>\n<html lang="en">\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{_text(page.verdict())}</title>\n<style>{style}</style>\n"
        f"<body>\n{''.join(body)}<script>{script}</script>\n</body>\n</html>\n"
    )


class _Page:
    """Rows and columns in the order in which results bring them; algorithms by name."""

    def __init__(self, results: Sequence[Result]) -> None:
        self.results = results
        rows = dict.fromkeys((result.case.peer, str(result.case.role)) for result in results)
        peers = [peer for peer, _ in rows]
        self.rows = sorted(rows, key=lambda row: peers.index(row[0]))  # both roles of a peer together
        self.columns: list[tuple[str, str]] = []
        for group in _GROUPS:
            names = dict.fromkeys(filter(None, (_value(result, group) for result in results)))
            self.columns += [(group, name) for name in (names if group == "scenario" else sorted(names))]
        self.cells: dict[tuple[int, int], list[int]] = {}  # (row, column): numbers of results
        self.places: list[tuple[int, list[int]]] = []  # of each result: its row and columns
        row_of = {row: number for number, row in enumerate(self.rows)}
        column_of = {column: number for number, column in enumerate(self.columns)}
        for number, result in enumerate(results):
            row = row_of[result.case.peer, str(result.case.role)]
            columns = [column_of[group, value] for group in _GROUPS if (value := _value(result, group))]
            self.places.append((row, columns))
            for column in columns:
                self.cells.setdefault((row, column), []).append(number)

    def verdict(self) -> str:
        bad = sum(result.outcome in BAD for result in self.results)
        counts = count(self.results)
        known = f", {counts[Outcome.EXPECTED]} failed as expected" if counts[Outcome.EXPECTED] else ""
        wrong = f"{bad} not as they should be" if bad else "all as they should be"
        return f"Interop: {len(self.results)} cases, {wrong}; {counts[Outcome.PASSED]} passed{known}"

    def legend(self) -> Iterator[str]:
        for look in _LOOKS.values():
            yield f'<li><span class="sign {look.style}">{look.sign}</span>{look.words}</li>'
        yield "<li><span class='sign untried'>·</span>not tried</li>"
        yield "<li>A cell shows its worst case; the number says how many came out so. Click it for its cases.</li>"

    def matrix(self) -> Iterator[str]:
        yield "<thead><tr><th class='group corner' rowspan=2>Peer, and what it is<th class='group sum' rowspan=2>passed"
        for group in _GROUPS:
            span = sum(column[0] == group for column in self.columns)
            if span:
                yield f"<th class='group first' colspan={span}>{_TITLES[group]}"
        yield "\n<tr>"
        for number, (_, name) in enumerate(self.columns):
            short = name.removesuffix("@openssh.com")
            yield f"<th class='column{self._first(number)}' title='{_text(name)}'><span>{_text(short)}</span>"
        yield "\n<tbody>\n"
        last = ""
        for row, (peer, role) in enumerate(self.rows):
            begins, last = (" class=peer" if peer != last else ""), peer
            mine = [self.results[n] for n, (place, _) in enumerate(self.places) if place == row]
            passed = count(mine)[Outcome.PASSED]
            yield f"<tr{begins}><th>{_text(peer)} <small>as {_text(role)}</small><td class=sum>{passed}/{len(mine)}"
            for column in range(len(self.columns)):
                yield self._cell(row, column)
            yield "\n"

    def _first(self, column: int) -> str:
        starts = column == 0 or self.columns[column - 1][0] != self.columns[column][0]
        return " first" if starts else ""

    def _cell(self, row: int, column: int) -> str:
        numbers = self.cells.get((row, column))
        if not numbers:
            return f"<td class='untried{self._first(column)}'>·"
        counts = count([self.results[number] for number in numbers])
        worst = next(outcome for outcome in _LOOKS if counts[outcome])
        look = _LOOKS[worst]
        target = next(number for number in numbers if self.results[number].outcome is worst)
        peer, role = self.rows[row]
        words = [f"{peer} as {role}, {self.columns[column][1]}", *(f"{n} {o}" for o, n in counts.items() if n)]
        return (
            f"<td class='{look.style}{self._first(column)}'><a href='#case-{target}' data-row={row} "
            f"data-column={column} title='{_text(chr(10).join(words))}'><b>{look.sign}</b>"
            f"<small>{counts[worst]}</small></a>"
        )

    def lists(self) -> Iterator[str]:
        """The cases by what became of them; those that passed are folded away."""
        yield from self._list("Not as it should be", BAD)
        yield from self._list("Failed as expected", {Outcome.EXPECTED})
        yield from self._list("Passed", {Outcome.PASSED}, fold=True)

    def _list(self, title: str, outcomes: frozenset[Outcome] | set[Outcome], fold: bool = False) -> Iterator[str]:
        numbers = [n for n, result in enumerate(self.results) if result.outcome in outcomes]
        numbers.sort(key=lambda n: self.results[n].case.id)
        if numbers:
            yield f"<section class=list><h2>{title}: <span class=number>{len(numbers)}</span></h2>\n"
            yield "<details class=fold><summary>show them</summary>\n" if fold else ""
            for number in numbers:
                yield self._entry(number, self.results[number])
            yield "</details>" if fold else ""
            yield "</section>\n"

    def _entry(self, number: int, result: Result) -> str:
        row, columns = self.places[number]
        look = _LOOKS[result.outcome]
        place = f"class=entry id=case-{number} data-row={row} data-columns='{' '.join(map(str, columns))}'"
        line = (
            f"<span class='sign {look.style}'>{look.sign}</span>{_text(result.case.id)}"
            f"<span class=time>{result.seconds:.2f} s</span>"
        )
        detail = f"<span class=what>{_text(result.detail)}</span>" if result.detail else ""
        facts = "; ".join(f"{name}: {value}" for name, value in result.facts.items())
        if result.outcome is Outcome.PASSED:
            return f"<div {place} title='{_text(facts)}'>{line}{detail}</div>\n"
        log = f"<pre>{_text(_cut(result.log))}</pre>" if result.log else "<p>no log"
        return f"<details {place}><summary>{line}{detail}</summary><p>{_text(facts)}</p>{log}</details>\n"


def _value(result: Result, group: str) -> str:
    return result.case.scenario if group == "scenario" else settled(result, group)


def _cut(log: str) -> str:
    if len(log) <= _LOG_MAX:
        return log
    half = _LOG_MAX // 2
    left_out = f"\n\n[... {len(log) - _LOG_MAX} characters left out here; results.json has them ...]\n\n"
    return log[:half] + left_out + log[-half:]


def _text(text: str) -> str:
    return escape(printable(text, "\n\t"), quote=True)


def _digest(text: str) -> str:
    """For the page's policy: this text and no other."""
    return f"'sha256-{b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
