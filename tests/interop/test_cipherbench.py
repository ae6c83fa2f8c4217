"""One line in, one line out; and all drivers make the same bytes of the same packets."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Any

import pytest

from interop import cipherbench, cipherdrivers
from interop.cipherbench import Job, Row, main, measure
from interop.cipherdrivers import DRIVERS, Batch, Cut, Objects, Packets, Run
from sshtransport import SSHTransport, TransportConfig, cipher_names
from tests.support.ciphers import Suite, suites, under_test

SMALL = ["bufsize=100", "niter=7", "repeat=1"]


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, dict[str, str]]:
    """Status, first word and fields of the one line."""
    status = main(list(words))
    shown = capsys.readouterr()
    assert shown.err == ""
    (line,) = shown.out.splitlines()
    word, *fields = shlex.split(line)
    return status, word, dict(field.split("=", 1) for field in fields)


def test_one_line_out(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["algname=chacha20-poly1305@openssh.com", "driver=sshtransport", "bufsize=4096", "niter=10", "repeat=2"]
    status, word, fields = run(capsys, *words)
    assert (status, word) == (0, "SUCCESS")
    assert [f"{key}={fields[key]}" for key in ("algname", "driver", "bufsize", "niter", "repeat")] == words
    assert int(fields["enc_time"]) > 0 and int(fields["dec_time"]) > 0
    assert (fields["packets"], fields["fragment_fuzz"]) == ("10", "0")
    assert int(fields["wire"]) == 10 * (4 + 4104 + 16)
    assert len(bytes.fromhex(fields["measurement"])) == 32
    assert "mac" not in fields


def test_a_cipher_that_needs_a_mac_gets_one(capsys: pytest.CaptureFixture[str]) -> None:
    _, _, fields = run(capsys, "algname=aes128-ctr", *SMALL)
    assert fields["mac"] == "hmac-sha2-256-etm@openssh.com"
    _, _, other = run(capsys, "algname=aes128-ctr", "mac=hmac-sha2-512", *SMALL)
    assert other["mac"] == "hmac-sha2-512"
    assert other["measurement"] != fields["measurement"]


@pytest.mark.parametrize("suite", under_test())
@pytest.mark.parametrize("size", [1, 100, 70_000])
def test_all_drivers_agree(suite: Suite, size: int) -> None:
    figures = measure(*(Job(suite, driver, size, 5, repeat=1) for driver in DRIVERS))
    assert len({(each.measurement, each.wire, each.packets) for each in figures}) == 1
    assert figures[0].packets == 5 * (3 if size == 70_000 else 1)  # 32 KiB, 32 KiB, and the rest


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_cuts_change_nothing(seed: int) -> None:
    for suite in suites():
        for size in (1, 90, 5000):
            whole, cut = measure(*(Job(suite, "sshtransport", size, 9, fuzz, repeat=1) for fuzz in (0, seed)))
            assert whole.measurement == cut.measurement


def test_the_stream_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    pieces = []

    class Counting(Packets):
        def opening(self, batch: Batch, frames: list[bytes], cut: Cut) -> Run:
            pieces.append([len(piece) for piece in cut(b"".join(frames))])
            return super().opening(batch, frames, cut)

    monkeypatch.setitem(DRIVERS, "sshtransport", Counting)
    job = cipherbench.make_job({"fragment_fuzz": "5", "bufsize": "1000", "niter": "50", "repeat": "1"})
    measure(job)
    first, second = pieces
    assert first == second and len(first) > 10 and len(set(first)) > 10


def test_other_buffers_make_another_digest() -> None:
    suite = next(suites())
    figures = measure(*(Job(suite, "library", size, niter, repeat=1) for size, niter in ((64, 2), (65, 2), (64, 3))))
    assert len({each.measurement for each in figures}) == 3


@pytest.mark.parametrize(
    ("words", "key", "reason"),
    [
        (["algname=rot13"], "algname", "aes256-gcm@openssh.com, aes128-gcm@openssh.com"),
        (["algname="], "algname", "not one of"),
        (["driver=nobody"], "driver", "not one of sshtransport, objects"),
        (["bufsize=0"], "bufsize", "not a whole number from 1 to 16777216"),
        (["bufsize=-1"], "bufsize", "not a whole number"),
        (["bufsize=1e3"], "bufsize", "not a whole number"),
        (["bufsize=16777217"], "bufsize", "not a whole number"),
        (["niter="], "niter", "not a whole number"),
        (["niter=0"], "niter", "not a whole number"),
        (["repeat=²"], "repeat", "not a whole number"),
        (["fragment_fuzz=x"], "fragment_fuzz", "not a whole number"),
        (["fragment_fuzz=1", "driver=library"], "fragment_fuzz", "library takes whole frames"),
        (["mac=hmac-sha2-256"], "mac", "aes256-gcm@openssh.com takes none"),
        (["algname=aes128-ctr", "mac=hmac-md5"], "mac", "not one of"),
        (["bufsize=1", "bufsize=1"], "bufsize", "given twice"),
        (["size=1"], "size", "not one of algname, driver, mac, bufsize"),
        (["4096"], "4096", "not one of"),
        (["--table", "fragment_fuzz=1"], "fragment_fuzz", "not for tables"),
        (["--table", "driver=library,nobody"], "driver", "not one of"),
        (["--table", "algname=rot13"], "algname", "not one of"),
        (["--plain"], None, "unrecognized arguments: --plain"),
        (["--plot"], None, "argument --plot: expected one argument"),
    ],
)
def test_wrong_arguments(capsys: pytest.CaptureFixture[str], words: list[str], key: str | None, reason: str) -> None:
    status, word, fields = run(capsys, *words)
    assert (status, word) == (2, "ERROR")
    assert fields.get("key") == key
    assert reason in fields["reason"]


def test_a_driver_whose_module_is_missing(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "asyncssh.encryption", None)
    status, word, fields = run(capsys, "driver=asyncssh", *SMALL)
    assert (status, word) == (2, "ERROR")
    assert (fields["key"], fields["value"]) == ("driver", "asyncssh") and "not installed" in fields["reason"]


class Wrong(Objects):
    """Opens its own frames well, and nobody else would: every tag has a byte more."""

    def frames(self, batch: Batch, sealed: list[Any]) -> list[bytes]:
        return [frame + b"!" for frame in sealed]

    def opening(self, batch: Batch, frames: list[bytes], cut: Cut) -> Run:
        return super().opening(batch, [frame[:-1] for frame in frames], cut)


class Forgetful(Objects):
    """Loses the last packet."""

    def payloads(self, opened: list[Any]) -> list[bytes]:
        return super().payloads(opened[:-1])


def test_a_driver_that_is_wrong(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(DRIVERS, "fresh", Forgetful)
    status, word, _ = run(capsys, "driver=fresh", *SMALL)
    assert (status, word) == (1, "ERROR")
    monkeypatch.setitem(DRIVERS, "fresh", Wrong)
    good = run(capsys, *SMALL)[2]["measurement"]
    assert run(capsys, "driver=fresh", *SMALL)[2]["measurement"] != good
    table = ["--table", "algname=aes256-gcm@openssh.com", "driver=objects,fresh", *SMALL]
    assert main(table) == 1
    assert capsys.readouterr().out.startswith("ERROR reason=")


def test_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--table", "bufsize=64", "niter=3", "repeat=1"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if line.startswith("aes128-ctr+hmac-sha2-256-etm")]
    rows = [line.split() for line in lines if line.startswith("     64")]
    assert len(rows) == len(cipher_names())
    assert all(row[-1] == "/100%" for row in rows)  # the library's share of itself


def test_rows() -> None:
    suite = next(suites())
    figures = {
        "sshtransport": cipherbench.Figures(4000, 8000, 2, 0, ""),
        "library": cipherbench.Figures(1000, 4000, 2, 0, ""),
    }
    row = Row(suite, 100, 2, figures)
    assert row.times("sshtransport") == (2000, 4000)
    assert row.rates("sshtransport") == (50, 25)  # MB/s
    assert row.shares("sshtransport") == (0.25, 0.5)


def test_a_plot_without_matplotlib(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    status, word, fields = run(capsys, "--plot", str(tmp_path / "plot.png"), "bufsize=64")
    assert (status, word) == (2, "ERROR")
    assert "sshtransport[bench]" in fields["reason"]


@pytest.mark.parametrize("make", [cipherdrivers.chacha20_source, cipherdrivers.aes_ctr_source])
def test_sources_of_padding(make: Any) -> None:
    source, other = make(), make()
    first, second = source(1024), source(1024)
    assert len(first) == len(second) == 1024
    assert len({first, second, other(1024)}) == 3
    SSHTransport("client", TransportConfig(padding=source)).data_to_send()
