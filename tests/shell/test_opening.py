"""What ``connect`` and ``create_process`` return: a coroutine and a context manager in one."""

from __future__ import annotations

import asyncio
import gc
import inspect
import warnings
from collections.abc import Coroutine
from typing import Any

import pytest

from sshtransport import LocalError, Opening
from tests.support.servers import client, echo, serving


class Thing:
    """Something to open; counts what happens to it."""

    def __init__(self) -> None:
        self.starts = 0
        self.started = asyncio.Event()
        self.ends: list[BaseException | None] = []
        self.go = asyncio.Event()
        self.go.set()

    def opening(self, error: Exception | None = None) -> Opening[Thing]:
        async def start() -> Thing:
            self.starts += 1
            self.started.set()
            await self.go.wait()
            await asyncio.sleep(0)
            if error is not None:
                raise error
            return self

        async def leave(thing: Thing, error: BaseException | None) -> None:
            await asyncio.sleep(0)
            thing.ends.append(error)

        return Opening(start, leave)


async def by_await(opening: Opening[Any]) -> Any:
    return await opening


async def by_task(opening: Opening[Any]) -> Any:
    return await asyncio.create_task(opening)


async def by_ensure_future(opening: Opening[Any]) -> Any:
    return await asyncio.ensure_future(opening)


async def by_group(opening: Opening[Any]) -> Any:
    async with asyncio.TaskGroup() as group:
        task = group.create_task(opening)
    return task.result()


async def by_wait_for(opening: Opening[Any]) -> Any:
    return await asyncio.wait_for(opening, 20)


async def by_gather(opening: Opening[Any]) -> Any:
    (result,) = await asyncio.gather(opening)
    return result


async def by_timeout(opening: Opening[Any]) -> Any:
    async with asyncio.timeout(20):
        return await opening


async def by_shield(opening: Opening[Any]) -> Any:
    return await asyncio.shield(opening)


async def by_yield_from(opening: Opening[Any]) -> Any:
    class Waits:
        def __await__(self) -> Any:
            return (yield from opening.__await__())

    return await Waits()


WAYS = [by_await, by_task, by_ensure_future, by_group, by_wait_for, by_gather, by_timeout, by_shield, by_yield_from]


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
async def test_ways_to_await(way: Any) -> None:
    thing = Thing()
    opening = thing.opening()
    assert thing.starts == 0  # nothing happens before it is awaited
    assert await way(opening) is thing
    assert (thing.starts, thing.ends) == (1, [])
    with pytest.raises(LocalError, match="once"):
        await opening
    with pytest.raises(LocalError, match="once"):
        async with opening:
            pytest.fail("entered")
    with pytest.raises((LocalError, ExceptionGroup)):
        await way(opening)
    assert thing.starts == 1


async def test_a_block() -> None:
    thing = Thing()
    async with thing.opening() as opened:
        assert opened is thing
        assert thing.ends == []
    assert thing.ends == [None]
    error = RuntimeError("body")
    with pytest.raises(RuntimeError, match="body"):
        async with thing.opening():
            raise error
    assert thing.ends == [None, error]


async def test_an_error_at_the_start() -> None:
    thing = Thing()
    with pytest.raises(ValueError, match="start"):
        async with thing.opening(ValueError("start")):
            pytest.fail("entered")
    for way in WAYS:
        with pytest.raises((ValueError, ExceptionGroup)):
            await way(thing.opening(ValueError("start")))
    assert thing.ends == []


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
async def test_cancelled_while_it_opens(way: Any) -> None:
    thing = Thing()
    thing.go.clear()
    task = asyncio.create_task(way(thing.opening()))
    await thing.started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    thing.go.set()
    assert thing.ends == []


async def test_cancelled_before_it_starts() -> None:
    thing = Thing()
    task = asyncio.create_task(thing.opening())
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert thing.starts == 0


async def test_dropped() -> None:
    """It does not warn, other than a coroutine; warnings are errors here."""
    thing = Thing()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        thing.opening()
        closed = thing.opening()
        closed.close()
        closed.close()
        gc.collect()
    assert (caught, thing.starts) == ([], 0)
    with pytest.raises(LocalError, match="once"):
        await closed


def test_what_it_is() -> None:
    async def start() -> int:
        return 5

    async def leave(value: int, error: BaseException | None) -> None:
        pass

    opening = Opening(start, leave)
    assert isinstance(opening, Coroutine)
    assert inspect.isawaitable(opening)
    assert asyncio.iscoroutine(opening)
    assert asyncio.run(opening) == 5


# --- the real ones ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
async def test_connections_and_processes(way: Any) -> None:
    async with serving(echo) as server:
        connection = await way(client(server))
        process = await way(connection.create_process("x"))
        process.stdin.write(b"there")
        process.stdin.write_eof()
        assert await process.stdout.read() == b"there"
        await process.leave()
        connection.close()
        await connection.wait_closed()


@pytest.mark.parametrize("how", ["timeout", "group", "body"])
async def test_a_block_that_fails(how: str) -> None:
    """Known bugs J 125: the cancellation or the error comes out, and the connection is closed."""

    async def fails() -> None:
        raise ZeroDivisionError

    async with serving(echo) as server:
        if how == "timeout":
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.05), client(server) as connection:
                    await connection.create_process("x")
                    await asyncio.Event().wait()
        elif how == "group":
            with pytest.raises(ExceptionGroup):
                async with client(server) as connection, asyncio.TaskGroup() as group:
                    group.create_task(connection.run("x", input=None, env={}))
                    group.create_task(fails())
        else:
            with pytest.raises(ZeroDivisionError):
                async with client(server) as connection, connection.create_process("x"):
                    await fails()
        assert connection.is_closed()


async def test_many_at_once() -> None:
    async with serving(echo) as server:
        connections = await asyncio.gather(*(client(server) for _ in range(8)))
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(c.run("x", input=b"%d" % n)) for n, c in enumerate(connections)]
        assert [task.result().stdout for task in tasks] == [b"%d" % n for n in range(8)]
        for connection in connections:
            connection.close()
        await asyncio.gather(*(connection.wait_closed() for connection in connections))
