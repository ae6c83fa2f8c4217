"""Output during a rekey: what is held, in which order it leaves, and where the bounds are (known bugs E 56 to 61)."""

from __future__ import annotations

import pytest

from sshtransport import messages
from sshtransport.config import TransportConfig
from sshtransport.constants import HELD_OUTPUT_MAX, OUTPUT_HIGH_WATER, PAYLOAD_SEND_MAX, REPLIES_MAX_EARLY, REPLY_COST
from sshtransport.errors import LocalError, ProtocolError
from sshtransport.events import Disconnected, KeysChanged
from sshtransport.gates import Phase
from sshtransport.transport import SSHTransport
from tests.support.pair import Pair, logged_in
from tests.support.phases import LOOSE, QUICK, before_keys
from tests.support.puppet import Tap, ended, events, inject, say

ROLES = pytest.mark.parametrize("role", ["client", "server"])


def ends(pair: Pair, role: str) -> tuple[SSHTransport, SSHTransport]:
    return (pair.client, pair.server) if role == "client" else (pair.server, pair.client)


def rekeying(role: str) -> tuple[Pair, SSHTransport, SSHTransport, bytes]:
    """The end of that role has sent its KEXINIT, which has not arrived: the pair, the end, the other, the KEXINIT."""
    pair = logged_in(QUICK, QUICK)
    pair.clear()
    end, other = ends(pair, role)
    end.rekey()
    return pair, end, other, end.data_to_send()


@ROLES
def test_replies_are_held_and_leave_in_order(role: str) -> None:
    """Known bugs E 56: the peer closes, asks and pings while our exchange runs; nothing waits for anything."""
    pair, end, other, kexinit = rekeying(role)
    incoming = [b"\x61\0\0\0\0", b"\x60\0\0\0\0", b"\x62 request", b"\x50 global"]
    say(other, *incoming, messages.ping(b"1"), messages.ping(b"2"))
    pair.deliver(end, other.data_to_send())
    for reply in (b"\x61\0\0\0\x01", b"\x63", b"\x51", b"\x5d adjust"):
        end.send(reply)
    say(other, messages.ping(b"3"))
    pair.deliver(end, other.data_to_send())
    assert end.data_to_send() == b""
    assert end.held_size > 0
    pair.clear()
    pair.deliver(other, kexinit)
    pair.pump()
    received = pair.server_items if role == "client" else pair.client_items
    assert received == [
        KeysChanged(False),
        messages.pong(b"1"),
        messages.pong(b"2"),
        b"\x61\0\0\0\x01",
        b"\x63",
        b"\x51",
        b"\x5d adjust",
        messages.pong(b"3"),
    ]
    assert end.held_size == 0


@ROLES
def test_what_may_leave_at_once(role: str) -> None:
    """IGNORE, UNIMPLEMENTED and DEBUG, and nothing else."""
    tap = Tap()
    tapped = TransportConfig(kex=["curve25519-sha256"], ciphers=[tap.spec])
    pair = logged_in(*((tapped, QUICK) if role == "client" else (QUICK, tapped)))
    end, _ = ends(pair, role)
    end.rekey()
    tap.sent.clear()
    bodies = {2: messages.ignore(b""), 3: messages.unimplemented(0), 4: messages.debug(False, "")}
    for number in range(256):
        try:
            end.send(bodies.get(number, bytes([number]) + bytes(8)))
        except LocalError:
            assert number < 2 or 5 <= number < 80
    assert tap.numbers == [2, 3, 4]
    assert end.held_size == 9 * 176
    pair.pump()
    after = tap.numbers
    assert after[after.index(21) + 1 :] == list(range(80, 256))


@ROLES
def test_channel_data_waits_in_its_channel(role: str) -> None:
    """The gate is shut in the same step that KEXINIT leaves."""
    pair = logged_in(QUICK, QUICK)
    end, other = ends(pair, role)
    assert end.can_send_data
    end.send_data(b"\x5e\0\0\0\0\0\0\0\4", memoryview(b"data"))
    other.rekey()
    pair.deliver(end, other.data_to_send())
    state = (end._writer.packets, end.held_size)
    assert not end.can_send_data
    with pytest.raises(LocalError):
        end.send_data(b"\x5e\0\0\0\0\0\0\0\4", b"data")
    assert (end._writer.packets, end.held_size) == state
    pair.pump()
    assert end.can_send_data
    received = pair.server_items if role == "client" else pair.client_items
    assert received.count(b"\x5e\0\0\0\0\0\0\0\4data") == 1


def test_send_data_waits_for_the_socket() -> None:
    pair = logged_in(QUICK, QUICK)
    end = pair.client
    while end.can_send_data:
        end.send_data(b"\x5e\0\0\0\0\0\0\x80\0", bytes(32_768))
    assert OUTPUT_HIGH_WATER <= end.pending_output < OUTPUT_HIGH_WATER + 35_000
    end.data_to_send()
    assert end.can_send_data
    end.congested = True
    assert not end.can_send_data
    end.congested = False
    assert end.can_send_data


# --- bounds -----------------------------------------------------------------------------------------


@ROLES
def test_our_own_messages_are_bounded(role: str) -> None:
    """Known bugs E 60: a peer that never finishes; beyond 64 KiB a LocalError, and nothing is lost."""
    pair, end, other, kexinit = rekeying(role)
    sent = [b"\x62" + bytes([n]) * 1023 for n in range(64)]
    for payload in sent:
        end.send(payload)
    assert end.held_size == HELD_OUTPUT_MAX
    for _ in range(3):
        with pytest.raises(LocalError, match="waiting for the key exchange"):
            end.send(b"\x62")
    assert end.held_size == HELD_OUTPUT_MAX
    pair.deliver(other, kexinit)
    pair.pump()
    received = pair.server_items if role == "client" else pair.client_items
    assert Pair.payloads(received) == sent
    end.send(b"\x62 fits again")
    assert pair.pump()
    assert received[-1] == b"\x62 fits again"


@ROLES
def test_a_payload_that_fits_no_packet_is_refused_when_it_is_held(role: str) -> None:
    """When it leaves it would be too late for an error."""
    pair, end, other, kexinit = rekeying(role)
    with pytest.raises(LocalError, match="does not fit"):
        end.send(b"\x62" * (PAYLOAD_SEND_MAX + 1))
    assert end.held_size == 0
    end.send(b"\x62" * PAYLOAD_SEND_MAX)
    pair.deliver(other, kexinit)
    pair.pump()
    assert not events(pair.client_items + pair.server_items, Disconnected)
    received = pair.server_items if role == "client" else pair.client_items
    assert b"\x62" * PAYLOAD_SEND_MAX in received


@ROLES
@pytest.mark.parametrize("size", [0, 100, 20_000])
def test_a_flood_of_pings_in_a_rekey_ends_the_connection(role: str, size: int) -> None:
    """Known bugs E 61 (CVE-2025-26466): replies owed are bounded, whether or not the output is taken."""
    for taken in (False, True):
        pair, end, other, _ = rekeying(role)
        items = pair.client_items if role == "client" else pair.server_items
        count = 0
        while end.phase is not Phase.CLOSED:
            assert count < 2000
            say(other, messages.ping(bytes(size)))
            count += 1
            pair.deliver(end, other.data_to_send())
            assert end.held_size <= HELD_OUTPUT_MAX
            if taken:
                end.data_to_send()
        gone = ended(items)
        assert isinstance(gone.error, ProtocolError)
        assert gone.error.limit == HELD_OUTPUT_MAX
        assert count == HELD_OUTPUT_MAX // (size + 5 + REPLY_COST) + 1
        assert end.held_size == 0
        assert end.data_to_send() == b"" or not taken


def test_our_own_held_messages_are_not_the_peers_debt() -> None:
    pair, end, other, kexinit = rekeying("client")
    for _ in range(63):
        end.send(b"\x62" * 1024)
    end.data_to_send()
    say(other, *[messages.ping(bytes(100))] * 100)
    pair.deliver(end, other.data_to_send())
    assert end.phase is Phase.OPEN
    pair.deliver(other, kexinit)
    pair.pump()
    assert len(Pair.payloads(pair.server_items)) == 163


@ROLES
def test_replies_that_nobody_takes_are_bounded_outside_a_rekey_too(role: str) -> None:
    pair = logged_in(QUICK, QUICK)
    pair.clear()
    end, other = ends(pair, role)
    count = 0
    while end.phase is not Phase.CLOSED:
        assert count < 2000
        count += 1
        pair.deliver(end, inject(other, b"\xff"))  # not known: UNIMPLEMENTED
    gone = ended(pair.client_items if role == "client" else pair.server_items)
    assert "too many replies" in gone.description
    assert count == HELD_OUTPUT_MAX // (5 + REPLY_COST) + 1


@ROLES
def test_replies_that_are_taken_are_not_owed(role: str) -> None:
    pair = logged_in(QUICK, QUICK)
    pair.clear()
    end, other = ends(pair, role)
    for _ in range(3000):
        pair.deliver(end, inject(other, messages.ping(b"x" * 50)))
        pair.deliver(other, end.data_to_send())
    pongs = pair.server_items if role == "client" else pair.client_items
    assert pongs == [messages.pong(b"x" * 50)] * 3000


def test_the_users_own_replies_count_too() -> None:
    """A server that answers more than its peer reads: the peer is cut off, the caller gets no exception."""
    pair = logged_in(QUICK, QUICK)
    pair.clear()
    for _ in range(2000):
        if pair.server.phase is Phase.CLOSED:
            break
        pair.server.send(b"\x64\0\0\0\0")
    ended(pair.server.take_events())
    with pytest.raises(LocalError):
        pair.server.send(b"\x64\0\0\0\0")


def test_before_login_a_server_owes_less() -> None:
    stage = before_keys("server", LOOSE)
    stage.peer.data_to_send()
    count = 0
    while stage.target.phase is not Phase.CLOSED:
        assert count < 500
        count += 1
        stage.give(inject(stage.peer, b"\x08"))
    assert count == REPLIES_MAX_EARLY // (5 + REPLY_COST) + 1
    assert "too many replies" in ended(stage.items[1:]).description
