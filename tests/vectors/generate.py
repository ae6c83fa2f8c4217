"""Recompute the committed vectors from their inputs; ``--check`` only compares.

Run from the repository's root: ``python -m tests.vectors.generate [--check]``.

Each entry holds its inputs (names, private keys, plaintext packets, ...) next to what follows from
them, so a new vector is an entry with inputs only. Nothing here shares code with sshtransport, and
but for AES on one block, ML-KEM and Ed25519 nothing leans on a crypto library: the curves, ChaCha20,
Poly1305, GHASH and the counters are spelled out. ML-KEM's encapsulation is random, so a server's
ciphertext is an input.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import struct
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.mlkem import MLKEM768PrivateKey, MLKEM1024PrivateKey
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

Entry = dict[str, Any]
HERE = Path(__file__).parent
unhex = bytes.fromhex


# --- encodings (RFC 4251, section 5) ----------------------------------------------------------------


def string(data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + data


def mpint(number: int) -> bytes:
    octets = number.to_bytes((number.bit_length() + 7) // 8, "big")
    if octets and octets[0] >= 0x80:
        octets = b"\0" + octets
    return string(octets)


# --- X25519 (RFC 7748, section 5): the Montgomery ladder ---------------------------------------------

FIELD_25519 = 2**255 - 19


def x25519(private: bytes, point: bytes) -> bytes:
    p = FIELD_25519
    k = int.from_bytes(private, "little") & ~7 & (2**254 - 1) | 2**254
    x1 = int.from_bytes(point, "little") % 2**255
    x2, z2, x3, z3 = 1, 0, x1, 1
    for bit in range(254, -1, -1):
        swap = k >> bit & 1
        if swap:
            x2, z2, x3, z3 = x3, z3, x2, z2
        a, b, c, d = x2 + z2, x2 - z2, x3 + z3, x3 - z3
        aa, bb, da, cb = a * a, b * b, d * a, c * b
        e = aa - bb
        x3, z3 = (da + cb) ** 2 % p, x1 * (da - cb) ** 2 % p
        x2, z2 = aa * bb % p, e * (aa + 121665 * e) % p
        if swap:
            x2, z2, x3, z3 = x3, z3, x2, z2
    return (x2 * pow(z2, -1, p) % p).to_bytes(32, "little")


def x25519_pair(client: bytes, server: bytes) -> tuple[bytes, bytes, bytes]:
    """Both public values and the shared secret."""
    base = (9).to_bytes(32, "little")
    q_c, q_s = x25519(client, base), x25519(server, base)
    shared = x25519(client, q_s)
    assert shared == x25519(server, q_c)
    return q_c, q_s, shared


# --- the NIST curves (FIPS 186-4, appendix D.1.2), affine ---------------------------------------------

Point = tuple[int, int]


class Curve:
    """y^2 = x^3 - 3x + b over the integers mod p."""

    def __init__(self, p: int, base: Point) -> None:
        self.p, self.base = p, base
        self.size = (p.bit_length() + 7) // 8

    def add(self, one: Point | None, two: Point | None) -> Point | None:
        if one is None or two is None:
            return one or two
        (x1, y1), (x2, y2), p = one, two, self.p
        if x1 == x2 and (y1 + y2) % p == 0:
            return None
        slope = (3 * x1 * x1 - 3) * pow(2 * y1, -1, p) if one == two else (y2 - y1) * pow(x2 - x1, -1, p)
        x3 = (slope * slope - x1 - x2) % p
        return x3, (slope * (x1 - x3) - y1) % p

    def multiply(self, k: int, point: Point) -> Point:
        total: Point | None = None
        addend: Point | None = point
        while k:
            if k & 1:
                total = self.add(total, addend)
            addend = self.add(addend, addend)
            k >>= 1
        assert total is not None
        return total

    def encode(self, point: Point) -> bytes:
        return b"\x04" + b"".join(c.to_bytes(self.size, "big") for c in point)

    def pair(self, client: bytes, server: bytes) -> tuple[bytes, bytes, bytes]:
        """Both public values and the shared x coordinate."""
        x, y = int.from_bytes(client, "big"), int.from_bytes(server, "big")
        q_c, q_s = self.multiply(x, self.base), self.multiply(y, self.base)
        shared = self.multiply(x, q_s)
        assert shared == self.multiply(y, q_c)
        return self.encode(q_c), self.encode(q_s), shared[0].to_bytes(self.size, "big")


P256 = Curve(
    2**256 - 2**224 + 2**192 + 2**96 - 1,
    (
        0x6B17D1F2E12C4247F8BCE6E563A440F277037D812DEB33A0F4A13945D898C296,
        0x4FE342E2FE1A7F9B8EE7EB4A7C0F9E162BCE33576B315ECECBB6406837BF51F5,
    ),
)
P384 = Curve(
    2**384 - 2**128 - 2**96 + 2**32 - 1,
    (
        0xAA87CA22BE8B05378EB1C71EF320AD746E1D3B628BA79B9859F741E082542A385502F25DBF55296C3A545E3872760AB7,
        0x3617DE4A96262C6F5D9E98BF9292DC29F8F41DBD289A147CE9DA3113B5F0B8C00A60B1CE1D7E819D7A431D7C90EA0E5F,
    ),
)
P521 = Curve(
    2**521 - 1,
    (
        int(
            "00c6858e06b70404e9cd9e3ecb662395b4429c648139053fb521f828af606b4d3d"
            "baa14b5e77efe75928fe1dc127a2ffa8de3348b3c1856a429bf97e7e31c2e5bd66",
            16,
        ),
        int(
            "011839296a789a3bc0045c8a5fb42c7d1bd998f54449579b446817afbd17273e66"
            "2c97ee72995ef42640c550b9013fad0761353c7086a272c24088be94769fd16650",
            16,
        ),
    ),
)


# --- MODP groups (RFC 3526) ---------------------------------------------------------------------------


def floor_pi(bits: int) -> int:
    """floor(pi * 2**bits) by the Bailey-Borwein-Plouffe series, with guard bits."""
    one = 1 << (bits + 32)
    total = 0
    for k in range(bits // 4 + 16):
        k8 = 8 * k
        total += (4 * one // (k8 + 1) - 2 * one // (k8 + 4) - one // (k8 + 5) - one // (k8 + 6)) >> (4 * k)
    return total >> 32


def modp2048() -> int:
    p = 2**2048 - 2**1984 - 1 + 2**64 * (floor_pi(1918) + 124476)
    digest = hashlib.sha256(p.to_bytes(256, "big")).hexdigest()
    assert digest == "d66436f79bbd6b2e38c0ffbd079be904d2641415e2e67140e09448be9a60890e"
    return p


# --- key exchanges ------------------------------------------------------------------------------------

CLASSICAL: dict[str, Callable[[bytes, bytes], tuple[bytes, bytes, bytes]]] = {
    "curve25519-sha256": x25519_pair,
    "ecdh-sha2-nistp256": P256.pair,
    "ecdh-sha2-nistp384": P384.pair,
    "ecdh-sha2-nistp521": P521.pair,
}
#: The KEM's private key, the size of its ciphertext, the classical half.
HYBRIDS: dict[str, tuple[Any, int, Callable[[bytes, bytes], tuple[bytes, bytes, bytes]]]] = {
    "mlkem768x25519-sha256": (MLKEM768PrivateKey, 1088, x25519_pair),
    "mlkem768nistp256-sha256": (MLKEM768PrivateKey, 1088, P256.pair),
    "mlkem1024nistp384-sha384": (MLKEM1024PrivateKey, 1568, P384.pair),
}


def exchange_classical(entry: Entry) -> tuple[bytes, bytes, bytes]:
    """Both public values and K, each as it is hashed; fills in what the entry shows of them."""
    q_c, q_s, shared = CLASSICAL[entry["kex"]](unhex(entry["client_private"]), unhex(entry["server_private"]))
    entry.update(Q_C=q_c.hex(), Q_S=q_s.hex(), shared=shared.hex())
    return string(q_c), string(q_s), mpint(int.from_bytes(shared, "big"))


def exchange_hybrid(entry: Entry) -> tuple[bytes, bytes, bytes]:
    kem, size, pair = HYBRIDS[entry["kex"]]
    q_c, q_s, classical = pair(unhex(entry["client_private"]), unhex(entry["server_private"]))
    key = kem.from_seed_bytes(unhex(entry["mlkem_seed"]))
    ciphertext = unhex(entry["S_REPLY"])[:size]
    post_quantum = key.decapsulate(ciphertext)
    secret = hashlib.new(entry["hash"], post_quantum + classical).digest()
    init, reply = key.public_key().public_bytes_raw() + q_c, ciphertext + q_s
    entry.update(C_INIT=init.hex(), S_REPLY=reply.hex(), mlkem_shared=post_quantum.hex())
    entry.update(classical_shared=classical.hex(), K=secret.hex())
    return string(init), string(reply), string(secret)


def exchange_modp(entry: Entry) -> tuple[bytes, bytes, bytes]:
    p, x, y = modp2048(), int(entry["x"], 16), int(entry["y"], 16)
    e, f = pow(2, x, p), pow(2, y, p)
    shared = pow(f, x, p)
    assert shared == pow(e, y, p)
    for name, number in (("e", e), ("f", f), ("K", shared)):
        entry[name] = number.to_bytes((number.bit_length() + 7) // 8, "big").hex()
    return mpint(e), mpint(f), mpint(shared)


def complete_kex(entry: Entry) -> None:
    """Everything that follows from an exchange's inputs."""
    if entry["kex"] in HYBRIDS:
        client_value, server_value, k = exchange_hybrid(entry)
    elif entry["kex"] in CLASSICAL:
        client_value, server_value, k = exchange_classical(entry)
    else:
        assert entry["kex"] == "diffie-hellman-group14-sha256"
        client_value, server_value, k = exchange_modp(entry)

    signer = Ed25519PrivateKey.from_private_bytes(unhex(entry["hostkey_ed25519_seed"]))
    public = signer.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
    k_s = string(b"ssh-ed25519") + string(public)
    hashed = string(entry["V_C"].encode()) + string(entry["V_S"].encode())
    hashed += string(unhex(entry["I_C"])) + string(unhex(entry["I_S"]))
    hashed += string(k_s) + client_value + server_value + k
    h = hashlib.new(entry["hash"], hashed).digest()
    signature = string(b"ssh-ed25519") + string(signer.sign(h))

    def key(letter: bytes, size: int) -> str:
        out = hashlib.new(entry["hash"], k + h + letter + h).digest()
        while len(out) < size:
            out += hashlib.new(entry["hash"], k + h + out).digest()
        return out[:size].hex()

    entry.update(K_S=k_s.hex(), K_encoded=k.hex(), H=h.hex(), signature=signature.hex())
    entry["keys"] = {
        "c2s": {"iv": key(b"A", 12), "key": key(b"C", 64), "mac": key(b"E", 64)},
        "s2c": {"iv": key(b"B", 12), "key": key(b"D", 64), "mac": key(b"F", 64)},
    }


# --- chacha20-poly1305@openssh.com ---------------------------------------------------------------------


def chacha20_block(key: bytes, nonce: bytes, counter: int) -> bytes:
    """The original layout: a 64-bit counter, then a 64-bit nonce."""
    state = [*struct.unpack("<4I", b"expand 32-byte k"), *struct.unpack("<8I", key)]
    state += struct.unpack("<4I", struct.pack("<Q", counter) + nonce)
    words = state[:]

    def quarter(a: int, b: int, c: int, d: int) -> None:
        for one, two, three, turn in ((a, b, d, 16), (c, d, b, 12), (a, b, d, 8), (c, d, b, 7)):
            words[one] = (words[one] + words[two]) & 0xFFFFFFFF
            mixed = words[three] ^ words[one]
            words[three] = (mixed << turn | mixed >> (32 - turn)) & 0xFFFFFFFF

    for _ in range(10):
        for i in range(4):
            quarter(i, 4 + i, 8 + i, 12 + i)
        for i in range(4):
            quarter(i, 4 + (i + 1) % 4, 8 + (i + 2) % 4, 12 + (i + 3) % 4)
    return struct.pack("<16I", *((w + s) & 0xFFFFFFFF for w, s in zip(words, state, strict=True)))


def chacha20(key: bytes, nonce: bytes, counter: int, data: bytes) -> bytes:
    blocks = (chacha20_block(key, nonce, counter + i) for i in range((len(data) + 63) // 64))
    return xor(data, b"".join(blocks))


def xor(data: bytes, stream: bytes) -> bytes:
    return bytes(a ^ b for a, b in zip(data, stream, strict=False))


def poly1305(key: bytes, data: bytes) -> bytes:
    r = int.from_bytes(key[:16], "little") & 0x0FFFFFFC0FFFFFFC0FFFFFFC0FFFFFFF
    total = 0
    for i in range(0, len(data), 16):
        total = (total + int.from_bytes(data[i : i + 16] + b"\1", "little")) * r % (2**130 - 5)
    return ((total + int.from_bytes(key[16:], "little")) % 2**128).to_bytes(16, "little")


def seal_chacha(entry: Entry, packet: bytes) -> bytes:
    key, nonce = unhex(entry["key"]), struct.pack(">Q", entry["seqnr"])
    main, header = key[:32], key[32:]
    sealed = chacha20(header, nonce, 0, packet[:4]) + chacha20(main, nonce, 1, packet[4:])
    return sealed + poly1305(chacha20_block(main, nonce, 0)[:32], sealed)


# --- AES-GCM and AES-CTR with HMAC ---------------------------------------------------------------------


def aes(key: bytes) -> Callable[[bytes], bytes]:
    return Cipher(algorithms.AES(key), modes.ECB()).encryptor().update


def gcm_multiply(x: int, y: int) -> int:
    """In GF(2^128), bit 0 the leftmost (NIST SP 800-38D, section 6.3)."""
    product = 0
    for i in range(127, -1, -1):
        if x >> i & 1:
            product ^= y
        y = y >> 1 ^ (0xE1 << 120 if y & 1 else 0)
    return product


def seal_gcm(entry: Entry, packet: bytes) -> bytes:
    block, iv = aes(unhex(entry["key"])), unhex(entry["iv"])
    head, body = packet[:4], packet[4:]
    stream = b"".join(block(iv + struct.pack(">I", 2 + i)) for i in range((len(body) + 15) // 16))
    sealed = xor(body, stream)
    h, total = int.from_bytes(block(bytes(16)), "big"), 0
    padded = [data + bytes(-len(data) % 16) for data in (head, sealed)]
    hashed = padded[0] + padded[1] + struct.pack(">QQ", 8 * len(head), 8 * len(sealed))
    for i in range(0, len(hashed), 16):
        total = gcm_multiply(total ^ int.from_bytes(hashed[i : i + 16], "big"), h)
    tag = xor(total.to_bytes(16, "big"), block(iv + struct.pack(">I", 1)))
    return head + sealed + tag


def seal_ctr(entry: Entry, packet: bytes) -> bytes:
    """RFC 4344, section 4; the counter is all 128 bits of the IV and goes on between packets."""
    block, first = aes(unhex(entry["key"])), int.from_bytes(unhex(entry["iv"]), "big")
    first += entry["ctr_bytes_before"] // 16
    etm = entry["mac"].endswith("-etm@openssh.com")
    head, body = (packet[:4], packet[4:]) if etm else (b"", packet)
    counters = (((first + i) % 2**128).to_bytes(16, "big") for i in range((len(body) + 15) // 16))
    sealed = head + xor(body, b"".join(map(block, counters)))
    digest = entry["mac"].removeprefix("hmac-").removesuffix("-etm@openssh.com").replace("sha2-", "sha")
    covered = struct.pack(">I", entry["seqnr"]) + (sealed if etm else packet)
    return sealed + hmac.digest(unhex(entry["mac_key"]), covered, digest)


def complete_packet(entry: Entry) -> None:
    seal = {"chacha20": seal_chacha, "aes128-g": seal_gcm, "aes256-g": seal_gcm}.get(entry["cipher"][:8], seal_ctr)
    packet = unhex(entry["plaintext_packet"])
    entry["wire"] = seal(entry, packet).hex()
    if "expect" not in entry:
        padding = packet[4]
        entry.update(payload=packet[5 : len(packet) - padding].hex(), padding=packet[len(packet) - padding :].hex())


def complete_negative(entry: Entry, packets: list[Entry]) -> None:
    """A well-sealed packet with a fault inside, or another vector's with one bit of the wire changed."""
    if "derived_from" not in entry:
        complete_packet(entry)
        return
    (base,) = (packet for packet in packets if packet["name"] == entry["derived_from"])
    wire = bytearray(unhex(base["wire"]))
    if "flip" in entry:
        at, mask = entry["flip"]
        wire[at] ^= mask
    entry.update({name: base[name] for name in ("cipher", "key", "iv")}, wire=wire.hex())
    entry.update({name: base[name] for name in ("mac", "mac_key", "ctr_bytes_before") if name in base})


# --- files ----------------------------------------------------------------------------------------------

FILES = ("kex_vectors.json", "vectors.json", "vectors_ctr_etm.json", "vectors_negative.json")


def read(name: str) -> list[Entry]:
    entries: list[Entry] = json.loads((HERE / name).read_text())
    return entries


def render(entries: list[Entry]) -> str:
    return json.dumps(entries, indent=1) + "\n"


def generate(name: str) -> str:
    """The text that the file ``name`` must have, from its inputs."""
    entries = read(name)
    packets = read("vectors.json") + read("vectors_ctr_etm.json") if name == "vectors_negative.json" else []
    for entry in entries:
        if name == "kex_vectors.json":
            complete_kex(entry)
        elif name == "vectors_negative.json":
            complete_negative(entry, packets)
        else:
            complete_packet(entry)
    return render(entries)


def main(arguments: list[str]) -> int:
    stale = 0
    for name in FILES:
        text = generate(name)
        if text == (HERE / name).read_text():
            continue
        stale += 1
        if "--check" in arguments:
            print(f"{name}: not what its inputs give")
        else:
            (HERE / name).write_text(text)
            print(f"{name}: written")
    return 1 if stale and "--check" in arguments else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
