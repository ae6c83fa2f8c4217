"""One flipped bit behind NEWKEYS, and what has to come of it.

A :class:`Tamper` stands between a client and a server on loopback. It reads the part of each
direction that is in the clear (identification lines and plain packets), finds the first NEWKEYS, and
flips one bit at an offset behind it. Then the receiver has to end the connection: it must not act on
a single byte of that frame.

A flip in a length field can make the frame longer. The receiver then rightly waits for more; both
sides would stand still until some deadline. So when nothing has moved for a moment, the proxy
gives the receiver what it waits for, random bytes, more than any packet may have: now it has to
fail. That is stronger than a deadline, and quicker.

What is proven, by side. Of ours, exactly: the bytes of frames that our transport accepted end before
the flipped one. Of a peer: the session, which uses every byte that it sends (a command that gives
back its input, then a round trip), does not go on, and no wrong byte comes out of it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol

import sshtransport
from sshtransport.asyncio.protocol import Link
from sshtransport.constants import MSG_NEWKEYS
from sshtransport.errors import (
    ConnectionLost,
    IntegrityError,
    PeerDisconnected,
    ProtocolError,
    SSHError,
)

from .model import Program
from .sessions import open_client

__all__ = (
    "Direction",
    "Ending",
    "Flip",
    "NewKeysFinder",
    "Tamper",
    "Violation",
    "attack_client",
    "attack_server",
    "choose_flips",
    "tampering",
)

HOST = "127.0.0.1"
_IDLE = 0.25  # seconds without a byte in either direction, after which the receiver gets what it waits for
_FILLER = 300_000  # bytes; OpenSSH takes packets of 256 KiB, nobody takes larger ones
_PATIENCE = 4.0  # seconds for the receiver to find that what came is not what it waits for
_END = 10.0  # seconds in which every session has to be over, one way or the other
_PIECE = 65_536
_TRIES, _PAUSE = 20, 0.2  # for a server that closes before it has said who it is


class Direction(StrEnum):
    """Where the flipped bit goes."""

    TO_SERVER = "to-server"
    TO_CLIENT = "to-client"


class Ending(StrEnum):
    """How a session ended that a bit was flipped in; everything else is a :class:`Violation`."""

    INTEGRITY = "tag or MAC"  # our side says so
    LENGTH = "length"  # our side says so
    DISCONNECTED = "peer disconnected"  # its DISCONNECT came
    CLOSED = "peer closed"
    DEADLINE = "peer waited for more"  # than any packet holds, and was cut off by us
    BEYOND = "beyond the end"  # the session was over before that offset came


class Violation(AssertionError):
    """A flipped bit did not end a session as it has to."""


@dataclass(frozen=True)
class Flip:
    """One bit: ``offset`` counts bytes from the first one behind NEWKEYS."""

    direction: Direction
    offset: int
    bit: int

    def __str__(self) -> str:
        return f"{self.direction}, offset {self.offset}, bit {self.bit}"


class NewKeysFinder:
    """Reads one direction from its first byte on. ``encrypted_at``: where the byte behind NEWKEYS is, or None.

    ``packets_at``: where the first packet is, behind the lines.
    """

    def __init__(self) -> None:
        self.packets_at: int | None = None
        self.encrypted_at: int | None = None
        self._data = bytearray()  # what is in the clear and not read yet
        self._at = 0  # its place in the stream

    def feed(self, data: bytes) -> None:
        if self.encrypted_at is not None:
            return
        self._data += data
        while self.packets_at is None and (end := self._data.find(b"\n") + 1):
            last = self._data.startswith(b"SSH-")  # a server may say other lines before it (RFC 4253, section 4.2)
            self._skip(end)
            if last:
                self.packets_at = self._at
        while self.packets_at is not None and len(self._data) >= 6:
            end = 4 + int.from_bytes(self._data[:4], "big")
            if len(self._data) < end:
                return
            newkeys = self._data[5] == MSG_NEWKEYS
            self._skip(end)
            if newkeys:
                self.encrypted_at = self._at
                self._data.clear()
                return

    def _skip(self, size: int) -> None:
        del self._data[:size]
        self._at += size


@dataclass
class _Side:
    """One direction of the proxy."""

    finder: NewKeysFinder = field(default_factory=NewKeysFinder)
    passed: int = 0


class Tamper:
    """A proxy for one connection. ``flip`` None: everything passes, and ``encrypted`` tells how much there is."""

    def __init__(self, host: str, port: int, flip: Flip | None, opened: Callable[[], None] | None = None) -> None:
        self._target = host, port
        self.flip = flip
        self.port = 0
        self._flipped = asyncio.Event()
        self.filled = False  # the receiver waited for more, and got it
        self.cut = False  # and it was not enough
        self.accepts_at_most = -1  # bytes of packets before the flipped byte, the clear ones among them
        self._opened = opened
        self._sides = {direction: _Side() for direction in Direction}
        self._moved = 0.0
        self._writers: list[asyncio.StreamWriter] = []

    @property
    def applied(self) -> bool:
        """Whether the bit has been flipped."""
        return self._flipped.is_set()

    def encrypted(self, direction: Direction) -> int:
        """How many bytes have passed behind NEWKEYS."""
        side = self._sides[direction]
        return 0 if side.finder.encrypted_at is None else side.passed - side.finder.encrypted_at

    async def carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.append(writer)
        with contextlib.suppress(OSError):
            theirs, there = await asyncio.open_connection(*self._target)
            self._writers.append(there)
            async with asyncio.TaskGroup() as group:
                passing = [
                    group.create_task(self._pass(Direction.TO_SERVER, reader, there)),
                    group.create_task(self._pass(Direction.TO_CLIENT, theirs, writer)),
                ]
                filling = group.create_task(self._fill(there, writer))
                # When one side has closed, the other is closed too, once it has what was sent.
                await asyncio.wait(passing, return_when=asyncio.FIRST_COMPLETED)
                for task in (*passing, filling):
                    task.cancel()
            there.close()
        writer.close()

    async def close(self) -> None:
        """Let go of both sides, at once."""
        for writer in self._writers:
            writer.transport.abort()
        for writer in self._writers:
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    async def _pass(self, direction: Direction, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Until the source has closed; what it sent is read to the end even if nobody takes it any more."""
        with contextlib.suppress(OSError):
            while data := await reader.read(_PIECE):
                self._moved = asyncio.get_running_loop().time()
                if direction is Direction.TO_CLIENT and self._opened is not None:
                    self._opened()
                    self._opened = None
                with contextlib.suppress(OSError):
                    writer.write(self._changed(direction, data))
                    await writer.drain()

    def _changed(self, direction: Direction, data: bytes) -> bytes:
        side, flip = self._sides[direction], self.flip
        side.finder.feed(data)
        start = side.passed
        side.passed += len(data)
        encrypted_at, packets_at = side.finder.encrypted_at, side.finder.packets_at
        if flip is None or flip.direction is not direction or encrypted_at is None or packets_at is None:
            return data
        at = encrypted_at + flip.offset - start
        if not 0 <= at < len(data):
            return data
        self._flipped.set()
        self.accepts_at_most = start + at - packets_at
        changed = bytearray(data)
        changed[at] ^= 1 << flip.bit
        return bytes(changed)

    async def _fill(self, server: asyncio.StreamWriter, client: asyncio.StreamWriter) -> None:
        if self.flip is None:
            return
        await self._flipped.wait()
        now = asyncio.get_running_loop().time
        while True:
            left = self._moved + _IDLE - now()
            if left <= 0:
                break
            await asyncio.sleep(left)
        self.filled = True
        writer = server if self.flip.direction is Direction.TO_SERVER else client
        with contextlib.suppress(OSError):
            for _ in range(0, _FILLER, 10_000):
                writer.write(os.urandom(10_000))
                await writer.drain()
        await asyncio.sleep(_PATIENCE)
        self.cut = True  # asyncssh takes a packet_length of 4 MiB and more for one
        server.transport.abort()
        client.transport.abort()


@contextlib.asynccontextmanager
async def tampering(
    host: str, port: int, flip: Flip | None, opened: Callable[[], None] | None = None
) -> AsyncIterator[Tamper]:
    """A proxy on a free port; it and what it carries are gone when the block is left.

    ``opened`` is called when the server's first bytes have come.
    """
    tamper = Tamper(host, port, flip, opened)
    tasks: set[asyncio.Task[None]] = set()
    server = await asyncio.start_server(
        lambda reader, writer: tasks.add(asyncio.create_task(tamper.carry(reader, writer))), HOST, 0
    )
    tamper.port = server.sockets[0].getsockname()[1]
    try:
        yield tamper
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await tamper.close()


# --- which bits -------------------------------------------------------------------------------------------


def choose_flips(direction: Direction, size: int, count: int | None, seed: str) -> list[Flip]:
    """``count`` bits of a direction's ``size`` encrypted bytes, the same for the same seed.

    Half of them in the first 200 bytes, which is three packets at least: service, login, their
    answers. None: one bit in every byte there, and as many again spread over the rest.
    """
    chosen = random.Random(seed)
    early = min(size, 200)
    if count is None:
        offsets = [*range(early), *(chosen.randrange(early, size) for _ in range(early if size > early else 0))]
    else:
        few = min(early, (count + 1) // 2)
        offsets = [early * n // few + chosen.randrange(early // few) for n in range(few)]
        offsets += [chosen.randrange(early, size) for _ in range(count - few if size > early else 0)]
    return [Flip(direction, offset, chosen.randrange(8)) for offset in offsets]


# --- the peer is the server -------------------------------------------------------------------------------


async def attack_server(
    host: str,
    port: int,
    flip: Flip | None,
    *,
    command: str,
    data: bytes,
    expected: bytes,
    config: sshtransport.TransportConfig,
    login: Mapping[str, Any],
) -> tuple[Ending, Tamper]:
    """One session of our client through the proxy: ``command``, its input, and what it has to write.

    ``login`` is for ``open_client``: username, keys, password.

    Raises:
        Violation: it did not end as it has to.
    """
    for _ in range(_TRIES):
        core = sshtransport.SSHTransport("client", config)
        async with tampering(host, port, flip) as tamper:
            lost, received = await _session(core, host, tamper, command, data, login)
        if lost is None or core.peer_ident is not None:
            break
        # Servers limit how many strangers of one address they talk to, and are slow to see that one has gone.
        await asyncio.sleep(_PAUSE)
    if not expected.startswith(received):
        raise Violation(f"{flip}: the command's output is wrong") from lost
    if lost is None:
        if received != expected:
            raise Violation(f"{flip}: the command's output is short, and no error says so")
        return Ending.BEYOND, tamper
    if flip is not None and flip.direction is Direction.TO_CLIENT:
        return _judge_ours(core, lost, tamper), tamper
    return _judge_peer(lost, tamper), tamper


async def _session(
    core: sshtransport.SSHTransport, host: str, tamper: Tamper, command: str, data: bytes, login: Mapping[str, Any]
) -> tuple[SSHError | None, bytes]:
    """What ended it, None when it is whole; and what the command wrote."""
    received = bytearray()
    try:
        async with asyncio.timeout(_END):
            connection = await open_client(core, host, tamper.port, timeout=_END, **login)
            try:
                await _give_back(connection, command, data, received)
                await _still_there(connection, tamper)
            finally:
                connection.close()
                await connection.wait_closed()
    except SSHError as error:
        return error, bytes(received)
    except TimeoutError:
        raise Violation(f"{tamper.flip}: still open after {_END:g} seconds") from None
    return None, bytes(received)


async def _give_back(connection: sshtransport.ClientConnection, command: str, data: bytes, received: bytearray) -> None:
    async with connection.create_process(command) as process:
        process.stdin.write(data)
        process.stdin.write_eof()
        while piece := await process.stdout.read(_PIECE):
            received += piece
        status = await process.wait()
    if status:  # None: a server that tells none
        raise Violation(f"exit status {status}: {(await process.stderr.read(1000))!r}")


async def _still_there(connection: sshtransport.ClientConnection, tamper: Tamper) -> None:
    """Round trips; a server may also end with the only session it gives, if nothing was changed."""
    try:
        await _round_trips(connection, tamper)
    except SSHError:
        if tamper.applied:
            raise


async def _round_trips(connection: sshtransport.ClientConnection, tamper: Tamper) -> None:
    """The session is complete: were a bit flipped in it, the receiver could not answer any more."""
    while True:
        flipped_before = tamper.applied
        await connection.ping()
        if flipped_before:
            raise Violation(f"{tamper.flip}: the session went on as if nothing had been changed")
        if not tamper.applied:
            return


def _first_cause(error: SSHError) -> SSHError:
    """What ended the connection, behind what its users were told."""
    while isinstance(error.__cause__, SSHError):
        error = error.__cause__
    return error


def _judge_ours(core: sshtransport.SSHTransport, lost: SSHError | None, tamper: Tamper) -> Ending:
    """We received the flipped bit: nothing of that frame was accepted, and the error says why."""
    if not tamper.applied:
        raise Violation(f"{tamper.flip}: failed before the bit was flipped: {lost!r}") from lost
    if core.bytes_received > tamper.accepts_at_most:
        accepted = f"{core.bytes_received} bytes of packets, changed behind {tamper.accepts_at_most}"
        raise Violation(f"{tamper.flip}: our side accepted {accepted}") from lost
    cause = None if lost is None else _first_cause(lost)
    if isinstance(cause, IntegrityError):
        return Ending.INTEGRITY
    if isinstance(cause, ProtocolError) and cause.message.startswith("packet_length"):
        return Ending.LENGTH
    raise Violation(f"{tamper.flip}: our side ended with {cause!r}") from lost


def _judge_peer(lost: SSHError | None, tamper: Tamper) -> Ending:
    """The peer received it: it went away, and that is all it did."""
    if not tamper.applied:
        raise Violation(f"{tamper.flip}: failed before the bit was flipped: {lost!r}") from lost
    cause = None if lost is None else _first_cause(lost)
    if isinstance(cause, PeerDisconnected):
        return Ending.DISCONNECTED
    if isinstance(cause, ConnectionLost):
        return Ending.DEADLINE if tamper.cut else Ending.CLOSED
    raise Violation(f"{tamper.flip}: our side ended with {cause!r}") from lost


# --- the peer is the client -------------------------------------------------------------------------------


class Receiver(Protocol):
    """A server of ours that nobody else uses meanwhile: ``sshtransport.Server``."""

    @property
    def port(self) -> int: ...
    @property
    def connections(self) -> frozenset[sshtransport.ServerConnection]: ...


async def attack_client(
    server: Receiver,
    flip: Flip | None,
    start: Callable[[int], Awaitable[Program]],
    *,
    data: bytes,
    expected: bytes,
) -> tuple[Ending, Tamper]:
    """One session of a client peer with our server through the proxy.

    ``start`` runs the client against a port; ``data`` is its command's input, ``expected`` what that writes.

    Raises:
        Violation: it did not end as it has to.
    """
    before = server.connections
    links: list[Link] = []

    def opened() -> None:
        links.extend(connection.link for connection in server.connections - before)

    async with tampering(HOST, server.port, flip, opened) as tamper:
        program = await start(tamper.port)
        try:
            async with asyncio.timeout(_END):
                received, errors, status = await _use(program, data)
        except TimeoutError:
            raise Violation(f"{flip}: the client still runs after {_END:g} seconds") from None
        finally:
            await program.kill()
        if len(links) != 1:
            raise Violation(f"{flip}: {len(links)} connections came: {errors!r}")
        await asyncio.wait_for(links[0].wait_closed(), _END)
    if not expected.startswith(received):
        raise Violation(f"{flip}: the client's output is wrong")
    if not tamper.applied:
        if status or received != expected:
            raise Violation(f"{flip}: exit status {status}, {len(received)} bytes, nothing flipped: {errors!r}")
        return Ending.BEYOND, tamper
    assert flip is not None
    if flip.direction is Direction.TO_SERVER:
        return _judge_ours(links[0].core, links[0].error, tamper), tamper
    if status == 0:
        raise Violation(f"{flip}: the client ended as if nothing had been changed")
    return _judge_peer(links[0].error, tamper), tamper


async def _use(program: Program, data: bytes) -> tuple[bytes, bytes, int]:
    """Its output, its error output and its exit status, with ``data`` for its input."""
    with contextlib.suppress(OSError):
        program.stdin.write(data)
        await program.stdin.drain()
        program.stdin.close()
    received, errors = await asyncio.gather(program.stdout.read(), program.stderr.read())
    return received, errors, await program.wait()
