"""authorized_keys: options, from= lists, and everything that makes a line unusable."""

from __future__ import annotations

import time
from datetime import datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sshtransport.errors import KeyFileError
from sshtransport.keys import AuthorizedKey, AuthorizedKeyList, ForwardRule, FromList, KeyOptions
from sshtransport.keys.authorized_keys import (
    AUTHORIZED_KEYS_FILE_MAX,
    AUTHORIZED_KEYS_LINE_MAX,
    AUTHORIZED_KEYS_LINES_MAX,
)
from tests.support.private_keys import private_key

ED, ED2 = (private_key("ssh-ed25519", n).public_key for n in (0, 1))
RSA = private_key("ssh-rsa").public_key
KEY = ED.to_text()


def one(options: str) -> AuthorizedKey:
    found = AuthorizedKeyList.from_text(f"{options} {KEY}")
    assert found.skipped == ()
    (entry,) = found.keys + found.authorities
    assert entry.key == ED and entry.key.comment == "test 0"
    return entry


def refused(line: str) -> str:
    """The reason why the line is not used."""
    found = AuthorizedKeyList.from_text(f"{line}\n{RSA.to_text()}")
    assert [entry.key for entry in found.keys] == [RSA] and not found.authorities
    (skipped,) = found.skipped
    assert skipped.line == 1
    return skipped.reason


def test_plain_lines() -> None:
    text = f"# comment\n\n{KEY}\r\n\t {RSA.to_text()}\n   # {KEY}\n"
    found = AuthorizedKeyList.from_text(text, path="p")
    assert found.keys == (
        AuthorizedKey(ED, KeyOptions(), "p", 3),
        AuthorizedKey(RSA, KeyOptions(), "p", 4),
    )
    assert not found.authorities and not found.skipped
    assert found.keys[0].allows(None, 0.0)


# --- options ---------------------------------------------------------------------------------------------
ALL_OFF = {
    "permit_pty": False,
    "permit_port_forwarding": False,
    "permit_agent_forwarding": False,
    "permit_x11_forwarding": False,
    "permit_user_rc": False,
}


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ("no-pty", {"permit_pty": False}),
        ("NO-PTY", {"permit_pty": False}),
        ("no-port-forwarding", {"permit_port_forwarding": False}),
        ("no-agent-forwarding,no-X11-forwarding", {"permit_agent_forwarding": False, "permit_x11_forwarding": False}),
        ("no-user-rc", {"permit_user_rc": False}),
        ("restrict", ALL_OFF),
        ("restrict,pty", {**ALL_OFF, "permit_pty": True}),
        ("restrict,port-forwarding", {**ALL_OFF, "permit_port_forwarding": True}),
        ("pty,restrict", ALL_OFF),
        ("no-touch-required", {"touch_required": False}),
        ("verify-required", {"verify_required": True}),
        ('command="ls -l"', {"command": "ls -l"}),
        ('command=""', {"command": ""}),
        ('command="say \\"a, b\\" # c"', {"command": 'say "a, b" # c'}),
        ('command="back\\slash"', {"command": "back\\slash"}),
        ('command="a\\\\\\" b"', {"command": 'a\\\\" b'}),
        ('command="é\tx"', {"command": "é\tx"}),
        ('environment="A=1",environment="B_2=x=y",environment="A=3"', {"environment": {"A": "1", "B_2": "x=y"}}),
        ('environment="A="', {"environment": {"A": ""}}),
        ('permitopen="h:22"', {"permit_open": (ForwardRule("h", 22),)}),
        (
            'permitopen="[::1]:22",permitopen="H:*"',
            {"permit_open": (ForwardRule("::1", 22), ForwardRule("h", None))},
        ),
        ('permitlisten="8080"', {"permit_listen": (ForwardRule("*", 8080),)}),
        ('permitlisten="localhost:8080"', {"permit_listen": (ForwardRule("localhost", 8080),)}),
        ('tunnel="3"', {"tunnel": 3}),
        ('tunnel="any"', {}),
        ('cert-authority,principals="a,b"', {"cert_authority": True, "principals": ("a", "b")}),
    ],
)
def test_options(options: str, expected: dict[str, object]) -> None:
    assert one(options).options == KeyOptions(**expected)  # type: ignore[arg-type]


@pytest.mark.parametrize("blank", [" ", "\t", " \t  "])
def test_blanks_behind_the_options(blank: str) -> None:
    found = AuthorizedKeyList.from_text(f"no-pty{blank}{KEY}")
    assert found.keys[0].options.permit_pty is False


@pytest.mark.parametrize(
    "options",
    [
        "no-such-option",
        "no-restrict",
        'no-such="x"',
        "no-pty,,restrict",
        "no-pty,",
        ",no-pty",
        "no-pty, restrict",
        "no-pty ,restrict",
        'no-pty="x"',
        "command",
        "command=",
        "command=ls",
        "command='ls'",
        'command="ls',
        'command="ls\\"',
        'command="ls"x',
        'command="ls""x"',
        'command = "ls"',
        'command="a",command="b"',
        'from="1.2.3.4",from="*"',
        'from="1.2.3.4/33"',
        'from="1.2.3.4/8"',
        'from="1.2.3.4/x"',
        'from="fe80::1%eth0"',
        'environment="A"',
        'environment="=x"',
        'environment="A B=x"',
        'environment="LD\n=x"',
        'permitopen="h"',
        'permitopen=":22"',
        'permitopen="h:"',
        'permitopen="h:0"',
        'permitopen="h:65536"',
        'permitopen="h:+22"',
        'permitopen="h:0000000022"',
        'permitopen="h:\u0662"',
        'permitopen="::1:22"',
        'permitopen="[]:22"',
        'permitlisten=""',
        'tunnel="-1"',
        'tunnel="x"',
        'tunnel="1",tunnel="1"',
        'principals="a"',
        'cert-authority,principals=""',
        'cert-authority,principals="a,,b"',
        'expiry-time=""',
        'expiry-time="2026"',
        'expiry-time="20261301"',
        'expiry-time="20260230"',
        'expiry-time="00000101"',
        'expiry-time="202601012460"',
        'expiry-time="20260101T"',
        'expiry-time="2026-01-01"',
        '"',
        "=",
        "\\",
        "é",
        "no-pty\x0c",
    ],
)
def test_what_is_not_understood_is_not_used(options: str) -> None:
    if "\n" in options:
        found = AuthorizedKeyList.from_text(f"{options} {KEY}")
        assert found.keys == () and len(found.skipped) == 2
        return
    refused(f"{options} {KEY}")


@pytest.mark.parametrize(
    "line",
    [
        "ssh-ed25519",
        "ssh-ed25519 AAAA",
        "no-pty",
        "no-pty ",
        "no-pty ssh-ed25519",
        "ssh-dss AAAAB3NzaC1kc3M= x",
        "sk-ssh-ed25519@openssh.com AAAA x",
        f"no-pty restrict {KEY}",
        f"ssh-rsa {KEY}",
        KEY.replace("ssh-ed25519", "ssh-rsa", 1),
        KEY[:40],
        f"{KEY.split()[1]}",
        f"x {KEY}",
    ],
)
def test_lines_without_a_key(line: str) -> None:
    refused(line)


# --- long lines and files --------------------------------------------------------------------------------
def test_an_over_long_line_is_refused_whole() -> None:
    """known bugs M 163: the tail of a long line is no line of its own."""
    for head in ('command="' + "x" * 100_000 + '" ', "#" * 0 + "x" * (AUTHORIZED_KEYS_LINE_MAX - 1) + " "):
        assert "longer" in refused(head + KEY)
    for tail in range(AUTHORIZED_KEYS_LINE_MAX - 2, AUTHORIZED_KEYS_LINE_MAX + 3):
        refused("x" * tail + f" {KEY}")
    fits = f'command="{"x" * (AUTHORIZED_KEYS_LINE_MAX - len(KEY) - 11)}" {KEY}'
    assert len(fits) == AUTHORIZED_KEYS_LINE_MAX
    assert len(AuthorizedKeyList.from_text(fits).keys) == 1
    refused(fits.replace("x", "xx", 1))


@pytest.mark.parametrize("separator", ["\r", "\x0b", "\x0c", "\x1c", "\x1e", "\x85", "\u2028", "\u2029", "\0"])
def test_only_line_feeds_end_lines(separator: str) -> None:
    """known bugs M 163: what a text library takes for a line end gives nobody a second line."""
    for head in (f'command="x{separator}', "# comment", "no-such-option"):
        found = AuthorizedKeyList.from_text(f"{head}{separator}{KEY}")
        assert found.keys == ()


def test_the_number_of_lines_is_limited() -> None:
    """known bugs M 163."""
    assert AuthorizedKeyList.from_text("\n" * AUTHORIZED_KEYS_LINES_MAX).keys == ()
    with pytest.raises(KeyFileError) as caught:
        AuthorizedKeyList.from_text((KEY + "\n") * 100_000, path="p")
    assert caught.value.path == "p"


def test_many_lines_and_long_options_take_no_long_time() -> None:
    start = time.perf_counter()
    AuthorizedKeyList.from_text('command="' + '\\"' * 8000 + "\n" + "\\" * 16_000 + "\n" + "a," * 8000)
    assert time.perf_counter() - start < 1


def test_load(tmp_path: Path) -> None:
    path = tmp_path / "authorized_keys"
    path.write_bytes(b"# \xff\n" + KEY.encode())
    (entry,) = AuthorizedKeyList.load(path).keys
    assert (entry.path, entry.line) == (str(path), 2)
    with path.open("ab") as file:
        file.truncate(AUTHORIZED_KEYS_FILE_MAX + 1)
    for bad in (path, tmp_path / "none", str(tmp_path)):
        with pytest.raises(KeyFileError):
            AuthorizedKeyList.load(bad)


@given(st.text(max_size=200))
def test_random_lines(text: str) -> None:
    """Whatever stands before a key, without its restrictions it is never used."""
    assert AuthorizedKeyList.from_text(text).keys == ()
    found = AuthorizedKeyList.from_text(f"no-pty,{text} {KEY}".replace("\n", " "))
    assert all(not entry.options.permit_pty or "pty" in text.lower() for entry in found.keys)


@given(st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"]), max_size=50))
def test_any_command_can_be_quoted(command: str) -> None:
    if command.endswith("\\") or '\\"' in command:  # cannot be written in this format
        return
    quoted = command.replace('"', '\\"')
    assert one(f'command="{quoted}",no-pty').options == KeyOptions(command=command, permit_pty=False)


# --- from= -----------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("patterns", "address", "expected"),
    [
        ("10.0.0.1", "10.0.0.1", True),
        ("10.0.0.1", "10.0.0.11", False),
        ("10.0.0.0/8", "10.255.0.1", True),
        ("10.0.0.0/8", "11.0.0.1", False),
        ("10.0.0.*", "10.0.0.77", True),
        ("10.0.0.?", "10.0.0.77", False),
        ("10.0.0.*,!10.0.0.77", "10.0.0.77", False),
        ("!10.0.0.77,10.0.0.*", "10.0.0.77", False),
        ("!10.0.0.0/24,*", "10.0.0.77", False),
        ("!10.0.0.0/24,*", "10.0.1.77", True),
        ("!10.0.0.1", "10.0.0.2", False),
        ("!*", "10.0.0.2", False),
        ("", "10.0.0.2", False),
        (",", "10.0.0.2", False),
        ("!", "10.0.0.2", False),
        ("*", "10.0.0.2", True),
        ("2001:DB8::/32", "2001:db8::5", True),
        ("2001:db8:0:0:0:0:0:5", "2001:db8::5", True),
        ("2001:db8::*", "2001:0DB8:0::5", True),
        ("::/0", "10.0.0.1", False),
        ("0.0.0.0/0", "2001:db8::5", False),
        ("10.0.0.0/8", "::ffff:10.0.0.1", True),
        ("10.*", "::ffff:10.0.0.1", True),
        ("::ffff:10.0.0.0/104", "10.1.2.3", True),
        ("!::ffff:10.0.0.0/104,*", "10.1.2.3", False),
        ("fe80::/10", "fe80::1%eth0", True),
        ("fe80::1", "fe80::1%eth0", True),
        ("host.example", "10.0.0.1", False),
        ("*", None, False),
        ("*", "", False),
        ("*", "/run/socket", False),
        ("*", "UNKNOWN", False),
        ("*", "010.0.0.1", False),
    ],
)
def test_from_lists(patterns: str, address: str | None, expected: bool) -> None:
    """known bugs K 145: mapped addresses, peers without an address, empty lists."""
    entry = one(f'from="{patterns}"')
    assert entry.allows(address, 0.0) is expected
    assert FromList.parse(patterns).allows(address) is expected


def test_from_lists_with_host_names() -> None:
    patterns = FromList.parse("*.example.com,!BAD.example.com")
    assert patterns.allows("10.0.0.1", "Good.Example.Com")
    assert not patterns.allows("10.0.0.1", "bad.example.com")
    assert not patterns.allows("10.0.0.1", "example.com")
    assert not patterns.allows("10.0.0.1")
    assert not patterns.allows(None, "good.example.com")
    assert not FromList.parse("!10.0.0.0/8,*.example.com").allows("10.0.0.1", "good.example.com")


@given(st.text(max_size=60), st.text(max_size=30))
def test_random_from_lists(patterns: str, address: str) -> None:
    try:
        parsed = FromList.parse(patterns)
    except KeyFileError:
        return
    assert parsed.allows(address) in (True, False)
    assert not FromList.parse("!*,*").allows(address)


# --- time, finding ---------------------------------------------------------------------------------------
def test_expiry_times() -> None:
    noon = one('expiry-time="202601021200Z"').options.expires
    assert noon == 1767355200.0
    assert one('expiry-time="20260102120030UTC"').options.expires == noon + 30
    assert one('expiry-time="20260102z"').options.expires == noon - 12 * 3600
    assert one('expiry-time="20260102"').options.expires == datetime(2026, 1, 2).timestamp()
    assert one('expiry-time="20270101Z",expiry-time="202601021200Z",expiry-time="20280101Z"').options.expires == noon
    entry = one('expiry-time="202601021200Z"')
    assert entry.allows("10.0.0.1", noon - 1)
    assert not entry.allows("10.0.0.1", noon)


def test_find_takes_the_first_line_that_may_be_used() -> None:
    text = "\n".join(
        (
            f'from="10.0.0.1",no-pty {KEY}',
            f'expiry-time="19990101Z" {KEY}',
            RSA.to_text(),
            f"restrict {KEY}",
            KEY,
            f"cert-authority {ED2.to_text()}",
            f"no-such-option {ED2.to_text()}",
        )
    )
    found = AuthorizedKeyList.from_text(text)

    def line(address: str | None) -> int | None:
        entry = found.find(ED, address, 1e9)
        return None if entry is None else entry.line

    assert (line("10.0.0.1"), line("10.0.0.2"), line(None)) == (1, 4, 4)
    assert found.find(ED2, "10.0.0.1", 1e9) is None  # an authority is no key of a user
    assert [entry.line for entry in found.authorities] == [6]


def test_forward_rules() -> None:
    assert ForwardRule("host", 22).allows("HOST", 22)
    assert not ForwardRule("host", 22).allows("host", 23)
    assert not ForwardRule("host", 22).allows("host2", 22)
    assert ForwardRule("host", None).allows("host", 23)
    assert ForwardRule("*", 22).allows("any", 22)
    assert not ForwardRule("h*", 22).allows("host", 22)  # no patterns here
