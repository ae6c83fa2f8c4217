"""ReadModerator: it asks for large reads only while data pour in, and never keeps anything back for long."""

from __future__ import annotations

import itertools
import socket
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from sshtransport import ServerProcess, TransportConfig
from sshtransport.asyncio import moderation
from sshtransport.asyncio.moderation import MODERATED_ABOVE, ReadModerator
from tests.support.servers import client, serving

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the kernel's mark is used on Linux only")

MANY = 2**20  # more than enough in a tick
FEW = 2**17  # too little in a tick


class Loop:
    """A loop whose time and timers are in our hands."""

    def __init__(self) -> None:
        self.now = 100.0
        self.timer: Any = None
        self.cancelled = False

    def time(self) -> float:
        return self.now

    def call_later(self, delay: float, call: Any) -> Loop:
        assert self.timer is None, "one timer at a time"
        self.timer = (self.now + delay, call)
        return self

    def cancel(self) -> None:
        self.timer = None

    def fire(self) -> None:
        (self.now, call), self.timer = self.timer, None
        call()


@pytest.fixture
def sock() -> Iterator[socket.socket]:
    with socket.socket() as one:
        yield one


def mark(sock: socket.socket) -> int:
    return sock.getsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT)


def moderator(sock: socket.socket) -> tuple[Loop, ReadModerator]:
    loop = Loop()
    made = ReadModerator.of(loop, sock)  # type: ignore[arg-type]
    assert made is not None
    return loop, made


def test_only_tcp_sockets_have_one(sock: socket.socket) -> None:
    left, right = socket.socketpair()
    with left, right:
        assert ReadModerator.of(Loop(), left) is None  # type: ignore[arg-type]
    assert ReadModerator.of(Loop(), None) is None  # type: ignore[arg-type]
    assert ReadModerator.of(Loop(), sock) is not None  # type: ignore[arg-type]


def test_the_mark_goes_up_with_the_rate_and_down_with_it(sock: socket.socket) -> None:
    loop, moderator_ = moderator(sock)
    moderator_.count(FEW)
    loop.fire()
    assert mark(sock) == 1  # not fast enough
    moderator_.count(MANY)
    assert mark(sock) == 1  # nothing happens before the tick
    loop.fire()
    assert mark(sock) == moderation._LOW_WATER
    moderator_.count(MANY)
    loop.fire()
    assert mark(sock) == moderation._LOW_WATER
    moderator_.count(FEW)
    loop.fire()
    assert mark(sock) == 1
    loop.fire()
    assert loop.timer is None  # nothing came: nothing runs


def test_a_silent_tick_takes_it_down(sock: socket.socket) -> None:
    loop, moderator_ = moderator(sock)
    moderator_.count(MANY)
    loop.fire()
    loop.fire()
    assert mark(sock) == 1
    assert loop.timer is None


def test_a_peer_that_waits_for_us_is_left_alone_longer_each_time(sock: socket.socket) -> None:
    loop, moderator_ = moderator(sock)
    pauses = []
    for _ in range(9):
        left_at = loop.now
        while mark(sock) == 1:
            moderator_.count(MANY)
            loop.fire()
        pauses.append(loop.now - left_at)
        loop.fire()  # at once nothing comes any more
        assert mark(sock) == 1
    assert pauses[0] < moderation._REST_MIN
    for shorter, longer in itertools.pairwise(pauses[1:]):
        assert longer > 1.9 * shorter or longer >= moderation._REST_MAX
    # One tick in which it worked, and the next failure counts as a first one again.
    loop.now += moderation._REST_MAX
    moderator_.count(MANY)
    loop.fire()
    moderator_.count(MANY)
    loop.fire()
    assert moderator_._rest == moderation._REST_MIN


def test_stop_ends_the_timer(sock: socket.socket) -> None:
    loop, moderator_ = moderator(sock)
    moderator_.stop()
    moderator_.count(MANY)
    moderator_.stop()
    assert loop.timer is None


def test_a_closed_socket_is_no_error(sock: socket.socket) -> None:
    loop, moderator_ = moderator(sock)
    moderator_.count(MANY)
    sock.close()
    loop.fire()
    assert not moderator_._active


async def source(process: ServerProcess) -> int:
    """As many bytes as the command says."""
    block = bytes(range(256)) * 1024
    left = int(process.command or 0)
    while left:
        process.stdout.write(block[:left])
        await process.stdout.drain()
        left -= min(left, len(block))
    return 0


@pytest.mark.parametrize("window", [2**21, 40_000])
async def test_transfers_are_whole(window: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the mark is far above the window, so that each try meets a peer that waits for us."""
    monkeypatch.setattr(moderation, "_ENTER", 1)
    monkeypatch.setattr(moderation, "_LEAVE", MODERATED_ABOVE)
    monkeypatch.setattr(moderation, "_REST_MIN", 0.0)
    monkeypatch.setattr(moderation, "_REST_MAX", 0.0)
    marks: set[int] = set()
    tick = ReadModerator._tick

    def watched(self: ReadModerator) -> None:
        tick(self)
        marks.add(mark(self._sock))

    monkeypatch.setattr(ReadModerator, "_tick", watched)
    size = 2**23 + 12_345
    expected = (bytes(range(256)) * (size // 256 + 1))[:size]
    async with serving(source) as server, client(server, config=TransportConfig(window_size=window)) as connection:
        for _ in range(20):
            done = await connection.run(str(size))
            assert done.stdout == expected, "not the bytes that were sent"
            assert (await connection.run("5")).stdout == bytes(range(5))
            if {1, moderation._LOW_WATER} <= marks:
                break
    assert {1, moderation._LOW_WATER} <= marks
