"""The report of a run: nothing is lost or miscounted, and text of peers stays text."""

from __future__ import annotations

import io
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from rich.console import Console

from interop.model import Case, Outcome, Result, Role
from interop.report import Progress, print_summary, read_json, write_reports
from interop.report.data import printable

EVIL = "<script>alert(1)</script> ]]> [red]' onclick='x \"&\x1b[31m\x00\x85\u202e\udc80"
FACTS = {"engine": "podman", EVIL: EVIL}


def result(outcome: Outcome, scenario: str = "login", **changed: str) -> Result:
    case = Case("dropbear", Role.SERVER, scenario, cipher=changed.get("cipher", "aes256-ctr"))
    return Result(case, outcome, 1.5, changed.get("detail", ""), changed.get("log", ""), {"kex": "curve25519-sha256"})


RESULTS = [
    result(Outcome.PASSED),
    result(Outcome.FAILED, "command", detail=EVIL, log=EVIL + "\nsecond line"),
    result(Outcome.EXPECTED, "rekey", detail="no setting for it"),
    result(Outcome.SURPRISE, "half-close"),
    result(Outcome.NOT_STARTED, "upload", cipher=EVIL),
    Result(Case(EVIL, Role.CLIENT, EVIL), Outcome.PASSED, 0.0, facts={"kex": EVIL, EVIL: EVIL}),
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_reports(tmp_path / "new" / "report", RESULTS, FACTS)
    return tmp_path / "new" / "report"


def test_json_gives_everything_back(folder: Path) -> None:
    assert read_json((folder / "results.json").read_text()) == (RESULTS, FACTS)


def test_junit_counts_and_keeps_what_xml_cannot_hold(folder: Path) -> None:
    root = ET.parse(folder / "junit.xml").getroot()
    assert {key: root.get(key) for key in ("tests", "failures", "errors", "skipped")} == {
        "tests": "6",
        "failures": "2",
        "errors": "1",
        "skipped": "1",
    }
    assert [len(suite.findall("testcase")) for suite in root] == [5, 1]
    failure = root.find(".//failure")
    assert failure is not None
    assert failure.text == printable(EVIL) + "\nsecond line"


class Page(HTMLParser):
    """Elements and their attributes, and the text outside style and script."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        if self.elements and self.elements[-1][0] not in ("style", "script"):
            self.text += data


def test_page_holds_no_markup_of_peers_and_needs_nothing_else(folder: Path) -> None:
    page = Page((folder / "index.html").read_text())
    assert sum(tag == "script" for tag, _ in page.elements) == 1
    assert not any(name.startswith("on") or name in ("src", "style") for _, attrs in page.elements for name in attrs)
    assert all((attrs["href"] or "").startswith("#case-") for tag, attrs in page.elements if tag == "a")
    assert printable(EVIL) in page.text
    assert not set(page.text) & set("\x00\x1b\x85\u202e")


def test_cells_lead_to_the_worst_case(folder: Path) -> None:
    page = Page((folder / "index.html").read_text())
    ids = [attrs["id"] for _, attrs in page.elements if (attrs.get("id") or "").startswith("case-")]
    assert sorted(map(str, ids)) == [f"case-{number}" for number in range(6)]
    (cell,) = [attrs for tag, attrs in page.elements if tag == "a" and "server, aes256-ctr" in (attrs["title"] or "")]
    assert cell["href"] == "#case-1"  # of four cases the failed one
    counts = ["1 passed", "1 failed", "1 expected failure", "1 passed, though a failure was expected"]
    assert cell["title"] == "\n".join(["dropbear as server, aes256-ctr", *counts])


def test_long_logs_are_cut_in_the_page_only(tmp_path: Path) -> None:
    log = "a" * 100_000 + "b" * 100_000
    write_reports(tmp_path, [result(Outcome.FAILED, log=log)], {})
    page = (tmp_path / "index.html").read_text()
    assert "140000 characters left out" in page
    assert read_json((tmp_path / "results.json").read_text())[0][0].log == log


def test_nothing_was_run(tmp_path: Path) -> None:
    write_reports(tmp_path, [], {})
    assert "0 cases" in (tmp_path / "index.html").read_text()


def run_progress(*, terminal: bool) -> str:
    out = io.StringIO()
    console = Console(file=out, force_terminal=terminal, width=200, highlight=False, markup=False, emoji=False)
    with Progress(len(RESULTS), console) as progress:
        progress.say(EVIL)
        for each in RESULTS:
            progress.started(each.case)
            progress.finished(each)
    print_summary(RESULTS, FACTS, console)
    return out.getvalue()


def test_plain_lines_without_a_terminal() -> None:
    text = run_progress(terminal=False)
    assert not set(text) & set("\x00\x1b\x85\u202e")
    lines = text.splitlines()
    assert lines[0] == printable(EVIL)
    assert lines[1] == f"FAIL     dropbear/server/command/cipher=aes256-ctr: {printable(EVIL)}"
    assert "6 of 6 cases" in text


def test_live_view_on_a_terminal_lets_no_control_of_a_peer_through() -> None:
    text = run_progress(terminal=True)
    assert "\\x1b[31m" in text
    assert "\x1b[31m\\x00" not in text
    assert not set(text) & set("\x00\x85\u202e")


def test_many_cases_with_the_same_words_share_a_line() -> None:
    out = io.StringIO()
    many = [result(Outcome.NOT_STARTED, f"s{n}", detail="no answer") for n in range(4)]
    print_summary(many, {}, Console(file=out, width=200))
    assert "NO PEER  dropbear/server, 4 cases (s0, s1, s2, s3): no answer" in out.getvalue()
