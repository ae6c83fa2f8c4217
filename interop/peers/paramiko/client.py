"""A paramiko client that runs $INTEROP_COMMAND, as ssh would."""

import argparse
import os
import sys
import threading
from collections.abc import Callable

import paramiko

FOLDER = os.environ["INTEROP_FOLDER"]
KEYS = {"ed25519": paramiko.Ed25519Key, "ecdsa": paramiko.ECDSAKey, "rsa": paramiko.RSAKey}
CHUNK = 32768
FAILED = 255  # as ssh says it


def known_keys() -> set[str]:
    with open(os.environ["INTEROP_KNOWN_HOSTS"]) as file:
        return {line.split()[2] for line in file}


def run(transport: paramiko.Transport, command: str) -> int:
    transport.start_client(timeout=30)
    if transport.get_remote_server_key().get_base64() not in known_keys():
        raise paramiko.SSHException("the host key is not the one that is known")
    user, kind = os.environ["INTEROP_USER"], os.environ["INTEROP_LOGIN"]
    if kind == "password":
        transport.auth_password(user, os.environ["INTEROP_PASSWORD"], fallback=False)
    else:
        transport.auth_publickey(user, KEYS[kind].from_private_key_file(f"{FOLDER}/user_{kind}"))
    channel = transport.open_session()
    channel.exec_command(command)
    threading.Thread(target=feed, args=(channel,), daemon=True).start()
    errors = threading.Thread(target=drain, args=(channel.recv_stderr, 2))
    errors.start()
    drain(channel.recv, 1)
    errors.join()
    status = channel.recv_exit_status()
    return FAILED if status < 0 else status


def feed(channel: paramiko.Channel) -> None:
    try:
        while data := os.read(0, CHUNK):
            channel.sendall(data)
        channel.shutdown_write()
    except (OSError, EOFError, paramiko.SSHException):
        pass  # the other side has had enough


def drain(receive: Callable[[int], bytes], file: int) -> None:
    while data := receive(CHUNK):
        while data:
            data = data[os.write(file, data) :]


def choose(transport: paramiko.Transport) -> None:
    parser = argparse.ArgumentParser()
    for name in ("cipher", "mac", "kex", "host-key"):
        parser.add_argument(f"--{name}", type=lambda text: tuple(text.split(",")))
    parser.add_argument("--rekey", type=int)
    chosen = parser.parse_args()
    options = transport.get_security_options()
    names = {"ciphers": chosen.cipher, "digests": chosen.mac, "kex": chosen.kex, "key_types": chosen.host_key}
    for name, value in names.items():
        if value:
            setattr(options, name, value)
    if chosen.rekey:
        transport.packetizer.REKEY_BYTES = chosen.rekey


def main() -> int:
    try:
        transport = paramiko.Transport((os.environ["INTEROP_HOST"], int(os.environ["INTEROP_PORT"])))
        choose(transport)
        return run(transport, os.environ["INTEROP_COMMAND"])
    except (OSError, EOFError, paramiko.SSHException) as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
        return FAILED


os._exit(main())  # a thread may still wait for standard input
