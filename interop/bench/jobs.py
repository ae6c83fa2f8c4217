"""What one measurement is told, and what it tells; the clocks."""

from __future__ import annotations

import resource
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

HOST = "127.0.0.1"
CHUNK = 262_144


@dataclass(frozen=True)
class Job:
    """Where the server is, with which keys, and how much to do. For servers: their own key; no port yet."""

    folder: str
    username: str
    cipher: str
    mib: int
    count: int
    port: int = 0

    def file(self, name: str) -> str:
        """``user``, ``host``: private keys; ``known_hosts``, ``authorized_keys``."""
        return str(Path(self.folder, name))

    @property
    def size(self) -> int:
        return self.mib << 20

    def knows(self, key: bytes) -> bool:
        """Whether that is the blob of the host key, for peers that leave the comparison to us."""
        import base64  # not while a peer's import is measured

        return base64.b64encode(key).decode() in Path(self.file("known_hosts")).read_text().split()


@dataclass(frozen=True)
class Measured:
    """CPU seconds (user and system) and wall seconds; bytes of memory where that is the question."""

    cpu: float = 0.0
    wall: float = 0.0
    memory: float = 0.0


def cpu(who: int = resource.RUSAGE_SELF) -> float:
    usage = resource.getrusage(who)
    return usage.ru_utime + usage.ru_stime


def stopwatch(who: int = resource.RUSAGE_SELF) -> Callable[[], Measured]:
    """Starts now; each call says what has passed."""
    start, wall = cpu(who), time.perf_counter()
    return lambda: Measured(cpu(who) - start, time.perf_counter() - wall)
