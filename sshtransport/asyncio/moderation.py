"""ReadModerator: fewer and larger reads while data pour in.

A receiver that is faster than its sender is woken for every packet, and each time pays for a turn
of the event loop, which costs more than the packet. So while data come fast the kernel is asked to
wake us only when a good deal has arrived (SO_RCVLOWAT, see socket(7)). What arrives then without
reaching that mark is looked at after one tick at the latest, when the rate is seen to have dropped.
"""

from __future__ import annotations

import asyncio
import socket
import sys

__all__ = ("MODERATED_ABOVE", "ReadModerator")

MODERATED_ABOVE = 16 * 1024  # bytes: smaller reads are no bulk transfer

_TICK = 0.002  # seconds
_ENTER = 512 * 1024  # bytes in a tick
_LEAVE = 256 * 1024
_LOW_WATER = 256 * 1024  # half the arena: what comes during the wake-up fits too
_REST_MIN, _REST_MAX = 0.1, 10.0  # seconds


class ReadModerator:
    """Watches how much one socket brings in, and sets its mark. Runs a timer only while data come.

    A peer that waits for us below the mark (a small window, few requests under way) loses a tick
    each time this tries; it is then left alone, twice as long after each failure.
    """

    __slots__ = ("_active", "_bytes", "_loop", "_not_before", "_rest", "_sock", "_timer")

    def __init__(self, loop: asyncio.AbstractEventLoop, sock: socket.socket) -> None:
        self._loop = loop
        self._sock = sock
        self._bytes = 0
        self._active = False
        self._rest = _REST_MIN
        self._not_before = 0.0
        self._timer: asyncio.TimerHandle | None = None

    @classmethod
    def of(cls, loop: asyncio.AbstractEventLoop, sock: socket.socket | None) -> ReadModerator | None:
        """One for a TCP socket, where the kernel keeps such a mark and wakes us when it is lowered (Linux)."""
        if sys.platform != "linux" or sock is None or sock.family not in (socket.AF_INET, socket.AF_INET6):
            return None
        return cls(loop, sock)

    def count(self, size: int) -> None:
        """A large read has come."""
        self._bytes += size
        if self._timer is None:
            self._timer = self._loop.call_later(_TICK, self._tick)

    def stop(self) -> None:
        """The socket is going away."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _tick(self) -> None:
        came, self._bytes = self._bytes, 0
        if self._active:
            if came < _LEAVE:
                self._not_before = self._loop.time() + self._rest
                self._rest = min(self._rest * 2, _REST_MAX)
                self._set(False)
            else:
                self._rest = _REST_MIN
        elif came >= _ENTER and self._loop.time() >= self._not_before:
            self._set(True)
        self._timer = self._loop.call_later(_TICK, self._tick) if came else None

    def _set(self, active: bool) -> None:
        self._active = active
        try:
            self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, _LOW_WATER if active else 1)
        except OSError:
            self._active = False  # closed under our hands: nobody reads from it any more
