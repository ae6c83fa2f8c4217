"""Cipher objects and their registry; importing this package registers the built-in ones."""

from __future__ import annotations

from . import aesctr, aesgcm, chacha20poly1305, hmac, plain
from .base import (
    MAC,
    CipherSpec,
    CipherStatus,
    KnownAnswer,
    MACSpec,
    Opener,
    Sealer,
    cipher_names,
    cipher_status,
    get_cipher,
    get_mac,
    mac_names,
    register_cipher,
    register_mac,
    spec_status,
)

__all__ = (
    "MAC",
    "NONE",
    "CipherSpec",
    "CipherStatus",
    "DEFAULT_CIPHERS",
    "DEFAULT_MACS",
    "KnownAnswer",
    "MACSpec",
    "Opener",
    "Sealer",
    "aesctr",
    "aesgcm",
    "chacha20poly1305",
    "cipher_names",
    "cipher_status",
    "get_cipher",
    "get_mac",
    "hmac",
    "mac_names",
    "register_cipher",
    "register_mac",
    "spec_status",
)

NONE = plain.NONE

#: Offered by default, best first (design section 4).
DEFAULT_CIPHERS = (
    "aes256-gcm@openssh.com",
    "aes128-gcm@openssh.com",
    "chacha20-poly1305@openssh.com",
    "aes256-ctr",
    "aes128-ctr",
)
DEFAULT_MACS = (
    "hmac-sha2-256-etm@openssh.com",
    "hmac-sha2-512-etm@openssh.com",
    "hmac-sha2-256",
    "hmac-sha2-512",
)
