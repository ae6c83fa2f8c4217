"""Check the committed vectors with an implementation that is not ours: asyncssh.

Run from the repository's root: ``python -m tests.vectors.verify``. asyncssh's key exchange handlers
get the recorded private keys and the server's REPLY, its cipher objects the keys and packets.
"""

from __future__ import annotations

import logging
import sys
import warnings
from typing import Any

from asyncssh.encryption import get_encryption
from asyncssh.kex import get_kex
from asyncssh.packet import MPInt, SSHPacket, String
from asyncssh.public_key import decode_ssh_public_key
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from tests.vectors.generate import FILES, Entry, read

__all__ = ("verify", "verify_kex", "verify_packet")

REPLY = 31
TAG_SIZES = {"hmac-sha2-256": 32, "hmac-sha2-512": 64}
unhex = bytes.fromhex


class _Connection:
    """As much of an asyncssh client connection as its key exchange handlers ask for."""

    logger = logging.getLogger("vectors")

    def __init__(self, entry: Entry) -> None:
        self._entry = entry
        self.newkeys: tuple[bytes, bytes] | None = None

    def is_client(self) -> bool:
        return True

    def is_server(self) -> bool:
        return False

    def get_hash_prefix(self) -> bytes:
        idents = (self._entry[name].encode() for name in ("V_C", "V_S"))
        kexinits = (unhex(self._entry[name]) for name in ("I_C", "I_S"))
        return b"".join(map(String, (*idents, *kexinits)))

    def validate_server_host_key(self, data: bytes) -> Any:
        return decode_ssh_public_key(data)

    def send_packet(self, *_args: object, **_kwargs: object) -> None:
        pass

    def send_newkeys(self, k: bytes, h: bytes) -> None:
        self.newkeys = k, h


def _use_recorded(kex: Any, entry: Entry) -> bytes:
    """Give the handler the entry's private keys; the server's value as it stands in the REPLY."""
    name = entry["kex"]
    if name.startswith("diffie-hellman-"):
        from cryptography.hazmat.primitives.asymmetric import dh

        kex._perform_init()
        e = int(entry["e"], 16)
        public = dh.DHPublicNumbers(e, kex._dh._pn)
        kex._dh._priv_key = dh.DHPrivateNumbers(int(entry["x"], 16), public).private_key()
        kex._e = kex._dh.get_public()
        return bytes(MPInt(int(entry["f"], 16)))

    private = unhex(entry["client_private"])
    if "25519" in name:
        kex._priv._priv_key = X25519PrivateKey.from_private_bytes(private)
    else:
        curve = kex._priv._priv_key.curve
        kex._priv._priv_key = ec.derive_private_key(int.from_bytes(private, "big"), curve)
    kex._client_pub = kex._priv.get_public()
    if not name.startswith("mlkem"):
        return bytes(String(unhex(entry["Q_S"])))
    kex._pq._priv_key = kex._pq._priv_cls.from_seed_bytes(unhex(entry["mlkem_seed"]))
    kex._client_pub = kex._pq.get_public() + kex._client_pub
    return bytes(String(unhex(entry["S_REPLY"])))


def verify_kex(entry: Entry) -> bool:
    """The exchange as asyncssh's client sees it: signature, K, H and all six keys."""
    connection = _Connection(entry)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # finite-field DH is deprecated in cryptography
        kex: Any = get_kex(connection, entry["kex"].encode())  # type: ignore[arg-type]
        value = _use_recorded(kex, entry)
        reply = String(unhex(entry["K_S"])) + value + String(unhex(entry["signature"]))
        kex.process_packet(REPLY, 0, SSHPacket(reply))
    assert connection.newkeys is not None
    k, h = connection.newkeys
    letters = {"c2s": {"iv": b"A", "key": b"C", "mac": b"E"}, "s2c": {"iv": b"B", "key": b"D", "mac": b"F"}}
    keys_agree = all(
        kex.compute_key(k, h, letter, h, len(unhex(entry["keys"][way][kind]))).hex() == entry["keys"][way][kind]
        for way, kinds in letters.items()
        for kind, letter in kinds.items()
    )
    return k.hex() == entry["K_encoded"] and h.hex() == entry["H"] and keys_agree


def _encryption(entry: Entry) -> Any:
    """asyncssh's cipher object, moved on to where the packet stands in its stream."""
    mac = entry.get("mac", "").encode()
    made: Any = get_encryption(
        entry["cipher"].encode(),
        unhex(entry["key"]),
        unhex(entry["iv"]),
        mac.removesuffix(b"-etm@openssh.com"),
        unhex(entry.get("mac_key", "")),
        mac.endswith(b"-etm@openssh.com"),
    )
    before = entry.get("ctr_bytes_before", 0)
    if before:
        made._cipher.encrypt(bytes(before))
        made._cipher.decrypt(bytes(before))
    return made


def _decrypt(entry: Entry) -> bytes | None:
    """The packet without its length field, or None where the length or the tag is wrong."""
    wire, seq, mac = unhex(entry["wire"]), entry["seqnr"], entry.get("mac", "")
    whole_block = bool(mac) and not mac.endswith("-etm@openssh.com")
    size = 16 if whole_block else 4
    tag_size = TAG_SIZES.get(mac.removesuffix("-etm@openssh.com"), 16)
    encryption = _encryption(entry)
    first, header = encryption.decrypt_header(seq, wire[:size], 4)
    end = 4 + int.from_bytes(header, "big")
    if end + tag_size > len(wire):
        return None  # a length that nothing can be right about
    body: bytes | None = encryption.decrypt_packet(seq, first, wire[size:end], 4, wire[end : end + tag_size])
    return body


def verify_packet(entry: Entry) -> bool:
    """Sealing gives the wire bytes and opening gives the packet back, or fails where it must."""
    if entry.get("expect") == "reject":
        return _decrypt(entry) is None
    packet = unhex(entry["plaintext_packet"])
    sealed, tag = _encryption(entry).encrypt_packet(entry["seqnr"], packet[:4], packet[4:])
    return bool(sealed + tag == unhex(entry["wire"])) and _decrypt(entry) == packet[4:]


def verify(name: str, entry: Entry) -> bool:
    """Whether asyncssh agrees with one entry of the file ``name``; it may raise where it does not."""
    return verify_kex(entry) if name == "kex_vectors.json" else verify_packet(entry)


def main() -> int:
    failures = 0
    for name in FILES:
        for entry in read(name):
            try:
                agreed, why = verify(name, entry), "asyncssh computes something else"
            except Exception as error:
                agreed, why = False, repr(error)
            if not agreed:
                failures += 1
                print(f"{name}: {entry['name']}: {why}")
        print(f"{name}: {len(read(name))} entries checked")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
