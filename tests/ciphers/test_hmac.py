"""The MACs against the standard library's HMAC (RFC 6668)."""

from __future__ import annotations

import hmac

import pytest

from sshtransport.ciphers import get_mac, mac_names
from sshtransport.errors import IntegrityError

HASHES = {"hmac-sha2-256": "sha256", "hmac-sha2-512": "sha512"}


@pytest.mark.parametrize("name", mac_names())
def test_sign_and_verify(name: str) -> None:
    spec = get_mac(name)
    key = bytes(range(spec.key_size))
    mac = spec.make(key)
    assert (mac.tag_size, mac.etm) == (spec.tag_size, spec.etm)
    assert spec.etm == name.endswith("-etm@openssh.com")
    for seq, data in ((0, b""), (1, b"data"), (2**32 - 1, bytes(40_000))):
        wanted = hmac.new(key, seq.to_bytes(4, "big") + data, HASHES[name.removesuffix("-etm@openssh.com")]).digest()
        assert len(wanted) == spec.key_size == spec.tag_size  # a key is as long as the digest
        assert mac.sign(seq, data) == wanted
        mac.verify(seq, data, wanted)
        mac.verify(seq, memoryview(data), wanted)
        for bad_seq, bad_data, bad_tag in (
            ((seq + 1) % 2**32, data, wanted),
            (seq, data + b"\0", wanted),
            (seq, data, wanted[:-1]),
            (seq, data, wanted + b"\0"),
            (seq, data, b""),
            (seq, data, bytes([wanted[0] ^ 1]) + wanted[1:]),
        ):
            with pytest.raises(IntegrityError):
                mac.verify(bad_seq, bad_data, bad_tag)
