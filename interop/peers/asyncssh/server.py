"""An asyncssh server that runs commands as a login shell would, with the run's keys and password."""

import argparse
import asyncio
import contextlib
import hmac
import os
import pwd
import socket
from typing import Any

import asyncssh

FOLDER = os.environ["INTEROP_FOLDER"]
USERNAME = os.environ["INTEROP_USER"]
PASSWORD = os.environ["INTEROP_PASSWORD"]
HOST_KEYS = ("ed25519", "ecdsa256", "ecdsa384", "ecdsa521", "rsa")
CHUNK = 65536


class Server(asyncssh.SSHServer):
    def password_auth_supported(self) -> bool:
        return True

    def validate_password(self, username: str, password: str) -> bool:
        return username == USERNAME and hmac.compare_digest(password.encode(), PASSWORD.encode())


async def run(process: asyncssh.SSHServerProcess[bytes]) -> None:
    child = await asyncio.create_subprocess_exec(
        "/bin/sh",
        "-c",
        process.command or "cat",
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        **as_user(),
    )
    assert child.stdin and child.stdout and child.stderr
    feeding = asyncio.create_task(feed(process.stdin, child.stdin))
    try:
        await asyncio.gather(drain(child.stdout, process.stdout), drain(child.stderr, process.stderr))
        process.stdout.write_eof()
        status = await child.wait()
        if status < 0:
            process.exit_with_signal({-9: "KILL", -15: "TERM"}.get(status, "TERM"))
        else:
            process.exit(status)
    except (OSError, asyncssh.Error):  # the client went away
        process.close()
    finally:
        feeding.cancel()
        with contextlib.suppress(ProcessLookupError):
            child.kill()
        await child.wait()


async def feed(reader: asyncssh.SSHReader[bytes], writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError, asyncssh.Error):
        while data := await reader.read(CHUNK):
            writer.write(data)
            await writer.drain()
    writer.close()


async def drain(reader: asyncio.StreamReader, writer: asyncssh.SSHWriter[bytes]) -> None:
    while data := await reader.read(CHUNK):
        writer.write(data)
        await writer.drain()


def as_user() -> dict[str, Any]:
    """Root runs commands as the user who logged in; others can only do so themselves."""
    account = pwd.getpwnam(USERNAME)
    env = {"USER": USERNAME, "HOME": account.pw_dir, "PATH": "/usr/local/bin:/usr/bin:/bin"}
    other = os.getuid() == 0 and account.pw_uid != 0
    ids: dict[str, Any] = {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []} if other else {}
    return {"cwd": account.pw_dir, "env": env, **ids}


async def main() -> None:
    parser = argparse.ArgumentParser()
    for name in ("cipher", "mac", "kex", "host-key"):
        parser.add_argument(f"--{name}", type=lambda text: text.split(","))
    parser.add_argument("--rekey", type=int)
    chosen = parser.parse_args()
    options = {"encryption_algs": chosen.cipher, "mac_algs": chosen.mac, "kex_algs": chosen.kex}
    options |= {"signature_algs": chosen.host_key, "rekey_bytes": chosen.rekey}
    options = {name: value for name, value in options.items() if value is not None}
    keys = [asyncssh.read_private_key(f"{FOLDER}/host_{name}") for name in host_keys(chosen.host_key)]
    serving: set[asyncio.Task[None]] = set()
    with socket.create_server((os.environ["INTEROP_HOST"], int(os.environ["INTEROP_PORT"]))) as listener:
        listener.setblocking(False)
        while True:
            sock, _ = await asyncio.get_running_loop().sock_accept(listener)
            task = asyncio.create_task(serve(sock, keys, options))
            serving.add(task)
            task.add_done_callback(serving.discard)


async def serve(sock: socket.socket, keys: list[asyncssh.SSHKey], options: dict[str, Any]) -> None:
    """``asyncssh.listen`` notes how a key shall sign in an object that its connections share; so each has its own."""
    with contextlib.suppress(OSError, asyncssh.Error):
        await asyncssh.run_server(
            sock,
            server_factory=Server,
            server_host_keys=keys,
            authorized_client_keys=f"{FOLDER}/authorized_keys",
            process_factory=run,
            encoding=None,
            config=None,
            **options,
        )


def host_keys(algorithms: list[str] | None) -> list[str]:
    """The keys that serve one of the algorithms."""
    kinds = {"ssh-ed25519": "ed25519", "rsa-sha2-512": "rsa", "rsa-sha2-256": "rsa"}
    kinds |= {f"ecdsa-sha2-nistp{bits}": f"ecdsa{bits}" for bits in (256, 384, 521)}
    return [kinds[name] for name in algorithms] if algorithms else list(HOST_KEYS)


asyncio.run(main())
