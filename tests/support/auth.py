"""Login machines in memory: a sink that keeps what was sent, and messages written by hand.

The encoders here are on purpose not those of ``sshtransport.wire``: a test that used them would
agree with any mistake of theirs.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Iterable
from typing import Any

from sshtransport.auth import AuthEvent, ClientAuth, ServerAuth
from sshtransport.keys import HOST_KEY_ALGORITHMS, PrivateKey
from sshtransport.wire import Buffer

SESSION_ID = bytes(range(32))
ALL_METHODS = frozenset({"publickey", "password", "keyboard-interactive"})


class ListSink:
    """A PacketSink that keeps every payload."""

    def __init__(self) -> None:
        self.sent: list[bytes] = []

    def send(self, payload: bytes, /) -> None:
        assert type(payload) is bytes
        self.sent.append(payload)

    def send_data(self, head: bytes, data: Buffer, /) -> None:
        raise AssertionError("a login has no bulk data")

    @property
    def can_send_data(self) -> bool:
        return True

    def take(self) -> list[bytes]:
        sent, self.sent = self.sent, []
        return sent

    def one(self) -> bytes:
        """The only payload sent since the last look."""
        (payload,) = self.take()
        return payload


@functools.cache
def key(algorithm: str, number: int = 0) -> PrivateKey:
    """A key that lives as long as the test run."""
    return PrivateKey.generate(algorithm, bits=2048 if algorithm == "ssh-rsa" else None)


def s(value: bytes | str) -> bytes:
    """A string."""
    data = value.encode() if isinstance(value, str) else value
    return struct.pack(">I", len(data)) + data


def request(method: str, body: bytes = b"", user: str | bytes = "me", service: str = "ssh-connection") -> bytes:
    return b"\x32" + s(user) + s(service) + s(method) + body


def query(private: PrivateKey, algorithm: str, user: str = "me") -> bytes:
    return request("publickey", b"\0" + s(algorithm) + s(private.public_key.blob), user)


def signed(
    private: PrivateKey, algorithm: str, user: str = "me", session_id: bytes = SESSION_ID, sign_with: str | None = None
) -> bytes:
    unsigned = request("publickey", b"\1" + s(algorithm) + s(private.public_key.blob), user)
    return unsigned + s(private.sign(sign_with or algorithm, s(session_id) + unsigned))


def password(text: str, user: str = "me") -> bytes:
    return request("password", b"\0" + s(text), user)


def failure(methods: str, partial: bool = False) -> bytes:
    return b"\x33" + s(methods) + bytes([partial])


def info_request(*prompts: tuple[str, bool], name: str = "", instructions: str = "", count: int | None = None) -> bytes:
    body = b"".join(s(text) + bytes([echo]) for text, echo in prompts)
    head = b"\x3c" + s(name) + s(instructions) + s("")
    return head + struct.pack(">I", len(prompts) if count is None else count) + body


def info_response(*answers: str, count: int | None = None) -> bytes:
    number = struct.pack(">I", len(answers) if count is None else count)
    return b"\x3d" + number + b"".join(s(answer) for answer in answers)


SERVICE_REQUEST = b"\x05" + s("ssh-userauth")
SERVICE_ACCEPT = b"\x06" + s("ssh-userauth")
SUCCESS = b"\x34"
KEYBOARD_INTERACTIVE = request("keyboard-interactive", s("") + s(""))


def make_client(username: str = "me", *, secure: bool = True, started: bool = True) -> tuple[ClientAuth, ListSink]:
    """A client, by default with its service accepted and nothing in the sink."""
    sink = ListSink()
    client = ClientAuth(username, SESSION_ID, sink, secure=secure)
    if started:
        client.start()
        client.receive(SERVICE_ACCEPT)
        sink.take()
    return client, sink


def make_server(
    methods: Iterable[str] = ALL_METHODS,
    *,
    algorithms: tuple[str, ...] = HOST_KEY_ALGORITHMS,
    secure: bool = True,
    started: bool = True,
    **limits: Any,
) -> tuple[ServerAuth, ListSink]:
    """A server, by default with its service accepted and nothing in the sink."""
    sink = ListSink()
    server = ServerAuth(
        SESSION_ID, sink, methods=frozenset(methods), signature_algorithms=algorithms, secure=secure, **limits
    )
    if started:
        assert server.receive(SERVICE_REQUEST) is None
        sink.take()
    return server, sink


class Login:
    """A client and a server that hand each other what they send; events are kept in order."""

    def __init__(self, methods: Iterable[str] = ALL_METHODS, **limits: Any) -> None:
        self.client, self._from_client = make_client(started=False)
        self.server, self._from_server = make_server(methods, started=False, **limits)
        self.client_wire: list[bytes] = []
        self.server_wire: list[bytes] = []
        self.client.start()
        self.pump()

    def pump(self) -> list[AuthEvent]:
        """Move messages until nobody has more to say; the events of both sides."""
        events: list[AuthEvent | None] = []
        while self._from_client.sent or self._from_server.sent:
            for payload in self._from_client.take():
                self.client_wire.append(payload)
                events.append(self.server.receive(payload))
            for payload in self._from_server.take():
                self.server_wire.append(payload)
                events.append(self.client.receive(payload))
        return [event for event in events if event is not None]

    def one(self) -> AuthEvent:
        """The only event of a pump."""
        (event,) = self.pump()
        return event
