"""TransportConfig: frozen and validated when it is made, so that nothing can be wrong later."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from .ciphers import (
    DEFAULT_CIPHERS,
    DEFAULT_MACS,
    CipherSpec,
    MACSpec,
    get_cipher,
    get_mac,
    spec_status,
)
from .constants import (
    ALGORITHM_NAME_MAX,
    MAX_PACKET_SIZE,
    MAX_PACKET_SIZE_LIMIT,
    RSA_BITS_MAX,
    SEQUENCE_MODULUS,
    WINDOW_MAX,
    WINDOW_SIZE,
)
from .errors import LocalError
from .ident import build_ident
from .kex import CLIENT_DEFAULTS, KEX_NAMES, SERVER_DEFAULTS, kex_names
from .keys import HOST_KEY_ALGORITHMS

__all__ = ("Role", "TransportConfig")

Role = Literal["client", "server"]
_S = TypeVar("_S", CipherSpec, MACSpec)

_DEFAULT_VERSION = "sshtransport_0.1.0"
_REKEY_BYTES = 2**30  # RFC 4253, section 9
_NUMBER = (int, float)
_RANGES: tuple[tuple[str, type | tuple[type, ...], float, float], ...] = (
    ("rekey_bytes", int, 1024, 2**60),
    ("rekey_packets", int, 16, SEQUENCE_MODULUS - 2**20),  # room for the exchange: no number twice under a key
    ("rekey_seconds", _NUMBER, 0.01, 1e9),
    ("rekey_timeout", _NUMBER, 0.01, 1e9),
    ("window_size", int, 1, WINDOW_MAX),
    ("max_packet_size", int, 1, MAX_PACKET_SIZE_LIMIT),
    ("rsa_min_bits", int, 1024, RSA_BITS_MAX),
)


@dataclass(frozen=True, kw_only=True)
class TransportConfig:
    """What a transport offers and the limits it keeps. None means the default.

    Args:
        kex: key exchange methods, best first, by wire name.
        host_key_algorithms: signature algorithms for the host key, best first, by wire name.
        ciphers: names of registered ciphers or ``CipherSpec`` objects, best first.
        macs: names of registered MACs or ``MACSpec`` objects, best first; they matter only for
            ciphers that need one.
        strict_kex: "auto" uses strict KEX with peers that have it, "require" refuses others,
            "off" never offers it.
        rekey_bytes: start a rekey when one direction has carried this many bytes under a key
            (None: 1 GiB, or what the cipher says).
        rekey_packets: the same in packets, at most 2**32 - 2**20.
        rekey_seconds: the same in seconds, kept by the asyncio shell; None is never.
        rekey_timeout: seconds after which an unfinished rekey ends the connection.
        rekey_before_login: allow rekeys before USERAUTH_SUCCESS (packet streams set it).
        window_size: bytes of a channel's receive window.
        max_packet_size: largest data string of one channel message that we accept.
        rsa_min_bits: smaller RSA keys are refused, in both roles.
        software_version: printable ASCII without space and ``-``.
        padding: a source ``size -> bytes`` for random padding instead of ``os.urandom``.

    Raises:
        LocalError: a name is unknown, a list empty or repeating, a number out of range.
    """

    kex: Sequence[str] | None = None
    host_key_algorithms: Sequence[str] | None = None
    ciphers: Sequence[str | CipherSpec] | None = None
    macs: Sequence[str | MACSpec] | None = None
    strict_kex: Literal["auto", "require", "off"] = "auto"
    rekey_bytes: int | None = None
    rekey_packets: int = 2**31
    rekey_seconds: float | None = 3600.0
    rekey_timeout: float = 120.0
    rekey_before_login: bool = False
    window_size: int = WINDOW_SIZE
    max_packet_size: int = MAX_PACKET_SIZE
    rsa_min_bits: int = 2048
    software_version: str = _DEFAULT_VERSION
    padding: Callable[[int], bytes] | None = None

    def __post_init__(self) -> None:
        set_field: Callable[[str, Any], None] = lambda name, value: object.__setattr__(self, name, value)  # noqa: E731
        for name, known in (("kex", KEX_NAMES), ("host_key_algorithms", HOST_KEY_ALGORITHMS)):
            names = getattr(self, name)
            if names is not None:
                set_field(name, _checked_names(name, names, known))
        if self.ciphers is not None:
            set_field("ciphers", _checked_specs("ciphers", self.ciphers, CipherSpec, get_cipher))
        if self.macs is not None:
            set_field("macs", _checked_specs("macs", self.macs, MACSpec, get_mac))
        if self.strict_kex not in ("auto", "require", "off"):
            raise LocalError(f"strict_kex must be 'auto', 'require' or 'off', not {self.strict_kex!r}")
        for name, kind, low, high in _RANGES:
            value: Any = getattr(self, name)
            if value is None and name in ("rekey_bytes", "rekey_seconds"):
                continue
            good = isinstance(value, kind) and not isinstance(value, bool)
            if not good or not low <= value <= high:
                raise LocalError(f"{name} must be between {low} and {high}, not {value!r}")
        if self.padding is not None and not callable(self.padding):
            raise LocalError("padding must be a function of a size")
        build_ident(self.software_version)

    # What a transport of a role offers: the explicit lists as they are, the defaults as far as they work here.

    def offered_kex(self, role: Role) -> tuple[str, ...]:
        """KEX method names, without markers."""
        available = kex_names()
        if self.kex is None:
            return tuple(n for n in (CLIENT_DEFAULTS if role == "client" else SERVER_DEFAULTS) if n in available)
        for name in self.kex:
            if name not in available:
                raise LocalError(f"key exchange method {name!r} does not work with the installed library")
        return tuple(self.kex)

    def offered_host_key_algorithms(self, available: Iterable[str] | None = None) -> tuple[str, ...]:
        """Signature algorithm names; ``available`` are those that a server's keys can do."""
        wanted = tuple(self.host_key_algorithms) if self.host_key_algorithms is not None else HOST_KEY_ALGORITHMS
        if available is None:
            return wanted
        able = frozenset(available)
        return tuple(name for name in wanted if name in able)

    def offered_ciphers(self) -> dict[str, CipherSpec]:
        """Ciphers by name; a default that failed its known-answer test is left out, an explicit one raises."""
        specs = _specs(DEFAULT_CIPHERS if self.ciphers is None else self.ciphers, get_cipher)
        working = {}
        for spec in specs:
            status = spec_status(spec)
            if status:
                working[spec.name] = spec
            elif self.ciphers is not None:
                raise LocalError(f"cipher {spec.name!r} does not work here: {status.reason}")
        return working

    def offered_macs(self) -> dict[str, MACSpec]:
        """MACs by name."""
        return {spec.name: spec for spec in _specs(DEFAULT_MACS if self.macs is None else self.macs, get_mac)}

    def rekey_bytes_for(self, spec: CipherSpec) -> int:
        """Bytes that one key of this cipher may protect before a rekey starts."""
        return min(_REKEY_BYTES if self.rekey_bytes is None else self.rekey_bytes, spec.rekey_bytes or 2**60)


def _listed(field: str, entries: Any, kinds: tuple[type, ...]) -> tuple[Any, ...]:
    """The entries of a sequence that is not one string, each of one of the kinds."""
    if isinstance(entries, (str, bytes)) or not isinstance(entries, Iterable):
        raise LocalError(f"{field} must be a sequence of names, not {entries!r}")
    result = tuple(entries)
    for entry in result:
        if not isinstance(entry, kinds):
            raise LocalError(f"{field}: cannot be used: {entry!r}")
    return result


def _checked_names(field: str, entries: Any, known: Sequence[str]) -> tuple[str, ...]:
    names = _listed(field, entries, (str,))
    _check_unique(field, names)
    for name in names:
        if name not in known:
            raise LocalError(f"{field}: unknown name {name!r}; known: {', '.join(known)}")
    return names


def _checked_specs(field: str, entries: Any, kind: type[_S], get: Callable[[str], _S]) -> tuple[str | _S, ...]:
    result = _listed(field, entries, (str, kind))
    try:
        names = [spec.name for spec in _specs(result, get)]
    except LocalError as error:
        raise LocalError(f"{field}: {error.message}") from None
    if names or kind is CipherSpec:  # without any MAC there are still the ciphers that need none
        _check_unique(field, names)
    for name in names:
        if not 0 < len(name) <= ALGORITHM_NAME_MAX or not all("!" <= c <= "~" and c != "," for c in name):
            raise LocalError(f"{field}: not an algorithm name: {name!r} (RFC 4251, section 6)")
    return result


def _check_unique(field: str, names: Sequence[str]) -> None:
    if not names:
        raise LocalError(f"{field} must not be empty")
    if len(set(names)) != len(names):
        raise LocalError(f"{field} has a name twice")


def _specs(entries: Iterable[str | _S], get: Callable[[str], _S]) -> list[_S]:
    return [get(entry) if isinstance(entry, str) else entry for entry in entries]
