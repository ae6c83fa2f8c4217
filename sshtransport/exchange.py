"""One key exchange (RFC 4253, section 7): what was sent, what has arrived, and the keys that come out.

The transport makes an :class:`Exchange` when the first KEXINIT of either side passes and drops it
when both NEWKEYS have passed. Sending is governed by our own KEXINIT and NEWKEYS, receiving by the
peer's: the two overlap, so they are separate facts here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from .ciphers import MAC, CipherSpec, MACSpec, Opener, Sealer
from .config import Role
from .kex import KexResult, KeyExchange, derive
from .messages import KexInit
from .negotiation import Algorithms, guess_is_wrong, negotiate

__all__ = ("Exchange", "Suite")


@dataclass(frozen=True, slots=True)
class Suite:
    """The cipher and MAC objects behind the names that a transport offers."""

    ciphers: Mapping[str, CipherSpec]
    macs: Mapping[str, MACSpec]

    def needs_mac(self, cipher: str) -> bool:
        """Whether the cipher of that name leaves authentication to a MAC. Unknown names never are chosen."""
        return cipher in self.ciphers and self.ciphers[cipher].needs_mac


@dataclass(slots=True)
class Exchange:
    """State of one key exchange. ``first`` is the one that opens the connection."""

    first: bool
    ours: KexInit | None = None
    our_payload: bytes = b""
    theirs: KexInit | None = None
    their_payload: bytes = b""
    drop_next: bool = False  # the peer's wrong guess is the next packet
    algorithms: Algorithms | None = None
    method: KeyExchange | None = None
    result: KexResult | None = field(default=None, repr=False)
    newkeys_sent: bool = False
    newkeys_received: bool = False

    @property
    def done(self) -> bool:
        """Both NEWKEYS have passed."""
        return self.newkeys_sent and self.newkeys_received

    def agree(self, role: Role, suite: Suite) -> Algorithms:
        """Choose the algorithms once both KEXINITs are there, and judge the peer's guess."""
        assert self.ours is not None and self.theirs is not None
        client, server = (self.ours, self.theirs) if role == "client" else (self.theirs, self.ours)
        self.algorithms = negotiate(client, server, ours=self.ours, needs_mac=suite.needs_mac)
        self.drop_next = self.theirs.first_kex_packet_follows and guess_is_wrong(client, server)
        return self.algorithms

    def sealer(self, role: Role, suite: Suite, session_id: bytes) -> tuple[CipherSpec, Sealer]:
        """The cipher object for what we send from now on."""
        spec, key, iv, mac = self._material(role == "client", suite, session_id)
        return spec, spec.make_sealer(key, iv, mac)

    def opener(self, role: Role, suite: Suite, session_id: bytes) -> tuple[CipherSpec, Opener]:
        """The cipher object for what the peer sends from now on."""
        spec, key, iv, mac = self._material(role == "server", suite, session_id)
        return spec, spec.make_opener(key, iv, mac)

    def _material(
        self, client_to_server: bool, suite: Suite, session_id: bytes
    ) -> tuple[CipherSpec, bytes, bytes, MAC | None]:
        """Key, IV and MAC of one direction (RFC 4253, section 7.2)."""
        names, result = self.algorithms, self.result
        assert names is not None and result is not None
        if client_to_server:
            letters, cipher, mac_name = b"ACE", names.cipher_c2s, names.mac_c2s
        else:
            letters, cipher, mac_name = b"BDF", names.cipher_s2c, names.mac_s2c
        spec = suite.ciphers[cipher]

        def bytes_for(index: int, size: int) -> bytes:
            if not size:
                return b""
            letter = letters[index : index + 1]
            return derive(result.hash_name, result.secret, result.exchange_hash, session_id, letter, size)

        mac = None
        if mac_name is not None:
            mac_spec = suite.macs[mac_name]
            mac = mac_spec.make(bytes_for(2, mac_spec.key_size))
        return spec, bytes_for(1, spec.key_size), bytes_for(0, spec.iv_size), mac
