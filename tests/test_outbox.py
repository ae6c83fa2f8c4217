"""What is held and what is owed, counted."""

from __future__ import annotations

import pytest

from sshtransport.constants import HELD_OUTPUT_MAX, REPLY_COST
from sshtransport.errors import LocalError
from sshtransport.outbox import Outbox


def test_held_messages_come_out_in_order_once() -> None:
    box = Outbox()
    box.hold(b"one")
    assert box.owe(3, 1000)
    box.hold_reply(b"two")
    box.hold(b"three")
    assert box.size == 11
    assert box.release() == [b"one", b"two", b"three"]
    assert (box.size, box.release()) == (0, [])


def test_the_bound_of_what_is_held() -> None:
    box = Outbox()
    box.hold(b"x" * HELD_OUTPUT_MAX)
    with pytest.raises(LocalError, match="waiting for the key exchange"):
        box.hold(b"y")
    assert box.size == HELD_OUTPUT_MAX == 64 * 1024
    box.release()
    box.hold(b"y")


def test_replies_count_with_what_they_cost() -> None:
    box = Outbox()
    limit = 10 * (5 + REPLY_COST)
    assert all(box.owe(5, limit) for _ in range(10))
    assert not box.owe(5, limit)


def test_taking_the_output_pays_what_was_written_and_not_what_is_held() -> None:
    box = Outbox()
    limit = 4 * (5 + REPLY_COST)
    for _ in range(2):
        assert box.owe(5, limit)
        box.hold_reply(b"reply")
    assert box.owe(5, limit)
    box.taken()
    assert box.owe(5, limit)
    assert box.owe(5, limit)
    assert not box.owe(5, limit)
    box.release()
    box.taken()
    assert all(box.owe(5, limit) for _ in range(4))
