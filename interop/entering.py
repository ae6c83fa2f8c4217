"""Starts programs in a container that runs: through its engine, or, where that can be done, straight through its door.

An engine's ``exec`` costs 0.2 s of CPU, several times what the client inside costs, and a run starts some two thousand.
Root on the engine's own machine can enter the container's namespaces without it, in milliseconds (nsenter(1)).
"""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from interop.processes import ChildProgram, run

__all__ = ("NAMED", "Entrance", "entrance", "own_variables", "variables")

NAMED = "INTEROP_CONTAINER"  # the variable in which a container knows its name
NSENTER = ("--mount", "--pid", "--ipc", "--uts", "--net", "--wd")

# A program is killed by its number in there: killing the engine's front end would leave it running.
RECORDED = ("sh", "-c", 'echo $$ > "$0"; exec "$@"')


class Entrance(Protocol):
    """A way into one container."""

    async def start(self, words: Sequence[str], values: Mapping[str, str]) -> ChildProgram:
        """Start a program, with these variables beside the container's own."""


async def entrance(cli: str, container: str) -> Entrance:
    """The cheapest way that works here."""
    nsenter = shutil.which("nsenter")
    if nsenter is not None and hasattr(os, "geteuid") and os.geteuid() == 0:
        _, output = await run(cli, "container", "inspect", "--format", "{{.State.Pid}}", container, check=False)
        # With a virtual machine between (Docker Desktop) the number is nobody here, or somebody else.
        with contextlib.suppress(ValueError, OSError):
            door = _Door(nsenter, int(output))
            if await door.leads_to(container):
                return door
    return _Engine(cli, container)


def own_variables(environ: bytes) -> dict[str, str]:
    """What ``/proc/<pid>/environ`` holds."""
    pairs = (item.partition("=") for item in environ.decode(errors="surrogateescape").split("\0") if "=" in item)
    return {name: value for name, _, value in pairs}


class _Door:
    """The namespaces of the container's first process."""

    def __init__(self, nsenter: str, pid: int) -> None:
        self._front = [nsenter, "--target", str(pid), *NSENTER]
        self._environ = own_variables(Path(f"/proc/{pid}/environ").read_bytes())

    async def leads_to(self, container: str) -> bool:
        """Whether the process is that container's, which knows its name, and lets us in."""
        if self._environ.get(NAMED) != container:
            return False
        status, _ = await run(*self._front, "true", check=False)
        return status == 0

    async def start(self, words: Sequence[str], values: Mapping[str, str]) -> ChildProgram:
        # nsenter waits outside for the program inside; both are of one process group, and are killed with it.
        return await ChildProgram.start([*self._front, *words], env={**self._environ, **values})


class _Engine:
    """``podman exec``, ``docker exec``."""

    def __init__(self, cli: str, container: str) -> None:
        self._cli = cli
        self._container = container
        self._numbers = itertools.count(1)

    async def start(self, words: Sequence[str], values: Mapping[str, str]) -> ChildProgram:
        pid_file = f"/tmp/pid-{next(self._numbers)}"

        async def kill() -> None:
            await run(self._cli, "exec", self._container, "sh", "-c", f"kill -KILL $(cat {pid_file})", check=False)

        front = [self._cli, "exec", "--interactive", *variables(values), self._container, *RECORDED, pid_file]
        return await ChildProgram.start([*front, *words], kill=kill)


def variables(values: Mapping[str, str]) -> list[str]:
    """An engine's options for environment variables."""
    return [word for name, value in values.items() for word in ("--env", f"{name}={value}")]
