"""A server on loopback and ways to it; nothing is left behind, and no error goes to the loop unseen."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import sshtransport
from sshtransport import INSECURE_ACCEPT_ANY_HOST_KEY, ClientConnection, Opening, Passwords, ServerProcess
from sshtransport.asyncio.server import Server, listen
from tests.support.private_keys import private_key

HOST = "127.0.0.1"
USERNAME = "tester"
PASSWORD = "correct horse"


@contextlib.asynccontextmanager
async def loop_errors_seen() -> AsyncIterator[list[dict[str, Any]]]:
    """What went to the loop's exception handler; it must be empty at the end of the block."""
    loop = asyncio.get_running_loop()
    errors: list[dict[str, Any]] = []
    loop.set_exception_handler(lambda _, context: errors.append(context))
    try:
        yield errors
    finally:
        loop.set_exception_handler(None)
    assert errors == []


@contextlib.asynccontextmanager
async def serving(handler: Any, **options: Any) -> AsyncIterator[Server]:
    """``listen`` on a free port of loopback, for ``USERNAME`` with ``PASSWORD`` unless told otherwise."""
    options.setdefault("host_keys", [private_key("ssh-ed25519")])
    options.setdefault("authenticator", Passwords({USERNAME: PASSWORD}))
    before = asyncio.all_tasks()
    async with loop_errors_seen(), await listen(handler, HOST, 0, **options) as server:
        yield server
    assert server.connections == frozenset()
    assert (server._door.inside, server._door.networks) == (0, 0)
    assert server._tasks == set()
    # A moment for what is at its end already: tasks report to their callbacks one turn later.
    await asyncio.sleep(0)
    assert asyncio.all_tasks() - before == set()


def client(server: Server, **options: Any) -> Opening[ClientConnection]:
    """Our own client, connected to it."""
    options.setdefault("username", USERNAME)
    if not {"client_keys", "keyboard_interactive"} & options.keys():
        options.setdefault("password", PASSWORD)
    options.setdefault("client_keys", ())
    options.setdefault("known_hosts", INSECURE_ACCEPT_ANY_HOST_KEY)
    return sshtransport.connect(HOST, server.port, **options)


async def echo(process: ServerProcess) -> int:
    """A handler: what comes in goes out."""
    while data := await process.stdin.read(65_536):
        process.stdout.write(data)
        await process.stdout.drain()
    return 0
