"""All-pairs rows for matrices: every value, and every pair of values of two axes, at least once."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Hashable, Sequence
from typing import Any

__all__ = ("Row", "cover", "pairwise")

Row = tuple[Any, ...]


def pairwise(*axes: Sequence[Hashable], full: bool = False) -> list[Row]:
    """Few rows (one value an axis) that hold every pair of values; the same rows each time.

    With ``full``: the whole product.
    """
    rows = list(itertools.product(*axes))
    return rows if full or len(axes) < 3 else cover(rows)


def cover(rows: Sequence[Row]) -> list[Row]:
    """Few of these rows that hold every pair that any of them holds.

    Greedy: always the row with the most missing pairs, the first of equals. What a row brings only
    ever gets less, so that only the best one has to be counted anew.
    """
    pairs = [tuple(itertools.combinations(enumerate(row), 2)) for row in rows]
    missing = set(itertools.chain.from_iterable(pairs))
    best = [(-len(held), number) for number, held in enumerate(pairs)]
    heapq.heapify(best)
    chosen: list[Row] = []
    while missing:
        promised, number = heapq.heappop(best)
        brings = sum(pair in missing for pair in pairs[number])
        if brings == -promised:
            chosen.append(rows[number])
            missing.difference_update(pairs[number])
        elif brings:
            heapq.heappush(best, (-brings, number))
    return chosen
