"""The engine "host": the SSH programs of this machine instead of containers."""

from __future__ import annotations

import asyncio
import contextlib
import os
import pwd
import signal
import socket
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from interop.model import Credentials, HarnessError, Peer, PeerClient, PeerServer, Program, Role, Setting, Target
from interop.processes import ChildProgram, end, environment, run
from interop.starting import START_TIMEOUT, arguments, client_variables, identification, server_variables

HOST = "127.0.0.1"


class HostEngine:
    """Starts the scripts of a peer's folder on this machine. The user who logs in is whoever runs it."""

    name = "host"

    def __init__(self, credentials: Credentials) -> None:
        self._credentials = credentials
        self._username = pwd.getpwuid(os.getuid()).pw_name

    async def prepare(self, peers: Sequence[Peer], say: Callable[[str], None]) -> Mapping[str, str]:
        failed: dict[str, str] = {}
        for peer in peers:
            try:
                await self.version(peer)
            except HarnessError as error:
                failed[peer.name] = str(error)
        return failed

    async def version(self, peer: Peer) -> str:
        if not peer.hosted:
            raise HarnessError(f"{peer.name} runs in a container only")
        status, output = await run("env", "-C", str(peer.folder), f"PATH={_path()}", "./version", check=False)
        if status:
            raise HarnessError(f"{peer.name}: not installed on this machine\n{output}".strip())
        return output.strip()

    @contextlib.asynccontextmanager
    async def serve(self, peer: Peer, settings: Mapping[Setting, str] | None = None) -> AsyncIterator[PeerServer]:
        port = _free_port()
        folder = str(self._credentials.folder.resolve())
        values = server_variables(self._credentials, folder, HOST, port, self._username)
        with tempfile.TemporaryFile() as log:
            process = await asyncio.create_subprocess_exec(
                *arguments(peer, Role.SERVER, settings or {}),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment(PATH=_path(), **values),
                cwd=peer.folder,
                start_new_session=True,
            )
            try:
                server = _HostServer(port, self._username, log.fileno())
                await self._answer(peer, process, server)
                yield server
            finally:
                below = descendants(process.pid)  # sessions leave the server's group
                await end(process)
                for pid in below:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)

    async def _answer(self, peer: Peer, process: asyncio.subprocess.Process, server: _HostServer) -> None:
        deadline = time.monotonic() + START_TIMEOUT
        while not await identification(HOST, server.port):
            if process.returncode is not None or time.monotonic() > deadline:
                raise HarnessError(f"{peer.name}: no SSH server answers; its log:\n{await server.log()}")
            await asyncio.sleep(0.05)

    @contextlib.asynccontextmanager
    async def client(self, peer: Peer) -> AsyncIterator[PeerClient]:
        with tempfile.TemporaryDirectory() as home:
            client = _HostClient(peer, self._credentials, self._username, Path(home))
            try:
                if (peer.folder / "prepare").exists():
                    folder = str(self._credentials.folder.resolve())
                    places = [f"PATH={_path()}", f"INTEROP_FOLDER={folder}", f"HOME={home}"]
                    await run("env", "-C", str(peer.folder), *places, "./prepare")
                yield client
            finally:
                await client.close()

    async def close(self) -> None:
        """Nothing outlives the blocks of :meth:`serve` and :meth:`client`."""


@dataclass(frozen=True)
class _HostServer:
    port: int
    username: str
    log_file: int
    host: str = HOST

    async def log(self) -> str:
        return os.pread(self.log_file, 2**20, 0).decode(errors="replace")


class _HostClient:
    def __init__(self, peer: Peer, credentials: Credentials, username: str, home: Path) -> None:
        self._peer = peer
        self._credentials = credentials
        self._username = username
        self._home = home
        self._programs: list[ChildProgram] = []

    async def start(self, command: str, target: Target) -> Program:
        folder = str(self._credentials.folder.resolve())
        values = client_variables(self._credentials, folder, HOST, self._username, command, target)
        words = arguments(self._peer, Role.CLIENT, target.settings)
        env = environment(PATH=_path(), HOME=str(self._home), **values)
        program = await ChildProgram.start(words, env=env, cwd=self._peer.folder)
        self._programs.append(program)
        return program

    async def close(self) -> None:
        for program in self._programs:
            await program.close()


def _path() -> str:
    """With the Python that runs us first, for the peers that are Python packages."""
    return f"{Path(sys.executable).parent}:{os.environ.get('PATH', '/usr/bin:/bin')}:/usr/sbin"


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
        return port


def descendants(pid: int) -> list[int]:
    """The processes below this one, where /proc tells (Linux); elsewhere none."""
    children: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, ValueError, IndexError):  # it may end under our eyes
            parent = int(stat.read_text().rpartition(")")[2].split()[1])
            children.setdefault(parent, []).append(int(stat.parent.name))
    found: list[int] = []
    waiting = [pid]
    while waiting:
        new = children.get(waiting.pop(), [])
        found += new
        waiting += new
    return found
