"""Receiving: buffers and arenas, size limits by phase, and the transport's own small messages."""

from __future__ import annotations

import pytest

from sshtransport import messages
from sshtransport.constants import EXT_INFO_ROOM, READ_MAX_EARLY
from sshtransport.errors import ProtocolError
from sshtransport.events import DebugReceived, Disconnected, ExtInfoReceived, KeysChanged, UnimplementedReceived
from sshtransport.gates import Phase
from sshtransport.transport import Item, SSHTransport
from tests.support.pair import Pair, host_key, logged_in
from tests.support.phases import LOOSE, QUICK
from tests.support.puppet import ended, events, inject, say

# --- buffers ----------------------------------------------------------------------------------------


def into(end: SSHTransport, data: bytes, most: int = 2**20) -> list[Item]:
    """Through ``get_buffer`` and ``buffer_updated``, as a BufferedProtocol does it."""
    items: list[Item] = []
    start = 0
    while start < len(data):
        view = end.get_buffer(-1)
        size = min(len(view), len(data) - start, most)
        view[:size] = data[start : start + size]
        items += end.buffer_updated(size)
        start += size
    return items


@pytest.mark.parametrize("most", [1, 7, 1000, 2**20])
def test_one_arena_serves_many(most: int) -> None:
    """Its content is used between the two calls only: others may write over it at once."""
    arena = bytearray(40_000)
    pairs = [Pair(QUICK, QUICK, arena=arena) for _ in range(4)]
    while True:
        moved = False
        for pair in pairs:
            for source, target in ((pair.client, pair.server), (pair.server, pair.client)):
                data = source.data_to_send()
                for start in range(0, len(data), most):
                    moved = True
                    seen = pair.client_items if target is pair.client else pair.server_items
                    pair._note(target, seen, into(target, data[start : start + most], most))
                    arena[:] = b"\xa5" * len(arena)
        if not moved:
            break
    for pair in pairs:
        assert pair.client.phase is pair.server.phase is Phase.SERVICE
        assert len(arena) == 40_000


def test_payloads_do_not_lie_in_the_arena() -> None:
    arena = bytearray(65_536)
    pair = logged_in(QUICK, QUICK, arena=arena)
    items = into(pair.server, inject(pair.client, b"\x5e precious", b"\x5e" + bytes(5000)))
    arena[:] = b"\xff" * len(arena)
    assert items == [b"\x5e precious", b"\x5e" + bytes(5000)]
    assert all(type(item) is bytes for item in items)


def test_a_frame_larger_than_the_arena() -> None:
    pair = logged_in(QUICK, QUICK, arena=bytearray(100))
    payload = b"\x5e" + bytes(range(256)) * 120
    assert into(pair.server, inject(pair.client, payload, b"\x5e small")) == [payload, b"\x5e small"]


def test_an_arena_of_its_own_comes_when_needed() -> None:
    pair = logged_in(QUICK, QUICK)
    assert pair.server._arena is None
    assert into(pair.server, inject(pair.client, b"\x5e data")) == [b"\x5e data"]
    assert len(pair.server.get_buffer()) == 64 * 1024
    assert pair.server.get_buffer().obj is pair.server.get_buffer().obj


def test_a_server_reads_little_at_once_before_login() -> None:
    """What one read can turn into must stay small: see test_transport_limits."""
    for arena in (None, bytearray(2**18)):
        server = SSHTransport("server", QUICK, host_keys=[host_key()], arena=arena)
        assert len(server.get_buffer()) == READ_MAX_EARLY
    pair = logged_in(QUICK, QUICK, arena=bytearray(2**18))
    assert len(pair.server.get_buffer()) == len(pair.client.get_buffer()) == 2**18


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_receive_data_takes_any_bytes(kind: type) -> None:
    pair = logged_in(QUICK, QUICK)
    data = kind(inject(pair.client, b"\x5e data"))
    assert pair.server.receive_data(data) == [b"\x5e data"]
    assert pair.server.receive_data(kind(b"")) == []


def test_both_ways_of_receiving_may_alternate() -> None:
    pair = logged_in(QUICK, QUICK)
    wire = inject(pair.client, *[b"\x5e" + bytes([n]) * 50 for n in range(20)])
    items: list[Item] = []
    for index, start in enumerate(range(0, len(wire), 33)):
        piece = wire[start : start + 33]
        items += into(pair.server, piece) if index % 2 else pair.server.receive_data(piece)
    assert items == [b"\x5e" + bytes([n]) * 50 for n in range(20)]


# --- sizes by phase ---------------------------------------------------------------------------------


def lengths(end: SSHTransport) -> int:
    return end._reader.length_max


def test_how_long_a_packet_may_be() -> None:
    """Design section 5: 35,000 until the first NEWKEYS, a server until SUCCESS is sent; 256 KiB after."""
    pair = Pair(QUICK, QUICK)
    assert (lengths(pair.client), lengths(pair.server)) == (35_000, 35_000)
    pair.pump()
    assert (lengths(pair.client), lengths(pair.server)) == (2**18, 35_000)
    pair.client.send(b"\x05\x00\x00\x00\x0cssh-userauth")
    pair.pump()
    pair.server.send(b"\x06\x00\x00\x00\x0cssh-userauth")
    pair.pump()
    assert lengths(pair.server) == 35_000
    pair.server.send(b"\x34")
    assert lengths(pair.server) == 2**18
    for _ in range(2):
        pair.server.rekey()
        pair.pump()
        assert (lengths(pair.client), lengths(pair.server)) == (2**18, 2**18)


@pytest.mark.parametrize("role", ["client", "server"])
def test_the_limit_is_reached_after_the_head(role: str) -> None:
    pair = logged_in(QUICK, QUICK)
    pair.clear()
    end = pair.client if role == "client" else pair.server
    pair.deliver(end, (2**18).to_bytes(4, "big") + bytes(1000))
    assert end.phase is Phase.OPEN
    pair = logged_in(QUICK, QUICK)
    pair.clear()
    end = pair.client if role == "client" else pair.server
    pair.deliver(end, (2**18 + 16).to_bytes(4, "big"))
    gone = ended(pair.client_items if role == "client" else pair.server_items)
    assert isinstance(gone.error, ProtocolError)
    assert gone.error.limit == 2**18


def test_a_message_of_a_quarter_mebibyte() -> None:
    """Real servers send large EXT_INFOs, certificates, lists of keys."""
    pair = logged_in(QUICK, QUICK)
    payload = b"\x5e" + bytes(2**18 - 15)
    body = b"\x0d" + payload + bytes(13)
    sealed = pair.server._writer._seal(pair.server._writer.sequence, len(body).to_bytes(4, "big"), body)
    assert pair.client.receive_data(sealed) == [payload]


# --- EXT_INFO ---------------------------------------------------------------------------------------


def test_a_clients_extensions() -> None:
    """RFC 8308, section 2.4: right behind its first NEWKEYS, once."""
    pair = Pair(QUICK, QUICK).pump()
    pair.clear()
    say(pair.client, messages.ext_info({"a": b"1"}), messages.ext_info({"b": b"2"}))
    pair.pump()
    assert pair.server_items == [ExtInfoReceived({"a": b"1"})]
    assert pair.server.peer_extensions == {"a": b"1"}
    assert [type(item) for item in pair.client_items] == [UnimplementedReceived]


def test_a_clients_extensions_that_come_late() -> None:
    """Protocol row 27: UNIMPLEMENTED, no effect, the connection lives."""
    pair = Pair(QUICK, QUICK).pump()
    say(pair.client, messages.ignore(b"first"), messages.ext_info({"late": b""}))
    pair.pump()
    assert pair.server.peer_extensions == {}
    assert not events(pair.server_items, ExtInfoReceived)
    pair.login()
    assert pair.server.phase is Phase.OPEN


def test_a_servers_second_extensions_replace_the_first() -> None:
    """Known bugs F 75: just before SUCCESS, or any time in the login; a third one is too much."""
    pair = Pair(QUICK, QUICK).pump()
    pair.client.send(b"\x05\x00\x00\x00\x0cssh-userauth")
    pair.pump()
    pair.server.send(b"\x06\x00\x00\x00\x0cssh-userauth")
    pair.pump()
    pair.clear()
    say(pair.server, messages.ext_info({"new": b"x"}), messages.ext_info({"newer": b"y"}))
    pair.pump()
    assert pair.client_items == [ExtInfoReceived({"new": b"x"})]
    assert pair.client.peer_extensions == {"new": b"x"}
    assert [type(item) for item in pair.server_items] == [UnimplementedReceived]


def test_a_client_without_strict_kex_gets_extensions_too() -> None:
    """The first packet is told by its place, not by its number."""
    pair = Pair(LOOSE, LOOSE).pump()
    assert "server-sig-algs" in pair.client.peer_extensions
    say(pair.client, messages.ext_info({"a": b"1"}))
    pair.pump()
    assert pair.server.peer_extensions == {"a": b"1"}


@pytest.mark.parametrize("body", [b"", b"\0\0\0\1", b"\0\0\4\1" + bytes(9000), b"\0\0\0\0x"])
def test_damaged_extensions_are_fatal(body: bytes) -> None:
    pair = Pair(QUICK, QUICK).pump()
    pair.clear()
    pair.deliver(pair.server, inject(pair.client, b"\x07" + body))
    assert isinstance(ended(pair.server_items).error, ProtocolError)


def test_a_server_keeps_little_of_a_clients_extensions() -> None:
    """1,024 entries are no fault, but before login they would weigh too much; a client keeps all."""
    many = {str(n): bytes(10) for n in range(1000)}
    pair = Pair(QUICK, QUICK).pump()
    say(pair.client, messages.ext_info(many))
    pair.pump()
    assert pair.server.phase is Phase.SERVICE
    kept = pair.server.peer_extensions
    assert 10 <= len(kept) <= EXT_INFO_ROOM // 200
    assert list(kept) == list(many)[: len(kept)]
    pair.login()
    pair = Pair(QUICK, QUICK).pump()
    pair.client.send(b"\x05\x00\x00\x00\x0cssh-userauth")
    pair.pump()
    pair.server.send(b"\x06\x00\x00\x00\x0cssh-userauth")
    say(pair.server, messages.ext_info(many))
    pair.pump()
    assert len(pair.client.peer_extensions) == 1000


# --- PING, UNIMPLEMENTED, DEBUG ---------------------------------------------------------------------


@pytest.mark.parametrize("data", [b"", b"x", bytes(range(256)), bytes(30_000)])
def test_ping(data: bytes) -> None:
    """OpenSSH PROTOCOL, section 1.8: the same data, in order; a PONG is never answered."""
    pair = logged_in(QUICK, QUICK)
    pair.clear()
    pair.client.send(messages.ping(data))
    pair.client.send(messages.ping(b"second"))
    pair.server.send(messages.ping(data))
    pair.pump()
    assert pair.client_items == [messages.pong(data), messages.pong(b"second")]
    assert pair.server_items == [messages.pong(data)]


@pytest.mark.parametrize("body", [b"", b"\0\0\0", b"\0\0\0\5abc", b"\0\0\0\0x"])
def test_a_damaged_ping(body: bytes) -> None:
    pair = logged_in(QUICK, QUICK)
    pair.clear()
    pair.deliver(pair.server, inject(pair.client, b"\xc0" + body))
    assert isinstance(ended(pair.server_items).error, ProtocolError)


def test_a_ping_whose_answer_fits_no_packet() -> None:
    """The peer's fault, and no exception of ours."""
    pair = logged_in(QUICK, QUICK)
    pair.clear()
    payload = messages.ping(bytes(100_000))
    size = (-1 - len(payload)) % 16 + 16
    body = bytes([size]) + payload + bytes(size)
    sealed = pair.client._writer._seal(pair.client._writer.sequence, len(body).to_bytes(4, "big"), body)
    pair.deliver(pair.server, sealed)
    assert isinstance(ended(pair.server_items).error, ProtocolError)


def test_unknown_messages_are_answered_in_order_with_their_numbers() -> None:
    """RFC 4253, section 11.4."""
    pair = logged_in(QUICK, QUICK)
    pair.clear()
    first = pair.client._writer.sequence
    say(pair.client, b"\xff", b"\x5e known", b"\x08 x", b"\x1e y", b"\xc8")
    pair.pump()
    assert pair.server_items == [b"\x5e known"]
    assert pair.client_items == [UnimplementedReceived(first + n) for n in (0, 2, 3, 4)]


def test_unimplemented_is_not_answered() -> None:
    pair = logged_in(QUICK, QUICK)
    pair.clear()
    pair.client.send(messages.unimplemented(2**32 - 1))
    pair.pump()
    assert pair.server_items == [UnimplementedReceived(2**32 - 1)]
    assert pair.client_items == []


def test_the_number_of_the_packet_at_the_wrap() -> None:
    pair = logged_in(QUICK, QUICK)
    pair.clear()
    pair.client._writer.sequence = pair.server._reader.sequence = 2**32 - 1
    say(pair.client, b"\xff", b"\xff")
    pair.pump()
    assert pair.client_items == [UnimplementedReceived(2**32 - 1), UnimplementedReceived(0)]


def test_debug_and_ignore() -> None:
    pair = logged_in(QUICK, QUICK)
    pair.clear()
    pair.client.send(messages.debug(True, "line\nbreak"))
    pair.client.send(messages.ignore(b"noise"))
    pair.pump()
    assert pair.server_items == [DebugReceived(True, "line\\nbreak")]


def test_payloads_and_events_come_in_the_order_of_the_wire() -> None:
    pair = logged_in(QUICK, QUICK)
    pair.clear()
    pair.client.send(b"\x5e one")
    pair.client.send(messages.debug(False, "x"))
    pair.client.send(b"\x5e two")
    pair.client.rekey()
    pair.client.send(b"\x5e three")
    pair.pump()
    assert pair.server_items == [
        b"\x5e one",
        DebugReceived(False, "x"),
        b"\x5e two",
        KeysChanged(False),
        b"\x5e three",
    ]


def test_counters() -> None:
    pair = logged_in(QUICK, QUICK)
    client, server = pair.client, pair.server
    assert client.packets_sent == server.packets_received >= 4
    assert server.packets_sent == client.packets_received >= 4
    ident = len(b"SSH-2.0-sshtransport_0.1.0\r\n")
    assert client.bytes_sent == server.bytes_received == len(pair.to_server) - ident
    assert server.bytes_sent == client.bytes_received == len(pair.to_client) - ident


# --- login ------------------------------------------------------------------------------------------


def test_phases_of_a_login() -> None:
    pair = Pair(QUICK, QUICK).pump()
    client, server = pair.client, pair.server

    def phases() -> tuple[Phase, Phase]:
        return client.phase, server.phase

    client.send(b"\x05\x00\x00\x00\x0cssh-userauth")
    client.send(b"\x32 pipelined")
    pair.pump()
    assert phases() == (Phase.SERVICE, Phase.AUTH)
    assert pair.server_items[-2:] == [b"\x05\x00\x00\x00\x0cssh-userauth", b"\x32 pipelined"]
    server.send(b"\x06\x00\x00\x00\x0cssh-userauth")
    server.send(b"\x3c question")
    assert phases() == (Phase.SERVICE, Phase.PROMPT)
    pair.pump()
    client.send(b"\x3d answer")
    pair.pump()
    assert pair.server_items[-1] == b"\x3d answer"
    assert phases() == (Phase.AUTH, Phase.AUTH)
    server.send(b"\x3c question")
    client.send(b"\x32 instead")
    pair.pump()
    assert phases() == (Phase.AUTH, Phase.AUTH)
    server.send(b"\x3c question")
    server.send(b"\x33 failure")  # nobody waits for the answer any more
    assert phases() == (Phase.AUTH, Phase.AUTH)
    client.send(b"\x3d too late")
    pair.pump()
    assert isinstance(pair.client_items[-1], UnimplementedReceived)
    server.send(b"\x34")
    pair.pump()
    assert phases() == (Phase.OPEN, Phase.OPEN)


def test_another_service_opens_no_login() -> None:
    pair = Pair(QUICK, QUICK).pump()
    pair.client.send(b"\x05\x00\x00\x00\x0essh-connection")
    pair.pump()
    assert pair.server.phase is Phase.SERVICE
    assert pair.server_items[-1] == b"\x05\x00\x00\x00\x0essh-connection"


def test_success_has_no_body() -> None:
    pair = Pair(QUICK, QUICK).pump()
    pair.client.send(b"\x05\x00\x00\x00\x0cssh-userauth")
    pair.pump()
    pair.server.send(b"\x06\x00\x00\x00\x0cssh-userauth")
    pair.pump()
    pair.clear()
    pair.deliver(pair.client, inject(pair.server, b"\x34more"))
    assert isinstance(ended(pair.client_items).error, ProtocolError)
    assert not events(pair.server_items, Disconnected)
