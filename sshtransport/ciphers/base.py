"""Cipher and MAC objects: what they are, and the registry that names them.

A cipher object is one direction under one key. It sees whole packets: the length field (``head``)
and the body (``padding_length | payload | padding``, RFC 4253, section 6), and nothing of framing,
padding, sequence numbers' bookkeeping or buffers, which belong to ``packets.py`` alone.

Adding a cipher is a pair of classes and one :func:`register_cipher` call. Registering makes a name
usable in ``TransportConfig(ciphers=[...])``; it never changes the defaults.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from ..errors import LocalError
from ..wire import Buffer

__all__ = (
    "CipherSpec",
    "CipherStatus",
    "KnownAnswer",
    "MAC",
    "MACSpec",
    "Opener",
    "Sealer",
    "cipher_names",
    "cipher_status",
    "get_cipher",
    "get_mac",
    "length_in_clear",
    "mac_names",
    "register_cipher",
    "register_mac",
    "spec_status",
)


class Sealer(Protocol):
    """Protects outgoing packets: one direction, one key."""

    @property
    def block_size(self) -> int:
        """Bodies are padded to a multiple of this many bytes."""

    @property
    def length_aligned(self) -> bool:
        """Whether the length field counts in that multiple (plain, and CTR with a plain HMAC)."""

    def seal(self, seq: int, head: bytes, body: bytes, /) -> bytes:
        """The frame for the wire, tag included, of the packet with sequence number ``seq``."""


class Opener(Protocol):
    """Checks and decrypts incoming packets: one direction, one key.

    For each packet ``length`` is called exactly once, then ``open``; an opener may keep state
    between the two. (Where it is :func:`length_in_clear`, the packet reader knows what it gives.)
    """

    @property
    def head_size(self) -> int:
        """Bytes that ``length`` needs."""

    @property
    def block_size(self) -> int:
        """The body must be a multiple of this many bytes."""

    @property
    def length_aligned(self) -> bool:
        """Whether the length field counts in that multiple."""

    @property
    def tag_size(self) -> int:
        """Bytes of tag or MAC behind the body."""

    def length(self, seq: int, head: memoryview, /) -> int:
        """The packet_length in ``head``: not authenticated yet, good for bounds only."""

    def open(self, seq: int, frame: memoryview, /) -> bytes:
        """The body of a whole frame (length field, body, tag).

        Raises:
            IntegrityError: the tag does not verify; nothing of the body has been kept.
        """


def length_in_clear(opener: Opener, seq: int, head: memoryview, /) -> int:
    """``Opener.length`` of ciphers that send the length field as it is."""
    return int.from_bytes(head, "big")


class MAC(Protocol):
    """A message authentication code: one direction, one key (RFC 4253, section 6.4)."""

    @property
    def tag_size(self) -> int:
        """Bytes of a tag."""

    @property
    def etm(self) -> bool:
        """Whether it covers the ciphertext (``-etm@openssh.com``) or the plaintext."""

    def sign(self, seq: int, data: Buffer, /) -> bytes:
        """The tag over ``uint32 seq || data``."""

    def verify(self, seq: int, data: Buffer, tag: bytes, /) -> None:
        """Raise IntegrityError unless ``tag`` is right, in constant time."""


@dataclass(frozen=True, slots=True)
class KnownAnswer:
    """One packet that a cipher must seal to exactly ``frame``, and open again.

    ``packet`` is the plaintext from packet_length through the padding. ``mac`` and ``mac_key``
    are for ciphers that need a MAC.
    """

    key: bytes
    iv: bytes
    seq: int
    packet: bytes
    frame: bytes
    mac: str | None = None
    mac_key: bytes = b""


@dataclass(frozen=True, slots=True)
class MACSpec:
    """A MAC algorithm: wire name, sizes in bytes, and how to make one from a key."""

    name: str
    key_size: int
    tag_size: int
    etm: bool
    make: Callable[[bytes], MAC]


@dataclass(frozen=True, slots=True)
class CipherSpec:
    """A cipher: wire name, key and IV sizes in bytes, and how to make its two halves.

    ``needs_mac`` False means that the cipher authenticates by itself: the MAC lists are ignored
    for its direction. ``rekey_bytes`` is the most one key should protect, or None for the
    default of 1 GiB. ``make_sealer`` and ``make_opener`` take ``(key, iv, mac)``.
    """

    name: str
    key_size: int
    iv_size: int
    needs_mac: bool
    rekey_bytes: int | None
    make_sealer: Callable[[bytes, bytes, MAC | None], Sealer]
    make_opener: Callable[[bytes, bytes, MAC | None], Opener]
    known_answer: KnownAnswer | None = None

    @property
    def secure(self) -> bool:
        """Whether packets are encrypted and authenticated: a property of the cipher, not of a MAC name."""
        return self.key_size > 0


@dataclass(frozen=True, slots=True)
class CipherStatus:
    """Whether a cipher passed its known-answer test here; ``reason`` says why not. True when it did."""

    name: str
    available: bool
    reason: str | None = None

    def __bool__(self) -> bool:
        return self.available


@dataclass(slots=True)
class _Registry:
    ciphers: dict[str, CipherSpec] = field(default_factory=dict)
    macs: dict[str, MACSpec] = field(default_factory=dict)
    statuses: dict[CipherSpec, CipherStatus] = field(default_factory=dict)


_registry = _Registry()


def register_cipher(spec: CipherSpec) -> None:
    """Make ``spec`` usable by its name.

    Raises:
        LocalError: the name is taken.
    """
    if spec.name in _registry.ciphers:
        raise LocalError(f"cipher {spec.name!r} is already registered")
    _registry.ciphers[spec.name] = spec


def register_mac(spec: MACSpec) -> None:
    """Make ``spec`` usable by its name.

    Raises:
        LocalError: the name is taken.
    """
    if spec.name in _registry.macs:
        raise LocalError(f"MAC {spec.name!r} is already registered")
    _registry.macs[spec.name] = spec


def get_cipher(name: str) -> CipherSpec:
    """The registered cipher of that wire name.

    Raises:
        LocalError: there is none.
    """
    try:
        return _registry.ciphers[name]
    except KeyError:
        raise LocalError(f"unknown cipher {name!r}; known: {', '.join(cipher_names())}") from None


def get_mac(name: str) -> MACSpec:
    """The registered MAC of that wire name.

    Raises:
        LocalError: there is none.
    """
    try:
        return _registry.macs[name]
    except KeyError:
        raise LocalError(f"unknown MAC {name!r}; known: {', '.join(mac_names())}") from None


def cipher_names() -> tuple[str, ...]:
    """Names of all registered ciphers, in order of registration."""
    return tuple(_registry.ciphers)


def mac_names() -> tuple[str, ...]:
    """Names of all registered MACs, in order of registration."""
    return tuple(_registry.macs)


def cipher_status(name: str) -> CipherStatus:
    """Whether the cipher works on this machine; runs its known-answer test the first time.

    Raises:
        LocalError: no cipher has that name.
    """
    return spec_status(get_cipher(name))


def spec_status(spec: CipherSpec) -> CipherStatus:
    """As :func:`cipher_status`, for a spec that may not be registered."""
    status = _registry.statuses.get(spec)
    if status is None:
        try:
            _self_test(spec)
            status = CipherStatus(spec.name, True)
        except Exception as error:  # whatever a backend without the primitive raises
            status = CipherStatus(spec.name, False, f"{type(error).__name__}: {error}")
        _registry.statuses[spec] = status
    return status


def _self_test(spec: CipherSpec) -> None:
    """Seal and open one packet, compare with the known answer, and see a flipped bit refused."""
    answer = spec.known_answer or _made_up(spec)

    def mac() -> MAC | None:
        if not spec.needs_mac:
            return None
        return get_mac(answer.mac or next(iter(_registry.macs))).make(answer.mac_key)

    head, body = answer.packet[:4], answer.packet[4:]
    frame = spec.make_sealer(answer.key, answer.iv, mac()).seal(answer.seq, head, body)
    if spec.known_answer is not None and frame != answer.frame:
        raise LocalError("sealing does not give the known answer")

    def reopen(data: bytes) -> bytes:
        opener = spec.make_opener(answer.key, answer.iv, mac())
        view = memoryview(data)
        if opener.length(answer.seq, view[: opener.head_size]) != len(body):
            raise LocalError("the length field does not come back")
        return opener.open(answer.seq, view)

    if reopen(frame) != body:
        raise LocalError("opening does not give the packet back")
    if spec.secure:
        try:
            reopen(frame[:-1] + bytes((frame[-1] ^ 1,)))
        except Exception:
            return
        raise LocalError("a flipped bit goes unnoticed")


def _made_up(spec: CipherSpec) -> KnownAnswer:
    """A packet for ciphers that came without a known answer: only the round trip is checked."""
    mac_name = next(iter(_registry.macs), None) if spec.needs_mac else None
    mac_key = bytes(get_mac(mac_name).key_size) if mac_name else b""
    key, iv = bytes(range(spec.key_size)), bytes(spec.iv_size)
    sealer = spec.make_sealer(key, iv, get_mac(mac_name).make(mac_key) if mac_name else None)
    fixed = 4 if sealer.length_aligned else 0
    size = -(-(fixed + 32) // sealer.block_size) * sealer.block_size - fixed
    body = bytes((size - 11,)) + bytes(range(10)) + bytes(size - 11)
    return KnownAnswer(key, iv, 3, len(body).to_bytes(4, "big") + body, b"", mac_name, mac_key)
