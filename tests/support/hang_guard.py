"""A test that hangs fails by itself, so that it never blocks CI (a pytest plugin, loaded by conftest).

No dependency, three steps. A coroutine test is cancelled after ``TIME_LIMIT`` seconds; a plain one,
or a coroutine that blocks its loop, gets an exception from a signal. Both fail with a traceback that
shows where they stood, and the run goes on. Where neither helps (a fixture, code that swallows the
exception, C code) the process dumps all stacks and exits ``GRACE`` seconds later.
"""

from __future__ import annotations

import asyncio
import faulthandler
import functools
import inspect
import os
import signal
from collections.abc import Callable, Coroutine, Generator
from types import FrameType
from typing import Any

import pytest

from tests.support.scale import rounds

TIME_LIMIT = 60.0
GRACE = 30.0

_real_stderr: list[int] = []


def _limit(item: pytest.Item) -> float:
    marker = item.get_closest_marker("time_limit")
    limit = float(marker.args[0]) if marker else TIME_LIMIT
    return limit * rounds(1) if item.get_closest_marker("soak") else limit


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "time_limit(seconds): another limit than the usual one for a test that hangs")
    _real_stderr.append(os.dup(2))  # the capturing plugin puts another file in its place while tests run


def pytest_unconfigure() -> None:
    while _real_stderr:
        os.close(_real_stderr.pop())


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    faulthandler.dump_traceback_later(_limit(item) + GRACE, exit=True, file=_real_stderr[0])
    try:
        return (yield)
    finally:
        faulthandler.cancel_dump_traceback_later()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    limit = _limit(item)
    if isinstance(item, pytest.Function) and inspect.iscoroutinefunction(item.obj):
        item.obj = _cancelled_after(limit, item.obj)
        limit *= 1.5  # the timer first
    if not hasattr(signal, "SIGALRM"):  # Windows
        return (yield)

    def too_long(number: int, frame: FrameType | None) -> None:
        pytest.fail(f"still running after {limit:g} s")

    previous = signal.signal(signal.SIGALRM, too_long)
    signal.setitimer(signal.ITIMER_REAL, limit, 1.0)  # again each second, should somebody swallow the first
    try:
        return (yield)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, previous)


def _cancelled_after(
    limit: float, test: Callable[..., Coroutine[Any, Any, None]]
) -> Callable[..., Coroutine[Any, Any, None]]:
    @functools.wraps(test)
    async def guarded(*args: Any, **kwargs: Any) -> None:
        timer = asyncio.timeout(limit)
        try:
            async with timer:
                await test(*args, **kwargs)
        except TimeoutError:
            if timer.expired():
                pytest.fail(f"still running after {limit:g} s")
            raise

    return guarded
