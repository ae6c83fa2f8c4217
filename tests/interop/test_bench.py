"""Tables, ratios and verdicts of the bench, and small real measurements, whose outcome is not judged."""

from __future__ import annotations

import asyncio
import importlib.util
import json
from pathlib import Path

import pytest

from interop.bench import __main__ as command
from interop.bench import blocking, figures, lines, servers, streams
from interop.bench.figures import Results, Verdict
from interop.bench.jobs import Job, Measured
from interop.bench.lines import LIMIT, LINES, OURS, PEERS, Line, Scale
from interop.bench.worker import CONNECTS, measure
from interop.model import HarnessError
from tests.support.openssh import USERNAME, require_sshd

LINE = Line("some work", "download", ("sshtransport", "asyncssh", "ssh"), {"asyncssh": 0.5, "ssh": 0.9})
JOB = Job("nowhere", "me", lines.GCM, 100, 0)


def results(**seconds: list[float]) -> Results:
    return {peer: [Measured(cpu=each, wall=1.0) for each in every] for peer, every in seconds.items()}


# --- the tables ---------------------------------------------------------------------------------------


def test_names_are_told_apart() -> None:
    assert len({line.name for line in LINES}) == len(LINES)


@pytest.mark.parametrize("line", LINES, ids=lambda line: line.name)
def test_every_peer_of_a_line_can_do_it(line: Line) -> None:
    assert set(line.peers) <= {*PEERS, LIMIT}
    assert set(line.budgets) <= set(line.peers)
    assert OURS[0] in line.peers
    for peer in line.peers:
        if line.work == "import" or peer in ("ssh", "node-ssh2", LIMIT):
            continue
        if peer in blocking.CLIENTS:
            assert line.work in {*blocking.WORKS, "connect"}
        elif line.work in servers.WORKS:
            assert peer in servers.STARTS or (peer == "sshd" and line.work in servers.HANDLERS)
        else:
            assert peer in CONNECTS and line.work in streams.ON_A_CONNECTION | streams.WITH_CONNECTIONS


@pytest.mark.parametrize("quick", [True, False])
@pytest.mark.parametrize("line", LINES, ids=lambda line: line.name)
def test_every_line_has_something_to_do(line: Line, quick: bool) -> None:
    scale = Scale(1, 1, 1, quick)
    assert line.mib(scale) + line.count(scale) > 0


@pytest.mark.parametrize("direction", ["download", "upload", "serve download", "serve upload"])
def test_transfers_are_promised_beside_asyncssh(direction: str) -> None:
    assert {lines.GCM, lines.CHACHA} <= {line.cipher for line in LINES if line.work == direction if line.budgets}


# --- ratios and verdicts ------------------------------------------------------------------------------


def test_ratios_are_taken_round_by_round() -> None:
    # The machine was ten times as slow in the last round: medians of each alone would say 2 / 4 or worse.
    taken = results(sshtransport=[1.0, 2.0, 10.0], asyncssh=[4.0, 4.0, 40.0])
    assert figures.ratio(LINE, taken["sshtransport"], taken["asyncssh"]) == 0.25


@pytest.mark.parametrize(("mine", "its", "ratio"), [(0.0, 0.0, 1.0), (1.0, 0.0, float("inf")), (0.0, 1.0, 0.0)])
def test_a_clock_that_stood_still_is_no_error(mine: float, its: float, ratio: float) -> None:
    assert figures.ratio(LINE, [Measured(cpu=mine)], [Measured(cpu=its)]) == ratio


def test_the_metric_counts() -> None:
    memory = Line("m", "idle", OURS, metric="memory")
    assert figures.values(memory, [Measured(cpu=1, wall=2, memory=3)]) == [3]


def test_verdicts() -> None:
    taken = results(sshtransport=[1.0], asyncssh=[2.0], ssh=[1.0])
    assert figures.verdicts(LINE, taken) == [
        Verdict("some work", "sshtransport", "asyncssh", 0.5, 0.5),
        Verdict("some work", "sshtransport", "ssh", 1.0, 0.9),
    ]
    assert [verdict.holds for verdict in figures.verdicts(LINE, taken)] == [True, False]
    assert [str(verdict) for verdict in figures.verdicts(LINE, taken)] == [
        "sshtransport / asyncssh: 0.50 (budget 0.50) ok",
        "sshtransport / ssh: 1.00 (budget 0.90) OVER",
    ]


def test_no_verdict_about_who_was_not_there() -> None:
    assert figures.verdicts(LINE, results(sshtransport=[1.0])) == []
    assert figures.verdicts(LINE, results(asyncssh=[1.0], ssh=[1.0])) == []


def test_a_block() -> None:
    first, ours, other = list(figures.text(LINE, JOB, results(sshtransport=[1.0, 3.0, 2.0], asyncssh=[4.0] * 3)))[:3]
    assert first.startswith("some work (100 MiB); CPU seconds")
    assert " ".join(ours.split()) == "sshtransport 2.000 [1.000 - 3.000] 1.000 50 MiB/s"
    assert " ".join(other.split()) == "asyncssh 4.000 [4.000 - 4.000] 1.000 0.50 25 MiB/s"


def test_the_limit_of_a_window() -> None:
    assert command.limit(JOB).wall == pytest.approx(100 / 2 * 0.1)  # 2 MiB every 100 ms


# --- the command --------------------------------------------------------------------------------------


def test_an_absent_peer_is_named_and_left_out(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for peer in PEERS:
        monkeypatch.setitem(PEERS, peer, lambda: False)
    assert command.main(["--work", "import"]) == 0
    shown = capsys.readouterr().out
    assert all(f"absent: {peer}\n" in shown for peer in PEERS)
    assert "0 of 0 budgets hold" in shown


def test_without_sshd_its_lines_are_left_out(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command, "find_program", lambda name: None)
    assert command.main(["--work", "aes256-gcm"]) == 0
    shown = capsys.readouterr().out
    assert "download, aes256-gcm: left out, needs sshd" in shown
    assert "server: download, aes256-gcm: left out, needs ssh" in shown


def test_who_failed_is_named_with_the_reason(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    async def failing(peer: str, work: str, job: Job) -> Measured:
        if peer == "asyncssh":
            raise HarnessError("it fell over")
        return Measured(cpu=1.0)

    monkeypatch.setattr(command, "measure", failing)
    file = tmp_path / "figures.json"
    assert command.main(["--work", "import", "--peers", "sshtransport", "asyncssh", "--json", str(file)]) == 1
    assert "asyncssh: FAILED\nit fell over" in capsys.readouterr().out
    assert json.loads(file.read_text())["failures"] == {"import": {"asyncssh": "it fell over"}}


@pytest.mark.parametrize("words", [["--peers", "nobody"], ["--mib", "0"], ["--rounds", "-1"]])
def test_what_cannot_be_measured_is_refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit:
        command.main(words)
    assert exit.value.code == 2
    assert "error:" in capsys.readouterr().err


def test_a_plot_without_matplotlib_is_refused_at_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(SystemExit):
        command.main(["--plot", "figures.png", "--work", "import"])
    assert "sshtransport[bench]" in capsys.readouterr().err


# --- real measurements --------------------------------------------------------------------------------


@pytest.mark.sshd
def test_a_tiny_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    require_sshd()
    file = tmp_path / "figures.json"
    words = ["--mib", "1", "--count", "2", "--rounds", "1", "--peers", "sshtransport", "--json", str(file)]
    words += ["--work", "download, chacha20", "connect,"]
    assert command.main(words) == 0, capsys.readouterr().out
    told = json.loads(file.read_text())
    assert set(told["figures"]) == {
        "download, chacha20-poly1305",
        "server: download, chacha20-poly1305",
        "connect, login, close",
    }
    assert all(one["cpu"] > 0 for got in told["figures"].values() for one in got["sshtransport"])
    assert told["failures"] == {} and told["verdicts"] == []


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="resident memory is read from /proc")
def test_idle_connections_take_memory() -> None:
    with command.key_folder() as folder:
        figures = asyncio.run(measure("sshtransport", "idle", Job(str(folder), USERNAME, lines.GCM, 0, 5)))
    assert (figures.cpu, figures.wall) == (0, 0)


def test_a_measurement_that_fails_says_why() -> None:
    with pytest.raises(HarnessError, match="KeyError: 'no such work'"):
        asyncio.run(measure("sshtransport", "no such work", JOB))
