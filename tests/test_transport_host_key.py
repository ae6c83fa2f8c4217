"""The server's host key: proof, verdict, and the pause in between (RFC 4253, section 8)."""

from __future__ import annotations

from typing import Any

import pytest

from sshtransport import messages
from sshtransport.config import TransportConfig
from sshtransport.constants import PAUSED_INPUT_MAX
from sshtransport.errors import ConnectionLost, DisconnectReason, HostKeyError, LocalError, ProtocolError
from sshtransport.events import Disconnected, ExtInfoReceived, HostKeyOffered, KeysChanged
from sshtransport.gates import Phase
from sshtransport.keys import PrivateKey, PublicKey
from sshtransport.packets import PacketWriter, PaddingPool
from sshtransport.wire import mpint, string
from tests.support.pair import CUTS, Cut, Pair, host_key, logged_in
from tests.support.phases import QUICK
from tests.support.puppet import ended, events, inject

CUT_PARAMS = [pytest.param(cut, id=name) for name, cut in CUTS.items()]
FAST = "curve25519-sha256"


def paused(cut: Cut = CUTS["whole"], **options: Any) -> Pair:
    """The client has seen the key and waits; what the server sent behind it is kept."""
    return Pair(QUICK, QUICK, accept=False, cut=cut, **options).pump()


class Signer:
    """Stands in for a server's key: any blob, any signature."""

    def __init__(self, blob: bytes, sign: Any) -> None:
        self.public_key = self
        self.blob = blob
        self._sign = sign

    def sign(self, algorithm: str, data: bytes) -> bytes:
        return self._sign(algorithm, data)  # type: ignore[no-any-return]


def with_signer(signer: Signer, config: TransportConfig = QUICK, keys: list[PrivateKey] | None = None) -> Pair:
    pair = Pair(config, config, host_keys=keys)
    for name in pair.server._keying._signers:
        pair.server._keying._signers[name] = signer  # type: ignore[assignment]
    return pair.pump()


# --- the verdict ------------------------------------------------------------------------------------


@pytest.mark.parametrize("cut", CUT_PARAMS)
def test_nothing_happens_before_the_verdict(cut: Cut) -> None:
    """Nothing is parsed, nothing sent, the key is not yet the connection's."""
    pair = paused(cut)
    client = pair.client
    offered = pair.client_items[-1]
    assert offered == HostKeyOffered("ssh-ed25519", host_key().public_key.blob, True)
    assert not client.want_read
    assert client.host_key is None
    assert client.phase is Phase.KEX
    assert client.data_to_send() == b""
    assert client.receive_data(b"") == []
    items = client.accept_host_key()
    assert [type(item) for item in items] == [KeysChanged, ExtInfoReceived]
    assert client.want_read
    assert client.host_key == pair.server.host_key
    assert pair.pump().server.phase is Phase.SERVICE


def test_refused() -> None:
    pair = paused()
    end = ended(pair.client.reject_host_key("not this one"))
    assert end.reason == DisconnectReason.HOST_KEY_NOT_VERIFIABLE
    assert isinstance(end.error, HostKeyError)
    assert (end.error.verdict, end.error.message) == ("refused", "host key not this one")
    pair.pump()
    theirs = Pair.end(pair.server_items)
    assert theirs is not None
    assert (theirs.reason, theirs.description) == (9, "host key not accepted")
    assert pair.client.host_key is None


def test_refused_with_the_callers_own_error() -> None:
    """It may name our files: that stays on our side."""
    error = HostKeyError("changed: line 7 of known_hosts", verdict="changed", path="known_hosts", line=7)
    pair = paused()
    end = ended(pair.client.reject_host_key(error))
    assert end.error is error
    pair.pump()
    theirs = Pair.end(pair.server_items)
    assert theirs is not None
    assert "known_hosts" not in theirs.description


@pytest.mark.parametrize("call", ["accept_host_key", "reject_host_key"])
def test_a_verdict_that_nobody_waits_for(call: str) -> None:
    pair = Pair(QUICK, QUICK)
    for end in (pair.client, pair.server):
        with pytest.raises(LocalError, match="no host key"):
            getattr(end, call)()
    pair = paused()
    with pytest.raises(LocalError):
        getattr(pair.server, call)()
    pair.client.accept_host_key()
    with pytest.raises(LocalError):
        getattr(pair.client, call)()
    pair.pump()
    assert pair.client.phase is Phase.SERVICE
    refused = paused()
    refused.client.reject_host_key()
    with pytest.raises(LocalError):
        getattr(refused.client, call)()


# --- input during the pause -------------------------------------------------------------------------


@pytest.mark.parametrize("cut", CUT_PARAMS)
def test_what_arrives_in_the_pause_is_kept_and_parsed_later(cut: Cut) -> None:
    pair = paused(cut)
    texts = [messages.debug(True, f"number {n}") for n in range(20)]
    before = len(pair.client_items)
    pair.deliver(pair.client, inject(pair.server, *texts))
    assert pair.client_items[before:] == []
    items = pair.client.accept_host_key()
    assert [type(item) for item in items[:2]] == [KeysChanged, ExtInfoReceived]
    assert [item.text for item in items[2:]] == [f"number {n}" for n in range(20)]  # type: ignore[union-attr]


def test_64_kib_are_kept_and_no_more() -> None:
    pair = paused()
    client = pair.client
    room = PAUSED_INPUT_MAX - len(client._kept)
    assert client.receive_data(bytes(room)) == []
    end = ended(client.receive_data(b"x"))
    assert isinstance(end.error, ProtocolError)
    assert end.error.limit == PAUSED_INPUT_MAX == 64 * 1024
    assert client._kept == b""


def test_the_buffer_gives_no_more_than_can_be_kept() -> None:
    """Even with a large arena: one read behind the key always fits."""
    pair = paused(arena=bytearray(2**18))
    client = pair.client
    while (room := PAUSED_INPUT_MAX - len(client._kept)) > 0:
        assert len(client.get_buffer()) == room
        assert client.buffer_updated(min(room, 30_000)) == []
    assert len(client.get_buffer()) == 1
    client.reject_host_key()
    assert client._kept == b""


def test_the_end_of_the_stream_in_the_pause() -> None:
    pair = paused()
    end = ended(pair.client.receive_eof())
    assert isinstance(end.error, ConnectionLost)
    with pytest.raises(LocalError):
        pair.client.accept_host_key()


def test_our_disconnect_in_the_pause() -> None:
    pair = paused()
    pair.client.disconnect(11, "changed my mind")
    assert ended(pair.client.take_events()).error is None
    with pytest.raises(LocalError):
        pair.client.accept_host_key()
    pair.pump()
    theirs = Pair.end(pair.server_items)
    assert theirs is not None
    assert theirs.description == "changed my mind"


def test_the_peers_disconnect_in_the_pause_is_read_after_it() -> None:
    pair = paused()
    pair.server.disconnect(11, "too slow")
    pair.deliver(pair.client, pair.server.data_to_send())
    assert pair.client.phase is Phase.KEX
    items = pair.client.accept_host_key()
    assert isinstance(items[-1], Disconnected)
    assert items[-1].description == "too slow"


# --- the proof --------------------------------------------------------------------------------------


def good(algorithm: str, data: bytes) -> bytes:
    return host_key().sign(algorithm, data)


WRONG = {
    "of other data": lambda algorithm, data: good(algorithm, data + b"x"),
    "of another key": lambda algorithm, data: PrivateKey.generate("ssh-ed25519").sign(algorithm, data),
    "empty": lambda algorithm, data: b"",
    "with another name": lambda algorithm, data: string(b"ssh-rsa") + good(algorithm, data)[15:],
    "cut": lambda algorithm, data: good(algorithm, data)[:-1],
    "with more behind": lambda algorithm, data: good(algorithm, data) + b"\0",
    "flipped": lambda algorithm, data: good(algorithm, data)[:-1] + bytes([good(algorithm, data)[-1] ^ 1]),
}


@pytest.mark.parametrize("why", WRONG)
def test_a_wrong_signature_is_never_offered(why: str) -> None:
    """The user is not asked about a key whose owner did not sign this exchange."""
    pair = with_signer(Signer(host_key().public_key.blob, WRONG[why]))
    assert not events(pair.client_items, HostKeyOffered)
    end = Pair.end(pair.client_items)
    assert end is not None
    assert isinstance(end.error, HostKeyError)
    assert (end.error.verdict, end.reason) == ("signature", DisconnectReason.KEY_EXCHANGE_FAILED)
    assert pair.client.phase is Phase.CLOSED
    assert pair.server.phase is Phase.CLOSED


@pytest.mark.parametrize(
    "blob",
    [b"", b"\0\0\0\x0bssh-ed25519", string(b"ssh-ed25519") + string(bytes(31)), string(b"ssh-dss") + bytes(40),
     host_key().public_key.blob + b"\0"],
)  # fmt: skip
def test_a_blob_that_is_no_key(blob: bytes) -> None:
    pair = with_signer(Signer(blob, good))
    end = Pair.end(pair.client_items)
    assert end is not None
    assert isinstance(end.error, ProtocolError)
    assert not events(pair.client_items, HostKeyOffered)


def test_the_key_must_fit_the_algorithm_agreed_on() -> None:
    """A good signature by a key of another type than negotiated."""
    other = host_key("ecdsa-sha2-nistp256")
    signer = Signer(other.public_key.blob, lambda _, data: other.sign("ecdsa-sha2-nistp256", data))
    end = Pair.end(with_signer(signer).client_items)
    assert end is not None
    assert isinstance(end.error, HostKeyError)
    assert end.error.verdict == "signature"


def test_rsa_sha2_256_where_512_was_agreed() -> None:
    """RFC 8332, section 3.2; known bugs I 124."""
    config = TransportConfig(kex=[FAST], host_key_algorithms=["rsa-sha2-512"])
    rsa = host_key("ssh-rsa")
    signer = Signer(rsa.public_key.blob, lambda _, data: rsa.sign("rsa-sha2-256", data))
    end = Pair.end(with_signer(signer, config, [rsa]).client_items)
    assert end is not None
    assert isinstance(end.error, HostKeyError)


@pytest.mark.parametrize("bits", [512, 1023, 1024, 2047])
def test_small_rsa_keys(bits: int) -> None:
    """Design section 5; refused before any arithmetic."""
    config = TransportConfig(kex=[FAST], host_key_algorithms=["rsa-sha2-512"])
    blob = string(b"ssh-rsa") + mpint(65537) + mpint(2 ** (bits - 1) + 1)
    pair = with_signer(Signer(blob, lambda algorithm, data: string(algorithm.encode()) + string(bytes(64))), config,
                       [host_key("ssh-rsa")])  # fmt: skip
    end = Pair.end(pair.client_items)
    assert end is not None
    assert isinstance(end.error, ProtocolError)


# --- rekeys -----------------------------------------------------------------------------------------


def test_the_same_key_is_not_asked_about_again() -> None:
    pair = logged_in(QUICK, QUICK)
    pair.clear()
    pair.accept = False
    for end in (pair.client, pair.server):
        end.rekey()
        pair.pump()
    assert pair.client_items == [KeysChanged(False)] * 2


def change_host_key(pair: Pair) -> PublicKey:
    other = PrivateKey.generate("ssh-ed25519")
    pair.server._keying._signers["ssh-ed25519"] = other
    return other.public_key


@pytest.mark.parametrize("verdict", ["accept", "reject"])
def test_another_key_in_a_rekey_must_pass_the_same_check(verdict: str) -> None:
    """Design section 4. The gate stays shut in the pause; what was held leaves after it."""
    pair = logged_in(QUICK, QUICK)
    pair.clear()
    pair.accept = False
    old, new = pair.client.host_key, change_host_key(pair)
    pair.client.rekey()
    pair.client.send(b"\x62 held")
    pair.server.send(b"\x5e before")
    pair.pump()
    assert pair.client_items == [b"\x5e before", HostKeyOffered("ssh-ed25519", new.blob, False)]
    assert pair.client.host_key == old
    assert not pair.client.can_send_data
    pair.client.send(b"\x62 held too")
    assert pair.client.data_to_send() == b""
    if verdict == "accept":
        assert pair.client.accept_host_key() == [KeysChanged(False)]
        assert pair.client.host_key == new.blob
        pair.pump()
        assert pair.server_items == [KeysChanged(False), b"\x62 held", b"\x62 held too"]
    else:
        assert isinstance(ended(pair.client.reject_host_key()).error, HostKeyError)
        pair.pump()
        assert Pair.payloads(pair.server_items) == []
        assert Pair.end(pair.server_items) is not None


def test_a_wrong_signature_in_a_rekey() -> None:
    """The same blob as before proves nothing by itself."""
    pair = logged_in(QUICK, QUICK)
    pair.clear()
    blob = host_key().public_key.blob
    pair.server._keying._signers["ssh-ed25519"] = Signer(blob, WRONG["of another key"])  # type: ignore[assignment]
    pair.client.rekey()
    pair.pump()
    end = Pair.end(pair.client_items)
    assert end is not None
    assert isinstance(end.error, HostKeyError)
    assert end.error.verdict == "signature"


def test_a_forged_reply_in_clear() -> None:
    """A man in the middle without the server's key: a REPLY of his own making."""
    pair = Pair(QUICK, QUICK, accept=False)
    pair.deliver(pair.server, pair.client.data_to_send())
    pair.deliver(pair.client, pair.server.data_to_send())
    writer = PacketWriter(PaddingPool())
    writer.write(b"\x1f" + string(host_key().public_key.blob) + string(b"\x09" + bytes(31)) + string(b"signature"))
    pair.deliver(pair.client, writer.take())
    end = Pair.end(pair.client_items)
    assert end is not None
    assert isinstance(end.error, HostKeyError)
