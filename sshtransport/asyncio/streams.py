"""Reader and writer of one stream of a channel, as ``asyncio.StreamReader`` and ``StreamWriter`` users know them.

With an encoding the same methods take and give ``str``; sizes then count characters.
"""

from __future__ import annotations

import asyncio
import codecs
from collections.abc import AsyncIterator, Callable, Iterable
from functools import partial
from typing import Any, Generic, TypeVar, cast

from ..errors import LocalError
from .ports import ChannelPort

__all__ = ("SSHReader", "SSHWriter", "make_reader")

_CHUNK = 65_536
_Text = TypeVar("_Text")


class SSHReader(Generic[_Text]):
    """Reads from a channel. Made by this package.

    ``limit`` bounds a line (bytes, or characters with an encoding). Every method raises ConnectionLost when the
    connection ended before the stream did; what had arrived is returned first.
    """

    def __init__(self, port: ChannelPort, stream: int, empty: bytes | str, limit: int = 2**16) -> None:
        self._port = port
        self._stream = stream
        self._empty: Any = empty
        self._limit = limit
        self._left: Any = empty  # taken from the channel, not yet asked for
        #: What can be had at once, up to so much.
        self._ready: Callable[[int], Any] = partial(port.read, stream=stream)

    async def _more(self, size: int) -> Any:
        """The next data of the channel, up to ``size``; empty at the end."""
        port, stream = self._port, self._stream
        while not (data := self._ready(size)) and not port.at_end():
            await port.wait_readable(stream)
        return data or self._empty

    def at_eof(self) -> bool:
        """Whether everything has been read and nothing more will come."""
        port = self._port
        over = port.channel.read_closed or port.closed
        return over and not self._left and not port.channel.buffered(self._stream)

    async def read(self, n: int = -1) -> _Text:
        """Up to ``n`` as soon as there is something, or everything up to the end when ``n`` is negative.

        Empty at the end of the stream.
        """
        if n == 0:
            return cast(_Text, self._empty)
        if n < 0:
            return cast(_Text, self._empty.join(await self._gather(None)))
        data: Any
        if not self._left:
            data = self._ready(n) or await self._more(n)
            if len(data) <= n:
                return data  # type: ignore[no-any-return]  # a cast is a call
            self._left = data  # a decoder may give more characters at once than it was given bytes
        data, self._left = self._left[:n], self._left[n:]
        return cast(_Text, data)

    async def _gather(self, size: int | None) -> list[Any]:
        """Parts that make up ``size``, less at the end of the stream; None is all there is.

        Nothing is lost when this is cancelled or the connection ends: it is there for the next read.
        """
        parts: list[Any] = []
        missing = _CHUNK if size is None else size
        try:
            while missing:
                part: Any = await self.read(missing)
                if not part:
                    break
                parts.append(part)
                if size is not None:
                    missing -= len(part)
        except BaseException:
            self._left = self._empty.join([*parts, self._left])
            raise
        return parts

    async def readexactly(self, n: int) -> _Text:
        """Exactly ``n``.

        Raises:
            asyncio.IncompleteReadError: the stream ended before; ``partial`` has what came.
        """
        if n < 0:
            raise LocalError("readexactly size must not be negative")
        if n and not self._left:
            # Mostly it is all there at once, or comes in one piece.
            first: Any = self._ready(n) or await self._more(n)
            if len(first) == n:
                return first  # type: ignore[no-any-return]  # a cast is a call
            self._left = first
        parts = await self._gather(n)
        data = parts[0] if len(parts) == 1 else self._empty.join(parts)
        if len(data) < n:
            raise asyncio.IncompleteReadError(data, n)
        return cast(_Text, data)

    async def readuntil(self, separator: Any = None) -> _Text:
        """Everything up to and with ``separator`` (default: a line feed).

        Raises:
            asyncio.IncompleteReadError: the stream ended before; ``partial`` has what came.
            asyncio.LimitOverrunError: the separator is not within the limit; the data stays.
        """
        if separator is None:
            separator = self._empty + "\n" if isinstance(self._empty, str) else self._empty + b"\n"
        if not separator:
            raise LocalError("the separator must not be empty")
        seen = 0
        while True:
            found = self._left.find(separator, max(seen - len(separator) + 1, 0))
            if found >= 0 and found + len(separator) <= self._limit:
                end = found + len(separator)
                line, self._left = self._left[:end], self._left[end:]
                return cast(_Text, line)
            seen = len(self._left)
            if seen >= self._limit:
                raise asyncio.LimitOverrunError("separator not found within the limit", seen)
            part = await self._more(self._limit - seen)
            if not part:
                partial, self._left = self._left, self._empty
                raise asyncio.IncompleteReadError(partial, None)
            self._left += part

    async def readline(self) -> _Text:
        """A line with its end; the rest of the stream when it has none.

        Raises:
            ValueError: the line is longer than the limit; what was read of it is dropped.
        """
        try:
            return await self.readuntil()
        except asyncio.IncompleteReadError as error:
            return cast(_Text, error.partial)
        except asyncio.LimitOverrunError as error:
            self._left = self._empty
            raise ValueError(str(error)) from None

    async def __aiter__(self) -> AsyncIterator[_Text]:
        while line := await self.readline():
            yield line


class _TextReader(SSHReader[str]):
    """Decodes on the way; a character cut by a packet waits for its rest."""

    def __init__(self, port: ChannelPort, stream: int, encoding: str, errors: str) -> None:
        super().__init__(port, stream, "")
        self._ready = lambda size: ""  # the decoder's state changes with the end of the stream: see ``_more``
        self._decoder: codecs.IncrementalDecoder | None = codecs.getincrementaldecoder(encoding)(errors)

    def at_eof(self) -> bool:
        half = self._decoder is not None and self._decoder.getstate()[0]  # what becomes of it shows at the end
        return super().at_eof() and not half

    async def _more(self, size: int) -> Any:
        port, stream = self._port, self._stream
        while self._decoder is not None:
            data = port.read(size, stream)
            final = not data and port.at_end()
            if text := self._decoder.decode(data, final):
                if final:
                    self._decoder = None
                return text
            if final:
                self._decoder = None
            elif not data:
                await port.wait_readable(stream)
        return ""


def make_reader(port: ChannelPort, stream: int, encoding: str | None, errors: str = "strict") -> SSHReader[Any]:
    """A reader of bytes, or of text where ``encoding`` is given."""
    return SSHReader[Any](port, stream, b"") if encoding is None else _TextReader(port, stream, encoding, errors)


class SSHWriter(Generic[_Text]):
    """Writes to a channel. Made by this package."""

    def __init__(self, port: ChannelPort, stream: int = 0, encoding: str | None = None, errors: str = "strict") -> None:
        self._port = port
        self._stream = stream
        self._encoding = encoding
        self._errors = errors
        self._closing = False

    def write(self, data: Any) -> None:
        """Send or queue ``data``; follow it with ``await drain()`` to keep the queue short.

        Nothing is copied from ``bytes``. Raises LocalError after ``write_eof`` or ``close``; once
        the peer has closed the channel data is dropped, and ``drain`` says so.
        """
        if self._closing:
            raise LocalError("this stream has been closed for writing")
        if isinstance(data, str):
            if self._encoding is None:
                raise LocalError("a stream without encoding takes bytes")
            self._port.write(data.encode(self._encoding, self._errors), self._stream)
        else:
            if self._encoding is not None:
                raise LocalError("a stream with an encoding takes str")
            self._port.write(data, self._stream)

    def writelines(self, lines: Iterable[_Text]) -> None:
        for line in lines:
            self.write(line)

    async def drain(self) -> None:
        """Wait until the queue is short: a slow peer, or a rekey, suspends here.

        Raises:
            ConnectionLost: the channel or the connection is closed.
        """
        await self._port.drain()

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        """Say that nothing more will be written, behind what is queued (RFC 4254, section 5.3)."""
        self._closing = True
        if self._stream == 0:
            self._port.write_eof()

    def close(self) -> None:
        """Close the channel behind what is queued."""
        self._closing = True
        self._port.close()

    def is_closing(self) -> bool:
        return self._closing or self._port.closed

    async def wait_closed(self) -> None:
        """Until the channel is closed in both directions."""
        await self._port.wait_closed()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """As the connection's ``get_extra_info``; "channel" is the sans-IO channel."""
        if name == "channel":
            return self._port.channel
        return self._port.connection.get_extra_info(name, default)
