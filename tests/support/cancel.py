"""Cancelling a coroutine at each of its awaits in turn, also in the moment when what it waits for has just come."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, Generic, TypeVar

_T = TypeVar("_T")


class _Stepped(Coroutine[Any, Any, _T], Generic[_T]):
    """Passes on what a coroutine does, and cancels its task at its ``at``-th await."""

    def __init__(self, work: Coroutine[Any, Any, _T], at: int, late: bool) -> None:
        self._work = work
        self._at = at
        self._late = late
        self.steps = 0
        self.task: asyncio.Task[_T] | None = None

    def send(self, value: Any) -> Any:
        waits_for = self._work.send(value)
        self.steps += 1
        if self.steps == self._at:
            assert self.task is not None
            if self._late and waits_for is not None:
                # Before the task's own callback: the result is there, and is thrown away.
                waits_for.add_done_callback(lambda _: self.task.cancel() if self.task else None)
            else:
                asyncio.get_running_loop().call_soon(self.task.cancel)
        return waits_for

    def throw(self, *args: Any) -> Any:
        return self._work.throw(*args)

    def close(self) -> None:
        self._work.close()

    def __await__(self) -> Any:
        return self


async def cancelled_at(work: Coroutine[Any, Any, _T], at: int, *, late: bool) -> tuple[bool, _T | None]:
    """Run ``work``, cancelled at its ``at``-th await; whether that came about, and what it returned otherwise.

    ``late`` cancels when what is awaited is done already, and the coroutine has not heard of it.
    """
    stepped = _Stepped(work, at, late)
    stepped.task = task = asyncio.get_running_loop().create_task(stepped)
    try:
        return False, await task
    except asyncio.CancelledError:
        if not task.cancelled():
            raise  # it is the test that is cancelled
        return True, None


def open_files() -> set[str]:
    """The files and sockets of this process, where the system tells: otherwise nothing."""
    if not os.path.isdir("/proc/self/fd"):
        return set()

    def targets() -> Iterator[str]:
        for name in os.listdir("/proc/self/fd"):
            try:
                yield f"{name} {os.readlink(f'/proc/self/fd/{name}')}"
            except OSError:
                continue  # the listing's own

    return {target for target in targets() if "socket:" in target}


async def settled(condition: Callable[[], bool]) -> None:
    """Let the loop turn until the condition holds; the test's time limit ends it otherwise."""
    while not condition():  # noqa: ASYNC110 - any condition
        await asyncio.sleep(0)
