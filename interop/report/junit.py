"""Results as JUnit XML, for whatever shows test results: a suite for each peer and role."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from xml.etree import ElementTree as ET

from ..model import Outcome, Result
from .data import count, printable

__all__ = ("to_junit",)

#: The element that says it. An expected failure is "skipped", as pytest writes it: JUnit knows nothing closer.
_ELEMENTS = {
    Outcome.FAILED: "failure",
    Outcome.SURPRISE: "failure",
    Outcome.NOT_STARTED: "error",
    Outcome.EXPECTED: "skipped",
}


def to_junit(results: Sequence[Result], facts: Mapping[str, str]) -> str:
    """The whole file."""
    root = ET.Element("testsuites", {"name": "interop", **_numbers(results)})
    groups: dict[tuple[str, str], list[Result]] = {}
    for result in results:
        groups.setdefault((result.case.peer, str(result.case.role)), []).append(result)
    for (peer, role), group in groups.items():
        suite = ET.SubElement(root, "testsuite", {"name": _text(f"{peer} as {role}"), **_numbers(group)})
        _properties(suite, facts)
        for result in group:
            _add(suite, result)
    ET.indent(root)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ET.tostring(root, encoding="unicode") + "\n"


def _add(suite: ET.Element, result: Result) -> None:
    case = result.case
    name = case.id.split("/", 2)[2]  # peer and role are in the class name
    where = _text(f"{case.peer}.{case.role}")
    element = ET.SubElement(suite, "testcase", classname=where, name=_text(name), time=f"{result.seconds:.3f}")
    _properties(element, result.facts)
    kind = _ELEMENTS.get(result.outcome)
    if kind is not None:
        message = _text(f"{result.outcome}: {result.detail}")
        ET.SubElement(element, kind, message=message, type=str(result.outcome)).text = _text(result.log)


def _properties(parent: ET.Element, facts: Mapping[str, str]) -> None:
    if facts:
        properties = ET.SubElement(parent, "properties")
        for name, value in facts.items():
            ET.SubElement(properties, "property", name=_text(name), value=_text(value))


def _numbers(results: Sequence[Result]) -> dict[str, str]:
    counts = count(results)
    return {
        "tests": str(len(results)),
        "failures": str(counts[Outcome.FAILED] + counts[Outcome.SURPRISE]),
        "errors": str(counts[Outcome.NOT_STARTED]),
        "skipped": str(counts[Outcome.EXPECTED]),
        "time": f"{sum(result.seconds for result in results):.3f}",
    }


def _text(text: str) -> str:
    return printable(text, "\n\t")
