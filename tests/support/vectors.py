"""Where test vectors come from.

Entries of origin "computed" are committed in tests/vectors, with their generator and verifier. All
others stem from other projects' files and are read from the folder that the environment variable
SSHTRANSPORT_VECTORS names; without it their tests are skipped and say so.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from _pytest.mark.structures import ParameterSet

__all__ = ("COMMITTED", "VARIABLE", "Vector", "cases", "folder", "load")

VARIABLE = "SSHTRANSPORT_VECTORS"
COMMITTED = Path(__file__).parent.parent / "vectors"

Vector = dict[str, Any]


def folder() -> Path | None:
    """The folder with the published vectors, if there is one."""
    value = os.environ.get(VARIABLE)
    return Path(value) if value else None


def load(name: str, origin: str | None = None) -> list[Vector]:
    """The entries of the vector file ``name`` that can be had here, of one origin or of all.

    The computed ones come first and are always there.
    """
    committed = COMMITTED / name
    entries: list[Vector] = json.loads(committed.read_text()) if committed.exists() else []
    outside = folder()
    if outside is not None:
        entries += [e for e in json.loads((outside / name).read_text()) if e.get("origin") != "computed"]
    return [e for e in entries if origin in (None, e.get("origin"))]


def cases(name: str, keep: Callable[[Vector], bool] = lambda entry: True) -> list[ParameterSet]:
    """Parameters for ``pytest.mark.parametrize``: one a vector, named like it.

    Without the folder one skipped case stands for all that is missing.
    """
    found = [pytest.param(entry, id=entry["name"]) for entry in load(name) if keep(entry)]
    if folder() is None:
        missing = pytest.mark.skip(reason=f"{VARIABLE} names no folder with the published vectors")
        found.append(pytest.param({}, id="published", marks=missing))
    return found
