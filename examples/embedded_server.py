"""A program that does something else (it collects lines over plain TCP) and has an SSH console to look into it.

    python examples/embedded_server.py
    echo hello | nc 127.0.0.1 8007           # in another terminal: give it a line
    ssh -p 8022 admin@127.0.0.1 status       # how many lines there are
    ssh -p 8022 admin@127.0.0.1 tail         # every new line, until the program ends
    ssh -p 8022 admin@127.0.0.1 stop         # end it; SIGTERM and SIGINT (Ctrl-C) do the same

A graceful end: no new connections, running consoles are told and get five seconds, then everybody is disconnected.
"""

from __future__ import annotations

import argparse
import asyncio
import secrets
import signal
import sys
from collections.abc import Sequence

import sshtransport
from sshtransport import AuthorizedKeys, Passwords, PrivateKey, ServerProcess

HOST = "127.0.0.1"
GRACE = 5.0


class Collector:
    """The program's real work. Knows nothing of SSH."""

    def __init__(self) -> None:
        self.count = 0
        self.followers: set[asyncio.Queue[bytes]] = set()
        self.ending = asyncio.Event()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async for line in reader:
            self.count += 1
            for queue in self.followers:
                if queue.full():
                    queue.get_nowait()  # somebody who does not read loses the oldest line, and slows nobody down
                queue.put_nowait(line)
        writer.close()


class Console:
    """The SSH side: one call of ``handle`` for each command that a client runs."""

    def __init__(self, collector: Collector) -> None:
        self.collector = collector

    async def handle(self, process: ServerProcess) -> int:
        match process.command:
            case "status":
                process.stdout.write(b"%d lines\n" % self.collector.count)
            case "tail":
                await self.tail(process)
            case "stop":
                self.collector.ending.set()
            case other:
                process.stderr.write(b"commands: status, tail, stop\n")
                return 0 if other is None else 127
        return 0

    async def tail(self, process: ServerProcess) -> None:
        queue: asyncio.Queue[bytes] = asyncio.Queue(1000)
        self.collector.followers.add(queue)
        ending = asyncio.create_task(self.collector.ending.wait())
        try:
            process.stdout.write(b"following\n")
            while not ending.done():
                line = asyncio.create_task(queue.get())
                await asyncio.wait((line, ending), return_when=asyncio.FIRST_COMPLETED)
                if line.done():
                    process.stdout.write(line.result())
                    await process.stdout.drain()  # as fast as the client reads, not faster
                else:
                    line.cancel()
            process.stdout.write(b"the program is ending\n")
        finally:  # also when the client goes away: then this task is cancelled
            ending.cancel()
            self.collector.followers.discard(queue)


async def run(options: argparse.Namespace) -> None:
    authenticator: AuthorizedKeys | Passwords
    if options.authorized_keys:
        authenticator = AuthorizedKeys(options.authorized_keys)
    else:
        password = secrets.token_urlsafe(9)
        authenticator = Passwords({"admin": password})
        print("password of admin:", password)
    # A real program keeps its host key in a file, so that clients know it again.
    host_key = PrivateKey.load(options.host_key) if options.host_key else PrivateKey.generate("ssh-ed25519")
    print("host key:", host_key.public_key.fingerprint())

    collector = Collector()
    console = Console(collector)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, collector.ending.set)

    lines = await asyncio.start_server(collector.serve, HOST, options.line_port)
    server = await sshtransport.listen(
        console.handle, HOST, options.port, host_keys=[host_key], authenticator=authenticator
    )
    async with lines, server:
        print("lines on port", lines.sockets[0].getsockname()[1])
        print("ssh on port", server.port, flush=True)
        await collector.ending.wait()
        await server.shutdown(GRACE)
    print("ended; lines collected:", collector.count)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="A line collector with an SSH console.")
    parser.add_argument("--port", type=int, default=8022, help="of the SSH server; 0: any free one")
    parser.add_argument("--line-port", type=int, default=8007, help="where lines are taken; 0: any free one")
    parser.add_argument("--host-key", metavar="FILE", help="default: a new key each time")
    parser.add_argument("--authorized-keys", metavar="FILE", help="who may log in; default: a password, printed")
    asyncio.run(run(parser.parse_args(argv)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
