"""Both login machines against each other."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from sshtransport.auth import (
    AnswersReceived,
    AuthEvent,
    AuthRefused,
    AuthSucceeded,
    BannerReceived,
    KeyAccepted,
    KeyboardInteractiveAborted,
    KeyboardInteractiveRequested,
    KeyPresented,
    KeyQueried,
    NoneRequested,
    PasswordPresented,
    PromptsReceived,
)
from sshtransport.errors import DisconnectReason, ProtocolError
from tests.support.auth import SUCCESS, Login, key

ED25519 = "ssh-ed25519"


def expect_success(login: Login) -> None:
    login.server.accept()
    assert login.one() == AuthSucceeded()
    assert login.client.authenticated
    assert login.server.authenticated
    assert login.server_wire.count(SUCCESS) == 1
    assert [payload[0] for payload in login.client_wire].count(5) == 1


def test_none() -> None:
    login = Login()
    login.client.try_none()
    assert login.one() == NoneRequested("me")
    login.server.refuse()
    assert login.one() == AuthRefused(("publickey", "keyboard-interactive", "password"), False)
    login.client.try_none()
    login.pump()
    expect_success(login)


@pytest.mark.parametrize(
    "algorithm",
    [ED25519, "ecdsa-sha2-nistp256", "ecdsa-sha2-nistp384", "ecdsa-sha2-nistp521", "rsa-sha2-512", "rsa-sha2-256"],
)
@pytest.mark.parametrize("ask_first", [True, False])
def test_publickey(algorithm: str, ask_first: bool) -> None:
    private = key("ssh-rsa" if algorithm.startswith("rsa") else algorithm)
    login = Login()
    if ask_first:
        login.client.query_key(private.public_key, algorithm)
        assert login.one() == KeyQueried("me", private.public_key, algorithm)
        login.server.key_ok()
        assert login.one() == KeyAccepted(algorithm, private.public_key.blob)
    login.client.try_key(private, algorithm)
    assert login.one() == KeyPresented("me", private.public_key, algorithm)
    expect_success(login)


def test_password() -> None:
    login = Login()
    login.client.try_password("wrong")
    assert login.one() == PasswordPresented("me", "wrong")
    login.server.refuse()
    assert isinstance(login.one(), AuthRefused)
    login.client.try_password("pässword\0")
    assert login.one() == PasswordPresented("me", "pässword\0")
    expect_success(login)


def test_password_change_is_refused() -> None:
    login = Login()
    login.client.change_password("old", "new")
    assert login.one() == AuthRefused(("publickey", "keyboard-interactive", "password"), False)


def test_keyboard_interactive() -> None:
    login = Login()
    login.client.try_keyboard_interactive()
    assert login.one() == KeyboardInteractiveRequested("me", ())
    login.server.ask("Login", "Two\nlines", [("Password: ", False), ("Code: ", True)])
    assert login.one() == PromptsReceived("Login", "Two\nlines", (("Password: ", False), ("Code: ", True)))
    login.client.answer(["secret", "123"])
    assert login.one() == AnswersReceived(("secret", "123"))
    login.server.ask("", "Almost there", [])
    assert login.one() == PromptsReceived("", "Almost there", ())
    login.client.answer([])
    assert login.one() == AnswersReceived(())
    expect_success(login)


def test_keyboard_interactive_left_for_a_key() -> None:
    login = Login()
    login.client.try_keyboard_interactive()
    login.pump()
    login.server.ask("", "", [("?", False)])
    login.pump()
    login.client.try_key(key(ED25519), ED25519)
    assert login.one() == KeyboardInteractiveAborted()
    assert login.server.next_event() == KeyPresented("me", key(ED25519).public_key, ED25519)
    expect_success(login)


def test_banner() -> None:
    login = Login()
    login.server.banner("Hello,\nworld")
    assert login.one() == BannerReceived("Hello,\r\nworld", "Hello,\nworld")
    login.client.try_none()
    login.pump()
    login.server.banner("Again")
    login.server.accept()
    assert login.pump() == [BannerReceived("Again", "Again"), AuthSucceeded()]


def test_publickey_and_password() -> None:
    """Known bugs, I 121: partial success on both sides."""
    login = Login({"publickey", "password"})
    login.client.try_key(key(ED25519), ED25519)
    login.pump()
    login.server.partial()
    assert login.one() == AuthRefused(("password",), True)
    login.client.try_password("right")
    assert login.one() == PasswordPresented("me", "right")
    assert login.server.completed == ("publickey",)
    expect_success(login)


def test_many_keys_then_a_password() -> None:
    """Known bugs, I 116 and I 117."""
    login = Login()
    for number in range(12):
        public = key(ED25519, number).public_key
        login.client.query_key(public, ED25519)
        assert login.one() == KeyQueried("me", public, ED25519)
        login.server.refuse()
        assert isinstance(login.one(), AuthRefused)
    login.client.try_password("right")
    login.pump()
    expect_success(login)


def test_the_last_failure() -> None:
    """Known bugs, I 121: nothing is sent, so that DISCONNECT is all the client sees."""
    login = Login(max_tries=2)
    login.client.try_password("wrong")
    login.pump()
    login.server.refuse()
    login.pump()
    login.client.try_password("wrong")
    login.pump()
    sent = len(login.server_wire)
    with pytest.raises(ProtocolError) as caught:
        login.server.refuse()
    assert caught.value.reason is DisconnectReason.NO_MORE_AUTH_METHODS_AVAILABLE
    assert login.pump() == []
    assert len(login.server_wire) == sent
    assert login.client.busy


ATTEMPTS: dict[str, tuple[Callable[[Login], None], type[AuthEvent]]] = {
    "none": (lambda login: login.client.try_none(), NoneRequested),
    "query": (lambda login: login.client.query_key(key(ED25519).public_key, ED25519), KeyQueried),
    "key": (lambda login: login.client.try_key(key(ED25519), ED25519), KeyPresented),
    "password": (lambda login: login.client.try_password("x"), PasswordPresented),
    "keyboard": (lambda login: login.client.try_keyboard_interactive(), KeyboardInteractiveRequested),
}


@pytest.mark.parametrize("attempt", ATTEMPTS)
def test_each_attempt_is_judged_once(attempt: str) -> None:
    """One event an attempt, one answer an event, and nobody is in before accept()."""
    login = Login()
    act, kind = ATTEMPTS[attempt]
    for _ in range(3):
        before = len(login.server_wire)
        act(login)
        assert isinstance(login.one(), kind)
        assert not login.server.authenticated
        login.server.refuse()
        assert isinstance(login.one(), AuthRefused)
        assert len(login.server_wire) == before + 1
        assert not login.client.authenticated
