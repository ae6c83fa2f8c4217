"""The peers' files: the real ones load, and every mistake in one is told with its file and key."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

from interop.model import Ability, HarnessError, Role, Setting
from interop.peers import PEERS, load_peer_file, load_peers

GOOD = """
title = "Example"

[offers]
kex = ["curve25519-sha256"]
host_keys = ["ssh-ed25519"]
ciphers = ["aes256-ctr", "aes256-gcm@openssh.com"]
macs = ["hmac-sha2-256"]

[server]
command = ["./server"]
abilities = ["password", "strict-kex"]

[server.settings]
cipher = ["-o", "Ciphers={value}"]

[client]
command = ["./client", "-v"]

[[expected]]
scenario = "rekey"
reason = "hangs"
evidence = "its issue 1"

[variant.old]
suite = "bookworm"
build.EXTRA = "yes"
server.abilities = ["password"]
offers.ciphers = ["aes256-ctr"]

[[variant.old.expected]]
role = "server"
reason = "crashes"
evidence = "its issue 2"

[variant.new]
suite = "forky"
rolling = true
roles = ["client"]

[variant.machine]
machine = true
"""


def write(folder: Path, text: str) -> Path:
    path = folder / "example" / "peer.toml"
    path.parent.mkdir()
    path.write_text(text)
    return path


def test_variants_lie_over_what_is_common(tmp_path: Path) -> None:
    old, new, machine = load_peer_file(write(tmp_path, GOOD))
    assert (old.name, old.title, old.build) == (
        "example-old",
        "Example, Debian bookworm",
        {"SUITE": "bookworm", "EXTRA": "yes"},
    )
    assert old.roles[Role.SERVER].abilities == {Ability.PASSWORD}
    assert old.roles[Role.SERVER].offers.ciphers == old.roles[Role.CLIENT].offers.ciphers == ("aes256-ctr",)
    assert [item.reason for item in old.expected] == ["hangs", "crashes"]
    assert (new.rolling, list(new.roles), new.hosted) == (True, [Role.CLIENT], False)
    assert new.roles[Role.CLIENT].command == ("./client", "-v")
    assert (machine.title, machine.build, machine.hosted) == ("Example, this machine", {}, True)
    server = machine.roles[Role.SERVER]
    assert server.abilities == {Ability.PASSWORD, Ability.STRICT_KEX}
    assert server.settings == {Setting.CIPHER: ("-o", "Ciphers={value}")}
    assert [item.reason for item in machine.expected] == ["hangs"]


def test_a_role_has_own_offers(tmp_path: Path) -> None:
    text = GOOD.replace("[server.settings]", "[server.offers]\nmacs = []\n[server.settings]")
    server, client = load_peer_file(write(tmp_path, text))[0].roles.values()
    assert (server.offers.macs, client.offers.macs) == ((), ("hmac-sha2-256",))


@pytest.mark.parametrize(
    ("old", "new", "place"),
    [
        ('title = "Example"', "", "title: missing"),
        ('title = "Example"', "title = 1", "title: not a text"),
        ('title = "Example"', 'title = " "', "title: empty"),
        ('title = "Example"', 'title = "Example"\ncolour = "red"', "variant.old.colour: unknown key"),
        ('title = "Example"', 'title = "Example"\nbroken', "at line"),
        ('suite = "bookworm"', "", "variant.old.suite: either"),
        ('suite = "bookworm"', 'suite = "bookworm"\nmachine = true', "variant.old.suite: either"),
        ('suite = "bookworm"', "suite = 12", "variant.old.suite: not a text"),
        ('build.EXTRA = "yes"', "build.EXTRA = true", "variant.old.build.EXTRA: not a text"),
        ('build.EXTRA = "yes"', 'build.SUITE = "sid"', "variant.old.build.SUITE: "),
        ('build.EXTRA = "yes"', 'build = "yes"', "variant.old.build: not a table"),
        ("machine = true", 'machine = true\nbuild.EXTRA = "yes"', "variant.machine.build: nothing is built"),
        ("rolling = true", 'rolling = "yes"', "variant.new.rolling: neither true nor false"),
        ('roles = ["client"]', "roles = []", "variant.new.roles: none"),
        ('roles = ["client"]', 'roles = ["proxy"]', "variant.new.roles: unknown: 'proxy'"),
        ('command = ["./server"]', "", "server.command: missing"),
        ('command = ["./server"]', "command = []", "server.command: empty"),
        ('command = ["./server"]', 'command = "./server"', "server.command: not a list of texts"),
        ('command = ["./server"]', 'command = ["./server"]\nport = 22', "server.port: unknown key"),
        ('"strict-kex"', '"fly"', "variant.machine.server.abilities: unknown: 'fly'"),
        ('cipher = ["-o", "Ciphers={value}"]', 'cipher = ["-o"]', "server.settings.cipher: no {value}"),
        ('cipher = ["-o", "Ciphers={value}"]', 'colour = ["{value}"]', "server.settings.colour: unknown"),
        ('macs = ["hmac-sha2-256"]', "", "server.offers.macs: missing"),
        ('macs = ["hmac-sha2-256"]', 'macs = ["a,b"]', "server.offers.macs: 'a,b' is not a name"),
        ('macs = ["hmac-sha2-256"]', 'macs = ["a", "a"]', "server.offers.macs: 'a' is there twice"),
        ('macs = ["hmac-sha2-256"]', 'macs = [""]', "server.offers.macs: not a list of texts"),
        ('macs = ["hmac-sha2-256"]', 'macs = ["x"]\nauth = []', "server.offers.auth: unknown key"),
        ('scenario = "rekey"', "", "expected[1]: matches every case"),
        ('scenario = "rekey"', 'scenario = ""', "expected[1].scenario: empty"),
        ('role = "server"', 'role = "both"', "variant.old.expected[1].role: unknown: 'both'"),
        ('evidence = "its issue 1"', "", "expected[1].evidence: missing"),
        ("[[expected]]", "[expected]", "expected: not a list of tables"),
        ("[[variant.old.expected]]", "[variant.old.expected]", "variant.old.expected: not a list of tables"),
    ],
)
def test_a_mistake_is_told_with_its_place(tmp_path: Path, old: str, new: str, place: str) -> None:
    # A key of the common part is told in the place of the first variant that has it.
    assert GOOD.count(old) == 1
    path = write(tmp_path, GOOD.replace(old, new))
    with pytest.raises(HarnessError) as caught:
        load_peers(tmp_path)
    assert str(caught.value).startswith(f"{path}: ")
    assert place in str(caught.value)


@pytest.mark.parametrize("text", ["", 'title = "Example"', "[variant]"])
def test_a_file_without_variants_is_refused(tmp_path: Path, text: str) -> None:
    path = write(tmp_path, text)
    with pytest.raises(HarnessError, match=r"variant: missing"):
        load_peer_file(path)


def test_a_file_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(HarnessError, match=r"peer\.toml: "):
        load_peer_file(tmp_path / "peer.toml")


# --- the real ones --------------------------------------------------------------------------------------


def documents() -> list[Any]:
    return [pytest.param(path, id=path.parent.name) for path in sorted(PEERS.glob("*/peer.toml"))]


def test_the_peers_of_the_issue_are_there() -> None:
    peers = {peer.name: peer for peer in load_peers()}
    assert len(peers) == len(load_peers())
    for implementation in ("openssh", "dropbear"):
        for suite in ("bullseye", "bookworm", "trixie", "forky"):
            assert set(peers[f"{implementation}-{suite}"].roles) == {Role.SERVER, Role.CLIENT}
    for name in ("dropbear-gcm", "asyncssh-trixie", "paramiko-trixie"):
        assert set(peers[name].roles) == {Role.SERVER, Role.CLIENT}
    assert set(peers["putty-trixie"].roles) == {Role.CLIENT}
    assert set(peers["tinysshd-bookworm"].roles) == {Role.SERVER}
    strict = {
        name: Ability.STRICT_KEX in peers[name].roles[Role.SERVER].abilities
        for name in ("tinysshd-bookworm", "tinysshd-trixie")
    }
    assert strict == {"tinysshd-bookworm": False, "tinysshd-trixie": True}


@pytest.mark.parametrize("path", documents())
def test_the_scripts_of_a_peer_are_there_and_in_its_image(path: Path) -> None:
    folder = path.parent
    containerfile = (folder / "Containerfile").read_text()
    assert containerfile.lstrip().startswith(("ARG SUITE\nFROM docker.io/library/debian:${SUITE}-slim", "#"))
    scripts = {"version"} | ({"prepare"} if (folder / "prepare").exists() else set())
    for peer in load_peer_file(path):
        for spec in peer.roles.values():
            scripts |= {word.removeprefix("./") for word in spec.command if (folder / word).exists()}
    assert len(scripts) > 1
    for script in scripts:
        assert script in containerfile
        assert script.endswith(".py") or (folder / script).stat().st_mode & 0o111, f"{script}: chmod +x"


@pytest.mark.parametrize("path", documents())
def test_forky_moves_and_the_releases_do_not(path: Path) -> None:
    for name, variant in tomllib.loads(path.read_text())["variant"].items():
        assert variant.get("rolling", False) == (variant.get("suite") == "forky"), name


def test_the_example_of_the_manual_loads(tmp_path: Path) -> None:
    manual = (PEERS.parent / "README.md").read_text()
    text = manual.partition("```toml\n")[2].partition("```")[0]
    trixie, forky, machine = load_peer_file(write(tmp_path, text))
    assert (trixie.name, forky.rolling, forky.build["EXTRA"]) == ("example-trixie", True, "yes")
    assert machine.hosted
    for names in (Ability, Setting):
        assert all(f"`{name}`" in manual for name in names)
