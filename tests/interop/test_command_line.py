"""The command line: what is chosen, and what the exit status says."""

from __future__ import annotations

from dataclasses import replace

import pytest

from interop.__main__ import fails, main
from interop.model import Case, Outcome, Result, Role
from interop.peers import load_peers


def lines(capsys: pytest.CaptureFixture[str]) -> list[str]:
    return capsys.readouterr().out.splitlines()


def test_list_names_every_peer_and_its_cases(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", "--scenario", "handshake", "--cases"]) == 0
    shown = lines(capsys)
    peers = [peer for peer in load_peers() if not peer.hosted]
    for peer in peers:
        assert any(line.startswith(f"{peer.name} ") for line in shown)
        for role in peer.roles:
            assert f"{peer.name}/{role}/handshake" in shown


def test_a_folder_names_all_of_its_peers(capsys: pytest.CaptureFixture[str]) -> None:
    chosen = ["list", "--peer", "openssh", "--exclude", "openssh-forky", "--role", "client", "--cases"]
    assert main([*chosen, "--scenario", "login"]) == 0
    cases = [line for line in lines(capsys) if "/login" in line]
    assert {case.split("/")[0] for case in cases} == {"openssh-bullseye", "openssh-bookworm", "openssh-trixie"}
    assert {case.split("/")[1] for case in cases} == {"client"}


def test_one_case(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", "--case", "openssh-trixie/server/login[rsa]", "--cases"]) == 0
    assert [line for line in lines(capsys) if "/" in line] == ["openssh-trixie/server/login[rsa]"]


def test_what_is_on_demand_has_to_be_named(capsys: pytest.CaptureFixture[str]) -> None:
    for words, there in (([], False), (["--scenario", "transcript"], True)):
        assert main(["list", "--peer", "openssh-trixie", "--cases", *words]) == 0
        assert any("/transcript" in line for line in lines(capsys)) is there


@pytest.mark.parametrize(
    "words",
    [["--peer", "nobody"], ["--exclude", "nobody"], ["--scenario", "nothing"], ["--case", "nothing"]],
    ids=lambda words: words[0],
)
def test_names_that_there_are_not(capsys: pytest.CaptureFixture[str], words: list[str]) -> None:
    assert main(["list", *words]) == 2
    assert words[1] in capsys.readouterr().err


def test_nothing_to_run_is_no_success(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--peer", "tinysshd", "--role", "client"]) == 2
    assert "nothing to run" in capsys.readouterr().err


@pytest.mark.parametrize("outcome", Outcome)
def test_what_makes_a_run_fail(outcome: Outcome) -> None:
    peer = replace(load_peers()[0], name="steady", rolling=False)
    peers = [peer, replace(peer, name="rolling", rolling=True)]
    bad = outcome in (Outcome.FAILED, Outcome.SURPRISE, Outcome.NOT_STARTED)
    for name, ci, failed in (
        ("steady", False, bad),
        ("steady", True, bad),
        ("rolling", False, bad),
        ("rolling", True, False),
    ):
        assert fails(Result(Case(name, Role.SERVER, "login"), outcome, 1.0), peers, ci) is failed
