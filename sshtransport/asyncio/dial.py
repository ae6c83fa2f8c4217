"""A TCP connection by name, trying addresses side by side (Happy Eyeballs, RFC 8305)."""

from __future__ import annotations

import asyncio
import itertools
import socket
from typing import Any

__all__ = ("dial",)

_DELAY = 0.25  # seconds before the next address is tried too (RFC 8305, section 5)

_Address = tuple[socket.AddressFamily, socket.SocketKind, int, str, Any]


def _literal(host: str, port: int) -> list[_Address]:
    """An IP address as text needs no resolver, and so no thread; nothing for anything else."""
    for family, target in ((socket.AF_INET, (host, port)), (socket.AF_INET6, (host, port, 0, 0))):
        try:
            socket.inet_pton(family, host)
        except (OSError, ValueError):
            continue
        return [(family, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", target)]
    return []


def _interleaved(addresses: list[_Address]) -> list[_Address]:
    """The families in turn, beginning with the first one (RFC 8305, section 4)."""
    families = list(dict.fromkeys(address[0] for address in addresses))
    groups = [[address for address in addresses if address[0] == family] for family in families]
    return [address for row in itertools.zip_longest(*groups) for address in row if address is not None]


async def _attempt(loop: asyncio.AbstractEventLoop, address: _Address, local: list[_Address]) -> socket.socket:
    family, kind, proto, _, target = address
    sock = socket.socket(family, kind, proto)
    try:
        sock.setblocking(False)
        for candidate in local:
            if candidate[0] == family:
                sock.bind(candidate[4])
                break
        else:
            if local:
                raise OSError(f"no local address of the family of {target[0]}")
        await loop.sock_connect(sock, target)
    except BaseException:
        sock.close()
        raise
    return sock


async def dial(host: str, port: int, *, local_addr: tuple[str, int] | None = None) -> socket.socket:
    """A connected socket to the first address of ``host`` that answers.

    Raises:
        OSError: no address could be found or connected to.
    """
    loop = asyncio.get_running_loop()
    addresses = _literal(host, port) or _interleaved(
        await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)  # type: ignore[arg-type]
    )
    local: list[_Address] = []
    if local_addr is not None:
        local = await loop.getaddrinfo(*local_addr, type=socket.SOCK_STREAM)  # type: ignore[assignment]
    if not addresses:
        raise OSError(f"no address found for {host}")
    if len(addresses) == 1:
        return await _attempt(loop, addresses[0], local)
    return await _race(loop, addresses, local)


async def _race(loop: asyncio.AbstractEventLoop, addresses: list[_Address], local: list[_Address]) -> socket.socket:
    errors: list[OSError] = []
    attempts: list[asyncio.Task[socket.socket]] = []
    running: set[asyncio.Task[socket.socket]] = set()
    winner: socket.socket | None = None
    waiting = iter(addresses)
    try:
        while winner is None:
            address = next(waiting, None)
            if address is not None:
                attempts.append(loop.create_task(_attempt(loop, address, local)))
                running.add(attempts[-1])
            elif not running:
                raise errors[0] if len(errors) == 1 else OSError(f"no address answered: {'; '.join(map(str, errors))}")
            timeout = None if address is None else _DELAY
            done, running = await asyncio.wait(running, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                error = task.exception()
                if error is None:
                    winner = winner or task.result()
                elif isinstance(error, OSError):
                    errors.append(error)
                else:
                    raise error
        await _give_up(attempts, winner)
    except BaseException:
        if winner is not None:
            winner.close()
        await _give_up(attempts, None)
        raise
    return winner


async def _give_up(attempts: list[asyncio.Task[socket.socket]], winner: socket.socket | None) -> None:
    """End all other attempts. Their sockets are closed even if this is cancelled before they have ended."""

    def ended(task: asyncio.Task[socket.socket]) -> None:
        if not task.cancelled() and task.exception() is None and task.result() is not winner:
            task.result().close()

    for task in attempts:
        task.cancel()
        task.add_done_callback(ended)
    await asyncio.wait(attempts)
