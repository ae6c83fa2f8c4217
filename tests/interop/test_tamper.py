"""The tamper proxy between our own client and server: the right byte is changed, and every verdict can be reached."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import pytest

import sshtransport
from interop.sessions import open_client
from interop.tamper import (
    HOST,
    Direction,
    Ending,
    Flip,
    NewKeysFinder,
    Tamper,
    Violation,
    attack_client,
    attack_server,
    choose_flips,
    tampering,
)
from sshtransport import TransportConfig
from tests.support.pair import CUTS, Pair
from tests.support.servers import PASSWORD, USERNAME, echo, serving

DATA = bytes(range(256)) * 12
LOGIN = {"username": USERNAME, "password": PASSWORD}
GCM, CHACHA = "aes256-gcm@openssh.com", "chacha20-poly1305@openssh.com"
FORMS = [
    (GCM, None),
    (CHACHA, None),
    ("aes128-ctr", "hmac-sha2-256-etm@openssh.com"),
    ("aes256-ctr", "hmac-sha2-512"),
]


def config(cipher: str, mac: str | None) -> TransportConfig:
    return TransportConfig(ciphers=[cipher], macs=[mac] if mac else None)


@pytest.mark.parametrize("cut", CUTS)
@pytest.mark.parametrize("before", [b"", b"a line\r\nand one more\r\n"])
def test_finder_knows_the_first_encrypted_byte(cut: str, before: bytes) -> None:
    pair = Pair().pump()
    for stream in (pair.to_server, before + pair.to_client):
        finder = NewKeysFinder()
        for piece in CUTS[cut](bytes(stream)):
            finder.feed(piece)
        newkeys = b"\x00\x00\x00\x0c\x0a\x15"
        assert finder.encrypted_at == stream.rindex(newkeys) + 16
        assert finder.packets_at == stream.index(b"SSH-2.0") + stream[stream.index(b"SSH-2.0") :].index(b"\n") + 1


def test_flips_are_the_same_for_the_same_seed_and_lie_early() -> None:
    few = choose_flips(Direction.TO_SERVER, 5_000, 10, "a")
    assert few == choose_flips(Direction.TO_SERVER, 5_000, 10, "a")
    assert few != choose_flips(Direction.TO_SERVER, 5_000, 10, "b")
    assert len(few) == 10
    assert sum(flip.offset < 200 for flip in few) == 5
    every = choose_flips(Direction.TO_SERVER, 5_000, None, "a")
    assert {flip.offset for flip in every} >= set(range(200))
    assert len(choose_flips(Direction.TO_SERVER, 60, None, "a")) == 60


async def attack(server: sshtransport.Server, flip: Flip | None, cipher: str, mac: str | None) -> tuple[Ending, Tamper]:
    return await attack_server(
        HOST, server.port, flip, command="echo", data=DATA, expected=DATA, config=config(cipher, mac), login=LOGIN
    )


@pytest.mark.parametrize("direction", Direction)
@pytest.mark.parametrize(("cipher", "mac"), FORMS)
async def test_no_flipped_bit_gets_through_to_either_side(direction: Direction, cipher: str, mac: str | None) -> None:
    async with serving(echo) as server:
        ending, whole = await attack(server, None, cipher, mac)
        assert ending is Ending.BEYOND
        size = whole.encrypted(direction)
        assert size > len(DATA)
        endings = set()
        for flip in choose_flips(direction, size, 10, cipher):
            ending, tamper = await attack(server, flip, cipher, mac)
            assert tamper.applied
            endings.add(ending)
    ours = {Ending.INTEGRITY, Ending.LENGTH}
    assert endings <= (ours if direction is Direction.TO_CLIENT else {Ending.DISCONNECTED, Ending.CLOSED})


async def test_an_offset_behind_the_end_is_no_success() -> None:
    async with serving(echo) as server:
        ending, tamper = await attack(server, Flip(Direction.TO_SERVER, 10**6, 0), GCM, None)
    assert ending is Ending.BEYOND
    assert not tamper.applied


@pytest.mark.parametrize("direction", Direction)
async def test_who_waits_for_a_longer_packet_gets_it(direction: Direction, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("interop.tamper._IDLE", 0.02)
    async with serving(echo) as server:
        flip = Flip(direction, 2, 4)  # GCM: the length is in the clear, and 4,096 more is a possible one
        ending, tamper = await attack(server, flip, GCM, None)
    assert tamper.filled
    assert ending in (Ending.INTEGRITY, Ending.DISCONNECTED, Ending.CLOSED)


async def test_a_peer_without_a_bound_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that takes a length of 4 MiB for one waits on, whatever comes."""
    monkeypatch.setattr("interop.tamper._IDLE", 0.02)
    monkeypatch.setattr("interop.tamper._PATIENCE", 0.1)
    monkeypatch.setattr("sshtransport.packets.PACKET_LENGTH_MAX_EARLY", 2**31)
    async with serving(echo) as server:
        ending, tamper = await attack(server, Flip(Direction.TO_SERVER, 1, 6), GCM, None)
    assert (ending, tamper.cut) == (Ending.DEADLINE, True)


class OurProgram:
    """Our own client as if it were a peer's program; ``blind``: one that reports success whatever happens."""

    def __init__(self, port: int, *, blind: bool = False) -> None:
        self.stdin: Any = self
        self.stdout = asyncio.StreamReader()
        self.stderr = asyncio.StreamReader()
        self._input = b""
        self._closed = asyncio.Event()
        self._task = asyncio.create_task(self._run(port, blind))

    def write(self, data: bytes) -> None:
        self._input += data

    async def drain(self) -> None: ...

    def close(self) -> None:
        self._closed.set()

    async def _run(self, port: int, blind: bool) -> int:
        try:
            await self._closed.wait()
            core = sshtransport.SSHTransport("client")
            connection = await open_client(core, HOST, port, **LOGIN)  # type: ignore[arg-type]
            try:
                done = await connection.run("echo", input=self._input, check=True)
            finally:
                connection.close()
            self.stdout.feed_data(done.stdout)
        except sshtransport.SSHError as error:
            self.stderr.feed_data(str(error).encode())
            return 0 if blind else 255
        finally:
            self.stdout.feed_eof()
            self.stderr.feed_eof()
        return 0

    async def wait(self) -> int:
        return await self._task

    async def kill(self) -> None:
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task


@pytest.mark.parametrize("direction", Direction)
async def test_a_client_peer(direction: Direction) -> None:
    async def start(port: int) -> OurProgram:
        return OurProgram(port)

    async with serving(echo) as server:
        ending, whole = await attack_client(server, None, start, data=DATA, expected=DATA)
        assert ending is Ending.BEYOND
        for flip in choose_flips(direction, whole.encrypted(direction), 6, "client"):
            ending, tamper = await attack_client(server, flip, start, data=DATA, expected=DATA)
            if tamper.applied:  # of our DISCONNECT at the end maybe nothing leaves
                ours = direction is Direction.TO_SERVER
                expected = {Ending.INTEGRITY, Ending.LENGTH} if ours else {Ending.DISCONNECTED, Ending.CLOSED}
                assert ending in expected


async def test_a_client_that_sees_nothing_is_found_out() -> None:
    async def start(port: int) -> OurProgram:
        return OurProgram(port, blind=True)

    async with serving(echo) as server:
        with pytest.raises(Violation, match="as if nothing had been changed"):
            await attack_client(server, Flip(Direction.TO_CLIENT, 30, 0), start, data=DATA, expected=DATA)


@pytest.mark.parametrize("direction", Direction)
async def test_a_side_that_goes_on_is_found_out(direction: Direction, monkeypatch: pytest.MonkeyPatch) -> None:
    changed = Tamper._changed

    def only_said(self: Tamper, direction: Direction, data: bytes) -> bytes:
        changed(self, direction, data)
        return data

    monkeypatch.setattr(Tamper, "_changed", only_said)  # as if the receiver had taken the changed frame
    async with serving(echo) as server:
        with pytest.raises(Violation, match="as if nothing had been changed"):
            await attack(server, Flip(direction, 100, 0), GCM, None)


async def test_an_accepted_frame_is_found_out_by_its_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    def too_early(self: Tamper, direction: Direction, data: bytes) -> bytes:
        result = changed(self, direction, data)
        self.accepts_at_most -= 1_000  # as if the flip had been in a frame that was taken
        return result

    changed = Tamper._changed
    monkeypatch.setattr(Tamper, "_changed", too_early)
    async with serving(echo) as server:
        with pytest.raises(Violation, match="our side accepted"):
            await attack(server, Flip(Direction.TO_CLIENT, 100, 0), GCM, None)


async def test_wrong_output_is_found_out() -> None:
    async def wrong(process: sshtransport.ServerProcess) -> None:
        await process.stdin.read()
        process.stdout.write(b"something else")

    async with serving(wrong) as server:
        with pytest.raises(Violation, match="output is wrong"):
            await attack(server, None, GCM, None)


async def test_the_proxy_passes_what_it_should_not_change() -> None:
    async with serving(echo) as server, tampering(HOST, server.port, None) as tamper:
        core = sshtransport.SSHTransport("client")
        connection = await open_client(core, HOST, tamper.port, **LOGIN)  # type: ignore[arg-type]
        try:
            assert (await connection.run("echo", input=DATA)).stdout == DATA
        finally:
            connection.close()
            await connection.wait_closed()
    assert not tamper.applied
