"""Run one command on an SSH server, feed it this program's stdin if that is not a terminal, end with its exit status.

    python examples/run_command.py --host server.example.org --user me --key ~/.ssh/id_ed25519 uname -a

Without arguments: ``uname -a`` on localhost, as the local user, with the user's own key files and known_hosts.
"""

from __future__ import annotations

import argparse
import asyncio
import getpass
import shlex
import sys
from collections.abc import Sequence

import sshtransport


def arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Run one command on an SSH server.")
    parser.add_argument("--host", default="localhost")
    parser.add_argument("--port", type=int, default=22)
    parser.add_argument("--user", default=getpass.getuser())
    parser.add_argument("--key", action="append", metavar="FILE", help="private key file; default: those in ~/.ssh")
    parser.add_argument("--known-hosts", metavar="FILE", help="default: the user's and the system's files")
    parser.add_argument("--accept-new", action="store_true", help="trust an unknown host, and remember its key")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    return parser.parse_args(argv)


async def run(options: argparse.Namespace, data: bytes) -> int:
    async with sshtransport.connect(
        options.host,
        options.port,
        username=options.user,
        client_keys=options.key,
        known_hosts=options.known_hosts,
        host_key_verifier=sshtransport.accept_new if options.accept_new else None,
    ) as conn:
        command = shlex.join(options.command) or "uname -a"
        done = await conn.run(command, input=data)
    sys.stdout.buffer.write(done.stdout)
    sys.stderr.buffer.write(done.stderr)
    return 128 if done.returncode is None else done.returncode % 256


def main(argv: Sequence[str] | None = None) -> int:
    options = arguments(argv)
    data = b"" if sys.stdin.isatty() else sys.stdin.buffer.read()
    try:
        return asyncio.run(run(options, data))
    except (sshtransport.SSHError, OSError) as error:
        print(f"run_command: {error}", file=sys.stderr)
        return 255


if __name__ == "__main__":
    sys.exit(main())
