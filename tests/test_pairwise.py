"""The all-pairs generator of the test matrices."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from interop import pairwise as module

pairwise = module.pairwise


def assert_covers(rows: list[tuple[object, ...]], axes: Sequence[Sequence[object]]) -> None:
    for row in rows:
        assert len(row) == len(axes)
        assert all(value in axis for value, axis in zip(row, axes, strict=True))
    for (i, first), (j, second) in itertools.combinations(enumerate(axes), 2):
        seen = {(row[i], row[j]) for row in rows}
        assert seen == set(itertools.product(first, second))


AXES = (range(11), [f"kex{n}" for n in range(9)], "abcdef", ("client", "server"))


def test_every_pair_in_few_rows() -> None:
    rows = pairwise(*AXES)
    assert_covers(rows, AXES)
    assert len(rows) == len(set(rows))
    assert 11 * 9 <= len(rows) <= 11 * 9 * 1.25  # 1188 in the whole product


def test_same_rows_each_time() -> None:
    assert pairwise(*AXES) == pairwise(*AXES)


def test_full_is_the_product() -> None:
    assert pairwise(*AXES, full=True) == list(itertools.product(*AXES))


def test_small_cases() -> None:
    assert pairwise() == [()]
    assert pairwise("ab") == [("a",), ("b",)]
    assert sorted(pairwise("ab", "xy")) == sorted(itertools.product("ab", "xy"))
    assert pairwise("ab", "") == []
    assert pairwise("ab", "xy", "") == []
    assert pairwise("a", "b", "c") == [("a", "b", "c")]


def test_axes_may_hold_equal_values() -> None:
    axes = ("ab", "ab", "ab")
    assert_covers(pairwise(*axes), axes)


@given(st.lists(st.integers(1, 5), min_size=2, max_size=5))
def test_any_shape(sizes: list[int]) -> None:
    axes = [range(size) for size in sizes]
    assert_covers(pairwise(*axes), axes)


def test_cover_takes_only_rows_that_may_be() -> None:
    rows = [row for row in itertools.product("abc", "xyz", "123") if row[:2] != ("a", "x")]
    chosen = module.cover(rows)
    assert set(chosen) <= set(rows)
    assert {pair for row in chosen for pair in itertools.combinations(enumerate(row), 2)} == {
        pair for row in rows for pair in itertools.combinations(enumerate(row), 2)
    }
    assert len(chosen) <= 11  # of 24; nine hold every pair at best
