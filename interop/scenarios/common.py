"""Scenarios that are the same whoever is client and server."""

from __future__ import annotations

import asyncio

from interop.model import Ability, Login, Role
from interop.network import Network

from .commands import ECHO, LATE, SINK, WORK, after_input, counted, digest_of, exit_with, slow_sink, source
from .sides import KEX_NAMES, Check, Done, Process, Session, Side, digest, feed

MIB = 2**20
LARGE = 64 * MIB
BLOCK = 256 * 1024
REKEY_BYTES, REKEY_AMOUNT = MIB, 16 * MIB
SLOW, MARGIN = 30.0, 5.0  # seconds; a busy machine may look late
COMMANDS = 50
SLACK = 512 * 1024  # what may be held beside a window: packets on their way, a buffer of ours


def check_work(side: Side, done: Done, data: bytes) -> None:
    """WORK gave back its input, said oops and ended with 7; as far as the peer can tell."""
    if done.stdout != (data if side.can(Ability.STDIN) else b""):
        raise Check(f"{len(done.stdout)} bytes came back, not the {len(data)} that were sent: {done!r:.500}")
    if side.can(Ability.STDERR) and not said_only(side, done, b"oops\n"):
        raise Check(f"stderr: {done.stderr[:500]!r}")
    if side.can(Ability.EXIT_STATUS) and done.status != 7:
        raise Check(f"exit status {done.status}, not 7; stderr: {done.stderr[:500]!r}")


def said_only(side: Side, done: Done, said: bytes) -> bool:
    """A client may have words of its own before: new ssh warns of key exchanges that are not post-quantum."""
    return done.stderr.endswith(said) if side.case.role is Role.CLIENT else done.stderr == said


async def work(side: Side, session: Session, size: int = BLOCK) -> None:
    data = counted(size) if side.can(Ability.STDIN) else b""
    check_work(side, await session.run(WORK, data), data)


def check_ended(side: Side, status: int | None) -> None:
    if side.can(Ability.EXIT_STATUS) and status != 0:
        raise Check(f"exit status {status}, not 0")


# --- the scenarios ---------------------------------------------------------------------------------------


async def handshake(side: Side) -> None:
    await side.greet(side.config())


async def empty_macs(side: Side) -> None:
    """No MAC on offer, and none needed under an AEAD."""
    await side.greet(side.config(macs=()))


async def login(side: Side) -> None:
    async with side.session(login=Login(side.case.variant)) as session:
        await work(side, session, 1000)


async def command(side: Side) -> None:
    """Streams and exit statuses: with input, without, and the extremes of a status."""
    async with side.session() as session:
        await work(side, session, 10_000)
        await work(side, session, 0)
        for status in (0, 1, 255) if side.can(Ability.EXIT_STATUS) else ():
            done = await session.run(exit_with(status))
            if (done.status, done.stdout) != (status, b"") or not said_only(side, done, b""):
                raise Check(f"exit {status}: {done}")


async def matrix(side: Side) -> None:
    async with side.session() as session:
        await work(side, session)


async def alone(side: Side) -> None:
    """The peer has one name of a kind, we have all."""
    async with side.session(side.config(ciphers=None, macs=None, host_key_algorithms=None, kex=KEX_NAMES)) as session:
        await work(side, session)


async def transfer(side: Side) -> None:
    """64 MiB and their hash."""
    async with side.session() as session:
        match side.case.variant:
            case "down":
                await _down(side, session, LARGE)
            case "up":
                await _up(side, session, LARGE)
            case _:
                await _both(side, session, LARGE)


async def _down(side: Side, session: Session, size: int) -> None:
    process = await session.start(source(size))
    check_digest(await digest(process.stdout), size)
    check_ended(side, await process.wait())


async def _up(side: Side, session: Session, size: int) -> None:
    done = await session.run(SINK, counted(size))
    if done.stdout.split() != [digest_of(size).encode(), b"-"]:
        raise Check(f"wrong hash: {done!r:.500}")
    check_ended(side, done.status)


async def _both(side: Side, session: Session, size: int) -> None:
    process = await session.start(ECHO)
    async with asyncio.TaskGroup() as group:
        group.create_task(feed(process, counted(size)))
        back = group.create_task(digest(process.stdout))
    check_digest(back.result(), size)
    check_ended(side, await process.wait())


def check_digest(got: tuple[int, str], size: int) -> None:
    if got != (size, digest_of(size)):
        raise Check(f"{got[0]} bytes with hash {got[1]}, not {size} with {digest_of(size)}")


async def rekey(side: Side) -> None:
    """16 MiB to and fro with new keys each MiB."""
    ours = side.case.variant != "theirs"
    async with side.session(side.config(rekey_bytes=REKEY_BYTES if ours else None)) as session:
        await _both(side, session, REKEY_AMOUNT)
        rekeys = session.connection.info.rekeys
        side.facts["rekeys"] = str(rekeys)
        # More than a MiB may pass until both have new keys, and a peer may count both directions as one.
        if rekeys < REKEY_AMOUNT // REKEY_BYTES // 2:
            raise Check(f"only {rekeys} rekeys")


async def commands(side: Side) -> None:
    """One after the other."""
    async with side.session() as session:
        for number in range(COMMANDS):
            done = await session.run(exit_with(number))
            if side.can(Ability.EXIT_STATUS) and done.status != number:
                raise Check(f"command {number}: {done}")


async def half_close(side: Side) -> None:
    """One direction ends, the other goes on."""
    async with side.session() as session:
        if side.case.variant == "input":
            process = await session.start(after_input(MIB))
            process.stdin.write_eof()
            check_digest(await digest(process.stdout), MIB)
            check_ended(side, await process.wait())
        else:
            process = await session.start(LATE)
            await _end_of_output(side, process)
            process.stdin.write(b"late\n")
            await process.stdin.drain()
            if side.can(Ability.EXIT_STATUS) and (status := await process.wait()) != 7:
                raise Check(f"what was written after the end of output did not arrive: status {status}")


async def _end_of_output(side: Side, process: Process) -> None:
    if side.case.role is Role.SERVER:
        if data := await process.stdout.read():
            raise Check(f"output: {data[:500]!r}")
    else:
        await asyncio.sleep(1.0)  # a program need not close its stdout when the channel's output ends


async def strict_kex(side: Side) -> None:
    """Off at our side: it says so and works. Required: works with peers that have it."""
    async with side.session(side.config(strict_kex=side.case.variant)) as session:
        await work(side, session)


NETWORKS = {
    "fragments": Network(single_bytes=65536),
    "delay": Network(delay=0.1),
    "bandwidth": Network(rate=256 * 1024),
}


async def network(side: Side) -> None:
    async with side.session(network=NETWORKS[side.case.variant]) as session:
        await work(side, session)


async def slow_reader(side: Side) -> None:
    """Who reads nothing for 30 s is not sent everything, our memory stays bounded, and in the end all has arrived.

    Our memory is counted at its places, as the size of a process that does much at once tells nothing.
    """
    down = side.case.variant == "down"
    clock = asyncio.get_running_loop().time
    most = 0
    async with side.session() as session, asyncio.TaskGroup() as group:
        process = await session.start(source(LARGE) if down else slow_sink(SLOW + MARGIN))
        feeding = group.create_task(feed(process, b"" if down else counted(LARGE)))
        await session.connected()
        end = clock() + SLOW
        while clock() < end:
            await asyncio.sleep(1.0)
            most = max(most, held(session))
        side.facts["held"] = str(most)
        if most > session.connection.link.core.config.window_size + SLACK:
            raise Check(f"{most} bytes were held")
        info = session.connection.info
        if (moved := max(info.bytes_received, info.bytes_sent)) >= LARGE:
            raise Check(f"{moved} bytes moved although nobody read them")
        if down:
            check_digest(await digest(process.stdout), LARGE)
        elif (out := await process.stdout.read()).split() != [digest_of(LARGE).encode(), b"-"]:
            raise Check(f"wrong hash: {out[:500]!r}")
        await feeding
        check_ended(side, await process.wait())


def held(session: Session) -> int:
    """Bytes of a connection that our process holds: received and not read, written and not taken by the system."""
    connection = session.connection
    link = connection.link
    channels = [port.channel for port in connection._ports.values()]
    waiting = link.core.pending_output + (link.transport.get_write_buffer_size() if link.transport else 0)
    return waiting + sum(channel.queued + channel.buffered(0) + channel.buffered(1) for channel in channels)
