"""All-pairs rows for matrices: every value, and every pair of values of two axes, at least once."""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Sequence
from typing import Any

__all__ = ("Row", "pairwise")

Row = tuple[Any, ...]
Choice = tuple[int, Hashable]  # an axis' position and one of its values


def _pairs(row: Sequence[Hashable]) -> set[tuple[Choice, Choice]]:
    return set(itertools.combinations(enumerate(row), 2))


def pairwise(*axes: Sequence[Hashable], full: bool = False) -> list[Row]:
    """Few rows (one value an axis) that hold every pair of values; the same rows each time.

    Greedy: a row starts from a pair that is still missing; each further axis takes the value that
    brings the most missing pairs with what the row holds already, the first of equals. With
    ``full``: the whole product.
    """
    if full or len(axes) < 3 or not all(axes):
        return list(itertools.product(*axes))
    ordered = [
        ((i, a), (j, b)) for i, j in itertools.combinations(range(len(axes)), 2) for a in axes[i] for b in axes[j]
    ]
    missing = set(ordered)
    rows: list[Row] = []
    for seed in ordered:
        if seed not in missing:
            continue
        row = dict(seed)
        # The longest axes first: they have the most pairs to place.
        for axis in sorted(set(range(len(axes))) - row.keys(), key=lambda n: -len(axes[n])):
            row[axis] = max(axes[axis], key=lambda value: _gain(missing, row, axis, value))
        rows.append(tuple(row[axis] for axis in range(len(axes))))
        missing -= _pairs(rows[-1])
    return rows


def _gain(missing: set[tuple[Choice, Choice]], row: dict[int, Hashable], axis: int, value: Hashable) -> int:
    new = (axis, value)
    return sum((new, (n, v)) in missing if axis < n else ((n, v), new) in missing for n, v in row.items())
