"""The command line: ``python -m sshtransport``, ``sshtransport``.

Exit statuses of ``run`` are those of ssh: the remote command's own, 255 when the connection failed. A command that
a signal ended gives 128 and the signal's number; 124 is for ``--timeout``, 130 for Ctrl-C, 2 for a wrong usage.
"""

from __future__ import annotations

import argparse
import asyncio
import concurrent.futures
import getpass
import os
import signal
import sys
import threading
from collections.abc import Sequence

import sshtransport
from sshtransport import ClientProcess, HostKeyError, SSHError, SSHReader

_FAILED, _INTERRUPTED, _TIMED_OUT, _SIGNALLED = 255, 130, 124, 128
_CHUNK = 65_536


def parse_target(text: str) -> tuple[str | None, str, int]:
    """User, host and port of ``[user@]host[:port]``; an IPv6 address with a port is in brackets.

    Raises:
        ValueError: there is no host, or a port that is none.
    """
    user, at, address = text.rpartition("@")
    host, colon, port = address.rpartition(":")
    if address.startswith("["):
        host, _, port = address[1:].partition("]")
        if port[:1] not in ("", ":") or "]" not in address:
            raise ValueError(f"not a host and port: {address!r}")
        colon, port = port[:1], port[1:]
    elif not colon or ":" in host:  # a name alone, or an IPv6 address alone
        host, colon, port = address, "", ""
    if not host or (at and not user):
        raise ValueError(f"[user@]host[:port] expected, not {text!r}")
    if colon and not (port.isascii() and port.isdigit() and 0 < int(port) < 65536):
        raise ValueError(f"not a port: {port!r}")
    return user or None, host, int(port) if colon else 22


def _target(text: str) -> tuple[str | None, str, int]:
    try:
        return parse_target(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _seconds(text: str) -> float:
    value = float(text)
    if not 0 < value < 1e9:
        raise ValueError
    return value


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="sshtransport", description="SSH from the command line, in small.")
    parser.add_argument("--version", action="version", version=f"sshtransport {sshtransport.__version__}")
    commands = parser.add_subparsers(dest="what", required=True, metavar="COMMAND")

    run = commands.add_parser(
        "run",
        help="run a command on a server",
        description="Run a command on a server. Without one, its shell, which reads what stdin has.",
        usage="sshtransport run [options] [user@]host[:port] [command ...]",
    )
    run.add_argument("target", type=_target, metavar="[user@]host[:port]")
    run.add_argument("command", nargs=argparse.REMAINDER, help="joined with spaces, for the server's shell")
    run.add_argument("-i", "--identity", action="append", metavar="FILE", help="private key (default: those in ~/.ssh)")
    run.add_argument("-n", "--no-input", action="store_true", help="do not read stdin")
    run.add_argument("--known-hosts", metavar="FILE", help="default: the user's and the system's files")
    run.add_argument("--accept-new", action="store_true", help="trust a host that is not known, and remember its key")
    run.add_argument("--connect-timeout", type=_seconds, default=30.0, metavar="SECONDS", help="default: 30")
    run.add_argument("--timeout", type=_seconds, metavar="SECONDS", help="for the command")

    commands.add_parser("ciphers", help="list the ciphers, and whether each works on this machine")
    return parser


# --- run ----------------------------------------------------------------------------------------------


def _ask(prompt: str) -> str | None:
    """Ask on the terminal. Nothing else of this program runs meanwhile, and Ctrl-C ends it at once."""
    if not sys.stdin.isatty():
        return None
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        return getpass.getpass(prompt)
    finally:
        signal.signal(signal.SIGINT, before)


def _feed(process: ClientProcess, loop: asyncio.AbstractEventLoop) -> None:
    """Carry our stdin to the command: a thread, since a read may wait for ever and not all files can be polled."""

    async def write(data: bytes) -> None:
        if data:
            process.stdin.write(data)
            await process.stdin.drain()
        else:
            process.stdin.write_eof()

    data = b"more"
    while data:
        data = os.read(0, _CHUNK)
        step = write(data)
        try:
            asyncio.run_coroutine_threadsafe(step, loop).result()
        except (SSHError, RuntimeError, concurrent.futures.CancelledError):
            step.close()  # the command has ended, or the loop has and never began the step
            break


async def _copy(reader: SSHReader[bytes], descriptor: int) -> None:
    while data := await reader.read(_CHUNK):
        while data:
            data = data[os.write(descriptor, data) :]


async def _run(options: argparse.Namespace) -> int:
    user, host, port = options.target

    async def password() -> str | None:
        return _ask(f"password of {user or getpass.getuser()} at {host}: ")

    async def passphrase(path: str) -> str | None:
        return _ask(f"passphrase of {path}: ")

    async with sshtransport.connect(
        host,
        port,
        username=user,
        client_keys=options.identity,
        passphrase=passphrase,
        password=password,
        known_hosts=options.known_hosts,
        host_key_verifier=sshtransport.accept_new if options.accept_new else None,
        timeout=options.connect_timeout,
    ) as connection:
        scope = asyncio.timeout(options.timeout)
        try:
            async with scope, connection.create_process(" ".join(options.command) or None) as process:
                if options.no_input:
                    process.stdin.write_eof()
                else:
                    threading.Thread(target=_feed, args=(process, asyncio.get_running_loop()), daemon=True).start()
                await asyncio.gather(_copy(process.stdout, 1), _copy(process.stderr, 2))
                status = await process.wait()
        except TimeoutError:
            if not scope.expired():
                raise
            return _say(f"the command took longer than {options.timeout:g} seconds", _TIMED_OUT)
    if process.exit_signal is not None:
        return _say(f"the command was ended by signal {process.exit_signal}", _SIGNALLED - (status or 0))
    return _say("the command ended without a status", _FAILED) if status is None else status % 256


def _say(text: str, status: int) -> int:
    print(f"sshtransport: {text}", file=sys.stderr)
    return status


def _run_command(options: argparse.Namespace) -> int:
    try:
        return asyncio.run(_run(options))
    except KeyboardInterrupt:
        return _say("interrupted", _INTERRUPTED)
    except HostKeyError as error:
        hint = " (--accept-new would trust it and remember it)" if error.verdict == "unknown" else ""
        return _say(f"{error}{hint}", _FAILED)
    except (SSHError, OSError) as error:
        return _say(str(error) or type(error).__name__, _FAILED)


# --- ciphers ------------------------------------------------------------------------------------------


def _list_ciphers(options: argparse.Namespace) -> int:
    for name in sshtransport.cipher_names():
        status = sshtransport.cipher_status(name)
        print(f"{name:<31} {'works' if status else f'does not work here: {status.reason}'}")
    return 0


_COMMANDS = {"run": _run_command, "ciphers": _list_ciphers}


def main(argv: Sequence[str] | None = None) -> int:
    """The program; returns its exit status. ``argv`` is without the program's name."""
    options = _parser().parse_args(argv)
    return _COMMANDS[options.what](options)


if __name__ == "__main__":
    sys.exit(main())
