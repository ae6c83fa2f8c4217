"""Strict KEX: who gets it, what it forbids, and the counters at every NEWKEYS (known bugs B 21, group D)."""

from __future__ import annotations

from typing import Literal

import pytest

from sshtransport import messages
from sshtransport.ciphers import cipher_names
from sshtransport.config import TransportConfig
from sshtransport.errors import NegotiationError, ProtocolError
from sshtransport.events import Disconnected, ExtInfoReceived, KeysChanged, UnimplementedReceived
from sshtransport.gates import Phase
from sshtransport.transport import SSHTransport
from tests.support.pair import CUTS, Cut, Pair, logged_in
from tests.support.phases import before_keys
from tests.support.puppet import edit_kexinit, ended, events, inject, say

FAST = "curve25519-sha256"
CHACHA = "chacha20-poly1305@openssh.com"
Mode = Literal["auto", "require", "off"]
MARKERS = ("ext-info-c", "ext-info-s", "kex-strict-c-v00@openssh.com", "kex-strict-s-v00@openssh.com")


def config(strict: Mode, cipher: str = CHACHA) -> TransportConfig:
    return TransportConfig(kex=[FAST], ciphers=[cipher], strict_kex=strict)


def counters(end: SSHTransport) -> tuple[int, int]:
    return end._writer.sequence, end._reader.sequence


MODES = [("auto", "auto", True), ("require", "auto", True), ("auto", "require", True), ("require", "require", True),
         ("off", "auto", False), ("auto", "off", False), ("off", "off", False)]  # fmt: skip


@pytest.mark.parametrize(("client", "server", "strict"), MODES)
@pytest.mark.parametrize("cipher", [CHACHA, "aes256-gcm@openssh.com", "aes128-ctr"])
def test_counters_after_every_newkeys(client: Mode, server: Mode, strict: bool, cipher: str) -> None:
    """Known bugs B 21, D 48: reset in both directions at each NEWKEYS, or never."""
    pair = Pair(config(client, cipher), config(server, cipher)).pump()
    assert pair.client.strict_kex is pair.server.strict_kex is strict
    # The client sent KEXINIT, INIT, NEWKEYS; the server KEXINIT, REPLY, NEWKEYS and EXT_INFO under the new keys.
    sent_by_client, sent_by_server = (0, 1) if strict else (3, 4)
    assert counters(pair.client) == (sent_by_client, sent_by_server)
    assert counters(pair.server) == (sent_by_server, sent_by_client)
    pair.login()  # one more from the client, two from the server
    sent_by_client, sent_by_server = sent_by_client + 1, sent_by_server + 2
    for starter in ("client", "server", "client", "both"):
        for end in (pair.client, pair.server):
            if starter in (end.role, "both"):
                end.rekey()
        pair.pump()
        # Three packets of the exchange each; strict KEX counts from the NEWKEYS on.
        sent_by_client, sent_by_server = (0, 0) if strict else (sent_by_client + 3, sent_by_server + 3)
        assert counters(pair.client) == (sent_by_client, sent_by_server)
        assert counters(pair.server) == (sent_by_server, sent_by_client)
        pair.clear()
        pair.client.send(b"\x5e up")
        pair.server.send(b"\x5e down")
        pair.pump()
        assert (pair.server_items, pair.client_items) == ([b"\x5e up"], [b"\x5e down"])
        sent_by_client, sent_by_server = sent_by_client + 1, sent_by_server + 1


@pytest.mark.parametrize("cipher", cipher_names())
@pytest.mark.parametrize("mode", ["auto", "off"])
def test_each_direction_resets_for_itself(mode: Mode, cipher: str) -> None:
    """The sender's counter at sending, the receiver's at receiving: watched while NEWKEYS is on its way."""
    pair = logged_in(config(mode, cipher), config(mode, cipher))
    strict = mode == "auto"
    client, server = pair.client, pair.server
    client.rekey()
    pair.deliver(server, client.data_to_send())  # KEXINIT
    pair.deliver(client, server.data_to_send())  # KEXINIT; answered with INIT
    pair.deliver(server, client.data_to_send())  # answered with REPLY and NEWKEYS
    before = counters(client)[1]
    assert counters(server)[0] == (0 if strict else before + 2)
    pair.deliver(client, server.data_to_send())
    assert counters(client) == ((0, 0) if strict else (counters(server)[1] + 1, before + 2))
    pair.deliver(server, client.data_to_send())
    assert counters(server)[1] == counters(client)[0]


@pytest.mark.parametrize("role", ["client", "server"])
@pytest.mark.parametrize("noise", [messages.ignore(b"x"), messages.debug(False, "x"), messages.unimplemented(0)])
def test_kexinit_must_be_the_first_packet(role: str, noise: bytes) -> None:
    """Judged when KEXINIT is there; without strict KEX the same is fine (D 51)."""
    modes: tuple[tuple[Mode, bool], ...] = (("auto", True), ("off", False))
    for mode, fatal in modes:
        stage = before_keys(role, config(mode))
        kexinit = stage.peer.data_to_send()
        stage.peer._writer.sequence = 0
        items = stage.give(inject(stage.peer, noise) + kexinit)
        ends = events(items, Disconnected)
        assert bool(ends) is fatal
        if fatal:
            assert "strict KEX violation" in ends[0].description
            assert isinstance(ends[0].error, ProtocolError)


def forged(payload: bytes) -> bytes:
    """A packet in clear, as a man in the middle can make it: its number is not on the wire."""
    return inject_into(SSHTransport("client", config("off")), payload)


def inject_into(end: SSHTransport, payload: bytes) -> bytes:
    end.data_to_send()
    return inject(end, payload)


def clear_part(data: bytes, packets: int) -> int:
    """Where that many packets in clear end."""
    end = 0
    for _ in range(packets):
        end += 4 + int.from_bytes(data[end : end + 4], "big")
    return end


def at_place(mode: Mode, place: str) -> tuple[Pair, SSHTransport, bytes]:
    """A pair in its first exchange, who gets the next bytes, and these."""
    pair = Pair(config(mode), config(mode))
    client, server = pair.client, pair.server
    pair.deliver(server, client.data_to_send())
    greeting = server.data_to_send()
    pair.deliver(client, greeting)
    init = client.data_to_send()
    if place == "server, before INIT":
        return pair, server, init
    pair.deliver(server, init)
    reply = server.data_to_send()  # REPLY, NEWKEYS, and EXT_INFO under the new keys
    if place == "client, before REPLY":
        return pair, client, reply
    end = clear_part(reply, 1)
    pair.deliver(client, reply[:end])
    if place == "client, before NEWKEYS":
        return pair, client, reply[end:]
    return pair, server, client.data_to_send()


PLACES = ["server, before INIT", "client, before REPLY", "client, before NEWKEYS", "server, before NEWKEYS"]


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("noise", [messages.ignore(), messages.debug(False, ""), messages.unimplemented(0), b"\x08"])
def test_nothing_extra_in_a_strict_first_exchange(place: str, noise: bytes) -> None:
    """Known bugs D 47, 51: fatal with strict KEX, harmless without."""
    pair, victim, rest = at_place("auto", place)
    pair.deliver(victim, forged(noise) + rest)
    end = Pair.end(pair.client_items if victim is pair.client else pair.server_items)
    assert end is not None
    assert isinstance(end.error, ProtocolError)
    assert end.description == f"message {noise[0]} is not allowed during key exchange"
    pair, victim, rest = at_place("off", place)
    pair.deliver(victim, forged(noise))
    assert victim.phase is Phase.KEX


def test_prefix_truncation() -> None:
    """CVE-2023-48795 (D 47): a packet inserted before NEWKEYS pays for EXT_INFO taken out after it."""
    pair, client, reply = at_place("auto", "client, before REPLY")
    pair.deliver(client, forged(messages.ignore()) + reply[: clear_part(reply, 2)])
    end = Pair.end(pair.client_items)
    assert end is not None
    assert isinstance(end.error, ProtocolError)
    # Without strict KEX nobody can notice: that is why it exists.
    pair, client, reply = at_place("off", "client, before REPLY")
    pair.deliver(client, forged(messages.ignore()) + reply[: clear_part(reply, 2)])
    pair.pump()
    assert client.phase is Phase.SERVICE
    assert not events(pair.client_items, ExtInfoReceived)


@pytest.mark.parametrize("role", ["client", "server"])
def test_required_and_not_offered(role: str) -> None:
    """Known bugs D 55."""
    ours, theirs = config("require"), config("off")
    pair = Pair(*((ours, theirs) if role == "client" else (theirs, ours))).pump()
    end = Pair.end(pair.client_items if role == "client" else pair.server_items)
    assert end is not None
    assert isinstance(end.error, NegotiationError)
    assert end.error.category == "strict kex"
    assert "strict" in end.description
    assert FAST in end.error.theirs
    assert end.reason == 3


@pytest.mark.parametrize("cut", [pytest.param(cut, id=name) for name, cut in CUTS.items()])
@pytest.mark.parametrize("names", [(FAST,), (FAST, *MARKERS), (*MARKERS, FAST)])
@pytest.mark.parametrize("mode", ["auto", "off"])
def test_markers_in_a_rekey_are_ignored(mode: Mode, names: tuple[str, ...], cut: Cut) -> None:
    """Known bugs D 48, E 67: decided once; Dropbear repeats its markers, OpenSSH does not."""
    pair = logged_in(config(mode), config(mode), cut=cut)
    strict = pair.client.strict_kex
    for starter in (pair.client, pair.server):
        pair.clear()
        starter.rekey()
        edit_kexinit(starter, kex=names)
        pair.pump()
        assert pair.client_items == pair.server_items == [KeysChanged(False)]
        assert pair.client.strict_kex is pair.server.strict_kex is strict


@pytest.mark.parametrize("mode", ["auto", "off"])
def test_noise_around_a_rekey_is_fine(mode: Mode) -> None:
    """Known bugs D 48: IGNORE and DEBUG are allowed again, before and inside later exchanges."""
    pair = logged_in(config(mode), config(mode))
    pair.clear()
    client, server = pair.client, pair.server
    say(client, messages.ignore(b"before"))
    client.rekey()
    say(client, messages.ignore(b"inside"))
    pair.deliver(server, client.data_to_send())
    say(server, messages.ignore(b"inside"))
    pair.deliver(client, server.data_to_send())
    say(client, messages.ignore(b"inside"), messages.unimplemented(1))
    pair.pump()
    assert [type(item) for item in pair.client_items] == [KeysChanged]
    assert len(events(pair.server_items, KeysChanged)) == 1
    assert not events(pair.server_items, Disconnected)


@pytest.mark.parametrize(("mode", "number"), [("auto", 0), ("off", 3)])
def test_unimplemented_after_the_reset_counts_from_zero(mode: Mode, number: int) -> None:
    """The first packet under the first keys is number 0 with strict KEX."""
    pair = Pair(config(mode), config(mode)).pump()
    say(pair.client, b"\x08")
    pair.pump()
    assert events(pair.client_items, UnimplementedReceived) == [UnimplementedReceived(number)]


@pytest.mark.parametrize("role", ["client", "server"])
def test_the_counter_may_not_wrap_before_keys(role: str) -> None:
    """Design section 4: always fatal, on either counter, and never an exception out of the transport."""
    stage = before_keys(role, config("off"))
    stage.target._reader.sequence = 2**32 - 1
    end = ended(stage.give(inject(stage.peer, messages.ignore())))
    assert isinstance(end.error, ProtocolError)
    assert "wrapped" in end.description
    stage = before_keys(role, config("off"))
    stage.target._writer.sequence = 2**32 - 1
    end = ended(stage.give(inject(stage.peer, b"\x08")))  # asks for UNIMPLEMENTED
    assert isinstance(end.error, ProtocolError)
    assert stage.target.data_to_send() == b""
