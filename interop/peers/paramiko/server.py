"""A paramiko server that runs commands as a login shell would, with the run's keys and password."""

import argparse
import contextlib
import hmac
import logging
import os
import pwd
import socket
import subprocess
import threading
from collections.abc import Callable
from typing import IO, Any

import paramiko

FOLDER = os.environ["INTEROP_FOLDER"]
USERNAME = os.environ["INTEROP_USER"]
PASSWORD = os.environ["INTEROP_PASSWORD"]
KEYS = {
    "ed25519": paramiko.Ed25519Key,
    "ecdsa256": paramiko.ECDSAKey,
    "ecdsa384": paramiko.ECDSAKey,
    "ecdsa521": paramiko.ECDSAKey,
    "rsa": paramiko.RSAKey,
}
CHUNK = 32768
OPEN_SUCCEEDED: int = paramiko.OPEN_SUCCEEDED
OPEN_REFUSED: int = paramiko.OPEN_FAILED_ADMINISTRATIVELY_PROHIBITED


def authorized() -> set[str]:
    with open(f"{FOLDER}/authorized_keys") as file:
        return {line.split()[1] for line in file}


def verdict(right: bool) -> int:
    result: int = paramiko.AUTH_SUCCESSFUL if right else paramiko.AUTH_FAILED
    return result


class Server(paramiko.ServerInterface):  # type: ignore[misc]  # paramiko has no types
    def get_allowed_auths(self, username: str) -> str:
        return "publickey,password"

    def check_auth_publickey(self, username: str, key: paramiko.PKey) -> int:
        right = username == USERNAME and key.get_base64() in authorized()
        return verdict(right)

    def check_auth_password(self, username: str, password: str) -> int:
        right = username == USERNAME and hmac.compare_digest(password.encode(), PASSWORD.encode())
        return verdict(right)

    def check_channel_request(self, kind: str, chanid: int) -> int:
        return OPEN_SUCCEEDED if kind == "session" else OPEN_REFUSED

    def check_channel_env_request(self, channel: paramiko.Channel, name: bytes, value: bytes) -> bool:
        return False

    def check_channel_exec_request(self, channel: paramiko.Channel, command: bytes) -> bool:
        threading.Thread(target=run, args=(channel, command), daemon=True).start()
        return True


def run(channel: paramiko.Channel, command: bytes) -> None:
    child = subprocess.Popen(
        ["/bin/sh", "-c", command],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        bufsize=0,
        **as_user(),
    )
    assert child.stdin and child.stdout and child.stderr
    threading.Thread(target=feed, args=(channel, child), daemon=True).start()
    errors = threading.Thread(target=drain, args=(child.stderr, channel.sendall_stderr), daemon=True)
    errors.start()
    try:
        drain(child.stdout, channel.sendall)
        errors.join()
        channel.shutdown_write()
        channel.send_exit_status(child.wait() % 256)
    except OSError:  # the client went away
        child.kill()
        child.wait()
    with contextlib.suppress(OSError, EOFError):
        channel.close()


def feed(channel: paramiko.Channel, child: subprocess.Popen[bytes]) -> None:
    assert child.stdin
    with contextlib.suppress(OSError):
        while data := channel.recv(CHUNK):
            view = memoryview(data)
            while view:
                view = view[child.stdin.write(view) :]
    with contextlib.suppress(OSError):
        child.stdin.close()
    if channel.closed or not channel.get_transport().is_active():
        child.kill()


def drain(source: IO[bytes], send: Callable[[bytes], None]) -> None:
    while data := source.read(CHUNK):
        send(data)


def as_user() -> dict[str, Any]:
    """Root runs commands as the user who logged in; others can only do so themselves."""
    account = pwd.getpwnam(USERNAME)
    env = {"USER": USERNAME, "HOME": account.pw_dir, "PATH": "/usr/local/bin:/usr/bin:/bin"}
    other = os.getuid() == 0 and account.pw_uid != 0
    ids: dict[str, Any] = {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []} if other else {}
    return {"cwd": account.pw_dir, "env": env, **ids}


def main() -> None:
    parser = argparse.ArgumentParser()
    for name in ("cipher", "mac", "kex", "host-key"):
        parser.add_argument(f"--{name}", type=lambda text: tuple(text.split(",")))
    parser.add_argument("--rekey", type=int)
    chosen = parser.parse_args()
    logging.basicConfig(level=logging.INFO)
    keys = [kind.from_private_key_file(f"{FOLDER}/host_{name}") for name, kind in KEYS.items()]
    with socket.create_server((os.environ["INTEROP_HOST"], int(os.environ["INTEROP_PORT"])), backlog=128) as listener:
        while True:
            connection, _ = listener.accept()
            threading.Thread(target=serve, args=(connection, keys, chosen), daemon=True).start()


def serve(connection: socket.socket, keys: list[paramiko.PKey], chosen: argparse.Namespace) -> None:
    transport = paramiko.Transport(connection)
    # Of several ECDSA keys it knows the last one only: the one that was asked for, else that of 256 bits.
    wanted = chosen.host_key or ("ecdsa-sha2-nistp256",)
    for key in sorted(keys, key=lambda key: key.get_name() in wanted):
        transport.add_server_key(key)
    choose(transport, chosen)
    with contextlib.suppress(paramiko.SSHException, OSError, EOFError):
        transport.start_server(server=Server())


def choose(transport: paramiko.Transport, chosen: argparse.Namespace) -> None:
    options = transport.get_security_options()
    names = {"ciphers": chosen.cipher, "digests": chosen.mac, "kex": chosen.kex, "key_types": chosen.host_key}
    for name, value in names.items():
        if value:
            setattr(options, name, value)
    if chosen.rekey:
        transport.packetizer.REKEY_BYTES = chosen.rekey


main()
