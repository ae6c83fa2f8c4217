"""What known_hosts and authorized_keys files share: reading in bounds, lines, name patterns.

A physical line ends at LF and nowhere else. Python's ``splitlines`` knows ten more line ends; a
line that one program reads as comment or option would be a key to the other.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from ..errors import KeyFileError
from .public import PublicKey

__all__ = ("RSA_BITS_LISTED_MIN", "SkippedLine", "lines_of", "listed_key", "lower", "matches", "read_text")

#: Smallest RSA key such a file may list. Which size may be used is decided where the key is presented.
RSA_BITS_LISTED_MIN: Final = 1024

_BLANK: Final = " \t"
_CONTROLS: Final = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_ASCII_LOWER: Final = {upper: upper + 32 for upper in range(ord("A"), ord("Z") + 1)}


@dataclass(frozen=True, slots=True)
class SkippedLine:
    """A line that counts for nothing, and why."""

    path: str | None
    line: int
    reason: str


def read_text(path: str, limit: int) -> str:
    """The file's text, undecodable bytes as surrogate escapes.

    Raises :class:`KeyFileError` if it cannot be read or has more than ``limit`` bytes. A file that
    does not exist has the ``FileNotFoundError`` as its cause.
    """
    try:
        with open(path, "rb") as file:
            data = file.read(limit + 1)
    except (OSError, ValueError) as error:
        raise KeyFileError(f"{path}: {getattr(error, 'strerror', None) or 'invalid path'}", path=path) from error
    if len(data) > limit:
        raise KeyFileError(f"{path}: larger than {limit} bytes", path=path)
    return data.decode("utf-8", "surrogateescape")


def lines_of(text: str, limit: int) -> Iterator[tuple[int, str, str]]:
    """The lines that are neither empty nor comments: number from 1, the stripped line, a fault.

    ``fault`` is empty for a usable line; a line longer than ``limit`` characters, or with control
    characters, has one, and is unusable as a whole (known faults of others: the rest of an
    over-long line was read as a line of its own).
    """
    for number, line in enumerate(text.split("\n"), 1):
        stripped = line.removesuffix("\r").strip(_BLANK)
        if not stripped or stripped[0] == "#":
            continue
        if len(line) > limit:
            yield number, "", f"line is longer than {limit} characters"
        elif _CONTROLS.search(stripped):
            yield number, "", "line has control characters"
        else:
            yield number, stripped, ""


def listed_key(text: str) -> PublicKey:
    """The key ``text`` gives as ``type base64 [comment]``; :class:`KeyFileError` if it is none."""
    return PublicKey.from_text(text, rsa_min_bits=RSA_BITS_LISTED_MIN)


def lower(name: str) -> str:
    """``name`` with A to Z lowered: other letters have no case in host names."""
    return name.translate(_ASCII_LOWER)


def matches(pattern: str, name: str) -> bool:
    """Whether ``name`` fits ``pattern``, in which ``*`` stands for anything and ``?`` for one character.

    Every other character stands for itself, brackets too: ``[host]:port`` is an ordinary name. The
    work is bounded by the product of the lengths.
    """
    p = n = 0
    star = mark = -1  # the last * seen, and up to where it has swallowed
    while n < len(name):
        if p < len(pattern) and pattern[p] == "*":
            star, mark = p, n
            p += 1
        elif p < len(pattern) and pattern[p] in ("?", name[n]):
            p += 1
            n += 1
        elif star >= 0:
            mark += 1
            p, n = star + 1, mark
        else:
            return False
    return pattern.count("*", p) == len(pattern) - p
