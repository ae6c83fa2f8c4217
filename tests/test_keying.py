"""Key agreement without gates, phases and events."""

from __future__ import annotations

import os
from dataclasses import dataclass

import pytest

from sshtransport.ciphers import NONE
from sshtransport.config import Role, TransportConfig
from sshtransport.errors import HostKeyError, LocalError, NegotiationError, ProtocolError
from sshtransport.keying import Keying, _signers
from sshtransport.keys import PrivateKey
from sshtransport.messages import KexInit
from sshtransport.packets import PacketReader, PacketWriter, PaddingPool
from tests.support.pair import host_key
from tests.support.puppet import listed

CONFIG = TransportConfig(kex=["curve25519-sha256"], ciphers=["aes128-gcm@openssh.com"], rekey_packets=100)


@dataclass
class End:
    """A Keying with its reader and writer."""

    keying: Keying
    reader: PacketReader
    writer: PacketWriter

    def hear(self, data: bytes) -> list[bool]:
        """Do what a transport does, without any gate; what ``on_message`` and ``on_newkeys`` said."""
        said = []
        self.reader.feed(memoryview(data))
        while (payload := self.reader.read(bytes(256), [])) is not None:
            if payload[0] == 20:
                self.keying.on_kexinit(payload)
            elif payload[0] == 21:
                said.append(self.keying.on_newkeys(payload))
            else:
                said.append(self.keying.on_message(payload))
                self.keying.send_newkeys()
        return said


def end(role: Role, config: TransportConfig = CONFIG, keys: tuple[PrivateKey, ...] = ()) -> End:
    reader, writer = PacketReader(), PacketWriter(PaddingPool())
    keying = Keying(role, config, keys or (host_key(),), os.urandom, writer, reader)
    keying.idents = (b"SSH-2.0-c", b"SSH-2.0-s")
    return End(keying, reader, writer)


def both(config: TransportConfig = CONFIG) -> tuple[End, End]:
    """After one whole exchange."""
    client, server = end("client", config), end("server", config)
    client.keying.start()
    server.keying.start()
    finish(client, server)
    return client, server


def finish(client: End, server: End) -> None:
    while moved := client.writer.take():
        server.hear(moved)
        client.hear(server.writer.take())


def test_an_exchange() -> None:
    client, server = both()
    for made in (client.keying, server.keying):
        assert made.exchange is None
        assert made.strict
        assert made.session_id == client.keying.session_id is not None
        assert made.algorithms == client.keying.algorithms is not None
        assert [spec.name for spec in made.ciphers] == ["aes128-gcm@openssh.com"] * 2
        assert not made.shuts_input and not made.shuts_output
        assert made.exchanges == 1
    assert server.keying.host_key == host_key().public_key.blob
    assert client.keying.host_key is None  # that is for the transport to say, after the verdict


def test_gates_by_direction() -> None:
    """Output is shut by our KEXINIT and NEWKEYS, input by the peer's: two facts, not one."""
    client, server = end("client"), end("server")
    assert not client.keying.shuts_output
    client.keying.start()
    server.keying.start()
    assert client.keying.shuts_output and not client.keying.shuts_input
    client.hear(server.writer.take())
    assert client.keying.shuts_output and client.keying.shuts_input
    server.hear(client.writer.take())  # answers with REPLY and NEWKEYS
    assert not server.keying.shuts_output and server.keying.shuts_input
    assert client.hear(server.writer.take()) == [True, True]
    assert not client.keying.shuts_output and not client.keying.shuts_input
    assert server.hear(client.writer.take()) == [True]
    assert not server.keying.shuts_input


def test_limits_count_from_the_new_keys() -> None:
    client, server = both()
    assert client.keying.write_limits == (client.writer.packets + 100, client.writer.total + 2**30)
    assert client.keying.read_limits == (client.reader.packets + 100, client.reader.total + 2**30)
    assert server.keying.write_limits[0] == server.writer.packets + 100
    first = client.keying.write_limits
    client.keying.start()
    finish(client, server)
    assert client.keying.write_limits > first
    assert client.keying.exchanges == server.keying.exchanges == 2


def test_before_keys_there_is_no_cipher_and_hardly_a_limit() -> None:
    fresh = end("client").keying
    assert fresh.ciphers == (NONE, NONE)
    assert fresh.read_limits == fresh.write_limits == (2**32, 2**63)


def test_start_answers_a_kexinit_once() -> None:
    client, server = both()
    client.keying.start()
    kexinit = client.writer.take()
    server.hear(kexinit)
    assert server.keying.exchange is not None
    assert not server.keying.exchange.first
    assert server.keying.shuts_output
    offers = server.keying.exchange.ours
    assert offers is not None
    assert listed(offers.kex) == ("curve25519-sha256",)


@pytest.mark.parametrize("payload", [b"\x1e", b"\x1f", b"\x28"])
def test_messages_without_an_exchange(payload: bytes) -> None:
    client, _ = both()
    with pytest.raises(ProtocolError, match="out of order"):
        client.keying.on_message(payload)
    with pytest.raises(ProtocolError, match="out of order"):
        client.keying.on_newkeys(b"\x15")
    client.keying.start()
    with pytest.raises(ProtocolError, match="out of order"):
        client.keying.on_message(payload)
    with pytest.raises(ProtocolError, match="out of order"):
        client.keying.on_newkeys(b"\x15")


def test_newkeys_before_ours() -> None:
    """A client whose user has not judged the host key yet has sent none."""
    client, server = end("client"), end("server")
    client.keying.start()
    server.keying.start()
    client.hear(server.writer.take())
    with pytest.raises(ProtocolError, match="NEWKEYS"):
        client.keying.on_newkeys(b"\x15")


def test_a_second_kexinit() -> None:
    client, server = end("client"), end("server")
    server.keying.start()
    client.keying.start()
    data = client.writer.take()
    server.hear(data)
    with pytest.raises(ProtocolError, match="second KEXINIT"):
        server.hear(data)


def test_strict_is_required() -> None:
    client, server = (
        end("client", TransportConfig(strict_kex="require")),
        end("server", TransportConfig(strict_kex="off")),
    )
    client.keying.start()
    server.keying.start()
    with pytest.raises(NegotiationError, match="strict"):
        client.hear(server.writer.take())


def test_a_wrong_signature_says_why() -> None:
    client, server = end("client"), end("server")
    server.keying._signers = {"ssh-ed25519": PrivateKey.generate("ssh-ed25519")}
    client.keying.start()
    server.keying.start()
    client.hear(server.writer.take())
    server.keying.idents = (b"SSH-2.0-c", b"SSH-2.0-another")  # so the two hashes differ
    server.hear(client.writer.take())
    with pytest.raises(HostKeyError) as caught:
        client.hear(server.writer.take())
    assert caught.value.verdict == "signature"
    assert client.keying.session_id is None


def test_drop_forgets_what_is_half_done() -> None:
    client = end("client")
    client.keying.start()
    client.keying.drop()
    assert client.keying.exchange is None
    assert not client.keying.shuts_output


def test_signers() -> None:
    """The first key that can do an algorithm; an RSA key does two."""
    first, second, rsa = PrivateKey.generate("ssh-ed25519"), host_key(), host_key("ssh-rsa")
    assert _signers([first, second, rsa]) == {"ssh-ed25519": first, "rsa-sha2-512": rsa, "rsa-sha2-256": rsa}
    assert _signers([]) == {}


@pytest.mark.parametrize("keys", [[], [host_key()]])
def test_a_server_without_a_key_for_its_offer(keys: list[PrivateKey]) -> None:
    config = TransportConfig(host_key_algorithms=["ecdsa-sha2-nistp256"])
    with pytest.raises(LocalError, match="host key"):
        Keying("server", config, keys, os.urandom, PacketWriter(PaddingPool()), PacketReader())


def test_another_factory_for_replays() -> None:
    """Recorded ephemerals come in here; no configuration reaches it."""
    client, server = end("client"), end("server")
    seen = []
    original = client.keying.make_kex

    def make(name: str, context: object) -> object:
        seen.append(name)
        return original(name, context)  # type: ignore[arg-type]

    client.keying.make_kex = make  # type: ignore[assignment]
    client.keying.start()
    server.keying.start()
    finish(client, server)
    assert seen == ["curve25519-sha256"]


def test_the_offer_is_what_is_hashed() -> None:
    """The payloads of both KEXINITs, byte for byte as sent."""
    client, server = end("client"), end("server")
    client.keying.start()
    server.keying.start()
    assert client.keying.exchange is not None
    ours = client.keying.exchange.our_payload
    server.hear(client.writer.take())
    assert server.keying.exchange is not None
    assert server.keying.exchange.their_payload == ours
    assert KexInit.decode(ours).encode() == ours
