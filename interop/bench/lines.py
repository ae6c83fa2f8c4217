"""The tables: peers, and lines of work with what we promise of each."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import Literal

from tests.support.openssh import find_program

from .programs import NODE_SCRIPT

GCM, GCM128, CHACHA = "aes256-gcm@openssh.com", "aes128-gcm@openssh.com", "chacha20-poly1305@openssh.com"
OURS = ("sshtransport", "sshtransport+uvloop")
LIMIT = "window / RTT"  # no peer: what nobody can pass who keeps one window in flight


def _module(name: str) -> Callable[[], bool]:
    return lambda: importlib.util.find_spec(name) is not None


def _program(name: str) -> Callable[[], bool]:
    return lambda: find_program(name) is not None


@cache
def _node_ssh2() -> bool:
    """Node looks for modules beside and above the script, and where NODE_PATH says."""
    if shutil.which("node") is None:
        return False
    words = ["node", "-e", "require('ssh2')"]
    return subprocess.run(words, cwd=NODE_SCRIPT.parent, capture_output=True, check=False).returncode == 0


PEERS: dict[str, Callable[[], bool]] = {  # and whether it is here
    "sshtransport": lambda: True,
    "sshtransport+uvloop": _module("uvloop"),
    "asyncssh": _module("asyncssh"),
    "ssh": _program("ssh"),
    "paramiko": _module("paramiko"),
    "libssh": _module("ssh"),
    "libssh2": _module("ssh2"),
    "node-ssh2": _node_ssh2,
    "sshd": _program("sshd"),
}
STREAMS = (*OURS, "asyncssh")
CLIENTS = (*STREAMS, "paramiko", "libssh", "libssh2", "node-ssh2")
WITH_SSH = (*STREAMS, "ssh", "paramiko", "libssh", "libssh2", "node-ssh2")
NO_PARAMIKO = tuple(peer for peer in WITH_SSH if peer != "paramiko")  # it has no ChaCha20
SERVERS = (*STREAMS, "sshd")


@dataclass(frozen=True)
class Scale:
    """How much: MiB of a transfer, how often, how many rounds."""

    mib: int
    count: int
    rounds: int
    quick: bool


@dataclass(frozen=True)
class Line:
    """One kind of work: who does it, how much of it, what counts, and the ratios to peers that we promise."""

    name: str
    work: str
    peers: tuple[str, ...]
    budgets: dict[str, float] = field(default_factory=dict)
    cipher: str = GCM
    metric: Literal["cpu", "wall", "memory"] = "cpu"
    mib: Callable[[Scale], int] = lambda scale: 0
    count: Callable[[Scale], int] = lambda scale: 0
    server: Literal["sshd", "far sshd", ""] = "sshd"  # that clients go to; none: the work brings its own
    client: Literal["ssh", ""] = ""  # that servers need


def _transfer(name: str, work: str, cipher: str, peers: tuple[str, ...], **budgets: float) -> Line:
    serving = work.startswith("serve ")
    return Line(
        name,
        work,
        peers,
        budgets,
        cipher,
        mib=lambda scale: scale.mib,
        server="" if serving else "sshd",
        client="ssh" if serving else "",
    )


LINES = (
    _transfer("download, aes256-gcm", "download", GCM, WITH_SSH, asyncssh=0.50, ssh=0.90),
    _transfer("download, aes128-gcm", "download", GCM128, WITH_SSH),
    _transfer("download, chacha20-poly1305", "download", CHACHA, NO_PARAMIKO, asyncssh=0.55, ssh=0.75),
    _transfer("upload, aes256-gcm", "upload", GCM, WITH_SSH, asyncssh=0.50),
    _transfer("upload, aes128-gcm", "upload", GCM128, WITH_SSH, asyncssh=0.50),
    _transfer("upload, chacha20-poly1305", "upload", CHACHA, NO_PARAMIKO, asyncssh=0.50),
    _transfer("server: download, aes256-gcm", "serve download", GCM, SERVERS, asyncssh=0.50),
    _transfer("server: download, chacha20-poly1305", "serve download", CHACHA, SERVERS, asyncssh=0.50),
    _transfer("server: upload, aes256-gcm", "serve upload", GCM, SERVERS, asyncssh=0.50),
    _transfer("server: upload, chacha20-poly1305", "serve upload", CHACHA, SERVERS, asyncssh=0.50),
    Line("64-byte echo round trip", "echo", CLIENTS, {"asyncssh": 0.40}, count=lambda scale: 10 * scale.count),
    Line("1 KiB messages", "messages", CLIENTS, count=lambda scale: 500 * scale.count),
    Line("connect, login, close", "connect", CLIENTS, {"asyncssh": 0.40}, count=lambda scale: scale.count),
    Line("200 connects at once", "storm", STREAMS, count=lambda scale: 200),
    Line("50 channels at once, a MiB each", "channels", STREAMS, count=lambda scale: 50),
    Line(
        "memory of an idle connection, server",
        "idle",
        STREAMS,
        {"asyncssh": 1.0},
        metric="memory",
        count=lambda scale: 100 if scale.quick else 300,
        server="",
    ),
    Line(
        "import",
        "import",
        ("sshtransport", "asyncssh", "paramiko"),
        {"asyncssh": 0.50},
        count=lambda scale: 3 if scale.quick else 10,
        server="",
    ),
    Line(
        "download, 100 ms away",
        "download",
        (*WITH_SSH, LIMIT),
        {LIMIT: 1 / 0.8},
        metric="wall",
        mib=lambda scale: 32 if scale.quick else 64,
        server="far sshd",
    ),
)


def absent(peer: str) -> bool:
    return peer in PEERS and not PEERS[peer]()
