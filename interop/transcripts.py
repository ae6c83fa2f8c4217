"""Sessions with real peers as data, and their replay: the same bytes and items without any peer.

A transcript holds what arrived and what left, in order, and what pins our side's randomness: the seed of
cookies, padding and ephemeral keys, the signatures of our keys, and the encapsulations of ML-KEM, which
the library draws by itself. Private keys are not in it: a replay takes each recorded signature
once it verifies over what our side wants signed. ``scripts.py`` decides what is sent.

The file: JSON lines. A head, then ``{"in": base64}`` and ``{"out": base64}``, then the end with the
digest of all items that came up.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import json
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, cast

from cryptography.hazmat.primitives.asymmetric.mlkem import MLKEM768PublicKey

from sshtransport import PrivateKey, PublicKey, SSHTransport, TransportConfig
from sshtransport.kex import KexContext, KeyExchange
from sshtransport.kex.mlkem import MLKEM768X25519
from sshtransport.kex.registry import METHODS
from sshtransport.transport import Item

from .scripts import ClientScript, Script, ServerScript, Signer

__all__ = ("Cut", "Mismatch", "Transcript", "record_client", "record_server", "replay")

FORMAT = 1
DATA = b"".join(b"%d\n" % number for number in range(250))  # what a session carries
COMMAND = "cat"
SOFTWARE = "recorded"  # in our identification line, whatever our version is
_READ = 65_536
_TIMEOUT = 20.0  # seconds for a session

Cut = Callable[[bytes], Iterable[bytes]]


class Mismatch(AssertionError):
    """A replay did not do what was recorded."""


# --- randomness, pinned ---------------------------------------------------------------------------------


class Stream:
    """Bytes that look random, all from a seed: SHA-256 over seed and counter."""

    def __init__(self, seed: bytes) -> None:
        self._seed = seed
        self._counter = 0

    def __call__(self, size: int) -> bytes:
        made = b""
        while len(made) < size:
            made += hashlib.sha256(self._seed + self._counter.to_bytes(8, "big")).digest()
            self._counter += 1
        return made[:size]


#: Bytes of a private key by method. Of an EC key fewer than its order has, so that every draw is one.
_PRIVATE_SIZES = {"ecdh-sha2-nistp256": 31, "ecdh-sha2-nistp384": 47, "ecdh-sha2-nistp521": 65}
_SEED_SIZE = 64  # of ML-KEM (FIPS 203)


@dataclass
class Pins:
    """What our side's randomness is made of. ``signatures`` and ``encapsulated`` grow in a recording."""

    seed: bytes
    signatures: list[bytes] = field(default_factory=list)
    encapsulated: list[tuple[bytes, bytes]] = field(default_factory=list)

    def copy(self) -> Pins:
        return Pins(self.seed, list(self.signatures), list(self.encapsulated))


class _Encapsulating(MLKEM768X25519):
    """A server's half that notes what the library drew."""

    def __init__(self, private: bytes, pins: Pins) -> None:
        super().__init__(private=private)
        self._pins = pins

    def respond(self, peer: bytes) -> tuple[bytes, bytes]:
        key = MLKEM768PublicKey.from_public_bytes(peer[:-32])
        self._encapsulated = key.encapsulate()
        self._pins.encapsulated.append(self._encapsulated)
        return super().respond(peer)


def _pin_kex(core: SSHTransport, pins: Pins, *, replaying: bool) -> None:
    """Ephemerals come from the seed, and in a replay encapsulations from the record."""
    drawn = Stream(pins.seed + b"kex")

    def make(name: str, context: KexContext) -> KeyExchange:
        method = METHODS[name]
        private = drawn(_PRIVATE_SIZES.get(name, 32))
        if not name.startswith("mlkem"):
            return KeyExchange(method, context, {"private": private})
        seed = drawn(_SEED_SIZE)
        if context.role == "client":
            return KeyExchange(method, context, {"private": private, "seed": seed})
        if replaying:
            return KeyExchange(method, context, {"private": private, "encapsulated": pins.encapsulated.pop(0)})
        return KeyExchange(replace(method, agreement=lambda: _Encapsulating(private, pins)), context)

    keying: Any = core._keying
    keying.make_kex = make


class _NotingKey:
    """A private key that notes its signatures."""

    def __init__(self, key: PrivateKey, pins: Pins) -> None:
        self._key, self._pins = key, pins
        self.public_key = key.public_key
        self.signature_algorithms = key.signature_algorithms

    def sign(self, algorithm: str, data: bytes) -> bytes:
        signature = self._key.sign(algorithm, data)
        self._pins.signatures.append(signature)
        return signature


class _NotedKey:
    """A public key with recorded signatures: good for what they were made for, and for nothing else."""

    def __init__(self, text: str, pins: Pins) -> None:
        self._pins = pins
        self.public_key = PublicKey.from_text(text)
        self.signature_algorithms = self.public_key.signature_algorithms

    def sign(self, algorithm: str, data: bytes) -> bytes:
        signature = self._pins.signatures.pop(0)
        self.public_key.verify(algorithm, data, signature)
        return signature


# --- a transcript ---------------------------------------------------------------------------------------


@dataclass
class Transcript:
    """A session. ``steps``: (True, bytes that arrived) and (False, bytes that left)."""

    role: str  # ours
    peer: str
    version: str  # of the peer
    config: Mapping[str, Any]
    username: str
    user_key: str  # public
    host_keys: Sequence[str]  # public, ours
    rekey: bool  # we begin one
    pins: Pins
    steps: list[tuple[bool, bytes]] = field(default_factory=list)
    items: str = ""  # digest of all that came up
    rekeys: int = 0  # key exchanges after the first one, whoever began them

    def script(self, keys: Sequence[Signer], pins: Pins, *, replaying: bool) -> Script:
        """The session from its beginning; ``keys``: the user's for a client, the host's for a server."""
        config = TransportConfig(**self.config, software_version=SOFTWARE)
        random = Stream(pins.seed)
        if self.role == "client":
            core = SSHTransport("client", config, random=random)
            _pin_kex(core, pins, replaying=replaying)
            return ClientScript(core, self.username, keys[0], COMMAND, DATA, rekey=self.rekey)
        signers = cast("Sequence[PrivateKey]", keys)
        core = SSHTransport("server", config, host_keys=signers, random=random)
        _pin_kex(core, pins, replaying=replaying)
        return ServerScript(core, PublicKey.from_text(self.user_key), rekey=self.rekey)

    def save(self, path: Path) -> None:
        head = {"format": FORMAT, **{name: value for name, value in asdict(self).items() if name != "steps"}}
        head["pins"] = {
            "seed": self.pins.seed.hex(),
            "signatures": [_text(one) for one in self.pins.signatures],
            "encapsulated": [[_text(part) for part in pair] for pair in self.pins.encapsulated],
        }
        lines = [head, *({"in" if arrived else "out": _text(data)} for arrived, data in self.steps)]
        path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="ascii")

    @classmethod
    def load(cls, path: Path) -> Transcript:
        head, *steps = map(json.loads, path.read_text(encoding="ascii").splitlines())
        if head.pop("format") != FORMAT:
            raise ValueError(f"{path}: not a transcript of format {FORMAT}")
        pins = head.pop("pins")
        return cls(
            **head,
            pins=Pins(
                bytes.fromhex(pins["seed"]),
                [_data(one) for one in pins["signatures"]],
                [(_data(secret), _data(ciphertext)) for secret, ciphertext in pins["encapsulated"]],
            ),
            steps=[("in" in step, _data(step.get("in", step.get("out")))) for step in steps],
        )


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


def _data(text: str) -> bytes:
    return base64.b64decode(text)


class _Digest:
    """Over all items: payloads byte for byte, events by their kind."""

    def __init__(self) -> None:
        self._hash = hashlib.sha256()

    def add(self, items: Sequence[Item]) -> None:
        for item in items:
            data = item if isinstance(item, bytes) else type(item).__name__.encode()
            self._hash.update(len(data).to_bytes(4, "big") + data)

    def text(self) -> str:
        return self._hash.hexdigest()


# --- recording ------------------------------------------------------------------------------------------


async def record_client(
    host: str,
    port: int,
    *,
    seed: bytes,
    key: PrivateKey,
    username: str,
    config: Mapping[str, Any],
    peer: str,
    version: str,
    rekey: bool = False,
) -> Transcript:
    """A session of ours with a server peer whose ``cat`` gives input back.

    Raises:
        ScriptFailed, Mismatch: it went wrong.
    """
    pins = Pins(seed)
    transcript = Transcript("client", peer, version, config, username, key.public_key.to_text(), (), rekey, pins)
    script = transcript.script([_NotingKey(key, pins)], pins, replaying=False)
    assert isinstance(script, ClientScript)
    async with asyncio.timeout(_TIMEOUT):
        reader, writer = await asyncio.open_connection(host, port)
        await _carry(transcript, script, reader, writer)
    if script.output != DATA:
        raise Mismatch(f"{len(script.output)} bytes came back instead of {len(DATA)}")
    return transcript


@contextlib.asynccontextmanager
async def record_server(
    host: str,
    *,
    seed: bytes,
    user_key: PublicKey,
    host_keys: Sequence[PrivateKey],
    username: str,
    config: Mapping[str, Any],
    peer: str,
    version: str,
    rekey: bool = False,
) -> AsyncIterator[tuple[int, asyncio.Future[Transcript]]]:
    """A server of ours for one session with a client peer: gives the port, and a future of the transcript."""
    pins = Pins(seed)
    publics = [key.public_key.to_text() for key in host_keys]
    transcript = Transcript("server", peer, version, config, username, user_key.to_text(), publics, rekey, pins)
    script = transcript.script([_NotingKey(key, pins) for key in host_keys], pins, replaying=False)
    done: asyncio.Future[Transcript] = asyncio.get_running_loop().create_future()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(_TIMEOUT):
                await _carry(transcript, script, reader, writer)
            done.set_result(transcript)
        except Exception as error:
            done.set_exception(error)

    tasks: list[asyncio.Task[None]] = []
    server = await asyncio.start_server(
        lambda reader, writer: tasks.append(asyncio.create_task(serve(reader, writer))), host, 0
    )
    try:
        yield server.sockets[0].getsockname()[1], done
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        done.cancel()


async def _carry(
    transcript: Transcript, script: Script, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    """Between the script and a socket, noting both directions."""
    digest = _Digest()
    try:
        while True:
            out = script.core.data_to_send()
            if out:
                transcript.steps.append((False, out))
                with contextlib.suppress(ConnectionError):
                    writer.write(out)
                    await writer.drain()
            if script.over:
                break
            data = b""  # it has closed; some do it with a reset
            with contextlib.suppress(ConnectionError):
                data = await reader.read(_READ)
            transcript.steps.append((True, data))
            _arrive(script, data, [data], digest)
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
    transcript.items, transcript.rekeys = digest.text(), script.core.rekeys


def _arrive(script: Script, data: bytes, pieces: Iterable[bytes], digest: _Digest) -> None:
    """One read: all of its pieces go in before anything is done about what came up."""
    core = script.core
    items: list[Item] = []
    if data:
        for piece in pieces:
            items += core.receive_data(piece)
    else:
        items += core.receive_eof()
    digest.add(items)
    script.handle(items)
    rest = core.take_events()
    while rest:
        digest.add(rest)
        script.handle(rest)
        rest = core.take_events()


# --- replaying ------------------------------------------------------------------------------------------


def _whole(data: bytes) -> Iterator[bytes]:
    yield data


def replay(transcript: Transcript, cut: Cut = _whole) -> None:
    """Feed what arrived, each read cut in pieces; what leaves and what comes up must be as recorded.

    Raises:
        Mismatch: it is not.
    """
    pins = transcript.pins.copy()
    texts = [transcript.user_key] if transcript.role == "client" else transcript.host_keys
    script = transcript.script([_NotedKey(text, pins) for text in texts], pins, replaying=True)
    digest = _Digest()
    steps = iter(transcript.steps)
    for number, (arrived, data) in enumerate(steps):
        left = b"" if arrived else script.core.data_to_send()
        if arrived:
            if script.core.pending_output:
                raise Mismatch(f"step {number}: {script.core.pending_output} bytes more would leave")
            _arrive(script, data, cut(data), digest)
        elif left != data:
            raise Mismatch(f"step {number}: {_difference(left, data)}")
    if script.core.pending_output or not script.over:
        raise Mismatch("the session is not over")
    if (digest.text(), script.core.rekeys) != (transcript.items, transcript.rekeys):
        raise Mismatch("other payloads or events came up")
    if pins.signatures or pins.encapsulated:
        raise Mismatch("not every recorded signature or encapsulation was asked for")


def _difference(got: bytes, wanted: bytes) -> str:
    first = next((n for n, (a, b) in enumerate(zip(got, wanted, strict=False)) if a != b), min(len(got), len(wanted)))
    return f"{len(got)} bytes left, not {len(wanted)}; they differ from byte {first} on"
