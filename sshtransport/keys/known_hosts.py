"""known_hosts files: which host keys are trusted, which are revoked (sshd(8), "SSH_KNOWN_HOSTS FILE FORMAT").

A line is ``[@marker] names type base64 [comment]``. ``names`` is a comma-separated list of patterns, or
one hashed name. A host on another port than 22 is called ``[host]:port``.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import os
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple, Protocol

from ..errors import KeyFileError, LocalError
from .public import PublicKey, key_type_of
from .trust_files import SkippedLine, lines_of, listed_key, lower, matches, read_text

__all__ = (
    "KNOWN_HOSTS_FILES",
    "KNOWN_HOSTS_FILE_MAX",
    "KNOWN_HOSTS_LINE_MAX",
    "HostKeyEntry",
    "HostKeyLookup",
    "HostKeyVerdict",
    "KnownHosts",
    "Outcome",
)

#: What :meth:`KnownHosts.load` reads by default; :meth:`KnownHosts.add` appends to the first.
KNOWN_HOSTS_FILES: Final = (
    "~/.ssh/known_hosts",
    "~/.ssh/known_hosts2",
    "/etc/ssh/ssh_known_hosts",
    "/etc/ssh/ssh_known_hosts2",
)
#: Largest file read, in bytes.
KNOWN_HOSTS_FILE_MAX: Final = 16 * 2**20
#: Longest line, in characters; a longer one is skipped whole.
KNOWN_HOSTS_LINE_MAX: Final = 64 * 1024

_DEFAULT_PORT: Final = 22
_SALT_SIZE: Final = 20  # as OpenSSH: one SHA-1 output
_MARKERS: Final = frozenset({"@cert-authority", "@revoked"})
_BLANKS: Final = re.compile(r"[ \t]+")
#: What a name in a new line may not hold: it would end the name, or mean something else.
_NOT_IN_NAMES: Final = re.compile(r'[\s,*?!|@#\[\]"]')

Outcome = Literal["trusted", "unknown", "changed", "revoked"]


@dataclass(frozen=True, slots=True)
class HostKeyEntry:
    """A key that a line lists. ``path`` is the file, where known; ``line`` counts from 1."""

    key: PublicKey
    path: str | None
    line: int


class HostKeyVerdict(NamedTuple):
    """What the files say about a key.

    ``entry`` is the line that decided: the one with the same key if ``trusted`` or ``revoked``, the
    one with another key of the same type if ``changed``. For ``unknown`` it is a line with a key of
    another type for this host, if there is one.
    """

    outcome: Outcome
    entry: HostKeyEntry | None


@dataclass(frozen=True, slots=True)
class HostKeyLookup:
    """All that the files say about one host and port.

    ``trusted`` are the keys listed for exactly this name. ``fallback`` are those listed for the
    bare host when the port is not 22: a key found there is trusted, but another one there does not
    make a key ``changed`` (OpenSSH does the same). ``revoked`` are the keys that must not be
    accepted, ``authorities`` the keys of certificate authorities that are not among them; those
    count for certificates only.
    """

    trusted: tuple[HostKeyEntry, ...] = ()
    fallback: tuple[HostKeyEntry, ...] = ()
    revoked: tuple[HostKeyEntry, ...] = ()
    authorities: tuple[HostKeyEntry, ...] = ()

    def verdict(self, key: PublicKey) -> HostKeyVerdict:
        """Whether this plain key is the host's. A revocation wins wherever it stands."""
        for entry in self.revoked:
            if entry.key == key:
                return HostKeyVerdict("revoked", entry)
        for entry in self.trusted:
            if entry.key == key:
                return HostKeyVerdict("trusted", entry)
        for entry in self.trusted:
            if entry.key.algorithm == key.algorithm:
                return HostKeyVerdict("changed", entry)
        for entry in self.fallback:
            if entry.key == key:
                return HostKeyVerdict("trusted", entry)
        return HostKeyVerdict("unknown", self.trusted[0] if self.trusted else None)

    @property
    def key_types(self) -> tuple[str, ...]:
        """The types of the keys known for the host, in the order of the files, revoked keys left out."""
        revoked = {entry.key for entry in self.revoked}
        entries = self.trusted or self.fallback
        return tuple(dict.fromkeys(entry.key.algorithm for entry in entries if entry.key not in revoked))

    def preferred(self, algorithms: Sequence[str]) -> tuple[str, ...]:
        """``algorithms`` with those first whose keys are known; otherwise the server might present another.

        An order that begins with a known type stays as it is, so that it tells an observer less
        about what is known (CVE-2020-14145).
        """
        known = self.key_types
        if not algorithms or key_type_of(algorithms[0]) in known:
            return tuple(algorithms)
        return tuple(sorted(algorithms, key=lambda name: key_type_of(name) not in known))


class _Names(Protocol):
    def match(self, name: str) -> bool: ...


class _HashedName:
    """``|1|salt|hash``: HMAC-SHA1 of the name under the salt, both in base64."""

    __slots__ = ("_digest", "_salt")

    def __init__(self, salt: bytes, digest: bytes) -> None:
        self._salt = salt
        self._digest = digest

    @classmethod
    def parse(cls, field: str) -> _HashedName:
        try:
            _, version, *encoded = field.split("|")
            salt, digest = (base64.b64decode(part.encode("ascii"), validate=True) for part in encoded)
        except (ValueError, binascii.Error):
            raise KeyFileError("malformed hashed name") from None
        if version != "1" or not salt or len(digest) != 20:
            raise KeyFileError("unknown kind of hashed name")
        return cls(salt, digest)

    @classmethod
    def of(cls, name: str, salt: bytes) -> _HashedName:
        return cls(salt, hmac.digest(salt, name.encode("utf-8", "surrogatepass"), "sha1"))

    def match(self, name: str) -> bool:
        return hmac.compare_digest(self.of(name, self._salt)._digest, self._digest)

    def __str__(self) -> str:
        return "|1|" + "|".join(base64.b64encode(part).decode("ascii") for part in (self._salt, self._digest))


class _NameList:
    """Patterns; a negated one that matches rules the line out, wherever it stands."""

    __slots__ = ("_exact", "_negated", "_patterns")

    def __init__(self, field: str) -> None:
        names = [name for name in lower(field).split(",") if name]
        self._negated = tuple(name[1:] for name in names if name[0] == "!")
        positive = [name for name in names if name[0] != "!"]
        self._patterns = tuple(name for name in positive if "*" in name or "?" in name)
        self._exact = frozenset(positive).difference(self._patterns)

    def match(self, name: str) -> bool:
        if any(matches(pattern, name) for pattern in self._negated):
            return False
        return name in self._exact or any(matches(pattern, name) for pattern in self._patterns)


class _Line(NamedTuple):
    marker: str
    names: _Names
    entry: HostKeyEntry


def _parse_line(text: str, path: str | None, number: int) -> _Line:
    marker = ""
    if text[0] == "@":
        marker, _, text = text.replace("\t", " ").partition(" ")
        if marker not in _MARKERS:
            raise KeyFileError("unknown marker")
    field, *rest = _BLANKS.split(text.lstrip(" "), maxsplit=1)
    if not rest or field[0] == "@":
        raise KeyFileError("names and a key expected")
    names: _Names = _HashedName.parse(field) if field[0] == "|" else _NameList(field)
    return _Line(marker, names, HostKeyEntry(listed_key(rest[0]), path, number))


class KnownHosts:
    """The content of known_hosts files, as it was when they were read.

    Made by :meth:`load` or :meth:`from_text`. ``skipped`` are the lines that count for nothing: a
    bad line never keeps the others from being used.
    """

    def __init__(self) -> None:
        self._lines: list[_Line] = []
        self._skipped: list[SkippedLine] = []
        self.paths: tuple[str, ...] = ()

    @classmethod
    def load(
        cls,
        paths: str | os.PathLike[str] | Iterable[str | os.PathLike[str]] | None = None,
        *,
        missing_ok: bool = False,
    ) -> KnownHosts:
        """Read one file or several.

        None means the user's and the system's files (:data:`KNOWN_HOSTS_FILES`), of which those
        that do not exist are left out; an empty list trusts nothing. Raises :class:`KeyFileError`
        for any other file that cannot be read or is larger than 16 MiB, also for a missing one
        unless ``missing_ok``. ``paths`` of the result are all names, :meth:`add` writes to the first.
        """
        self = cls()
        if paths is None:
            names = [os.path.expanduser(path) for path in KNOWN_HOSTS_FILES]
        elif isinstance(paths, str | os.PathLike):
            names = [os.path.expanduser(paths)]
        else:
            names = [os.path.expanduser(path) for path in paths]
        for name in names:
            try:
                text = read_text(name, KNOWN_HOSTS_FILE_MAX)
            except KeyFileError as error:
                if (paths is None or missing_ok) and isinstance(
                    error.__cause__, FileNotFoundError | NotADirectoryError
                ):
                    continue
                raise
            self._read(text, name)
        self.paths = tuple(names)
        return self

    @classmethod
    def from_text(cls, text: str) -> KnownHosts:
        """The content of a file that is not on disk; :meth:`add` is not possible."""
        self = cls()
        self._read(text, None)
        return self

    def _read(self, text: str, path: str | None) -> None:
        for number, line, fault in lines_of(text, KNOWN_HOSTS_LINE_MAX):
            try:
                if fault:
                    raise KeyFileError(fault)
                self._lines.append(_parse_line(line, path, number))
            except KeyFileError as error:
                self._skipped.append(SkippedLine(path, number, error.message))

    @property
    def skipped(self) -> tuple[SkippedLine, ...]:
        """The lines that could not be used, with their reasons."""
        return tuple(self._skipped)

    def lookup(self, host: str, port: int = _DEFAULT_PORT) -> HostKeyLookup:
        """What the files say about this host name or address, as the user typed it, and port.

        For a host key alias look the alias up with port 22, as OpenSSH does.
        """
        name = _name_of(host, port)
        exact = [line for line in self._lines if line.names.match(name)]
        bare: list[_Line] = []
        if port != _DEFAULT_PORT:
            bare = [line for line in self._lines if line.names.match(lower(host))]

        def entries(marker: str, *groups: list[_Line]) -> tuple[HostKeyEntry, ...]:
            found = (line.entry for group in groups for line in group if line.marker == marker)
            return tuple({(entry.path, entry.line): entry for entry in found}.values())

        revoked = entries("@revoked", exact, bare)
        authorities = entries("@cert-authority", exact, bare)
        return HostKeyLookup(
            trusted=entries("", exact),
            fallback=entries("", bare),
            revoked=revoked,
            authorities=tuple(entry for entry in authorities if all(entry.key != bad.key for bad in revoked)),
        )

    def add(
        self,
        host: str,
        port: int,
        key: PublicKey,
        hashed: bool = False,
        *,
        random: Callable[[int], bytes] = os.urandom,
    ) -> None:
        """Trust ``key`` for this host and port from now on: append a line to the first file.

        Nothing that is in the file is touched. A new file gets mode 0600, a new folder 0700; an
        existing file keeps its mode. ``hashed`` hides the name. Nothing is written if the files
        trust the key under this name already.

        Raises :class:`LocalError` for a name that no line can hold, :class:`KeyFileError` if the
        file cannot be written or there is none.
        """
        if not host or not host.isprintable() or _NOT_IN_NAMES.search(host) or not 0 < port < 65536:
            raise LocalError("known_hosts cannot hold this host name or port")
        if not self.paths:
            raise KeyFileError("these known hosts were not read from a file")
        if any(entry.key == key for entry in self.lookup(host, port).trusted):
            return
        name = _name_of(host, port)
        names = str(_HashedName.of(name, random(_SALT_SIZE))) if hashed else name
        kind, encoded, *_ = key.to_text().split(" ", 2)
        line = f"{names} {kind} {encoded}"
        self._lines.append(_parse_line(line, self.paths[0], _append(self.paths[0], line)))


def _name_of(host: str, port: int) -> str:
    return lower(host) if port == _DEFAULT_PORT else f"[{lower(host)}]:{port}"


def _append(path: str, line: str) -> int:
    """Append a line in one write, so that writers at the same time do not mix; returns its number."""
    data = f"{line}\n".encode()
    try:
        os.makedirs(os.path.dirname(path) or ".", mode=0o700, exist_ok=True)
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | getattr(os, "O_BINARY", 0)
        with os.fdopen(os.open(path, flags, 0o600), "r+b", buffering=0) as file:
            before = file.readall()
            if before and not before.endswith(b"\n"):
                data = b"\n" + data
            if file.write(data) != len(data):
                raise KeyFileError(f"{path}: line was written in part", path=path)
    except OSError as error:
        raise KeyFileError(f"{path}: {error.strerror}", path=path) from error
    return (before + data).count(b"\n")
