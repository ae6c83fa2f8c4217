"""The identification exchange (RFC 4253, section 4.2): build our line, parse the peer's."""

from __future__ import annotations

import re

from .constants import IDENT_MAX_LINE_SIZE, IDENT_MAX_LINES, IDENT_MAX_SIZE, IDENT_MAX_TOTAL
from .errors import DisconnectReason, LocalError, ProtocolError
from .wire import Buffer, visible

__all__ = ("IdentReader", "build_ident")

_PHASE = "identification"
_SOFTWARE_VERSION = re.compile(r"[!-,.-~]+")


def build_ident(software_version: str) -> bytes:
    """Our identification line without CR LF.

    Raises:
        LocalError: ``software_version`` is not printable ASCII without space and ``-``, or too long.
    """
    ident = f"SSH-2.0-{software_version}"
    if (
        not isinstance(software_version, str)
        or not _SOFTWARE_VERSION.fullmatch(software_version)
        or len(ident) + 2 > IDENT_MAX_SIZE
    ):
        raise LocalError(f"not a software version: {software_version!r}")
    return ident.encode("ascii")


class IdentReader:
    """Finds the peer's identification line in a stream that may be cut anywhere.

    A client skips the lines that a server may send before it: bounded in size, number and total,
    counted and not kept. A server takes none (``skip_lines`` False).
    """

    __slots__ = ("_kept", "_lines", "_size", "_skip_lines", "_total")

    def __init__(self, *, skip_lines: bool) -> None:
        self._skip_lines = skip_lines
        self._kept = bytearray()  # the line so far, never more than the SSH- line may be long
        self._size = 0  # bytes of the line so far, kept or not
        self._lines = 0
        self._total = 0

    def feed(self, data: Buffer) -> tuple[bytes | None, int]:
        """Take bytes; return the line without CR LF (None: not complete) and how many were used.

        Bytes behind the line feed are not touched: they are packets.

        Raises:
            ProtocolError: a limit is passed or the line is not one of an SSH 2 peer.
        """
        view = memoryview(data)
        used = 0
        while used < len(view):
            # A whole line at most: the search is bounded by what the line may still hold.
            room = IDENT_MAX_LINE_SIZE + 1 - self._size
            chunk = bytes(view[used : used + room])
            end = chunk.find(b"\n") + 1
            taken = chunk[:end] if end else chunk
            used += len(taken)
            self._size += len(taken)
            self._kept += taken[: IDENT_MAX_SIZE + 1 - len(self._kept)]
            self._check()
            if end and self._kept.startswith(b"SSH-"):
                return self._line(), used
            if end:
                self._skip()
        return None, used

    def _check(self) -> None:
        """Refuse as soon as the bytes so far cannot become anything good."""
        start = bytes(self._kept[:4])
        if start == b"SSH-":
            if self._size > IDENT_MAX_SIZE:
                raise ProtocolError("identification line too long", phase=_PHASE, limit=IDENT_MAX_SIZE)
        elif not self._skip_lines:
            if not b"SSH-".startswith(start):
                raise ProtocolError("first line is not an identification", phase=_PHASE)
        elif self._size > IDENT_MAX_LINE_SIZE:
            raise ProtocolError("line before the identification too long", phase=_PHASE, limit=IDENT_MAX_LINE_SIZE)
        elif self._total + self._size > IDENT_MAX_TOTAL:
            raise ProtocolError("too much text before the identification", phase=_PHASE, limit=IDENT_MAX_TOTAL)

    def _skip(self) -> None:
        self._lines += 1
        self._total += self._size
        if self._lines > IDENT_MAX_LINES:
            raise ProtocolError("too many lines before the identification", phase=_PHASE, limit=IDENT_MAX_LINES)
        self._size = 0
        self._kept.clear()

    def _line(self) -> bytes:
        line = bytes(self._kept[:-1])
        line = line.removesuffix(b"\r")
        if b"\0" in line:
            raise ProtocolError("NUL in the identification line", phase=_PHASE)
        version, dash, _ = line[4:].partition(b"-")
        # 1.99 is an SSH 2 server that also speaks 1.x (RFC 4253, section 5.1). An empty software
        # version is accepted: devices that send "SSH-2.0-" exist and work.
        if version not in (b"2.0", b"1.99"):
            raise ProtocolError(
                f"protocol version not supported: {visible(line)}",
                reason=DisconnectReason.PROTOCOL_VERSION_NOT_SUPPORTED,
                phase=_PHASE,
            )
        if not dash:
            raise ProtocolError(f"malformed identification line: {visible(line)}", phase=_PHASE)
        return line
