"""Opening: what ``connect``, ``create_process`` and the like return; both awaitable and a context manager."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Generator
from types import TracebackType
from typing import Any, Generic, TypeVar

from ..errors import LocalError

__all__ = ("Opening",)

_T = TypeVar("_T")


class Opening(Coroutine[Any, Any, _T], Generic[_T]):
    """Something that is opened when awaited, or for the time of an ``async with`` block.

    It is a coroutine, so ``await``, ``create_task``, ``TaskGroup``, ``wait_for`` and ``gather``
    take it. It starts nothing before that, can be used once, and does not warn when dropped.
    """

    __slots__ = ("_coroutine", "_leave", "_start", "_value")

    def __init__(
        self,
        start: Callable[[], Coroutine[Any, Any, _T]],
        leave: Callable[[_T, BaseException | None], Awaitable[None]],
    ) -> None:
        self._start: Callable[[], Coroutine[Any, Any, _T]] | None = start
        self._leave = leave
        self._coroutine: Coroutine[Any, Any, _T] | None = None

    def _begun(self) -> Coroutine[Any, Any, _T]:
        if self._coroutine is None:
            if self._start is None:
                raise LocalError("an opening can be used once")
            self._coroutine = self._start()
            self._start = None
        elif getattr(self._coroutine, "cr_frame", self) is None:  # it has run to its end
            raise LocalError("an opening can be used once")
        return self._coroutine

    def send(self, value: Any) -> Any:
        return self._begun().send(value)

    def throw(self, *args: Any) -> Any:
        return self._begun().throw(*args)

    def close(self) -> None:
        self._start = None
        if self._coroutine is not None:
            self._coroutine.close()

    def __await__(self) -> Generator[Any, Any, _T]:
        if self._start is None:
            raise LocalError("an opening can be used once")
        return self._begun().__await__()

    async def __aenter__(self) -> _T:
        self._value = await self
        return self._value

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._leave(self._value, error)
