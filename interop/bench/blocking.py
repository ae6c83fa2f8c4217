"""Client work for peers whose calls block: paramiko, libssh and libssh2. A class each hides their ways."""

from __future__ import annotations

import socket
from typing import Any, Protocol

from .jobs import CHUNK, HOST, Job, Measured, stopwatch


class Client(Protocol):
    """A connection that has logged in. Any call raises when it did not work."""

    def __init__(self, job: Job) -> None: ...

    def run(self, command: str) -> None: ...

    def read(self, size: int) -> bytes:
        """At most so many bytes, at least one; none at the end."""

    def write(self, data: bytes) -> None:
        """All of them."""

    def write_eof(self) -> None: ...

    def close_channel(self) -> None: ...

    def close(self) -> None: ...


def _dial(job: Job) -> socket.socket:
    sock = socket.create_connection((HOST, job.port))
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock


class Paramiko:
    def __init__(self, job: Job) -> None:
        import paramiko

        self._transport = paramiko.Transport(_dial(job))
        self._transport.get_security_options().ciphers = (job.cipher,)
        self._transport.start_client(timeout=30)
        assert job.knows(self._transport.get_remote_server_key().asbytes())
        self._transport.auth_publickey(job.username, paramiko.Ed25519Key.from_private_key_file(job.file("user")))

    def run(self, command: str) -> None:
        self._channel = self._transport.open_session()
        self._channel.exec_command(command)

    def read(self, size: int) -> bytes:
        data: bytes = self._channel.recv(size)
        return data

    def write(self, data: bytes) -> None:
        self._channel.sendall(data)

    def write_eof(self) -> None:
        self._channel.shutdown_write()

    def close_channel(self) -> None:
        self._channel.close()

    def close(self) -> None:
        self._transport.close()


class LibSSH:
    def __init__(self, job: Job) -> None:
        from ssh import key, options, session

        self._session = session.Session()
        for option, value in (
            (options.HOST, HOST),
            (options.USER, job.username),
            (options.CIPHERS_C_S, job.cipher),
            (options.CIPHERS_S_C, job.cipher),
        ):
            self._session.options_set(option, value)
        self._session.options_set_port(job.port)
        self._session.options_set_int_val(options.NODELAY, 1)
        self._session.connect()
        host_key = self._session.get_server_publickey()
        assert job.knows(_from_base64(host_key.export_pubkey_base64()))
        self._session.userauth_publickey(key.import_privkey_file(job.file("user")))

    def run(self, command: str) -> None:
        self._channel = self._session.channel_new()
        self._channel.open_session()
        self._channel.request_exec(command)

    def read(self, size: int) -> bytes:
        data: bytes
        _, data = self._channel.read(size)
        return data

    def write(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            _, written = self._channel.write(bytes(view) if len(view) != len(data) else data)
            view = view[written:]

    def write_eof(self) -> None:
        self._channel.send_eof()

    def close_channel(self) -> None:
        self._channel.close()

    def close(self) -> None:
        self._session.disconnect()


class LibSSH2:
    def __init__(self, job: Job) -> None:
        from ssh2 import session

        self._sock = _dial(job)
        self._session = session.Session()
        for method in (session.LIBSSH2_METHOD_CRYPT_CS, session.LIBSSH2_METHOD_CRYPT_SC):
            self._session.method_pref(method, job.cipher)
        self._session.handshake(self._sock)
        assert job.knows(self._session.hostkey()[0])
        self._session.userauth_publickey_fromfile(job.username, job.file("user"))

    def run(self, command: str) -> None:
        self._channel = self._session.open_session()
        self._channel.execute(command)

    def read(self, size: int) -> bytes:
        data: bytes
        _, data = self._channel.read(size)
        return data

    def write(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            _, written = self._channel.write(bytes(view) if len(view) != len(data) else data)
            view = view[written:]

    def write_eof(self) -> None:
        self._channel.send_eof()

    def close_channel(self) -> None:
        self._channel.close()

    def close(self) -> None:
        self._session.disconnect()
        self._sock.close()


def _from_base64(text: Any) -> bytes:
    import base64

    return base64.b64decode(text)


CLIENTS: dict[str, type[Client]] = {"paramiko": Paramiko, "libssh": LibSSH, "libssh2": LibSSH2}


def _read_all(client: Client) -> bytes:
    data = b""
    while more := client.read(CHUNK):
        data += more
    return data


def _download(client: Client, job: Job) -> None:
    client.run(f"head -c {job.size} /dev/zero")
    total = 0
    while data := client.read(CHUNK):
        total += len(data)
    assert total == job.size, total


def _upload(client: Client, job: Job) -> None:
    _write(client, bytes(CHUNK), job.size // CHUNK)


def _messages(client: Client, job: Job) -> None:
    _write(client, bytes(1024), job.count)


def _write(client: Client, block: bytes, times: int) -> None:
    client.run("wc -c")
    for _ in range(times):
        client.write(block)
    client.write_eof()
    assert int(_read_all(client)) == times * len(block)


def _echo(client: Client, job: Job) -> None:
    client.run("cat")
    message = bytes(64)
    for _ in range(job.count):
        client.write(message)
        left = 64
        while left:
            data = client.read(left)
            assert data
            left -= len(data)
    client.write_eof()


WORKS = {"download": _download, "upload": _upload, "messages": _messages, "echo": _echo}


def client(make: type[Client], work: str, job: Job) -> Measured:
    """As in :mod:`.streams`."""
    first = make(job)
    if work == "connect":
        first.close()
        passed = stopwatch()
        for _ in range(job.count):
            make(job).close()
        return passed()
    passed = stopwatch()
    WORKS[work](first, job)
    first.close_channel()
    result = passed()
    first.close()
    return result
