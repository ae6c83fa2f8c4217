"""See it work, on this machine alone: ``make demo``, or ``python examples/demo.py``.

A server embedded in this program, and where there is one a real sshd (started on a free port of loopback, with keys
made for the occasion, without root), each get a command and some hundred megabytes in both directions with every
default cipher. SHA-256 of both ends is compared. Nothing is left behind: no process, no file, also after Ctrl-C.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import hashlib
import importlib.util
import os
import platform
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Self

import sshtransport
from sshtransport import AuthorizedKeys, ClientConnection, KnownHosts, PrivateKey, ServerProcess, TransportConfig

HOST = "127.0.0.1"
CIPHERS = (
    "aes256-gcm@openssh.com",
    "aes128-gcm@openssh.com",
    "chacha20-poly1305@openssh.com",
    "aes256-ctr",
    "aes128-ctr",
)
MIB = 2**20
CHUNK = 2**18
EMBEDDED_MIB_MAX = 64  # both ends are this one process
DIGEST = "import hashlib, sys; print(hashlib.file_digest(sys.stdin.buffer, 'sha256').hexdigest())"
NO_SSHD = """\
No sshd on this machine: the part with OpenSSH is left out. To get one, on Debian and Ubuntu:
    apt-get install openssh-server
It does not have to run as a service; the demo starts its own."""


# --- progress -----------------------------------------------------------------------------------------

Advance = Callable[[int], None]


class Plain:
    """A line for each transfer, when it begins."""

    @contextlib.contextmanager
    def transfer(self, label: str, total: int) -> Iterator[Advance]:
        print(f"  {label}, {total // MIB} MiB", flush=True)
        yield lambda size: None


class Bar(Plain):
    """A progress bar, with rich."""

    @contextlib.contextmanager
    def transfer(self, label: str, total: int) -> Iterator[Advance]:
        from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

        columns = (TextColumn("  {task.description:<45}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
        with Progress(*columns, transient=True) as progress:
            task = progress.add_task(label, total=total)
            waiting = 0

            def advance(size: int) -> None:
                nonlocal waiting
                waiting += size
                if waiting >= 4 * MIB:  # drawing must not cost more than what it shows
                    progress.advance(task, waiting)
                    waiting = 0

            yield advance


def progress() -> Plain:
    return Bar() if sys.stdout.isatty() and importlib.util.find_spec("rich") else Plain()


# --- the peers ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Peer:
    """A server to talk to, and what to ask it."""

    port: int
    username: str
    key: PrivateKey
    known_hosts: KnownHosts
    hello: str
    send: str  # writes the file to its stdout
    digest: str  # prints the SHA-256 of its stdin, in hex

    def connect(self, cipher: str) -> sshtransport.Opening[ClientConnection]:
        return sshtransport.connect(
            HOST,
            self.port,
            username=self.username,
            client_keys=[self.key],
            known_hosts=self.known_hosts,
            config=TransportConfig(ciphers=[cipher]),
        )


def trusted(port: int, key: PrivateKey) -> KnownHosts:
    return KnownHosts.from_text(f"[{HOST}]:{port} {key.public_key.to_text()}")


class Embedded:
    """Our own server's handler: three commands."""

    def __init__(self, file: BinaryIO) -> None:
        self.file = file

    async def handle(self, process: ServerProcess) -> int:
        match process.command:
            case "hello":
                process.stdout.write(f"hello {process.username} from Python {platform.python_version()}\n".encode())
            case "send":
                for data in chunks(self.file, int(process.env["SIZE"])):
                    process.stdout.write(data)
                    await process.stdout.drain()
            case "digest":
                digest = hashlib.sha256()
                while data := await process.stdin.read(CHUNK):
                    digest.update(data)
                process.stdout.write(digest.hexdigest().encode())
            case _:
                return 127
        return 0


class Sshd:
    """The machine's sshd on a free port of loopback; it and its sessions end with the ``with`` block."""

    def __init__(self, program: str, folder: Path, client: PrivateKey) -> None:
        self.program = program
        self.folder = folder
        self.host_key = PrivateKey.generate("ssh-ed25519")
        self.port = 0
        (folder / "host_key").touch(mode=0o600)
        (folder / "host_key").write_bytes(self.host_key.to_openssh())
        (folder / "authorized_keys").write_text(client.public_key.to_text() + "\n")
        if os.geteuid() == 0:
            os.makedirs("/run/sshd", mode=0o755, exist_ok=True)  # wanted by an sshd that root starts

    def config(self) -> str:
        return f"""\
Port {self.port}
ListenAddress {HOST}
HostKey {shlex.quote(str(self.folder / "host_key"))}
AuthorizedKeysFile {shlex.quote(str(self.folder / "authorized_keys"))}
AuthenticationMethods publickey
PermitRootLogin prohibit-password
PasswordAuthentication no
StrictModes no
UsePAM no
UseDNS no
PidFile none
PrintMotd no
PrintLastLog no
SetEnv SHLVL=2
"""  # SHLVL: on the first level Debian's bash reads .bashrc for commands, and that may print something

    def __enter__(self) -> Self:
        for _ in range(5):  # somebody else may take the port in between
            with socket.create_server((HOST, 0)) as probe:
                self.port = probe.getsockname()[1]
            (self.folder / "sshd_config").write_text(self.config())
            self.process = subprocess.Popen(
                [self.program, "-D", "-e", "-f", str(self.folder / "sshd_config")],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                start_new_session=True,  # a Ctrl-C in the terminal is for us, who clean up
                text=True,
                errors="replace",
            )
            assert self.process.stderr is not None
            log = ""
            for line in self.process.stderr:
                log += line
                if "Server listening" in line:
                    return self
            self.stop()
            if "Address already in use" not in log:
                break
        raise OSError(f"{self.program} did not start:\n{log}")

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """End it, and wait until its sessions have let go of the log as well."""
        self.process.terminate()
        try:
            self.process.communicate(timeout=5.0)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            assert self.process.stderr is not None
            self.process.stderr.close()


def find_sshd() -> str | None:
    """sshd's full path, which it wants to be started by; sbin is in no ordinary user's PATH."""
    return shutil.which("sshd") or shutil.which("sshd", path="/usr/sbin:/usr/local/sbin:/opt/homebrew/sbin")


def login_name() -> str:
    import pwd

    return pwd.getpwuid(os.getuid()).pw_name


# --- the work -----------------------------------------------------------------------------------------


@dataclass
class Result:
    """One row of the table."""

    peer: str
    kex: str
    host_key: str
    cipher: str
    strict: bool
    mib: int
    down: float = 0.0  # MB (10^6 bytes) a second
    up: float = 0.0
    equal: bool = False

    def cells(self) -> tuple[str, ...]:
        words = ("no", "yes")
        return (
            self.peer,
            self.kex,
            self.host_key,
            self.cipher,
            words[self.strict],
            str(self.mib),
            f"{self.down:.0f}",
            f"{self.up:.0f}",
            words[self.equal],
        )


TITLES = ("peer", "KEX", "host key", "cipher", "strict KEX", "MiB", "MB/s down", "MB/s up", "SHA-256 equal")


def table(results: Sequence[Result]) -> str:
    rows = [TITLES, *(result.cells() for result in results)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(TITLES))]
    numbers = range(5, 8)

    def line(row: Sequence[str]) -> str:
        aligned = (
            f"{c:>{w}}" if i in numbers else f"{c:<{w}}" for i, (c, w) in enumerate(zip(row, widths, strict=True))
        )
        return "  ".join(aligned).rstrip()

    return "\n".join([line(rows[0]), line(["-" * width for width in widths]), *map(line, rows[1:])])


def chunks(file: BinaryIO, size: int) -> Iterator[bytes]:
    """The first ``size`` bytes of the file, by ``pread``: several may read at once."""
    for start in range(0, size, CHUNK):
        yield os.pread(file.fileno(), min(CHUNK, size - start), start)


def make_file(folder: Path, size: int) -> BinaryIO:
    free = shutil.disk_usage(folder).free
    if free < 2 * size:
        raise OSError(f"{folder} has {free // MIB} MiB free; give the demo another TMPDIR, or a smaller --mib")
    file = (folder / "data").open("w+b")
    for start in range(0, size, MIB):
        file.write(os.urandom(min(MIB, size - start)))
    file.flush()
    return file


def digest_of(file: BinaryIO, size: int) -> str:
    digest = hashlib.sha256()
    for data in chunks(file, size):
        digest.update(data)
    return digest.hexdigest()


def describe(conn: ClientConnection, mib: int) -> Result:
    info = conn.info
    assert info.algorithms is not None and info.peer_ident is not None
    used = info.algorithms
    cipher = used.cipher_c2s if used.mac_c2s is None else f"{used.cipher_c2s} + {used.mac_c2s}"
    software = info.peer_ident.decode("ascii", "replace").removeprefix("SSH-2.0-").partition(" ")[0]
    return Result(software, used.kex, used.host_key, cipher.replace("@openssh.com", ""), info.strict_kex, mib)


async def download(conn: ClientConnection, command: str, size: int, advance: Advance) -> str:
    digest = hashlib.sha256()
    async with conn.create_process(command, env={"SIZE": str(size)}) as process:
        while data := await process.stdout.read(CHUNK):
            digest.update(data)
            advance(len(data))
    return digest.hexdigest()


async def upload(conn: ClientConnection, command: str, file: BinaryIO, size: int, advance: Advance) -> str:
    async with conn.create_process(command) as process:
        for data in chunks(file, size):
            process.stdin.write(data)
            await process.stdin.drain()
            advance(len(data))
        process.stdin.write_eof()
        answer: bytes = await process.stdout.read()
    return answer.decode("ascii", "replace").strip()


async def try_peer(peer: Peer, file: BinaryIO, size: int, show: Plain) -> list[Result]:
    wanted = digest_of(file, size)
    results: list[Result] = []
    for cipher in CIPHERS:
        async with peer.connect(cipher) as conn:
            result = describe(conn, size // MIB)
            if not results:
                print(f"\n{result.peer}: {(await conn.run(peer.hello, check=True, encoding='utf-8')).stdout.strip()}")
            with show.transfer(f"{cipher}, download", size) as advance:
                begun = time.perf_counter()
                down = await download(conn, peer.send, size, advance)
                result.down = size / 1e6 / (time.perf_counter() - begun)
            with show.transfer(f"{cipher}, upload", size) as advance:
                begun = time.perf_counter()
                up = await upload(conn, peer.digest, file, size, advance)
                result.up = size / 1e6 / (time.perf_counter() - begun)
            result.equal = down == up == wanted
            results.append(result)
    return results


async def with_embedded(file: BinaryIO, size: int, client: PrivateKey, show: Plain) -> list[Result]:
    key = PrivateKey.generate("ssh-ed25519")
    authenticator = AuthorizedKeys([client.public_key.to_text()])
    async with await sshtransport.listen(
        Embedded(file).handle, HOST, 0, host_keys=[key], authenticator=authenticator
    ) as server:
        peer = Peer(server.port, "demo", client, trusted(server.port, key), "hello", "send", "digest")
        return await try_peer(peer, file, size, show)


def with_sshd(program: str, folder: Path, file: BinaryIO, size: int, client: PrivateKey, show: Plain) -> list[Result]:
    with Sshd(program, folder, client) as sshd:
        peer = Peer(
            sshd.port,
            login_name(),
            client,
            trusted(sshd.port, sshd.host_key),
            "uname -srm",
            f"cat {shlex.quote(str(folder / 'data'))}",
            # Twice as fast as the sha256sum that many machines have.
            shlex.join([sys.executable, "-IS", "-c", DIGEST]),
        )
        return asyncio.run(try_peer(peer, file, size, show))


def run(mib: int, program: str | None) -> list[Result]:
    show = progress()
    client = PrivateKey.generate("ssh-ed25519")
    with tempfile.TemporaryDirectory(prefix="sshtransport-demo-") as name:
        folder = Path(name)
        with make_file(folder, mib * MIB) as file:
            results = asyncio.run(with_embedded(file, min(mib, EMBEDDED_MIB_MAX) * MIB, client, show))
            if program is None:
                print(f"\n{NO_SSHD}")
            else:
                results += with_sshd(program, folder, file, mib * MIB, client, show)
    return results


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Show sshtransport at work, on this machine alone.")
    parser.add_argument("--mib", type=int, default=256, help="MiB to move each way with each cipher (default 256)")
    parser.add_argument("--sshd", metavar="PROGRAM", help='the sshd to use (default: the machine\'s); "none" for none')
    options = parser.parse_args(argv)
    if options.mib < 1:
        parser.error("--mib must be at least 1")
    program = {None: find_sshd(), "none": None}.get(options.sshd, options.sshd)
    signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))  # one way to end early
    try:
        results = run(options.mib, program)
    except (sshtransport.SSHError, OSError) as error:
        print(f"demo: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("demo: interrupted", file=sys.stderr)
        return 130
    print(f"\n{table(results)}\n\nHashing is part of the time. Names are without @openssh.com.")
    return 0 if all(result.equal for result in results) else 1


if __name__ == "__main__":
    sys.exit(main())
