"""What waits for the end of a key exchange, and how much a peer can make us say (design section 4).

Two bounds of 64 KiB: what may be held, so that a peer that never finishes a key exchange cannot
let output grow, and what may be owed in answers, so that one that asks and does not read cannot.
"""

from __future__ import annotations

from .constants import HELD_OUTPUT_MAX, REPLY_COST
from .errors import LocalError

__all__ = ("Outbox",)


class Outbox:
    """Messages held in order, and the count of replies that have not been taken for the wire yet.

    ``size`` is the bytes of the messages held. A reply counts as its bytes and ``REPLY_COST``:
    what a small one takes in memory is mostly not its bytes.
    """

    __slots__ = ("_held", "_owed", "_owed_held", "size")

    def __init__(self) -> None:
        self._held: list[bytes] = []
        self._owed = 0
        self._owed_held = 0  # as much of it as is held, so that taking the output does not pay it
        self.size = 0

    def owe(self, size: int, limit: int) -> bool:
        """Count a reply of ``size`` bytes; False when more than ``limit`` is owed now."""
        self._owed += size + REPLY_COST
        return self._owed <= limit

    def taken(self) -> None:
        """All that was written has gone to the wire."""
        self._owed = self._owed_held

    def hold_reply(self, payload: bytes) -> None:
        """Keep a reply that was counted by :meth:`owe`."""
        self._owed_held += len(payload) + REPLY_COST
        self._append(payload)

    def hold(self, payload: bytes) -> None:
        """Keep a message that is no reply.

        Raises:
            LocalError: too much is held already.
        """
        if self.size + len(payload) > HELD_OUTPUT_MAX:
            raise LocalError("too much output is waiting for the key exchange to end")
        self._append(payload)

    def _append(self, payload: bytes) -> None:
        self._held.append(payload)
        self.size += len(payload)

    def release(self) -> list[bytes]:
        """All that was held, in order; nothing is held afterwards."""
        held, self._held = self._held, []
        self.size = self._owed_held = 0
        return held
