"""What a peer that has not logged in can cost a server: at most 128 KiB, whatever it sends (design section 5).

Counted are Python's allocations at their peak, by tracemalloc, from before the transport is made. The
arena is shared by all connections of a loop and counts for none. Output is not taken: a
server's socket may be blocked.
"""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

from sshtransport import messages
from sshtransport.config import TransportConfig
from sshtransport.gates import Phase
from sshtransport.messages import KexInit
from sshtransport.transport import Item, SSHTransport
from sshtransport.wire import string
from tests.support.pair import Pair, host_key
from tests.support.phases import LOOSE
from tests.support.puppet import inject

BOUND = 128 * 1024
IDENT = b"SSH-2.0-x\r\n"
OFFER = KexInit(
    bytes(16),
    ("curve25519-sha256",),
    ("ssh-ed25519",),
    ("aes128-gcm@openssh.com",),
    ("aes128-gcm@openssh.com",),
    ("hmac-sha2-256",),
    ("hmac-sha2-256",),
)
#: As large as a KEXINIT may be, in names of every size.
LARGE = replace(OFFER, kex=("curve25519-sha256", *["x" * 63] * 538))
MANY = replace(OFFER, kex=("curve25519-sha256", *["y"] * 17_000))
DIFFERENT = replace(OFFER, kex=(*(f"{n:x}" for n in range(7200)),))
DIFFERENT_KEYS = replace(OFFER, host_key=(*(f"{n:x}" for n in range(7200)),))


def clear(*payloads: bytes) -> bytes:
    """Packets in clear, of any size."""
    frames = []
    for payload in payloads:
        padding = 4 + (-len(payload) - 9) % 8
        body = bytes([padding]) + payload + bytes(padding)
        frames.append(len(body).to_bytes(4, "big") + body)
    return b"".join(frames)


def big(number: int, size: int = 34_676) -> bytes:
    return bytes([number]) + bytes(size - 1)


FLOODS: dict[str, bytes] = {
    "identification without an end": b"SSH-2.0-" + b"x" * 500_000,
    "text": b"x" * 500_000,
    "lines": b"\n" * 500_000,
    "a huge length": IDENT + b"\xff\xff\xff\xfc" + bytes(500_000),
    "the largest length": IDENT + (34_996).to_bytes(4, "big") + bytes(34_990),
    "a large KEXINIT": IDENT + clear(LARGE.encode()),
    "many names": IDENT + clear(MANY.encode()),
    "many different names": IDENT + clear(DIFFERENT.encode()),
    "many host key names": IDENT + clear(DIFFERENT_KEYS.encode()),
    "KEXINITs": IDENT + clear(*[LARGE.encode()] * 10),
    "a large KEXINIT and a large INIT": IDENT + clear(LARGE.encode(), big(30)),
    "a large KEXINIT and a real INIT": IDENT + clear(LARGE.encode(), b"\x1e" + string(b"\x09" + bytes(31))),
    "large wrong guesses": IDENT + clear(replace(LARGE, host_key=("a", "ssh-ed25519"),
                                                 first_kex_packet_follows=True).encode(), big(30), big(30)),
    "unknown messages": IDENT + clear(*[b"\x08"] * 2_000),
    "large unknown messages": IDENT + clear(*[big(8)] * 20),
    "IGNORE": IDENT + clear(*[big(2)] * 20, *[b"\x02"] * 2_000),
    "DEBUG": IDENT + clear(*[messages.debug(False, "")] * 2_000),
    "large DEBUG": IDENT + clear(*[messages.debug(True, "\x07" * 34_000)] * 10),
    "UNIMPLEMENTED": IDENT + clear(*[messages.unimplemented(1000 + n) for n in range(2_000)]),
    "a large DISCONNECT": IDENT + clear(messages.disconnect(11, "\x07" * 34_000)),
    "everything at once": IDENT + clear(*[b"\x08"] * 115, LARGE.encode(), *[b"\x04" + bytes(9)] * 2000, LARGE.encode()),
}  # fmt: skip


ARENA = bytearray(256 * 1024)


def feed(server: SSHTransport, data: bytes) -> None:
    view = memoryview(data)
    items: list[Item] = []
    while view and server.phase is not Phase.CLOSED:
        space = server.get_buffer()
        size = min(len(space), len(view))
        space[:size] = view[:size]
        items = server.buffer_updated(size)  # handed up; gone with the next
        view = view[size:]
    del items


@contextmanager
def traced() -> Iterator[Callable[[], int]]:
    """Measures; the function gives the peak since the start."""
    gc.collect()
    tracemalloc.start()
    try:
        yield lambda: tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.fixture(scope="module", autouse=True)
def warm() -> None:
    """What is made once in a process is made."""
    Pair(LOOSE, LOOSE).pump()


def new_server() -> SSHTransport:
    return SSHTransport("server", TransportConfig(), host_keys=[host_key()], arena=ARENA)


@pytest.mark.parametrize("name", FLOODS)
def test_before_keys(name: str) -> None:
    """Known bugs A 6, B 11, C 46, M 159."""
    flood = FLOODS[name]
    with traced() as peak:
        feed(new_server(), flood)
        assert peak() < BOUND


KEYED: dict[str, list[bytes]] = {
    "unknown messages": [b"\x08"] * 1000,
    "SERVICE_REQUESTs": [messages.service_request(b"ssh-userauth")] * 1000,
    "large SERVICE_REQUESTs": [messages.service_request(bytes(34_000))] * 5,
    "login requests": [messages.service_request(b"ssh-userauth"), *[b"\x32\0\0\0\0\0\0\0\0\0\0\0\0"] * 1000],
    "large login requests": [messages.service_request(b"ssh-userauth"), *[big(50)] * 5],
    "extensions": [messages.ext_info({f"{n:x}": bytes(20) for n in range(1000)})],
    "one large extension": [messages.ext_info({"x": bytes(34_000)})],
    "UNIMPLEMENTED": [messages.unimplemented(1000 + n) for n in range(1500)],
    "rekeys": [OFFER.encode(), LARGE.encode()],
    "a large KEXINIT in a rekey": [LARGE.encode(), LARGE.encode()],
    "many names in a rekey": [MANY.encode(), b"\x1e" + bytes(4)],
    "the largest length": [big(50)],
}


@pytest.mark.parametrize("name", KEYED)
def test_under_keys(name: str) -> None:
    """The same after the first exchange, where the peer may still be anybody."""
    pair = Pair(LOOSE, LOOSE, arena=ARENA).pump()
    flood = inject(pair.client, *KEYED[name])
    pair.clear()
    with traced() as peak:
        feed(pair.server, flood)
        assert peak() + FRESH < BOUND


FRESH = 9 * 1024  # what a server weighs before anything has come; here it was made before the measurement


def test_a_fresh_server_is_small() -> None:
    with traced() as peak:
        kept = [new_server() for _ in range(10)]
        assert peak() < 10 * FRESH
    del kept


def test_an_ended_connection_holds_next_to_nothing() -> None:
    with traced():
        server = new_server()
        before = tracemalloc.get_traced_memory()[0]
        feed(server, IDENT + clear(LARGE.encode(), *[big(2)] * 3) + (34_996).to_bytes(4, "big") + bytes(20_000))
        assert server.phase is Phase.KEX
        assert tracemalloc.get_traced_memory()[0] - before > 50_000
        server.receive_eof()
        server.data_to_send()
        gc.collect()
        assert tracemalloc.get_traced_memory()[0] - before < 4096
