"""Reads the peers: every folder beside this file that has a ``peer.toml``. ``interop/README.md`` tells its format."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Any, TypeVar

from interop.model import Ability, Expectation, HarnessError, Offers, Peer, Role, RoleSpec, Setting

PEERS = Path(__file__).parent

_Name = TypeVar("_Name", bound=StrEnum)


def load_peers(folder: Path = PEERS) -> list[Peer]:
    """All peers below ``folder``: one for each variant of each ``peer.toml``. HarnessError for any mistake in one."""
    return [peer for path in sorted(folder.glob("*/peer.toml")) for peer in load_peer_file(path)]


def load_peer_file(path: Path) -> list[Peer]:
    """The variants of one implementation."""
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise HarnessError(f"{path}: {error}") from None
    top = _Table(path, "", data)
    variants = top.table("variant")
    if not variants.data:
        raise variants.error("", "missing: at least one [variant.<name>]")
    common = {key: value for key, value in data.items() if key != "variant"}
    return [_peer(path, name, common, variants.table(name)) for name in variants.data]


# --- reading with the place at hand ---------------------------------------------------------------------


class _Table:
    """A table of the file that knows where it stands, and so can say what is wrong where."""

    def __init__(self, path: Path, place: str, data: Mapping[str, Any]) -> None:
        self.path = path
        self.place = place
        self.data = data

    def error(self, key: str, text: str) -> HarnessError:
        return HarnessError(f"{self.path}: {'.'.join(part for part in (self.place, key) if part)}: {text}")

    def only(self, *known: str) -> None:
        for key in self.data:
            if key not in known:
                raise self.error(key, f"unknown key; there are {', '.join(known)}")

    def table(self, key: str) -> _Table:
        """The table under ``key``; an empty one where there is none."""
        value = self.data.get(key, {})
        if not isinstance(value, dict):
            raise self.error(key, "not a table")
        return _Table(self.path, f"{self.place}.{key}" if self.place else key, value)

    def tables(self, key: str) -> list[_Table]:
        """The ``[[key]]`` tables."""
        value = self.data.get(key, [])
        if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
            raise self.error(key, f"not a list of tables: write [[{key}]]")
        return [_Table(self.path, f"{self.place}.{key}[{number}]", item) for number, item in enumerate(value, 1)]

    def text(self, key: str, default: str | None = None) -> str:
        value = self.data.get(key, default)
        if value is None:
            raise self.error(key, "missing")
        if not isinstance(value, str) or (default is None and not value.strip()):
            raise self.error(key, "not a text" if not isinstance(value, str) else "empty")
        return value

    def flag(self, key: str) -> bool:
        value = self.data.get(key, False)
        if not isinstance(value, bool):
            raise self.error(key, "neither true nor false")
        return value

    def number(self, key: str, default: int) -> int:
        value = self.data.get(key, default)
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise self.error(key, "not a number from 1 on")
        return value

    def texts(self, key: str, default: Sequence[str] | None = None) -> tuple[str, ...]:
        """A list of texts, none of them empty."""
        value = self.data.get(key, default)
        if value is None:
            raise self.error(key, "missing")
        if not isinstance(value, list | tuple) or not all(isinstance(item, str) and item for item in value):
            raise self.error(key, "not a list of texts")
        return tuple(value)

    def names(self, key: str) -> tuple[str, ...]:
        """Names as SSH sends them, each once."""
        names = self.texts(key)
        for name in names:
            if not name.isascii() or not name.isprintable() or "," in name or " " in name:
                raise self.error(key, f"{name!r} is not a name that SSH can send")
            if names.count(name) > 1:
                raise self.error(key, f"{name!r} is there twice")
        return names

    def member(self, key: str, names: type[_Name], value: str) -> _Name:
        """``value`` as one of ``names``."""
        try:
            return names(value)
        except ValueError:
            raise self.error(key, f"unknown: {value!r}; there are {', '.join(names)}") from None


def _merged(common: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """``own`` over ``common``: tables key by key, everything else as a whole."""
    merged = dict(common)
    for key, value in own.items():
        below = merged.get(key)
        merged[key] = _merged(below, value) if isinstance(below, dict) and isinstance(value, dict) else value
    return merged


# --- from tables to a peer ------------------------------------------------------------------------------


def _peer(path: Path, variant: str, common: Mapping[str, Any], own: _Table) -> Peer:
    merged = _merged(common, own.data)
    expected = [*_Table(path, "", common).tables("expected"), *own.tables("expected")]
    table = _Table(path, own.place, merged)
    table.only(
        "title", "suite", "machine", "build", "roles", "rolling", "storm", "offers", "server", "client", "expected"
    )
    return Peer(
        name=f"{path.parent.name}-{variant}",
        title=f"{table.text('title')}, {_origin(table)}",
        folder=path.parent,
        build=_build(table),
        roles=_roles(table),
        expected=tuple(_expectation(item) for item in expected),
        storm=table.number("storm", Peer.storm),
        rolling=table.flag("rolling"),
    )


def _origin(table: _Table) -> str:
    """Where the programs come from: a suite of Debian, or this machine; one of the two, and not both."""
    if table.flag("machine") == ("suite" in table.data):
        raise table.error("suite", 'either suite = "..." (of Debian) or machine = true')
    return "this machine" if table.flag("machine") else f"Debian {table.text('suite')}"


def _build(table: _Table) -> dict[str, str]:
    build = table.table("build")
    if table.flag("machine"):
        if build.data:
            raise table.error("build", "nothing is built with machine = true")
        return {}
    if "SUITE" in build.data:
        raise build.error("SUITE", 'say suite = "..." instead')
    return {"SUITE": table.text("suite"), **{key: build.text(key) for key in build.data}}


def _roles(table: _Table) -> dict[Role, RoleSpec]:
    names = table.texts("roles", [role for role in Role if role in table.data])
    if not names:
        raise table.error("roles", "none: a [server] or a [client] table is needed")
    return {role: _role(table, role) for role in (table.member("roles", Role, name) for name in names)}


def _role(table: _Table, role: Role) -> RoleSpec:
    spec = table.table(role)
    spec.only("command", "abilities", "settings", "offers")
    offers = _Table(table.path, f"{spec.place}.offers", _merged(table.table("offers").data, spec.table("offers").data))
    offers.only("kex", "host_keys", "ciphers", "macs")
    command = spec.texts("command")
    if not command:
        raise spec.error("command", "empty")
    return RoleSpec(
        command=command,
        settings=_settings(spec.table("settings")),
        abilities=frozenset(spec.member("abilities", Ability, name) for name in spec.texts("abilities", ())),
        offers=Offers(*(offers.names(key) for key in ("kex", "host_keys", "ciphers", "macs"))),
    )


def _settings(table: _Table) -> dict[Setting, tuple[str, ...]]:
    settings = {}
    for key in table.data:
        arguments = table.texts(key)
        if not any("{value}" in argument for argument in arguments):
            raise table.error(key, "no {value} in it")
        settings[table.member(key, Setting, key)] = arguments
    return settings


def _expectation(table: _Table) -> Expectation:
    selectors = ("scenario", "role", "variant", "kex", "host_key", "cipher", "mac")
    table.only("reason", "evidence", "sometimes", *selectors)
    if not any(key in table.data for key in selectors):
        raise table.error("", f"matches every case; say at least one of {', '.join(selectors)}")
    chosen = {key: table.text(key) for key in selectors if key in table.data}
    if "role" in chosen:
        table.member("role", Role, chosen["role"])
    return Expectation(
        reason=table.text("reason"), evidence=table.text("evidence"), sometimes=table.flag("sometimes"), **chosen
    )
