"""What the protocols above the transport (RFC 4252, RFC 4254) write into."""

from __future__ import annotations

from typing import Protocol

from .wire import Buffer

__all__ = ("PacketSink",)


class PacketSink(Protocol):
    """Takes payloads for the peer; the transport is one, a list in a test another."""

    def send(self, payload: bytes, /) -> None:
        """Send a control message. It may be held during a rekey (within bounds) and keeps its order."""

    def send_data(self, head: bytes, data: Buffer, /) -> None:
        """Send the payload ``head + data`` without joining the two first; only while :attr:`can_send_data`.

        ``data`` is used up when the call returns: the caller may change or release it.
        """

    @property
    def can_send_data(self) -> bool:
        """False in a rekey, and while enough output waits for the socket."""
