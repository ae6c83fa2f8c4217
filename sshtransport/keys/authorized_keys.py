"""authorized_keys files: which keys may log in, and what they may do (sshd(8), "AUTHORIZED_KEYS FILE FORMAT").

A line is ``[options] type base64 [comment]``. An option that is not known may be a restriction: its
line is not used at all. The same holds for a value that cannot be understood.
"""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any, Final

from ..errors import KeyFileError
from ..wire import visible
from .algorithms import KEY_TYPES
from .public import PublicKey
from .trust_files import SkippedLine, lines_of, listed_key, lower, matches, read_text

__all__ = (
    "AUTHORIZED_KEYS_FILE_MAX",
    "AUTHORIZED_KEYS_LINES_MAX",
    "AUTHORIZED_KEYS_LINE_MAX",
    "AuthorizedKey",
    "AuthorizedKeyList",
    "ForwardRule",
    "FromList",
    "KeyOptions",
)

#: Largest file read, in bytes.
AUTHORIZED_KEYS_FILE_MAX: Final = 4 * 2**20
#: Most lines of a text, comments included; one with more is refused whole.
AUTHORIZED_KEYS_LINES_MAX: Final = 16 * 1024
#: Longest line, in characters; a longer one is refused whole.
AUTHORIZED_KEYS_LINE_MAX: Final = 16 * 1024

_Address = ipaddress.IPv4Address | ipaddress.IPv6Address
_Network = ipaddress.IPv4Network | ipaddress.IPv6Network


# --- from= -----------------------------------------------------------------------------------------------
def _address_of(text: str) -> _Address | None:
    """The address without its zone; an IPv4 address that came as IPv6 is an IPv4 address."""
    try:
        address = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return None
    return (address.version == 6 and address.ipv4_mapped) or address


def _network_of(text: str) -> _Network | None:
    """The network that ``text`` (an address or CIDR) stands for, None for a pattern of another kind."""
    if "%" in text:  # peers are compared without their zone
        raise KeyFileError("from= has an address with a zone")
    try:
        network = ipaddress.ip_network(text)
    except ValueError:
        if "/" in text:
            raise KeyFileError("from= has a malformed network") from None
        return None
    if network.version == 6 and network.prefixlen >= 96 and (mapped := network.network_address.ipv4_mapped):
        return ipaddress.IPv4Network((mapped, network.prefixlen - 96))
    return network


@dataclass(frozen=True, slots=True)
class _FromPattern:
    text: str
    network: _Network | None

    def matches(self, address: _Address, host: str | None) -> bool:
        if self.network is not None:
            return address in self.network
        return matches(self.text, str(address)) or (host is not None and matches(self.text, host))


@dataclass(frozen=True, slots=True)
class FromList:
    """The patterns of a ``from=`` option: addresses, CIDR networks, wildcard patterns, each maybe negated.

    Wildcard patterns are compared with the address in its canonical form, and with the host name
    where the caller knows one.
    """

    accepted: tuple[_FromPattern, ...]
    negated: tuple[_FromPattern, ...]

    @classmethod
    def parse(cls, value: str) -> FromList:
        items = [item for item in lower(value).split(",") if item]
        positive = [item for item in items if item[0] != "!"]
        negated = [item[1:] for item in items if item[0] == "!"]
        return cls(*(tuple(_FromPattern(item, _network_of(item)) for item in group) for group in (positive, negated)))

    def allows(self, address: str | None, host: str | None = None) -> bool:
        """Whether a client from this IP address may use the key.

        One negated match refuses; without any match, and for a peer that has no IP address, the
        answer is no.
        """
        peer = None if address is None else _address_of(address)
        if peer is None:
            return False
        name = None if host is None else lower(host)
        if any(pattern.matches(peer, name) for pattern in self.negated):
            return False
        return any(pattern.matches(peer, name) for pattern in self.accepted)


# --- options ---------------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class ForwardRule:
    """One ``permitopen`` or ``permitlisten``; ``host`` may be ``*``, ``port`` None is any."""

    host: str
    port: int | None

    @classmethod
    def parse(cls, value: str) -> ForwardRule:
        host, _, port = value.rpartition(":")
        if host.startswith("[") and host.endswith("]"):
            host = host[1:-1]
        elif ":" in host:
            raise KeyFileError("forwarding rule needs brackets around an IPv6 address")
        if not host or not (port == "*" or (re.fullmatch("[0-9]{1,5}", port) and 0 < int(port) < 65536)):
            raise KeyFileError("forwarding rule is not host:port")
        return cls(lower(host), None if port == "*" else int(port))

    def allows(self, host: str, port: int) -> bool:
        """Whether this rule permits the host, by its exact name, and port."""
        return self.host in ("*", lower(host)) and self.port in (None, port)


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyOptions:
    """What a key may be used for. Without options everything that the server permits.

    ``command`` replaces any command of the client; it may be empty, which is not None.
    ``permit_open`` and ``permit_listen`` are None for any target. ``expires`` is a POSIX time.
    ``environment`` is what the line asks for; whether it is granted is the server's decision.
    ``permit_user_rc``, ``tunnel``, ``touch_required`` and ``verify_required`` have no effect
    here: no rc file is run, no tunnel opened, no hardware key accepted.
    """

    command: str | None = None
    allowed_from: FromList | None = None
    expires: float | None = None
    environment: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    permit_pty: bool = True
    permit_port_forwarding: bool = True
    permit_agent_forwarding: bool = True
    permit_x11_forwarding: bool = True
    permit_user_rc: bool = True
    permit_open: tuple[ForwardRule, ...] | None = None
    permit_listen: tuple[ForwardRule, ...] | None = None
    tunnel: int | None = None
    touch_required: bool = True
    verify_required: bool = False
    cert_authority: bool = False
    principals: tuple[str, ...] | None = None


_PERMITS: Final = {
    "pty": "permit_pty",
    "port-forwarding": "permit_port_forwarding",
    "agent-forwarding": "permit_agent_forwarding",
    "x11-forwarding": "permit_x11_forwarding",
    "user-rc": "permit_user_rc",
}
_SWITCHES: Final = {**_PERMITS, "touch-required": "touch_required", "verify-required": "verify_required"}

#: Options without a value: what they set. Later ones win, so that ``restrict,pty`` permits a pty.
_FLAGS: Final[dict[str, dict[str, bool]]] = {
    **{name: {attribute: True} for name, attribute in _SWITCHES.items()},
    **{f"no-{name}": {attribute: False} for name, attribute in _SWITCHES.items()},
    "restrict": dict.fromkeys(_PERMITS.values(), False),
    "cert-authority": {"cert_authority": True},
}

_Fields = dict[str, Any]  # arguments of KeyOptions under construction


def _once(attribute: str, parse: Callable[[str], object]) -> Callable[[_Fields, str], None]:
    def apply(fields: _Fields, value: str) -> None:
        if attribute in fields:
            raise KeyFileError("an option is given twice")
        fields[attribute] = parse(value)

    return apply


def _rules(attribute: str, default_host: str = "") -> Callable[[_Fields, str], None]:
    def apply(fields: _Fields, value: str) -> None:
        if default_host and ":" not in value:
            value = f"{default_host}:{value}"
        fields[attribute] = (*fields.get(attribute, ()), ForwardRule.parse(value))

    return apply


def _environment(fields: _Fields, value: str) -> None:
    name, equals, text = value.partition("=")
    if not equals or not re.fullmatch(r"[A-Za-z0-9_]+", name):
        raise KeyFileError("environment= is not NAME=value")
    # The first line for a name holds.
    fields["environment"] = MappingProxyType({name: text, **fields.get("environment", {})})


_TIME: Final = re.compile(r"([0-9]{8})([0-9]{4})?([0-9]{2})?(Z|UTC)?", re.IGNORECASE)


def _expiry(fields: _Fields, value: str) -> None:
    """``YYYYMMDD[HHMM[SS]][Z]``; local time without the Z. The earliest of several holds."""
    match = _TIME.fullmatch(value)
    if match is None:
        raise KeyFileError("expiry-time= is malformed")
    day, minute, second, zone = match.groups("")
    try:
        moment = datetime.strptime(day + (minute or "0000") + (second or "00"), "%Y%m%d%H%M%S")
        expires = (moment.replace(tzinfo=UTC) if zone else moment.astimezone()).timestamp()
    except (ValueError, OverflowError, OSError):
        raise KeyFileError("expiry-time= is not a time") from None
    fields["expires"] = min(expires, fields.get("expires", expires))


def _tunnel(value: str) -> int | None:
    if value == "any":
        return None
    if not re.fullmatch("[0-9]{1,9}", value):
        raise KeyFileError("tunnel= is not a device number")
    return int(value)


def _principals(value: str) -> tuple[str, ...]:
    names = tuple(value.split(","))
    if not all(names):
        raise KeyFileError("principals= has an empty name")
    return names


_VALUES: Final[dict[str, Callable[[_Fields, str], None]]] = {
    "command": _once("command", str),
    "from": _once("allowed_from", FromList.parse),
    "tunnel": _once("tunnel", _tunnel),
    "principals": _once("principals", _principals),
    "environment": _environment,
    "expiry-time": _expiry,
    "permitopen": _rules("permit_open"),
    "permitlisten": _rules("permit_listen", default_host="*"),
}

#: One option and what ends it. In quotes a backslash escapes a quote, and is itself otherwise.
_OPTION: Final = re.compile(r'([A-Za-z0-9-]+)(?:="((?:\\"|\\(?!")|[^"\\])*)")?(,|[ \t]+)')


def _parse_options(text: str) -> tuple[KeyOptions, str]:
    """The options at the beginning of a line, and what stands behind them."""
    fields: _Fields = {}
    place = 0
    while True:
        match = _OPTION.match(text, place)
        if match is None:
            raise KeyFileError("line begins with neither a supported key type nor well-formed options")
        name, value, end = match.groups()
        name = name.lower()
        if value is None and name in _FLAGS:
            fields.update(_FLAGS[name])
        elif value is not None and name in _VALUES:
            _VALUES[name](fields, value.replace('\\"', '"'))
        else:
            raise KeyFileError(f"{visible(name, 64)!r} is neither a supported key type nor an option of this form")
        place = match.end()
        if end != ",":
            break
    options = KeyOptions(**fields)
    if options.principals is not None and not options.cert_authority:
        raise KeyFileError("principals= belongs to cert-authority")
    return options, text[place:]


# --- the list --------------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class AuthorizedKey:
    """One usable line."""

    key: PublicKey
    options: KeyOptions
    path: str | None
    line: int

    def allows(self, address: str | None, now: float, host: str | None = None) -> bool:
        """Whether the key may be used now (POSIX time) from this IP address and, where known, host name."""
        options = self.options
        if options.expires is not None and now >= options.expires:
            return False
        return options.allowed_from is None or options.allowed_from.allows(address, host)


def _parse_line(text: str, path: str | None, number: int) -> AuthorizedKey:
    first = re.split(r"[ \t]", text, maxsplit=1)[0]
    options, rest = (KeyOptions(), text) if first in KEY_TYPES else _parse_options(text)
    return AuthorizedKey(listed_key(rest), options, path, number)


@dataclass(frozen=True, slots=True)
class AuthorizedKeyList:
    """An authorized_keys text: ``keys`` that may log in, certificate ``authorities``, ``skipped`` lines.

    A line that cannot be understood in full is skipped, never used in part.
    """

    keys: tuple[AuthorizedKey, ...]
    authorities: tuple[AuthorizedKey, ...]
    skipped: tuple[SkippedLine, ...]

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> AuthorizedKeyList:
        """Read a file. Raises :class:`KeyFileError` if it cannot be read or passes a limit."""
        name = os.path.expanduser(path)
        return cls.from_text(read_text(name, AUTHORIZED_KEYS_FILE_MAX), path=name)

    @classmethod
    def from_text(cls, text: str, *, path: str | None = None) -> AuthorizedKeyList:
        """Parse a text. Raises :class:`KeyFileError` only if it has too many lines."""
        if text.count("\n") > AUTHORIZED_KEYS_LINES_MAX:
            raise KeyFileError(f"authorized keys have more than {AUTHORIZED_KEYS_LINES_MAX} lines", path=path)
        entries: list[AuthorizedKey] = []
        skipped: list[SkippedLine] = []
        for number, line, fault in lines_of(text, AUTHORIZED_KEYS_LINE_MAX):
            try:
                if fault:
                    raise KeyFileError(fault)
                entries.append(_parse_line(line, path, number))
            except KeyFileError as error:
                skipped.append(SkippedLine(path, number, error.message))
        return cls(
            tuple(entry for entry in entries if not entry.options.cert_authority),
            tuple(entry for entry in entries if entry.options.cert_authority),
            tuple(skipped),
        )

    def find(self, key: PublicKey, address: str | None, now: float, host: str | None = None) -> AuthorizedKey | None:
        """The first line with this key that may be used now from this address, or None."""
        for entry in self.keys:
            if entry.key == key and entry.allows(address, now, host):
                return entry
        return None
