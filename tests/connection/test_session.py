"""Which requests a server's session takes, and when."""

from __future__ import annotations

import pytest

from sshtransport.connection import (
    Break,
    ChannelRequest,
    Env,
    Exec,
    PtyRequest,
    Shell,
    Signal,
    Subsystem,
    WindowChange,
)
from sshtransport.connection.session import SessionRules
from sshtransport.constants import ENV_MAX, ENV_SIZE_MAX

STARTS: list[ChannelRequest] = [Exec(b"x"), Shell(), Subsystem("sftp")]
BEFORE: list[ChannelRequest] = [Env("A", b"1"), PtyRequest("vt", 80, 24)]
AFTER: list[ChannelRequest] = [WindowChange(80, 24), Signal("INT"), Break(0)]


@pytest.mark.parametrize("start", STARTS)
def test_one_start_and_what_surrounds_it(start: ChannelRequest) -> None:
    rules = SessionRules()
    assert not any(rules.admit(request) for request in AFTER)
    assert all(rules.admit(request) for request in BEFORE)
    assert rules.admit(start)
    assert not any(rules.admit(request) for request in STARTS + BEFORE)
    assert all(rules.admit(request) for request in AFTER)


def test_after_a_refusal_another_may_come() -> None:
    rules = SessionRules()
    for start in STARTS:
        assert rules.admit(start)
        rules.refused(start)
        assert not rules.admit(Signal("INT"))
    assert rules.admit(Env("A", b""))


def test_one_terminal() -> None:
    rules = SessionRules()
    pty = PtyRequest("vt", 80, 24)
    assert rules.admit(pty)
    assert not rules.admit(pty)
    rules.refused(pty)
    assert rules.admit(pty)
    assert rules.admit(Shell())


def test_a_refused_variable_changes_nothing() -> None:
    rules = SessionRules()
    env = Env("A", b"1")
    assert rules.admit(env)
    rules.refused(env)
    assert rules.admit(Shell())


def test_the_number_of_variables() -> None:
    rules = SessionRules()
    assert [rules.admit(Env(f"V{i}", b"")) for i in range(ENV_MAX + 2)] == [True] * ENV_MAX + [False] * 2
    assert rules.admit(Shell())


def test_the_size_of_the_variables() -> None:
    """Names count as the bytes they came as, whatever these are."""
    rules = SessionRules()
    assert not rules.admit(Env("A", bytes(ENV_SIZE_MAX)))
    assert rules.admit(Env("\udcff", bytes(ENV_SIZE_MAX - 3)))
    assert not rules.admit(Env("ö", b"x"))
    assert rules.admit(Env("ö", b""))
    assert not rules.admit(Env("B", b""))
