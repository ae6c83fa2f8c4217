"""What a run leaves behind: a live view and tables in the terminal, JUnit XML, JSON, one HTML page.

The runner calls ``Progress.started`` and ``Progress.finished``, then :func:`write_reports` and
:func:`print_summary`. ``facts`` are of the whole run ("engine": "podman", "openssh-trixie":
"1:10.0p1-7"); results may carry "kex", "host_key", "cipher" and "mac" in their own facts, for what
was settled on where the case did not say.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from ..model import Result
from .data import read_json, to_json
from .junit import to_junit
from .page import to_html
from .terminal import Progress, print_summary

__all__ = ("Progress", "print_summary", "read_json", "write_reports")


def write_reports(folder: Path, results: Sequence[Result], facts: Mapping[str, str]) -> None:
    """``junit.xml``, ``results.json`` and ``index.html`` in ``folder``, which is made if it is not there."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, make in (("results.json", to_json), ("junit.xml", to_junit), ("index.html", to_html)):
        (folder / name).write_text(make(results, facts), encoding="utf-8")
