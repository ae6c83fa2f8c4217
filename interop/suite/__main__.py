"""``python -m interop.suite``: run pytest in a container, on the Python of a release of Debian.

The checkout goes in as git sees it, changes and new files included. What it needs from a package index is fetched
here, with whatever settings pip has on this machine, and carried in: the container itself needs no network.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import platform
import signal
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from collections.abc import Sequence
from pathlib import Path

from interop.engine import ContainerEngine, open_engine
from interop.entering import variables
from interop.model import Credentials, HarnessError, Peer
from interop.processes import end, run

ROOT = Path(__file__).parents[2]
WHEELS = "/wheels"
VECTORS = "/vectors"
GLIBCS = (34, 31, 28, 27, 24, 17)  # wheels made for these run on any Debian from bookworm on
KEX = "mlkem768x25519-sha256"  # no OpenSSH before 9.9 has it: seeing it at work is a reason for all this


async def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m interop.suite", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--engine", default="auto", choices=["auto", "podman", "docker"])
    parser.add_argument("--suite", default="trixie", help="release of Debian (default: %(default)s)")
    parser.add_argument("pytest", nargs="*", help="arguments for pytest, behind --")
    chosen = parser.parse_args(arguments)
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    with tempfile.TemporaryDirectory(prefix="sshtransport-suite-") as scratch:
        folder = Path(scratch)
        (folder / "wheels").mkdir()
        engine = await open_engine(chosen.engine, Credentials(folder / "wheels", ""), say)
        assert isinstance(engine, ContainerEngine)
        try:
            return await try_suite(engine, folder, chosen.suite, chosen.pytest)
        finally:
            await engine.close()


async def try_suite(engine: ContainerEngine, folder: Path, suite: str, arguments: Sequence[str]) -> int:
    image = Peer(f"suite-{suite}", f"Debian {suite}", Path(__file__).parent, {"SUITE": suite}, {})
    for name, reason in (await engine.prepare([image], say)).items():
        raise HarnessError(f"{name}: {reason}")
    options = [f"--volume={folder / 'wheels'}:{WHEELS}:ro,z"]
    environment = {"SSHTRANSPORT_REQUIRE_SSHD": "1", "CI": "true"}
    if (vectors := published_vectors()) is not None:
        options.append(f"--volume={vectors}:{VECTORS}:ro,z")
        environment["SSHTRANSPORT_VECTORS"] = VECTORS
    async with engine.container(image, options, ["sleep", "infinity"]) as name:
        inside = (engine.name, "exec", *variables(environment), name)
        _, python = await run(*inside, "python3", "-c", "import sys; print('%d.%d' % sys.version_info[:2])")
        _, known = await run(*inside, "ssh", "-Q", "kex")
        if KEX not in known.split():
            raise HarnessError(f"the OpenSSH of {suite} has no {KEX}")
        say(f"Python {python.strip()} of {suite}, {(await run(*inside, 'ssh', '-V'))[1].strip()}")
        wanted = requirements()
        await run(*download_command(python.strip(), folder / "wheels", wanted))
        pack(folder / "checkout.tar")
        with (folder / "checkout.tar").open("rb") as archive:
            await run(engine.name, "exec", "--interactive", name, "tar", "-xf", "-", stdin=archive.fileno())
        await run(*inside, "python3", "-m", "venv", "/venv")
        pip = ("/venv/bin/python", "-m", "pip", "--disable-pip-version-check", "--quiet")
        await run(*inside, *pip, "install", "--no-index", f"--find-links={WHEELS}", *wanted)
        pytest = ("/venv/bin/python", "-m", "pytest", "--numprocesses", "auto", "--dist", "worksteal")
        return await seen(*inside, *pytest, *arguments)


def published_vectors() -> Path | None:
    """The folder that the tests here would read them from."""
    given = os.environ.get("SSHTRANSPORT_VECTORS")
    return Path(given).absolute() if given else None


def requirements() -> list[str]:
    """What the package and its tests need."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return [*project["dependencies"], *project["optional-dependencies"]["test"]]


def download_command(python: str, folder: Path, wanted: Sequence[str]) -> list[str]:
    """pip, for another Python than the one that runs it."""
    machine = platform.machine()
    platforms = [f"--platform=manylinux_2_{glibc}_{machine}" for glibc in GLIBCS]
    target = [f"--python-version={python}", "--implementation=cp", "--only-binary=:all:", *platforms]
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]
    return [*pip, "download", f"--dest={folder}", *target, *wanted]


def pack(archive: Path) -> None:
    """The checkout with all that git does not ignore."""
    command = ["git", "-C", str(ROOT), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(command, check=True, capture_output=True).stdout.decode().split("\0")
    with tarfile.open(archive, "w") as file:
        for name in sorted(set(names)):
            if name and (ROOT / name).exists():
                file.add(ROOT / name, name)


async def seen(*command: str) -> int:
    """Run with its output where ours goes."""
    process = await asyncio.create_subprocess_exec(*command, stdin=asyncio.subprocess.DEVNULL, start_new_session=True)
    try:
        return await process.wait()
    finally:
        await end(process)


def say(text: str) -> None:
    print(text, flush=True)


if __name__ == "__main__":
    try:
        sys.exit(asyncio.run(main(sys.argv[1:])))
    except HarnessError as error:
        sys.exit(f"interop.suite: {error}")
    except (KeyboardInterrupt, asyncio.CancelledError):  # Ctrl-C, SIGTERM
        sys.exit("interop.suite: interrupted")
