"""What a Debian machine lacks for containers, installed by root: Podman, and base images without a registry."""

from __future__ import annotations

import asyncio
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

from interop.model import HarnessError
from interop.processes import end, run

# runc by name: Podman would be content with crun, which refuses machines with control groups of both versions.
PACKAGES = ("podman", "runc", "containernetworking-plugins", "iptables", "mmdebstrap")

CAP_SYS_RESOURCE = 24
CONTAINERS_CONF = Path("/etc/containers/containers.conf.d/90-sshtransport-interop.conf")
LOW_LIMITS = '[containers]\ndefault_ulimits = ["nofile=16384:16384", "nproc=16384:16384"]\n[engine]\nruntime = "runc"\n'


def can_install() -> bool:
    """Root, on Debian or what is made of it."""
    return os.geteuid() == 0 and shutil.which("apt-get") is not None


def can_bootstrap() -> bool:
    return os.geteuid() == 0 and (shutil.which("mmdebstrap") is not None or can_install())


async def install_podman(say: Callable[[str], None]) -> None:
    await install(PACKAGES, say)
    fit_podman()


async def install(packages: tuple[str, ...], say: Callable[[str], None]) -> None:
    began = time.monotonic()
    say(f"installing {' '.join(packages)}")
    apt = ("env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "-qq")
    await run(*apt, "update")
    await run(*apt, "install", "-y", "--no-install-recommends", *packages)
    say(f"installed in {time.monotonic() - began:.0f} s")


def fit_podman() -> None:
    """A root that may not raise limits cannot give containers the limits that Podman asks for: ask for less."""
    if os.geteuid() == 0 and not may_raise_limits() and not CONTAINERS_CONF.exists():
        CONTAINERS_CONF.parent.mkdir(parents=True, exist_ok=True)
        CONTAINERS_CONF.write_text(LOW_LIMITS)


def may_raise_limits(status: Path = Path("/proc/self/status")) -> bool:
    """Whether we have the capability CAP_SYS_RESOURCE; where there is no telling, yes."""
    try:
        lines = status.read_text().splitlines()
    except OSError:
        return True
    masks = [int(line.split()[1], 16) for line in lines if line.startswith("CapEff:")]
    return not masks or bool(masks[0] >> CAP_SYS_RESOURCE & 1)


async def bootstrap(cli: str, suite: str, image: str) -> None:
    """Make the base image from Debian's packages, as the official one is made: ``minbase``."""
    if shutil.which("mmdebstrap") is None:
        await install(("mmdebstrap",), lambda _: None)
    reader, writer = os.pipe()
    # A mirror may be frozen, and its lists then look too old; inside the image that must not matter either.
    frozen = 'Acquire::Check-Valid-Until "false"'
    try:
        maker = await asyncio.create_subprocess_exec(
            "mmdebstrap",
            "--quiet",
            "--variant=minbase",
            f"--aptopt={frozen}",
            suite,
            "-",
            stdin=asyncio.subprocess.DEVNULL,
            stdout=writer,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
        )
    finally:
        os.close(writer)
    importing = asyncio.create_task(
        run(cli, "import", "--change", 'CMD ["/bin/bash"]', "-", image, stdin=reader, check=False)
    )
    try:
        assert maker.stderr is not None
        errors = await maker.stderr.read()
        status = await maker.wait()
        imported, output = await importing
    finally:
        os.close(reader)
        importing.cancel()
        await end(maker)
        await asyncio.wait([importing])
    if status or imported:
        await run(cli, "rmi", "--force", image, check=False)  # half an image is worse than none
        raise HarnessError(f"cannot make {image}:\n{errors.decode(errors='replace')[-2000:]}{output[-2000:]}")
