"""One cipher, one driver, one line: ``python -m interop.cipherbench algname=aes256-gcm@openssh.com bufsize=4096``.

Prints ``SUCCESS key=value ...``, or ``ERROR key=value ...`` and ends with status 2; values are quoted as for a shell.
``measurement`` is a digest of all bytes that a driver made of the same payloads, keys and padding, and of what came
back: two drivers that are right agree on it. ``--table`` and ``--plot`` make many such measurements.
"""

from __future__ import annotations

import argparse
import hashlib
import platform
import random
import shlex
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from sshtransport.ciphers import DEFAULT_MACS, cipher_names, cipher_status, get_cipher, get_mac, mac_names
from sshtransport.constants import MAX_PACKET_SIZE
from tests.support.ciphers import Suite
from tests.support.pair import random_cuts, whole

from .cipherdrivers import DRIVERS, Batches, Cut, Driver, Source, pinned

READ = 256 * 1024  # bytes that are sealed, then opened, in one go: about what one read of a busy socket brings
SIZES = (16, 64, 256, 1024, 4096, 16 * 1024, 64 * 1024, 256 * 1024)
TABLE_BYTES = 2 * 1024 * 1024  # of payload, for each cell of the table ...
TABLE_ITERATIONS = 1000  # ... but not more buffers than this


class BadArgument(Exception):
    """What was asked for cannot be done; the fields say why."""

    def __init__(self, **fields: object) -> None:
        super().__init__(fields)
        self.fields = fields


class Mismatch(Exception):
    """What was opened is not what was sealed."""


@dataclass(frozen=True)
class Job:
    """What is measured: ``niter`` buffers of ``bufsize`` bytes."""

    suite: Suite
    driver: str
    bufsize: int
    niter: int
    fragment_fuzz: int = 0
    repeat: int = 5

    @property
    def buffer(self) -> list[bytes]:
        """The payloads of one buffer: above 32 KiB it takes several packets, as in a channel."""
        data = random.Random(self.bufsize).randbytes(self.bufsize)
        return [data[at : at + MAX_PACKET_SIZE] for at in range(0, self.bufsize, MAX_PACKET_SIZE)]

    def batches(self) -> Iterator[list[bytes]]:
        """All payloads, a read's worth at a time."""
        buffer, many = self.buffer, max(1, READ // self.bufsize)
        for done in range(0, self.niter, many):
            yield buffer * min(many, self.niter - done)

    def make_driver(self, padding: Source | None) -> Driver:
        try:
            return DRIVERS[self.driver](self.suite, padding)
        except ImportError as error:
            raise BadArgument(key="driver", value=self.driver, reason=f"{error.name} is not installed") from None


@dataclass(frozen=True)
class Figures:
    """CPU nanoseconds for all ``niter`` buffers, the least of all repeats; bytes on the wire; the digest."""

    enc_time: int
    dec_time: int
    packets: int
    wire: int
    measurement: str


def measure(*jobs: Job) -> list[Figures]:
    """Each job's figures. One pass with pinned padding gives the digest, and warms up; the passes whose time counts
    are taken in turns, so that what else the machine does meets all alike."""
    digests = [hashlib.sha256() for _ in jobs]
    first = [_pass(job, job.make_driver(pinned), digest) for job, digest in zip(jobs, digests, strict=True)]
    turns = [[_pass(job, job.make_driver(None)) for job in jobs] for _ in range(max(job.repeat for job in jobs))]
    figures = []
    for (_, _, packets, wire), digest, times in zip(first, digests, zip(*turns, strict=True), strict=True):
        enc_time, dec_time = min(each[0] for each in times), min(each[1] for each in times)
        figures.append(Figures(enc_time, dec_time, packets, wire, digest.hexdigest()))
    return figures


def _pass(job: Job, driver: Driver, digest: Any = None) -> tuple[int, int, int, int]:
    """Seal and open everything once: CPU time of both, packets, bytes on the wire."""
    cut: Cut = random_cuts(job.fragment_fuzz, 2 * job.bufsize + 100) if job.fragment_fuzz else whole
    batches = Batches(job.suite)
    enc_time = dec_time = packets = wire = 0
    for payloads in job.batches():
        batch = batches.next(payloads)
        seal = driver.sealing(batch)
        start = time.thread_time_ns()
        sealed = seal()
        enc_time += time.thread_time_ns() - start
        frames = driver.frames(batch, sealed)
        open_all = driver.opening(batch, frames, cut)
        start = time.thread_time_ns()
        opened = open_all()
        dec_time += time.thread_time_ns() - start
        back = driver.payloads(opened)
        if back != batch.payloads:
            raise Mismatch
        packets += len(frames)
        wire += sum(map(len, frames))
        if digest is not None:
            for part in (*frames, *back):
                digest.update(part)
    return enc_time, dec_time, packets, wire


# --- arguments ----------------------------------------------------------------------------------------------

NUMBERS = {"bufsize": (1, 2**24), "niter": (1, 10**7), "fragment_fuzz": (0, 2**32), "repeat": (1, 1000)}
NAMES = {"algname": cipher_names, "driver": lambda: tuple(DRIVERS), "mac": mac_names}
DEFAULTS = {"algname": "aes256-gcm@openssh.com", "driver": "sshtransport", "bufsize": "4096", "niter": "1000"}
TABLE_DRIVERS = "sshtransport,asyncssh,library"


def parse(words: Sequence[str]) -> dict[str, str]:
    """``key=value`` words, by key."""
    given: dict[str, str] = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals or key not in (*NUMBERS, *NAMES):
            raise BadArgument(key=key, reason=f"not one of {', '.join((*NAMES, *NUMBERS))}, each with =value")
        if key in given:
            raise BadArgument(key=key, reason="given twice")
        if key in NUMBERS:
            _number(key, value)
        given[key] = value
    return given


def _number(key: str, value: str) -> int:
    low, high = NUMBERS[key]
    if not (value.isascii() and value.isdecimal() and low <= int(value) <= high):
        raise BadArgument(key=key, value=value, reason=f"not a whole number from {low} to {high}")
    return int(value)


def _name(key: str, value: str) -> str:
    if value not in (known := NAMES[key]()):
        raise BadArgument(key=key, value=value, reason=f"not one of {', '.join(known)}")
    return value


def make_suite(algname: str, mac: str | None) -> Suite:
    """A cipher with the MAC that it needs: the default one, unless another is named."""
    cipher = get_cipher(_name("algname", algname))
    if not (status := cipher_status(algname)):
        raise BadArgument(key="algname", value=algname, reason=status.reason)
    if cipher.needs_mac:
        return Suite(cipher, get_mac(_name("mac", mac or DEFAULT_MACS[0])))
    if mac is not None:
        raise BadArgument(key="mac", value=mac, reason=f"{algname} takes none")
    return Suite(cipher, None)


def make_job(given: dict[str, str]) -> Job:
    """One measurement."""
    text = DEFAULTS | given
    numbers = {key: _number(key, text[key]) for key in NUMBERS if key in text}
    job = Job(make_suite(text["algname"], text.get("mac")), _name("driver", text["driver"]), **numbers)
    if job.fragment_fuzz and not job.make_driver(None).takes_stream:
        raise BadArgument(key="fragment_fuzz", value=job.fragment_fuzz, reason=f"{job.driver} takes whole frames")
    return job


def line(word: str, **fields: object) -> str:
    """``WORD key=value ...``"""
    return " ".join((word, *(f"{key}={shlex.quote(str(value))}" for key, value in fields.items())))


def success(job: Job, figures: Figures) -> str:
    mac = {"mac": job.suite.mac.name} if job.suite.mac else {}
    asked = {"algname": job.suite.cipher.name, **mac, "driver": job.driver, "bufsize": job.bufsize, "niter": job.niter}
    return line("SUCCESS", **asked, fragment_fuzz=job.fragment_fuzz, repeat=job.repeat, **vars(figures))


# --- table and plot ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Row:
    """One cipher, one size: the figures of each driver."""

    suite: Suite
    bufsize: int
    niter: int
    figures: dict[str, Figures]

    def times(self, driver: str) -> tuple[float, float]:
        """Nanoseconds to seal a buffer, and to open it."""
        figures = self.figures[driver]
        return figures.enc_time / self.niter, figures.dec_time / self.niter

    def rates(self, driver: str) -> tuple[float, float]:
        """The same as MB of payload a second."""
        seal, open_ = self.times(driver)
        return self.bufsize / seal * 1e3, self.bufsize / open_ * 1e3

    def shares(self, driver: str) -> tuple[float, float]:
        """How much of the limit is reached: the time of the raw library calls by that of the driver."""
        (seal, open_), (least_seal, least_open) = self.times(driver), self.times("library")
        return least_seal / seal, least_open / open_


def table(given: dict[str, str]) -> Iterator[Row]:
    """All ciphers, or those named, with every size, or the one named. ``driver`` and ``algname`` may be lists."""
    drivers = [_name("driver", name) for name in given.get("driver", TABLE_DRIVERS).split(",")]
    ciphers = given["algname"].split(",") if "algname" in given else cipher_names()
    sizes = [_number("bufsize", given["bufsize"])] if "bufsize" in given else SIZES
    repeat = _number("repeat", given.get("repeat", str(Job.repeat)))
    if "fragment_fuzz" in given:
        raise BadArgument(key="fragment_fuzz", reason="not for tables")
    for cipher in ciphers:
        needs_mac = get_cipher(_name("algname", cipher)).needs_mac
        suite = make_suite(cipher, given.get("mac") if needs_mac else None)
        for size in sizes:
            niter = _number("niter", given.get("niter", str(max(4, min(TABLE_ITERATIONS, TABLE_BYTES // size)))))
            figures = measure(*(Job(suite, name, size, niter, repeat=repeat) for name in drivers))
            if len({each.measurement for each in figures}) != 1:
                raise Mismatch
            yield Row(suite, size, niter, dict(zip(drivers, figures, strict=True)))


def header(row: Row) -> str:
    """What stands above the rows of a cipher."""
    names = "".join(f"  {name:^44}" for name in row.figures).rstrip()
    what = f"{'MB/s':>13}  {'us a buffer':>14}" + (f"  {'of limit':>11}" if "library" in row.figures else "")
    return f"\n{row.suite}: sealed / opened\n{'':7}{names}\n{'bytes':>7}" + f"  {what:44}" * len(row.figures)


def cells(row: Row) -> str:
    """A row of the table."""
    text = f"{row.bufsize:>7}"
    for name in row.figures:
        seal, open_ = (time / 1e3 for time in row.times(name))
        cell = "{:6.0f} / {:4.0f}".format(*row.rates(name)) + f"  {seal:6.2f} / {open_:5.2f}"
        if "library" in row.figures:
            cell += "   {:4.0%} /{:4.0%}".format(*row.shares(name))
        text += f"  {cell:44}"
    return text.rstrip()


def plot(rows: Sequence[Row], path: Path) -> None:
    """Throughput, and the share of the limit that is reached, by size."""
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot

    figure, (left, right) = pyplot.subplots(1, 2, figsize=(13, 5.5), layout="constrained")
    suites = list(dict.fromkeys(row.suite for row in rows))
    styles = {"sshtransport": "-", "asyncssh": ":", "library": "--"}
    markers = "osD^v<>P"
    for number, suite in enumerate(suites):
        mine = [row for row in rows if row.suite == suite]
        sizes = [row.bufsize for row in mine]
        look: dict[str, Any] = {"color": f"C{number}", "marker": markers[number % len(markers)], "markersize": 4}
        for driver in mine[0].figures:
            style = styles.get(driver, "-.")
            opened = [row.rates(driver)[1] for row in mine]
            left.plot(sizes, opened, style, **look, label=str(suite) if driver == next(iter(mine[0].figures)) else None)
            if driver != "library" and "library" in mine[0].figures:
                right.plot(sizes, [row.shares(driver)[1] * 100 for row in mine], style, **look)
    left.set(yscale="log", ylabel="MB of payload opened, a second of CPU", title="Throughput")
    right.set(ylabel="% of the raw library calls", title="Share of the limit reached", ylim=(0, 105))
    for axes in (left, right):
        axes.set_xscale("log", base=2)
        axes.set_xticks([row.bufsize for row in rows if row.suite == suites[0]])
        axes.set_xticklabels([_short(row.bufsize) for row in rows if row.suite == suites[0]])
        axes.set_xlabel("bytes of a buffer; above 32 KiB in several packets")
        axes.grid(alpha=0.3)
    for driver in rows[0].figures:
        right.plot([], [], styles.get(driver, "-."), color="gray", label=driver)
    left.legend(fontsize="small")
    right.legend(fontsize="small")
    figure.suptitle(f"CPython {platform.python_version()}, {platform.machine()}")
    try:
        figure.savefig(path, dpi=110)
    except (OSError, ValueError) as error:  # ValueError: a suffix that it cannot write
        raise BadArgument(key="plot", value=path, reason=error) from None


def _has_matplotlib() -> bool:
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        return False
    return True


def _short(size: int) -> str:
    return f"{size // 1024} Ki" if size >= 1024 else str(size)


# --- command ------------------------------------------------------------------------------------------------


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise BadArgument(reason=message)


def main(arguments: list[str] | None = None) -> int:
    parser = _Parser(prog="python -m interop.cipherbench", description=__doc__.partition("\n")[0])
    parser.add_argument("words", nargs="*", metavar="key=value", help=", ".join((*NAMES, *NUMBERS)))
    parser.add_argument("--table", action="store_true", help="all ciphers and sizes")
    parser.add_argument("--plot", type=Path, metavar="FILE.png", help="the same as a picture; needs matplotlib")
    try:
        options = parser.parse_args(arguments)
        given = parse(options.words)
        if options.plot and not _has_matplotlib():
            raise BadArgument(key="plot", reason="matplotlib is missing: pip install 'sshtransport[bench]'")
        if options.table or options.plot:
            rows: list[Row] = []
            for row in table(given):
                if not rows or rows[-1].suite != row.suite:
                    print(header(row).rstrip())
                print(cells(row), flush=True)
                rows.append(row)
            if options.plot:
                plot(rows, options.plot)
        else:
            job = make_job(given)
            print(success(job, *measure(job)))
    except BadArgument as error:
        print(line("ERROR", **error.fields))
        return 2
    except Mismatch:
        print(line("ERROR", reason="what was opened is not what was sealed, or two drivers differ"))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
