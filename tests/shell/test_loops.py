"""Async tests run on both event loops."""

from __future__ import annotations

import asyncio

import pytest

pytest.importorskip("uvloop", reason="uvloop is not on this system: the second loop is missing")

_seen: list[str] = []


async def test_runs_on_a_loop() -> None:
    _seen.append(type(asyncio.get_running_loop()).__module__.split(".")[0])


def test_both_loops_ran() -> None:
    if len(_seen) < 2:
        pytest.skip("the test before was left out or narrowed to one loop")
    assert sorted(_seen) == ["asyncio", "uvloop"]


@pytest.mark.asyncio(loop_factories=["uvloop"])
async def test_one_loop_can_be_chosen() -> None:
    assert type(asyncio.get_running_loop()).__module__ == "uvloop"
