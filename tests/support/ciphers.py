"""Every registered cipher with every MAC it can have, and packets under it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from _pytest.mark.structures import ParameterSet

from sshtransport.ciphers import MAC, CipherSpec, MACSpec, Opener, Sealer, cipher_names, get_cipher, get_mac, mac_names
from sshtransport.packets import PacketReader, PacketWriter, PaddingPool

__all__ = ("ANY", "NONE_DELIVERED", "Suite", "material", "suites", "under_test")

#: Tables for ``PacketReader.read``: every number is delivered, or none.
ANY = bytes([0]) + bytes([1]) * 255
NONE_DELIVERED = bytes(256)


def material(label: str, size: int) -> bytes:
    """Key bytes that look random and are the same in each run."""
    return hashlib.shake_256(label.encode()).digest(size)


@dataclass(frozen=True)
class Suite:
    """One cipher, with a MAC where it needs one. Each method makes fresh objects of the same keys."""

    cipher: CipherSpec
    mac: MACSpec | None

    def __str__(self) -> str:
        return self.cipher.name if self.mac is None else f"{self.cipher.name}+{self.mac.name}"

    @property
    def key(self) -> bytes:
        return material(f"key of {self.cipher.name}", self.cipher.key_size)

    @property
    def iv(self) -> bytes:
        return material(f"iv of {self.cipher.name}", self.cipher.iv_size)

    @property
    def mac_key(self) -> bytes:
        return material(f"mac key of {self}", self.mac.key_size) if self.mac else b""

    def make_mac(self) -> MAC | None:
        return self.mac.make(self.mac_key) if self.mac else None

    def sealer(self) -> Sealer:
        return self.cipher.make_sealer(self.key, self.iv, self.make_mac())

    def opener(self) -> Opener:
        return self.cipher.make_opener(self.key, self.iv, self.make_mac())

    def writer(self, sequence: int = 0) -> PacketWriter:
        writer = PacketWriter(PaddingPool())
        writer.change(self.sealer(), reset=False)
        writer.sequence = sequence
        return writer

    def reader(self, sequence: int = 0) -> PacketReader:
        reader = PacketReader()
        reader.change(self.opener(), reset=False)
        reader.sequence = sequence
        return reader

    def frame(self, payload: bytes, sequence: int = 0) -> bytes:
        """The first packet under fresh keys."""
        writer = self.writer(sequence)
        writer.write(payload)
        return writer.take()

    @property
    def tag_size(self) -> int:
        return self.opener().tag_size


def suites() -> Iterator[Suite]:
    """All of them: a new registration is tested by existing."""
    for cipher in map(get_cipher, cipher_names()):
        for mac in map(get_mac, mac_names()) if cipher.needs_mac else [None]:
            yield Suite(cipher, mac)


def under_test() -> list[ParameterSet]:
    """The same as parameters of a test."""
    return [pytest.param(suite, id=str(suite)) for suite in suites()]
