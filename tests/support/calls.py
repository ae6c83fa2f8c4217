"""Count what a piece of code does instead of how long it takes: calls, and memory."""

from __future__ import annotations

import gc
import sys
import tracemalloc
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import sshtransport

__all__ = ("Calls", "Memory", "counted", "measured")

_OURS = str(sshtransport.__file__).removesuffix("__init__.py")


class Calls:
    """Calls of functions of the package, by name, and calls of C functions from them.

    A coroutine that goes on counts as a call. What CPython calls without a frame (slots, most types) does not show.
    """

    def __init__(self) -> None:
        self.python: Counter[str] = Counter()
        self.c: Counter[str] = Counter()

    def note(self, frame: FrameType, event: str, argument: Any) -> None:
        """For ``sys.setprofile``."""
        code = frame.f_code
        if code.co_filename.startswith(_OURS):
            if event == "call":
                self.python[code.co_qualname] += 1
            elif event == "c_call":
                self.c[argument.__qualname__] += 1


@contextmanager
def counted() -> Iterator[Calls]:
    """The calls of this thread in the block."""
    calls, before = Calls(), sys.getprofile()
    sys.setprofile(calls.note)
    try:
        yield calls
    finally:
        sys.setprofile(before)


class Memory:
    """Python's memory in bytes, beyond what there was before: the most at a time, and what has stayed."""

    peak = 0
    kept = 0


@contextmanager
def measured() -> Iterator[Memory]:
    """The memory of the block; that of a tracer (coverage) is none of it."""
    memory, tracer = Memory(), sys.gettrace()
    sys.settrace(None)
    gc.collect()
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        yield memory
        now, peak = tracemalloc.get_traced_memory()
        memory.peak, memory.kept = peak - before, now - before
    finally:
        tracemalloc.stop()
        sys.settrace(tracer)
