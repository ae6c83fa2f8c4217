"""Feed a PacketReader and see what comes out."""

from __future__ import annotations

from collections.abc import Iterable

from sshtransport.packets import PacketReader
from tests.support.ciphers import ANY

__all__ = ("read", "read_pieces")


def read(reader: PacketReader, data: bytes, deliver: bytes = ANY) -> list[bytes]:
    """All payloads in ``data``, whether the table delivers them or hands them out one by one."""
    return read_pieces(reader, [data], deliver)


def read_pieces(reader: PacketReader, pieces: Iterable[bytes], deliver: bytes = ANY) -> list[bytes]:
    """The same for data that comes in pieces."""
    items: list[bytes] = []
    for piece in pieces:
        reader.feed(memoryview(piece))
        while (payload := reader.read(deliver, items)) is not None:
            items.append(payload)
    return items
