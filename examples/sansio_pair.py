"""Two SSH transports that talk to each other in memory: no socket, no asyncio, no thread.

``SSHTransport`` takes received bytes and gives a list of what was in them: payloads (``bytes``) and events. After
anything that was done with it, ``data_to_send()`` has the bytes for the peer. How they get there is up to you.

    python examples/sansio_pair.py
"""

from __future__ import annotations

from sshtransport import Disconnected, Event, HostKeyOffered, KeysChanged, PrivateKey, SSHTransport

SERVICE_REQUEST, SERVICE_ACCEPT, USERAUTH_SUCCESS, GLOBAL_REQUEST = b"\x05", b"\x06", b"\x34", b"\x50"


def string(data: bytes) -> bytes:
    """An SSH string: its length, then the bytes (RFC 4251, section 5)."""
    return len(data).to_bytes(4, "big") + data


class Side:
    """A transport, its name for the printout, and the payloads that it has received."""

    def __init__(self, name: str, transport: SSHTransport, trusted: bytes = b"") -> None:
        self.name = name
        self.transport = transport
        self.trusted = trusted
        self.payloads: list[bytes] = []

    def handle(self, items: list[bytes | Event]) -> None:
        for item in items:
            match item:
                case bytes():
                    self.payloads.append(item)
                case HostKeyOffered(host_key=key):
                    # Nothing more is read until the key is accepted or rejected.
                    if key == self.trusted:
                        self.handle(self.transport.accept_host_key())
                    else:
                        self.handle(self.transport.reject_host_key("not the key that I know"))
                case KeysChanged(first=first):
                    assert self.transport.algorithms is not None
                    print(f"{self.name}: {'first' if first else 'new'} keys, {self.transport.algorithms.kex}")
                case Disconnected(description=why):
                    print(f"{self.name}: disconnected, {why!r}")


def pump(one: Side, other: Side) -> None:
    """Carry bytes both ways until both have nothing more to say."""
    moved = True
    while moved:
        moved = False
        for source, target in ((one, other), (other, one)):
            data = source.transport.data_to_send()
            if data:
                moved = True
                target.handle(target.transport.receive_data(data))


def main() -> None:
    key = PrivateKey.generate("ssh-ed25519")
    client = Side("client", SSHTransport("client"), trusted=key.public_key.blob)
    server = Side("server", SSHTransport("server", host_keys=[key]))
    pump(client, server)
    assert client.transport.session_id == server.transport.session_id

    # The messages that open the connection phase, with no login behind them (see packet_stream.py).
    client.transport.send(SERVICE_REQUEST + string(b"ssh-userauth"))
    pump(client, server)
    server.transport.send(SERVICE_ACCEPT + string(b"ssh-userauth"))
    server.transport.send(USERAUTH_SUCCESS)
    pump(client, server)
    server.payloads.clear()

    client.transport.send(GLOBAL_REQUEST + string(b"hello@example.org") + b"\x00")
    client.transport.rekey()
    client.transport.send(GLOBAL_REQUEST + string(b"during-a-rekey@example.org") + b"\x00")  # held, and sent after it
    pump(client, server)
    for payload in server.payloads:
        print("server: global request", payload[5:-1].decode())

    client.transport.disconnect(description="that was all")
    client.handle(client.transport.take_events())
    pump(client, server)


if __name__ == "__main__":
    main()
