"""Real OpenSSH as a peer: an sshd on loopback without root, and the ssh program.

Everything (keys, configuration, known_hosts) is made on the spot in a temporary folder and thrown
away afterwards; nothing of the user's own is read or written. The login user is whoever runs the
tests. Works as root and as an ordinary user.

Typical use::

    with Sshd(options={"RekeyLimit": "1M"}) as sshd:
        result = await run_ssh(sshd.port, "uname -a", key=sshd.user_key, known_hosts=sshd.known_hosts)
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import functools
import getpass
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pytest

from interop.host import descendants

START_TIMEOUT = 20.0
HOST = "127.0.0.1"

# What ``ssh-keygen`` wants to hear for the algorithm names of the protocol.
KEYGEN_ARGS: Mapping[str, tuple[str, ...]] = {
    "ssh-ed25519": ("-t", "ed25519"),
    "ecdsa-sha2-nistp256": ("-t", "ecdsa", "-b", "256"),
    "ecdsa-sha2-nistp384": ("-t", "ecdsa", "-b", "384"),
    "ecdsa-sha2-nistp521": ("-t", "ecdsa", "-b", "521"),
    "ssh-rsa": ("-t", "rsa", "-b", "2048"),
}

Option = str | int | Sequence[str]


def _login_name() -> str:
    """The name behind our user id: environment variables, which getpass asks first, can be stale after su."""
    try:
        import pwd
    except ImportError:  # Windows
        return getpass.getuser()
    return pwd.getpwuid(os.getuid()).pw_name


USERNAME = _login_name()


# --- what is on this machine -----------------------------------------------------------------------


def find_program(name: str) -> str | None:
    """The full path of an OpenSSH program, also where sbin is not in a user's PATH; None: not here."""
    return shutil.which(name) or shutil.which(name, path="/usr/sbin:/usr/local/sbin:/usr/bin:/usr/local/bin")


def program(name: str) -> str:
    """As :func:`find_program`; a missing one fails the test."""
    path = find_program(name)
    if path is None:
        pytest.fail(f"{name} is not on this machine; install the OpenSSH client and server")
    return path


def require_sshd() -> None:
    """Skip the test where OpenSSH is missing; fail instead where SSHTRANSPORT_REQUIRE_SSHD=1 (CI)."""
    missing = [name for name in ("sshd", "ssh", "ssh-keygen") if find_program(name) is None]
    if not missing:
        return
    reason = f"OpenSSH is needed and {', '.join(missing)} not found (Debian: openssh-server, openssh-client)"
    if os.environ.get("SSHTRANSPORT_REQUIRE_SSHD") == "1":
        pytest.fail(reason)
    pytest.skip(reason)


@functools.cache
def supported(category: str) -> tuple[str, ...]:
    """What this OpenSSH implements: ``ssh -Q`` for "cipher", "mac", "kex", "key", "sig"; () without OpenSSH."""
    ssh = find_program("ssh")
    if ssh is None:
        return ()
    done = subprocess.run([ssh, "-Q", category], capture_output=True, text=True, check=True)
    return tuple(done.stdout.split())


def free_port() -> int:
    """A loopback port that is free now; it may not stay so."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
        return port


# --- throw-away keys -------------------------------------------------------------------------------


@dataclass(frozen=True)
class KeyPair:
    """A key file made by ssh-keygen: ``path`` (private, OpenSSH format) and the text of its .pub file."""

    path: Path
    public: str  # "ssh-ed25519 AAAA..."


@functools.cache
def _scratch() -> Path:
    """A folder for this run of the tests."""
    path = tempfile.mkdtemp(prefix="sshtransport-")
    atexit.register(shutil.rmtree, path, ignore_errors=True)
    return Path(path)


@functools.cache
def keypair(algorithm: str, name: str = "host") -> KeyPair:
    """A key of this algorithm, made once a run and purpose (``name``)."""
    path = _scratch() / f"{name}-{algorithm}"
    command = [program("ssh-keygen"), "-q", "-N", "", "-C", "", *KEYGEN_ARGS[algorithm], "-f", str(path)]
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL, capture_output=True)
    return KeyPair(path, " ".join(path.with_suffix(".pub").read_text().split()[:2]))


def known_hosts_text(port: int, publics: Iterable[str], host: str = HOST) -> str:
    """known_hosts lines for a server on that port of loopback."""
    return "".join(f"[{host}]:{port} {public}\n" for public in publics)


def write_known_hosts(path: Path, port: int, publics: Iterable[str]) -> Path:
    """Those lines in a new file at ``path``."""
    path.write_text(known_hosts_text(port, publics))
    return path


# --- sshd ------------------------------------------------------------------------------------------


@functools.cache
def _sshd_accepts(option: str, value: str) -> bool:
    """Whether this sshd knows a configuration line; an unknown one would keep it from starting."""
    config = _scratch() / "probe_config"
    config.write_text(f"HostKey {keypair('ssh-ed25519').path}\n{option} {value}\n")
    _make_privsep_folder()
    done = subprocess.run([program("sshd"), "-t", "-f", str(config)], capture_output=True, text=True)
    # "Unsupported option": known by name, not built in; sshd starts all the same.
    return done.returncode == 0 and "nsupported option" not in done.stderr


def _make_privsep_folder() -> None:
    """sshd started by root wants it; the service's start script makes it, but that may never have run."""
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        os.makedirs("/run/sshd", mode=0o755, exist_ok=True)


class Sshd:
    """An OpenSSH server on a free loopback port, running inside the ``with`` (or ``async with``) block.

    ``host_keys``: algorithm names or key files; ``ciphers``, ``macs``, ``kex``: the only ones it
    offers (default: its own defaults); ``authorized_keys``: public key lines (default: the one of
    ``user_key``); ``options``: further sshd_config lines, which win over the ones from here. A list as
    a value writes one line an item, as ``AcceptEnv`` and ``HostKey`` want it.
    """

    def __init__(
        self,
        *,
        host_keys: Sequence[str | Path] = ("ssh-ed25519",),
        ciphers: Sequence[str] = (),
        macs: Sequence[str] = (),
        kex: Sequence[str] = (),
        authorized_keys: Sequence[str] | None = None,
        options: Mapping[str, Option] | None = None,
    ) -> None:
        self.host = HOST
        self.port = 0
        self.username = USERNAME
        self.user_key = keypair("ssh-ed25519", "user").path
        self.host_keys = [key if isinstance(key, Path) else keypair(key).path for key in host_keys]
        if authorized_keys is None:
            authorized_keys = [keypair("ssh-ed25519", "user").public]
        self._authorized_keys = authorized_keys
        self._options = self._settings(ciphers, macs, kex) | {k.lower(): v for k, v in (options or {}).items()}
        self._process: subprocess.Popen[str] | None = None
        self._lines: list[str] = []
        self._changed = threading.Condition()
        self._log_ended = False

    def _settings(self, ciphers: Sequence[str], macs: Sequence[str], kex: Sequence[str]) -> dict[str, Option]:
        """Names in lower case, as ``options`` are looked up; sshd does not mind."""
        settings: dict[str, Option] = {
            "listenaddress": HOST,
            "hostkey": [str(path) for path in self.host_keys],
            "pidfile": "none",
            "strictmodes": "no",  # a temporary folder may be writable for others
            "permitrootlogin": "yes",
            "passwordauthentication": "no",
            "kbdinteractiveauthentication": "no",
            "authenticationmethods": "publickey",
            "subsystem": "sftp internal-sftp",
            "acceptenv": "*",
            "setenv": "SHLVL=2",  # on the first level Debian's bash reads the .bashrc for what sshd starts
            "maxstartups": 100,
            "logingracetime": 60,
            "loglevel": "VERBOSE",
            "printmotd": "no",
            "printlastlog": "no",
            "usedns": "no",
        }
        unsure = {"usepam": "no", "persourcepenalties": "no"}
        settings.update({option: value for option, value in unsure.items() if _sshd_accepts(option, value)})
        lists = {"ciphers": ciphers, "macs": macs, "kexalgorithms": kex}
        settings.update({option: ",".join(names) for option, names in lists.items() if names})
        return settings

    # --- start and end

    def start(self) -> Self:
        """Start it and wait until it greets a client. A port that somebody else took meanwhile: another one."""
        self.directory = Path(tempfile.mkdtemp(prefix="sshd-", dir=_scratch()))
        keys_file = self.directory / "authorized_keys"
        keys_file.write_text("".join(f"{line}\n" for line in self._authorized_keys))
        self._options.setdefault("authorizedkeysfile", str(keys_file))
        _make_privsep_folder()
        publics = [Path(f"{path}.pub").read_text().strip() for path in self.host_keys]
        deadline = time.monotonic() + START_TIMEOUT
        while not self._try_start(deadline):
            if "Address already in use" not in self.log or time.monotonic() > deadline:
                raise RuntimeError(f"sshd did not start:\n{self.log}")
        self.known_hosts = write_known_hosts(self.directory / "known_hosts", self.port, publics)
        return self

    def _try_start(self, deadline: float) -> bool:
        self.port = free_port()
        config = self.directory / "sshd_config"
        lines = [f"port {self.port}\n"]
        for option, value in self._options.items():
            values = [value] if isinstance(value, str | int) else value
            lines += [f"{option} {item}\n" for item in values]
        config.write_text("".join(lines))
        self._lines, self._log_ended = [], False
        self._process = subprocess.Popen(
            [program("sshd"), "-D", "-e", "-f", str(config)],  # sshd runs itself again: it wants its full path
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
        )
        threading.Thread(target=self._read_log, args=(self._process,), daemon=True).start()
        # With a quiet LogLevel there is no such line: then trying to connect has to do.
        self.wait_for_log("Server listening", timeout=2.0, missing_ok=True)
        while not self._log_ended and time.monotonic() < deadline:
            with contextlib.suppress(OSError), socket.create_connection((HOST, self.port), timeout=5.0) as client:
                if client.recv(4) == b"SSH-":
                    return True
        self.stop()
        return False

    def stop(self) -> None:
        """End it with its sessions and whatever they started."""
        process, self._process = self._process, None
        if process is None:
            return
        below = descendants(process.pid)
        process.terminate()
        try:
            process.wait(5.0)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        for pid in below:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        with self._changed:  # the log's pipe closes with its last writer
            self._changed.wait_for(lambda: self._log_ended, 5.0)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    async def __aenter__(self) -> Self:
        return await asyncio.to_thread(self.start)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.to_thread(self.stop)

    def sessions(self) -> list[int]:
        """The processes below it: its own for each connection, and what those have started."""
        return [] if self._process is None else descendants(self._process.pid)

    # --- its log

    @property
    def log(self) -> str:
        """What it has said so far."""
        with self._changed:
            return "".join(self._lines)

    def wait_for_log(self, text: str, timeout: float = 10.0, *, missing_ok: bool = False) -> bool:
        """Wait until the log holds ``text``, or sshd ended. Blocks: from a coroutine, call it in a thread."""
        with self._changed:
            self._changed.wait_for(lambda: self._log_ended or any(text in line for line in self._lines), timeout)
            found = any(text in line for line in self._lines)
        if not found and not missing_ok:
            raise AssertionError(f"{text!r} is not in sshd's log:\n{self.log}")
        return found

    def _read_log(self, process: subprocess.Popen[str]) -> None:
        assert process.stderr is not None
        with process.stderr:
            for line in process.stderr:
                with self._changed:
                    self._lines.append(line)
                    self._changed.notify_all()
        with self._changed:
            self._log_ended = True
            self._changed.notify_all()


# --- the ssh program -------------------------------------------------------------------------------


@dataclass(frozen=True)
class SshResult:
    """How a run of ssh ended; its own messages are in ``stderr`` too, among the command's."""

    returncode: int
    stdout: bytes
    stderr: bytes


def ssh_command(
    port: int,
    *arguments: str,
    key: Path | str | None,
    known_hosts: Path | str,
    username: str = USERNAME,
    ciphers: Sequence[str] = (),
    macs: Sequence[str] = (),
    kex: Sequence[str] = (),
    host_key_algorithms: Sequence[str] = (),
    rekey_limit: str | None = None,
    options: Mapping[str, Any] | None = None,
) -> list[str]:
    """The command line of ``ssh`` to loopback: no user configuration, no agent, no questions.

    ``arguments`` come after the host: the remote command. ``options`` are ssh_config names; they win:
    ``{"LogLevel": "INFO"}`` lets ssh say on stderr why a connection came to nothing.
    """
    settings: dict[str, Any] = {
        "BatchMode": "yes",
        "StrictHostKeyChecking": "yes",
        "UserKnownHostsFile": known_hosts,
        "GlobalKnownHostsFile": "/dev/null",
        "UpdateHostKeys": "no",
        "IdentityAgent": "none",
        "IdentitiesOnly": "yes",
        "IdentityFile": key or "none",
        "PreferredAuthentications": "publickey",
        "ControlMaster": "no",
        "ControlPath": "none",
        "ConnectTimeout": 20,
        "LogLevel": "ERROR",
    }
    lists = {"Ciphers": ciphers, "MACs": macs, "KexAlgorithms": kex, "HostKeyAlgorithms": host_key_algorithms}
    settings.update({option: ",".join(names) for option, names in lists.items() if names})
    if rekey_limit:
        settings["RekeyLimit"] = rekey_limit
    settings.update(options or {})
    command = [program("ssh"), "-F", "/dev/null", "-p", str(port), "-l", username]
    for option, value in settings.items():
        command += ["-o", f"{option}={value}"]
    return [*command, HOST, *arguments]


def ssh_environment() -> dict[str, str]:
    """The environment for ``ssh``: ours, without an agent or an askpass program, speaking English."""
    return {name: value for name, value in os.environ.items() if not name.startswith("SSH_")} | {"LC_ALL": "C"}


@contextlib.asynccontextmanager
async def ssh_process(port: int, *arguments: str, **settings: Any) -> AsyncIterator[asyncio.subprocess.Process]:
    """``ssh`` as a running process with all three streams as pipes; killed at the end of the block."""
    process = await asyncio.create_subprocess_exec(
        *ssh_command(port, *arguments, **settings),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=ssh_environment(),
        limit=2**20,
    )
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        if process.stdin is not None:
            process.stdin.close()
        await process.communicate()  # reaps it and closes the pipes


async def run_ssh(port: int, *arguments: str, stdin: bytes = b"", timeout: float = 50.0, **settings: Any) -> SshResult:
    """Run ``ssh`` to its end. Settings as in :func:`ssh_command`; TimeoutError after ``timeout`` seconds."""
    async with asyncio.timeout(timeout), ssh_process(port, *arguments, **settings) as process:
        stdout, stderr = await process.communicate(stdin)
        assert process.returncode is not None
        return SshResult(process.returncode, stdout, stderr)
