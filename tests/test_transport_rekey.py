"""Rekeying (RFC 4253, section 9; known bugs group E)."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest

from sshtransport import messages
from sshtransport.ciphers import cipher_names, get_cipher
from sshtransport.config import TransportConfig
from sshtransport.errors import LocalError, ProtocolError
from sshtransport.events import Disconnected, KeysChanged, UnimplementedReceived
from sshtransport.gates import Phase
from sshtransport.kex import KEX_NAMES
from sshtransport.messages import KexInit
from sshtransport.transport import Item, SSHTransport, TransportState
from tests.support.pair import CUTS, Cut, Pair, logged_in
from tests.support.phases import QUICK
from tests.support.puppet import Tap, edit_kexinit, ended, events, inject, listed, say
from tests.support.scale import rounds

FAST = "curve25519-sha256"
CUT_PARAMS = [pytest.param(cut, id=name) for name, cut in CUTS.items()]


def exchanges(items: list[Item]) -> int:
    return len(events(items, KeysChanged))


def quick(**options: Any) -> TransportConfig:
    return replace(QUICK, **options)


def tapped(**options: Any) -> tuple[Pair, Tap, Tap]:
    """A pair whose packets are noted, logged in."""
    client, server = Tap(), Tap()
    configs = (TransportConfig(kex=[FAST], ciphers=[tap.spec], **options) for tap in (client, server))
    pair = logged_in(*configs)
    pair.clear()
    return pair, client, server


def obeys(numbers: list[int]) -> int:
    """Between own KEXINIT and own NEWKEYS nothing but 1 to 4 and 20 to 49; how many exchanges there were."""
    running, count = False, 0
    for number in numbers:
        if number == 20:
            assert not running
            running, count = True, count + 1
        elif number == 21:
            assert running
            running = False
        elif running:
            assert number in range(1, 5) or number in range(30, 50), number
    return count


# --- plain cases ------------------------------------------------------------------------------------


@pytest.mark.parametrize("cut", CUT_PARAMS)
@pytest.mark.parametrize("cipher", cipher_names())
def test_ten_in_a_row_with_traffic(cipher: str, cut: Cut) -> None:
    """Known bugs B 18, E 68: fresh IVs each time, nothing lost, one session id for life."""
    config = TransportConfig(kex=[FAST], ciphers=[cipher])
    pair = logged_in(config, config, cut=cut)
    pair.clear()
    session_id = pair.client.session_id
    sent_up: list[bytes] = []
    sent_down: list[bytes] = []
    for number in range(10):
        for end, sent in ((pair.client, sent_up), (pair.server, sent_down)):
            for _ in range(3):
                sent.append(b"\x5e" + bytes([number]) * (1 + number * 37))
                end.send(sent[-1])
        (pair.client if number % 2 else pair.server).rekey()
        for end, sent in ((pair.client, sent_up), (pair.server, sent_down)):
            sent.append(b"\x5e behind")
            end.send(sent[-1])
        pair.pump()
        assert pair.client.session_id == pair.server.session_id == session_id
    assert Pair.payloads(pair.server_items) == sent_up
    assert Pair.payloads(pair.client_items) == sent_down
    assert exchanges(pair.client_items) == exchanges(pair.server_items) == 10


@pytest.mark.parametrize("starters", [("client",), ("server",), ("client", "server")])
def test_one_exchange_whoever_starts(starters: tuple[str, ...]) -> None:
    """Known bugs E 66: KEXINITs that cross are one exchange, and a KEXINIT never triggers another."""
    pair, client, server = tapped()
    client.sent.clear()
    server.sent.clear()
    for _ in range(5):
        for name in starters:
            getattr(pair, name).rekey()
        pair.pump()
    assert obeys(client.numbers) == obeys(server.numbers) == 5
    assert exchanges(pair.client_items) == exchanges(pair.server_items) == 5
    assert pair.client.state == pair.server.state == TransportState.OPEN
    assert not events(pair.client_items + pair.server_items, Disconnected)


def test_the_algorithms_may_change() -> None:
    """Known bugs C 42: the hash follows the method, the session id stays that of the first."""
    names = ["ecdh-sha2-nistp256", "ecdh-sha2-nistp384", "ecdh-sha2-nistp521", FAST, "mlkem768x25519-sha256"]
    config = TransportConfig(kex=names, ciphers=["chacha20-poly1305@openssh.com"])
    pair = logged_in(config, config)
    session_id = pair.client.session_id
    assert set(names) <= set(KEX_NAMES)
    for name in (*names[1:], *names):
        pair.clear()
        pair.client.rekey()
        edit_kexinit(pair.client, kex=(name,))
        pair.client.send(b"\x5e after " + name.encode())
        pair.pump()
        assert pair.server_items == [KeysChanged(False), b"\x5e after " + name.encode()]
        assert pair.client.algorithms is not None
        assert pair.client.algorithms.kex == name
        assert pair.client.session_id == pair.server.session_id == session_id


def test_the_cipher_may_change_too() -> None:
    ciphers = ["chacha20-poly1305@openssh.com", "aes128-ctr", "aes256-gcm@openssh.com"]
    pair = logged_in(TransportConfig(kex=[FAST], ciphers=ciphers), TransportConfig(kex=[FAST], ciphers=ciphers))
    pair.clear()
    pair.client.rekey()
    edit_kexinit(pair.client, cipher_c2s=("aes128-ctr",), cipher_s2c=("aes256-gcm@openssh.com",))
    pair.pump()
    pair.client.send(b"\x5e up")
    pair.server.send(b"\x5e down")
    pair.pump()
    assert (pair.server_items[1:], pair.client_items[1:]) == ([b"\x5e up"], [b"\x5e down"])
    assert pair.client.algorithms is not None
    assert pair.client.algorithms.mac_c2s is not None


def test_no_markers_in_later_kexinits() -> None:
    """Known bugs E 67."""
    pair, client, server = tapped()
    for end in (pair.client, pair.server):
        end.rekey()
        pair.pump()
    for tap in (client, server):
        offers = [KexInit.decode(payload) for _, payload in tap.sent if payload[0] == 20]
        assert [listed(offer.kex) for offer in offers] == [(FAST,), (FAST,)]
        assert offers[0].cookie != offers[1].cookie


def test_states_and_repeated_calls() -> None:
    pair = logged_in(QUICK, QUICK)
    client, server = pair.client, pair.server
    pair.clear()
    client.rekey()
    assert client.rekeying
    written = client._writer.packets
    client.rekey()  # nothing happens while one is running
    assert client._writer.packets == written
    pair.deliver(server, client.data_to_send())
    server.rekey()
    assert (client.state, server.state) == (TransportState.REKEY, TransportState.REKEY)
    pair.pump()
    assert client.state == server.state == TransportState.OPEN
    assert exchanges(pair.client_items) == exchanges(pair.server_items) == 1


# --- random schedules -------------------------------------------------------------------------------


class Schedule:
    """Two ends, bytes on their way between them, and a seed that decides what happens next."""

    def __init__(self, seed: int) -> None:
        self.chosen = random.Random(seed)
        self.pair, *self.taps = tapped()
        self.sent: dict[str, list[bytes]] = {"client": [], "server": []}
        self.flight: dict[str, bytearray] = {"client": bytearray(), "server": bytearray()}  # by sender
        self.asked = 0

    @property
    def ends(self) -> tuple[SSHTransport, SSHTransport]:
        return self.pair.client, self.pair.server

    def send(self, end: SSHTransport) -> None:
        number = self.chosen.choice((94, 94, 94, 80, 98))
        payload = bytes([number]) + self.chosen.randbytes(self.chosen.choice((1, 30, 900)))
        if end.held_size < 40_000:
            end.send(payload)
            self.sent[end.role].append(payload)

    def rekey(self, end: SSHTransport) -> None:
        end.rekey()
        self.asked += 1

    def write(self, end: SSHTransport) -> None:
        self.flight[end.role] += end.data_to_send()

    def arrive(self, end: SSHTransport) -> None:
        """Some of what is on its way to the other end arrives there."""
        flight = self.flight[end.role]
        size = min(len(flight), self.chosen.choice((1, 40, 400, 4000)))
        other = self.pair.server if end is self.pair.client else self.pair.client
        self.pair.deliver(other, bytes(flight[:size]))
        del flight[:size]

    def run(self, steps: int) -> None:
        actions = [self.send] * 4 + [self.rekey] + [self.write] * 3 + [self.arrive] * 5
        for _ in range(steps):
            self.chosen.choice(actions)(self.chosen.choice(self.ends))
        while any(self.flight.values()) or any(end.pending_output for end in self.ends):
            for end in self.ends:
                self.write(end)
                self.arrive(end)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(8))
def test_random_schedules(seed: int) -> None:
    """Known bugs E 57, 65, 66: nothing lost or reordered, as many exchanges here as there, clean gates."""
    total = 0
    for step in range(rounds(12)):
        schedule = Schedule(seed * 100_000 + step)
        session_id = schedule.pair.client.session_id
        schedule.run(150)
        pair = schedule.pair
        assert Pair.payloads(pair.server_items) == schedule.sent["client"]
        assert Pair.payloads(pair.client_items) == schedule.sent["server"]
        count = exchanges(pair.client_items)
        assert count == exchanges(pair.server_items) <= schedule.asked
        total += count
        for tap in schedule.taps:
            assert obeys(tap.numbers) == count
        assert pair.client.session_id == pair.server.session_id == session_id
        assert pair.client.state == pair.server.state == TransportState.OPEN
        assert pair.client._writer.sequence == pair.server._reader.sequence
        assert pair.server._writer.sequence == pair.client._reader.sequence
    assert total > rounds(12)


# --- limits -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("sender", ["client", "server"])
@pytest.mark.parametrize("options", [{"rekey_bytes": 20_000}, {"rekey_packets": 20}])
def test_by_bytes_and_by_packets(options: dict[str, int], sender: str) -> None:
    """Known bugs B 26, E 63: each direction counted, and each side keeps its limit."""
    for limited in ("client", "server", "both"):
        configs = [quick(**options) if limited in (role, "both") else QUICK for role in ("client", "server")]
        pair = logged_in(*configs)
        pair.clear()
        source = pair.client if sender == "client" else pair.server
        sent = [b"\x5e" + bytes([number]) * 999 for number in range(200)]
        for payload in sent:
            source.send(payload)
            pair.pump()
        received = pair.server_items if sender == "client" else pair.client_items
        assert Pair.payloads(received) == sent
        assert 9 <= exchanges(pair.client_items) <= 12
        assert exchanges(pair.client_items) == exchanges(pair.server_items)


def test_a_cipher_may_ask_for_less() -> None:
    spec = replace(get_cipher("aes128-gcm@openssh.com"), rekey_bytes=10_000)
    config = TransportConfig(kex=[FAST], ciphers=[spec])
    pair = logged_in(config, config)
    pair.clear()
    for _ in range(30):
        pair.client.send(b"\x5e" * 1000)
        pair.pump()
    assert exchanges(pair.server_items) in (2, 3)


def test_no_key_carries_more_than_its_limit_and_what_was_on_its_way() -> None:
    """Known bugs B 26: a limit is acted on with the packet that reaches it."""
    pair, client, _ = tapped(rekey_packets=20)
    for _ in range(100):
        pair.client.send(b"\x5e data")
        pair.pump()
    between = "".join("k" if number == 20 else "." for number in client.numbers).split("k")
    assert max(map(len, between)) <= 22


@pytest.mark.parametrize("phase", [Phase.SERVICE, Phase.AUTH])
@pytest.mark.parametrize("writer", ["client", "server"])
def test_the_volume_before_login_ends_the_connection(writer: str, phase: Phase) -> None:
    """Known bugs B 25: there is no rekey before login. The side that reads keeps its limit, and the one that writes."""
    for limited in ("client", "server"):
        configs = [quick(rekey_packets=16) if limited == role else QUICK for role in ("client", "server")]
        pair = Pair(*configs).pump()
        if phase is Phase.AUTH:
            pair.client.send(b"\x05\x00\x00\x00\x0cssh-userauth")
            pair.pump()
            pair.server.send(b"\x06\x00\x00\x00\x0cssh-userauth")
            pair.pump()
        source = pair.client if writer == "client" else pair.server
        for _ in range(20):
            if source.phase is Phase.CLOSED:
                break
            source.send(messages.ignore(b"x" * 20))
            pair.pump()
        end = Pair.end(pair.client_items + pair.client.take_events() if limited == "client"
                       else pair.server_items + pair.server.take_events())  # fmt: skip
        assert end is not None
        assert isinstance(end.error, ProtocolError)
        assert "too much traffic" in end.description
        assert end.error.phase == phase


def test_rekey_before_login_where_it_is_allowed() -> None:
    """Packet streams set it. The other side serves it in any case."""
    allowed = quick(rekey_before_login=True, rekey_packets=16)
    pair = Pair(allowed, QUICK).pump()
    pair.clear()
    pair.client.rekey()
    pair.pump()
    assert pair.client_items == pair.server_items == [KeysChanged(False)]
    for _ in range(40):
        pair.client.send(messages.ignore(b"x"))
        pair.pump()
    assert exchanges(pair.client_items) in (3, 4)
    assert pair.server.phase is Phase.SERVICE
    assert len(pair.login().server_items) > 1


def test_login_goes_on_through_a_rekey() -> None:
    """SUCCESS that is held during one moves the phase when it leaves."""
    pair = Pair(quick(rekey_before_login=True), QUICK).pump()
    pair.client.send(b"\x05\x00\x00\x00\x0cssh-userauth")
    pair.pump()
    pair.server.send(b"\x06\x00\x00\x00\x0cssh-userauth")
    pair.pump()
    pair.client.rekey()
    pair.deliver(pair.server, pair.client.data_to_send())
    pair.server.send(b"\x34")
    assert (pair.server.phase, pair.server.held_size) == (Phase.AUTH, 1)
    pair.pump()
    assert pair.server.phase == pair.client.phase == Phase.OPEN
    pair.server.send(b"\x50 hostkeys")
    assert pair.pump().client_items[-1] == b"\x50 hostkeys"


@pytest.mark.parametrize("role", ["client", "server"])
def test_rekey_at_the_wrong_time(role: str) -> None:
    pair = Pair(QUICK, QUICK)
    end: SSHTransport = getattr(pair, role)
    with pytest.raises(LocalError, match="identification"):
        end.rekey()
    pair.pump()
    with pytest.raises(LocalError, match="service request"):
        end.rekey()
    assert end.state == TransportState.OPEN
    pair.login()
    end.disconnect()
    with pytest.raises(LocalError, match="closed"):
        end.rekey()


# --- what may arrive --------------------------------------------------------------------------------


@pytest.mark.parametrize("role", ["client", "server"])
def test_what_was_on_its_way_is_accepted(role: str) -> None:
    """Known bugs D 50, E 62: between our KEXINIT and the peer's, without any count."""
    pair = logged_in(QUICK, QUICK)
    pair.clear()
    end, other = (pair.client, pair.server) if role == "client" else (pair.server, pair.client)
    end.rekey()
    kexinit = end.data_to_send()
    sent = [b"\x5e" + bytes([n % 256]) * 500 for n in range(400)]
    for payload in sent:
        other.send(payload)
        pair.deliver(end, other.data_to_send())
    items = pair.client_items if role == "client" else pair.server_items
    assert items == sent
    pair.deliver(other, kexinit)
    pair.pump()
    assert items == [*sent, KeysChanged(False)]


@pytest.mark.parametrize("role", ["client", "server"])
@pytest.mark.parametrize(
    "payload", [b"\x5e data", b"\x61\0\0\0\0", b"\x5d" + bytes(8), b"\xc0\0\0\0\0", b"\x05", b"\x07" + bytes(4)]
)
def test_nothing_else_after_the_peers_kexinit(payload: bytes, role: str) -> None:
    """Known bugs E 57: the receiving side checks it too."""
    pair = logged_in(QUICK, QUICK)
    pair.clear()
    end, other = (pair.client, pair.server) if role == "client" else (pair.server, pair.client)
    other.rekey()
    pair.deliver(end, inject(other, payload))
    gone = ended(pair.client_items if role == "client" else pair.server_items)
    assert isinstance(gone.error, ProtocolError)
    assert gone.description == f"message {payload[0]} is not allowed during a rekey"


@pytest.mark.parametrize("login", [False, True])
def test_extensions_after_a_rekey_have_no_effect(login: bool) -> None:
    """Known bugs E 67: answered and not fatal, also in the first packet after the NEWKEYS."""
    pair = Pair(quick(rekey_before_login=True), quick(rekey_before_login=True)).pump()
    if login:
        pair.login()
    pair.server.rekey()
    pair.pump()
    for other, items in ((pair.client, pair.client_items), (pair.server, pair.server_items)):
        pair.clear()
        say(other, messages.ext_info({"late": b"x"}))
        pair.pump()
        assert [type(item) for item in items] == [UnimplementedReceived]
    assert "late" not in {**pair.client.peer_extensions, **pair.server.peer_extensions}


@pytest.mark.parametrize("payload", [b"\x1e" + bytes(40), b"\x1f" + bytes(40), b"\x15", b"\x28", b"\x15\0"])
def test_messages_of_an_exchange_outside_one(payload: bytes) -> None:
    """Numbers of a method are unknown then, NEWKEYS is an error."""
    pair = logged_in(QUICK, QUICK)
    pair.clear()
    pair.deliver(pair.server, inject(pair.client, payload))
    assert (pair.server.phase is Phase.CLOSED) is (payload[0] == 21)


@pytest.mark.parametrize("payload", [b"\x1e\0\0\0\x20" + b"\x09" * 32, b"\x1f" + bytes(60), b"\x15\0", b"\x28"])
@pytest.mark.parametrize("first", [True, False])
def test_a_method_message_out_of_order(payload: bytes, first: bool) -> None:
    """After the REPLY a server waits for NEWKEYS: a second INIT ends it (protocol, row 23c)."""
    pair = Pair(QUICK, QUICK) if first else logged_in(QUICK, QUICK)
    if not first:
        pair.client.rekey()
    pair.deliver(pair.server, pair.client.data_to_send())
    pair.deliver(pair.client, pair.server.data_to_send())
    pair.deliver(pair.server, pair.client.data_to_send())
    pair.clear()
    pair.deliver(pair.server, inject(pair.client, payload))
    gone = ended(pair.server_items)
    assert isinstance(gone.error, ProtocolError)
    assert "out of order" in gone.description
