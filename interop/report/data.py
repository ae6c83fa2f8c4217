"""Results as JSON and back, and the text of peers made harmless."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields

from ..model import Case, Outcome, Result, Role

__all__ = ("count", "printable", "read_json", "settled", "to_json")


def printable(text: str, keep: str = "") -> str:
    """Characters that steer a terminal, break XML or turn the direction of text become ``\\x1b``-like escapes."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in keep else ascii(c)[1:-1] for c in text)


def settled(result: Result, name: str) -> str:
    """The algorithm of a kind (``kex``, ...): the case's own, or what the two sides settled on."""
    own: str = getattr(result.case, name)
    return own or result.facts.get(name, "")


def count(results: Sequence[Result]) -> dict[Outcome, int]:
    """How many came out in each way; every outcome is there."""
    counted = Counter(result.outcome for result in results)
    return {outcome: counted[outcome] for outcome in Outcome}


def to_json(results: Sequence[Result], facts: Mapping[str, str]) -> str:
    """All there is to know about a run; :func:`read_json` gives it back."""
    rows = [{"id": result.case.id, **asdict(result)} for result in results]
    counts = {str(outcome): number for outcome, number in count(results).items()}
    return json.dumps({"facts": dict(facts), "counts": counts, "results": rows}, indent=1) + "\n"


def read_json(text: str) -> tuple[list[Result], dict[str, str]]:
    """Results and facts of a file that :func:`to_json` made."""
    data = json.loads(text)
    results = []
    for row in data["results"]:
        case = {field.name: row["case"][field.name] for field in fields(Case)}
        case["role"] = Role(case["role"])
        rest = {field.name: row[field.name] for field in fields(Result)}
        rest |= {"case": Case(**case), "outcome": Outcome(rest["outcome"])}
        results.append(Result(**rest))
    return results, data["facts"]
