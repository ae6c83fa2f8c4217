"""Runs peers in containers of Podman or Docker: builds their images, starts them, removes all of it at the end."""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import hashlib
import itertools
import os
import re
import shutil
import subprocess
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from interop import setup
from interop.entering import NAMED, Entrance, entrance, variables
from interop.host import HostEngine
from interop.model import (
    MOUNT,
    USERNAME,
    Credentials,
    Engine,
    HarnessError,
    Peer,
    PeerClient,
    PeerServer,
    Program,
    Role,
    Setting,
    Target,
)
from interop.processes import ChildProgram, run
from interop.starting import START_TIMEOUT, arguments, client_variables, identification, server_variables

ENGINES = ("podman", "docker")
PREFIX = "sshtransport-interop"  # of images, of containers, and their label
PORT = 22  # where a server in a container listens
BUILDS_AT_ONCE = 2
PROXIES = ("http_proxy", "https_proxy", "no_proxy")


async def open_engine(name: str, credentials: Credentials, say: Callable[[str], None]) -> Engine:
    """The engine of that name; "auto": Podman or Docker, whichever answers, installed where that can be done."""
    if name == "host":
        return HostEngine(credentials)
    wanted = ENGINES if name == "auto" else (name,)
    found = await _answering(wanted)
    if found is None and "podman" in wanted and setup.can_install():
        await setup.install_podman(say)
        found = await _answering(("podman",))
    if found is None:
        raise HarnessError(
            f"no container engine answers (tried: {', '.join(f'{item} info' for item in wanted)}). Install Podman or "
            "Docker, or run as root on Debian, where Podman is installed by itself; --engine host does without."
        )
    engine = ContainerEngine(found, credentials)
    atexit.register(engine.remove_now)
    await engine.remove_leftovers(say)
    return engine


async def _answering(names: Iterable[str]) -> str | None:
    """The first that answers: a docker program may be there without an engine behind it."""
    for name in names:
        if shutil.which(name) and (await run(name, "info", check=False))[0] == 0:
            if name == "podman":
                setup.fit_podman()
            return name
    return None


# --- who started what -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class RunMark:
    """This run, in the names of its containers: so that a later run knows what a dead one left behind."""

    host: str
    pid: int
    started: int  # as the kernel counts: a number used again for another process has another one

    @classmethod
    def ours(cls) -> RunMark:
        host = hashlib.sha256(os.uname().nodename.encode()).hexdigest()[:8]
        return cls(host, os.getpid(), process_start(os.getpid()) or 0)

    @property
    def label(self) -> str:
        return f"{self.host}-{self.pid}-{self.started}"

    @classmethod
    def of(cls, container: str) -> RunMark | None:
        """From a container's name; None: not one of the harness."""
        found = re.fullmatch(rf"{PREFIX}-([0-9a-f]{{8}})-(\d+)-(\d+)-\d+", container)
        return cls(found[1], int(found[2]), int(found[3])) if found else None

    def dead(self) -> bool:
        """Whether it was started here and is gone. What another machine started in a shared engine is not ours."""
        if self.host != RunMark.ours().host:
            return False
        now = process_start(self.pid)
        return now is None or now != self.started


def process_start(pid: int) -> int | None:
    """When that process was started; 0 where the system does not tell; None: there is none."""
    try:
        if Path("/proc/self/stat").exists():
            return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
        os.kill(pid, 0)
    except (FileNotFoundError, ProcessLookupError):
        return None
    except PermissionError:
        pass
    return 0


# --- images ---------------------------------------------------------------------------------------------


def image_name(peer: Peer) -> str:
    """Changes with every file of the folder that the image is made from, and with the build arguments."""
    digest = hashlib.sha256()
    for path in sorted(path for path in peer.folder.rglob("*") if path.is_file()):
        if path.name == "peer.toml" or "__pycache__" in path.parts:
            continue
        content = path.read_bytes()
        digest.update(f"{path.relative_to(peer.folder)} {path.stat().st_mode & 0o100:o} {len(content)}\n".encode())
        digest.update(content)
    for name, value in sorted(peer.build.items()):
        digest.update(f"{name}={value}\n".encode())
    return f"{PREFIX}-{peer.name}:{digest.hexdigest()[:12]}"


def build_command(cli: str, peer: Peer, image: str) -> list[str]:
    """Never with ``--pull``: the base image may have been made here."""
    values = dict(peer.build)
    if cli == "docker":  # Podman passes them by itself
        values |= {name: os.environ[name] for name in PROXIES if name in os.environ}
    pairs = [word for name, value in values.items() for word in ("--build-arg", f"{name}={value}")]
    return [cli, "build", "--tag", image, *pairs, "--file", str(peer.folder / "Containerfile"), str(peer.folder)]


def base_image(suite: str) -> str:
    return f"docker.io/library/debian:{suite}-slim"


# --- containers -----------------------------------------------------------------------------------------


def run_command(
    cli: str, mark: RunMark, name: str, image: str, folder: Path, options: Sequence[str], command: Sequence[str]
) -> list[str]:
    """A container in the background that everybody can tell is this run's, with the credentials inside."""
    mount = f"{folder}:{MOUNT}:ro,z"
    known = ["--name", name, "--label", f"{PREFIX}={mark.label}", *variables({NAMED: name})]
    return [cli, "run", "--detach", *known, "--volume", mount, *options, image, *command]


class ContainerEngine:
    """Podman or Docker, by its command line; both understand all that is used here."""

    def __init__(self, cli: str, credentials: Credentials) -> None:
        self.name = cli
        self._credentials = credentials
        self._mark = RunMark.ours()
        self._numbers = itertools.count(1)
        self._images: dict[str, str] = {}
        self._bases: dict[str, asyncio.Task[None]] = {}
        self._building = asyncio.Semaphore(BUILDS_AT_ONCE)

    # --- images

    async def prepare(self, peers: Sequence[Peer], say: Callable[[str], None]) -> Mapping[str, str]:
        failed: dict[str, str] = {}

        async def one(peer: Peer) -> None:
            try:
                await self._build(peer, say)
            except HarnessError as error:
                failed[peer.name] = str(error)

        async with asyncio.TaskGroup() as group:
            for peer in peers:
                group.create_task(one(peer))
        return failed

    async def _build(self, peer: Peer, say: Callable[[str], None]) -> None:
        if peer.hosted:
            raise HarnessError(f"{peer.name} is a program of this machine: --engine host")
        image = self._image(peer)
        if await self._has(image):
            return
        suite = peer.build["SUITE"]
        if suite not in self._bases:
            self._bases[suite] = asyncio.create_task(self._make_base(suite, say))
        await self._bases[suite]
        async with self._building:
            began = time.monotonic()
            say(f"building the image of {peer.name}")
            await run(*build_command(self.name, peer, image))
            say(f"built the image of {peer.name} in {time.monotonic() - began:.0f} s")

    def _image(self, peer: Peer) -> str:
        """The same for the whole run, should somebody work on the peer's files meanwhile."""
        return self._images.setdefault(peer.name, image_name(peer))

    async def _make_base(self, suite: str, say: Callable[[str], None]) -> None:
        """Here already, else from the registry, else made from Debian's packages under the registry's name."""
        base = base_image(suite)
        async with self._building:
            if await self._has(base):
                return
            status, output = await run(self.name, "pull", "--quiet", base, check=False)
            if status == 0:
                return
            if not setup.can_bootstrap():
                raise HarnessError(f"cannot pull {base}, and only root on Debian can make it here:\n{output}")
            began = time.monotonic()
            say(f"making {base}: it cannot be pulled")
            await setup.bootstrap(self.name, suite, base)
            say(f"made {base} in {time.monotonic() - began:.0f} s")

    async def _has(self, image: str) -> bool:
        return (await run(self.name, "image", "inspect", image, check=False))[0] == 0

    async def version(self, peer: Peer) -> str:
        name = self._new_name()
        label = f"{PREFIX}={self._mark.label}"
        options = ["--rm", "--network", "none", "--name", name, "--label", label]
        try:
            _, output = await run(self.name, "run", *options, self._image(peer), "./version")
        except BaseException:
            await self._remove(name)
            raise
        return output.strip()

    # --- containers

    @contextlib.asynccontextmanager
    async def serve(self, peer: Peer, settings: Mapping[Setting, str] | None = None) -> AsyncIterator[PeerServer]:
        command = arguments(peer, Role.SERVER, settings or {})
        values = server_variables(self._credentials, MOUNT, "0.0.0.0", PORT, USERNAME)
        options = ["--publish", f"127.0.0.1::{PORT}", *variables(values)]
        async with self.container(peer, options, command) as name:
            yield await self._answer(name)

    async def _answer(self, name: str) -> _ContainerServer:
        """Once it greets a client. An engine's own proxy may take connections long before that."""
        deadline = time.monotonic() + START_TIMEOUT
        while True:
            status, output = await run(self.name, "port", name, f"{PORT}/tcp", check=False)
            found = re.search(r":(\d+)\s*$", output.splitlines()[0]) if status == 0 and output else None
            if found and await identification("127.0.0.1", int(found[1])):
                return _ContainerServer(self.name, name, int(found[1]))
            if await self._ended(name) or time.monotonic() > deadline:
                raise HarnessError(f"{name}: no SSH server answers; its log:\n{await _log(self.name, name)}")
            await asyncio.sleep(0.1)

    async def _ended(self, name: str) -> bool:
        _, output = await run(self.name, "container", "inspect", "--format", "{{.State.Running}}", name, check=False)
        return output.strip() != "true"

    @contextlib.asynccontextmanager
    async def client(self, peer: Peer) -> AsyncIterator[PeerClient]:
        async with self.container(peer, ["--network", "host"], ["sleep", "infinity"]) as name:
            await run(self.name, "exec", *variables({"INTEROP_FOLDER": MOUNT}), name, *PREPARE)
            client = _ContainerClient(await entrance(self.name, name), peer, self._credentials)
            try:
                yield client
            finally:
                await client.close()

    @contextlib.asynccontextmanager
    async def container(self, peer: Peer, options: Sequence[str], command: Sequence[str]) -> AsyncIterator[str]:
        """A container for the block; its name is known before it is there, so that nothing can be left behind."""
        name, folder = self._new_name(), self._credentials.folder.resolve()
        try:
            words = run_command(self.name, self._mark, name, self._image(peer), folder, options, command)
            for more in (True, True, False):
                try:
                    await run(*words)
                    break
                except HarnessError as error:
                    if not more or "address already in use" not in str(error):
                        raise
                    await self._remove(name)  # somebody took the port between its choice and its use
            yield name
        finally:
            await self._remove(name)

    def _new_name(self) -> str:
        return f"{PREFIX}-{self._mark.label}-{next(self._numbers)}"

    # --- the end

    async def _remove(self, *names: str) -> None:
        """Also while being cancelled."""
        removal = asyncio.ensure_future(run(*remove_command(self.name, names), check=False))
        try:
            await asyncio.shield(removal)
        except asyncio.CancelledError:
            await asyncio.wait([removal])
            raise

    async def close(self) -> None:
        for task in self._bases.values():
            task.cancel()
        await asyncio.gather(*self._bases.values(), return_exceptions=True)
        names = [name for name in await self._containers() if RunMark.of(name) == self._mark]
        if names:
            await self._remove(*names)
        atexit.unregister(self.remove_now)

    def remove_now(self) -> None:
        """The last resort, where the loop was stopped before :meth:`close`."""
        done = subprocess.run(list_command(self.name), capture_output=True, text=True)
        names = [name for name in done.stdout.split() if RunMark.of(name) == self._mark]
        if names:
            subprocess.run(remove_command(self.name, names), capture_output=True)

    async def remove_leftovers(self, say: Callable[[str], None]) -> None:
        """Containers of earlier runs that were killed."""
        marks = {name: RunMark.of(name) for name in await self._containers()}
        names = [name for name, mark in marks.items() if mark is not None and mark.dead()]
        if names:
            say(f"removing {len(names)} containers of runs that were killed")
            await self._remove(*names)

    async def _containers(self) -> list[str]:
        _, output = await run(*list_command(self.name), check=False)
        return output.split()


def list_command(cli: str) -> list[str]:
    return [cli, "ps", "--all", "--filter", f"label={PREFIX}", "--format", "{{.Names}}"]


def remove_command(cli: str, names: Sequence[str]) -> list[str]:
    """Killed without waiting: nothing in there is worth keeping."""
    return [cli, "rm", "--force", *(["--time", "0"] if cli == "podman" else []), *names]


async def _log(cli: str, name: str) -> str:
    return (await run(cli, "logs", name, check=False))[1]


PREPARE = ("sh", "-c", "test ! -e prepare || ./prepare")


@dataclass(frozen=True)
class _ContainerServer:
    cli: str
    container: str
    port: int
    host: str = "127.0.0.1"
    username: str = USERNAME

    async def log(self) -> str:
        return await _log(self.cli, self.container)


class _ContainerClient:
    """A sleeping container in which the client is started again and again."""

    def __init__(self, entrance: Entrance, peer: Peer, credentials: Credentials) -> None:
        self._entrance = entrance
        self._peer = peer
        self._credentials = credentials
        self._programs: list[ChildProgram] = []

    async def start(self, command: str, target: Target) -> Program:
        values = client_variables(self._credentials, MOUNT, "127.0.0.1", USERNAME, command, target)
        program = await self._entrance.start(arguments(self._peer, Role.CLIENT, target.settings), values)
        self._programs.append(program)
        return program

    async def close(self) -> None:
        for program in self._programs:
            await program.close()
