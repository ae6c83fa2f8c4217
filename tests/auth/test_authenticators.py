"""Grants, verdicts and the ready-made authenticators."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable
from dataclasses import FrozenInstanceError, replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sshtransport.auth import (
    PARTIAL_SUCCESS,
    AuthInfo,
    AuthorizedKeys,
    Grant,
    Passwords,
    verdict_of,
)
from sshtransport.errors import KeyFileError, LocalError
from sshtransport.keys import ForwardRule
from tests.support.auth import key

KEY = key("ssh-ed25519").public_key
OTHER = key("ssh-ed25519", 1).public_key
LINE = KEY.to_text()
HERE = AuthInfo(now=time.time(), peer_address="192.0.2.7", peer_port=1234)


class TestVerdict:
    @pytest.mark.parametrize("answer", [None, False, 0, 1, "yes", object(), [True], Grant, NotImplemented])
    def test_everything_else_refuses(self, answer: object) -> None:
        """Known bugs, M 162."""
        assert verdict_of(answer) is None

    def test_acceptance(self) -> None:
        assert verdict_of(True) == Grant()
        grant = Grant(permit_pty=False)
        assert verdict_of(grant) is grant
        assert verdict_of(PARTIAL_SUCCESS) is PARTIAL_SUCCESS


class TestGrant:
    def test_cannot_be_changed(self) -> None:
        environment, rules = {"A": "1"}, [ForwardRule("db", 5432)]
        grant = Grant(environment=environment, permit_open=rules)
        environment["B"] = "2"
        rules.append(ForwardRule("*", None))
        assert grant.environment == {"A": "1"}
        assert grant.permit_open == (ForwardRule("db", 5432),)
        with pytest.raises(FrozenInstanceError):
            grant.permit_pty = False  # type: ignore[misc]
        with pytest.raises(TypeError):
            grant.environment["B"] = "2"  # type: ignore[index]

    def test_forwarding(self) -> None:
        everything = Grant()
        assert everything.allows_open("db", 1)
        assert everything.allows_listen("", 0)
        nothing = Grant(permit_port_forwarding=False, permit_open=[ForwardRule("db", 1)])
        assert not nothing.allows_open("db", 1)
        assert not nothing.allows_listen("", 0)
        some = Grant(permit_open=[ForwardRule("db", 1), ForwardRule("web", None)], permit_listen=())
        assert some.allows_open("db", 1)
        assert not some.allows_open("db", 2)
        assert some.allows_open("web", 2)
        assert not some.allows_open("other", 1)
        assert not some.allows_listen("db", 1)


class TestAuthorizedKeys:
    def test_listed_and_not_listed(self) -> None:
        authenticator = AuthorizedKeys([LINE, "", "# comment"])
        assert authenticator.check_public_key("me", KEY, HERE) == Grant()
        assert authenticator.check_public_key("anybody", KEY, HERE) == Grant()
        assert authenticator.check_public_key("me", OTHER, HERE) is None
        assert AuthorizedKeys([]).check_public_key("me", KEY, HERE) is None

    def test_user_names(self) -> None:
        authenticator = AuthorizedKeys([LINE], usernames=["me"])
        assert authenticator.check_public_key("me", KEY, HERE) == Grant()
        for name in ("you", "", "ME", "me\0"):
            assert authenticator.check_public_key(name, KEY, HERE) is None
        assert AuthorizedKeys([LINE], usernames=[]).check_public_key("me", KEY, HERE) is None
        with pytest.raises(LocalError):
            AuthorizedKeys([LINE], usernames="me")

    def test_options_become_the_grant(self) -> None:
        line = (
            'command="backup --all",environment="A=1",environment="B=2",permitopen="db:5432",permitopen="web:*",'
            f'permitlisten="8080",no-agent-forwarding,no-pty,no-x11-forwarding,no-user-rc {LINE}'
        )
        assert AuthorizedKeys([line]).check_public_key("me", KEY, HERE) == Grant(
            force_command="backup --all",
            permit_pty=False,
            permit_agent_forwarding=False,
            permit_x11_forwarding=False,
            permit_user_rc=False,
            permit_open=(ForwardRule("db", 5432), ForwardRule("web", None)),
            permit_listen=(ForwardRule("*", 8080),),
            environment={"A": "1", "B": "2"},
        )

    def test_restrict(self) -> None:
        grant = AuthorizedKeys([f'restrict,pty,command="" {LINE}']).check_public_key("me", KEY, HERE)
        assert grant == Grant(
            force_command="",
            permit_port_forwarding=False,
            permit_agent_forwarding=False,
            permit_x11_forwarding=False,
            permit_user_rc=False,
        )

    @pytest.mark.parametrize(
        ("pattern", "address", "allowed"),
        [
            ("192.0.2.0/24", "192.0.2.7", True),
            ("192.0.2.0/24", "::ffff:192.0.2.7", True),
            ("192.0.2.0/24", "198.51.100.1", False),
            ("192.0.2.*", "192.0.2.7", True),
            ("*,!192.0.2.7", "192.0.2.7", False),
            ("*,!192.0.2.7", "192.0.2.8", True),
            ("2001:db8::/32", "2001:db8::1", True),
            ("2001:db8::/32", "192.0.2.7", False),
            ("*", None, False),
            ("*", "", False),
            ("*", "/run/socket", False),
            ("*", "unknown", False),
            ("", "192.0.2.7", False),
        ],
    )
    def test_from(self, pattern: str, address: str | None, allowed: bool) -> None:
        """Known bugs, K 145: a peer without an IP address is refused, an empty list matches nothing."""
        authenticator = AuthorizedKeys([f'from="{pattern}" {LINE}'])
        info = AuthInfo(now=HERE.now, peer_address=address)
        assert (authenticator.check_public_key("me", KEY, info) is not None) is allowed

    def test_without_from_any_peer_will_do(self) -> None:
        assert AuthorizedKeys([LINE]).check_public_key("me", KEY, AuthInfo(now=HERE.now)) == Grant()

    def test_expiry(self) -> None:
        authenticator = AuthorizedKeys([f'expiry-time="20010909014641Z" {LINE}'])
        last = AuthInfo(now=1_000_000_000.0)  # 2001-09-09 01:46:40 UTC
        assert authenticator.check_public_key("me", KEY, last) == Grant()
        assert authenticator.check_public_key("me", KEY, replace(last, now=last.now + 1)) is None

    def test_a_later_line_may_match(self) -> None:
        authenticator = AuthorizedKeys([f'from="198.51.100.1" {LINE}', f"no-pty {LINE}"])
        assert authenticator.check_public_key("me", KEY, HERE) == Grant(permit_pty=False)

    @pytest.mark.parametrize(
        "options", ["unknown", "no-such-thing=1", 'from="', 'expiry-time="soon"', "cert-authority", 'command=x"']
    )
    def test_lines_that_are_not_understood_let_nobody_in(self, options: str) -> None:
        assert AuthorizedKeys([f"{options} {LINE}"]).check_public_key("me", KEY, HERE) is None

    def test_skipped_lines_are_told(self, caplog: pytest.LogCaptureFixture) -> None:
        with caplog.at_level(logging.WARNING, "sshtransport"):
            authenticator = AuthorizedKeys([LINE, "unknown-option " + OTHER.to_text()])
        assert [line.line for line in authenticator.skipped] == [2]
        assert "line 2" in caplog.text
        assert authenticator.check_public_key("me", KEY, HERE) == Grant()

    def test_an_entry_is_one_line(self) -> None:
        assert AuthorizedKeys([LINE + "\r\n"]).check_public_key("me", KEY, HERE) == Grant()
        with pytest.raises(KeyFileError) as caught:
            AuthorizedKeys([LINE, f'command="x" {LINE}\n{OTHER.to_text()}'])
        assert caught.value.line == 2

    @pytest.mark.parametrize("as_path", [str, Path])
    def test_file(self, tmp_path: Path, as_path: Callable[[Path], str | Path]) -> None:
        path = tmp_path / "authorized_keys"
        path.write_text(f"no-pty {LINE}\n")
        authenticator = AuthorizedKeys(as_path(path))
        assert authenticator.check_public_key("me", KEY, HERE) == Grant(permit_pty=False)

    @pytest.mark.parametrize("name", ["missing", ".", "a\0b"])
    def test_file_that_cannot_be_read(self, tmp_path: Path, name: str) -> None:
        with pytest.raises(KeyFileError):
            AuthorizedKeys(tmp_path / name)

    def test_change_is_seen(self, tmp_path: Path) -> None:
        """A key is revoked without a restart, even when size and time stay what they were."""
        path = tmp_path / "authorized_keys"
        path.write_text(KEY.to_text())
        authenticator = AuthorizedKeys(path)
        assert authenticator.check_public_key("me", KEY, HERE) == Grant()
        path.write_text(OTHER.to_text())
        assert authenticator.check_public_key("me", KEY, HERE) is None
        assert authenticator.check_public_key("me", OTHER, HERE) == Grant()

    def test_change_of_an_old_file_is_seen(self, tmp_path: Path) -> None:
        path = tmp_path / "authorized_keys"
        path.write_text(KEY.to_text())
        os.utime(path, (1_000_000_000, 1_000_000_000))
        authenticator = AuthorizedKeys(path)
        assert authenticator.check_public_key("me", KEY, HERE) == Grant()
        path.write_text(OTHER.to_text())
        os.utime(path, (1_000_000_000, 1_000_000_000))  # as a copying program does; size and time are the old ones
        assert authenticator.check_public_key("me", KEY, HERE) is None
        assert authenticator.check_public_key("me", OTHER, HERE) == Grant()

    def test_an_unchanged_file_is_read_once(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        path = tmp_path / "authorized_keys"
        path.write_text(LINE)
        os.utime(path, (1_000_000_000, 1_000_000_000))
        authenticator = AuthorizedKeys(path)
        assert authenticator.check_public_key("me", KEY, HERE) == Grant()
        monkeypatch.setattr("sshtransport.auth.authenticators.AuthorizedKeyList", None)
        for _ in range(3):
            assert authenticator.check_public_key("me", KEY, HERE) == Grant()

    def test_missing_file_lets_nobody_in(self, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
        path = tmp_path / "authorized_keys"
        path.write_text(LINE)
        authenticator = AuthorizedKeys(path)
        path.unlink()
        for _ in range(3):
            assert authenticator.check_public_key("me", KEY, HERE) is None
        assert len(caplog.records) == 1
        path.write_text(LINE)
        assert authenticator.check_public_key("me", KEY, HERE) == Grant()
        path.unlink()
        path.mkdir()
        assert authenticator.check_public_key("me", KEY, HERE) is None
        assert len(caplog.records) == 2


class TestPasswords:
    def test_right_and_wrong(self) -> None:
        authenticator = Passwords({"me": "sécret", "you": "other"})
        assert authenticator.check_password("me", "sécret", HERE) is True
        assert authenticator.check_password("you", "other", HERE) is True
        for username, password in (
            ("me", "other"),
            ("me", ""),
            ("me", "sécret\0"),
            ("me", "SÉCRET"),
            ("nobody", "sécret"),
            ("", ""),
            ("me\0", "sécret"),
        ):
            assert authenticator.check_password(username, password, HERE) is False

    def test_same_work_for_an_unknown_user(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Known bugs, I 122: one digest and one comparison of equal lengths, whoever asks."""
        authenticator = Passwords({"me": "secret"})
        calls: list[tuple[int, int]] = []

        def compare(a: bytes, b: bytes) -> bool:
            calls.append((len(a), len(b)))
            return a == b

        monkeypatch.setattr("hmac.compare_digest", compare)
        for username in ("me", "nobody"):
            authenticator.check_password(username, "x" * 100, HERE)
        assert calls == [(32, 32), (32, 32)]

    def test_passwords_are_not_kept(self) -> None:
        authenticator = Passwords({"me": "hunter2"})
        assert "hunter2" not in repr(vars(authenticator))
        assert "hunter2" not in repr(authenticator)

    @pytest.mark.parametrize("password", ["", "\ud800"])
    def test_bad_passwords(self, password: str) -> None:
        with pytest.raises(LocalError):
            Passwords({"me": password})

    def test_strange_bytes(self) -> None:
        authenticator = Passwords({"me": "\udcff"})
        assert authenticator.check_password("me", "\udcff", HERE) is True
        with pytest.raises(LocalError):
            authenticator.check_password("me", "\ud800", HERE)

    @given(st.dictionaries(st.text(st.characters(exclude_categories=["Cs"]), max_size=5), st.text("abc", min_size=1)))
    def test_only_the_own_password(self, passwords: dict[str, str]) -> None:
        authenticator = Passwords(passwords)
        for user in passwords:
            for candidate in passwords.values():
                assert authenticator.check_password(user, candidate, HERE) is (passwords[user] == candidate)


def test_info_does_not_show_the_connection() -> None:
    assert "secret" not in repr(AuthInfo(now=0.0, connection="secret"))
