"""Try sshtransport against other SSH implementations: ``python -m interop run``, ``python -m interop list``."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import importlib
import platform
import signal
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path

import sshtransport
from interop.credentials import make_credentials
from interop.engine import open_engine
from interop.model import BAD, Case, Credentials, Engine, HarnessError, Peer, Result, Role
from interop.peers import load_peers
from interop.report import Progress, print_summary, write_reports
from interop.runner import Runner, missing
from interop.scenarios import SCENARIOS, plan
from interop.scenarios.recording import keep_in

FAILED, UNUSABLE = 1, 2  # exit statuses


def arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m interop", description=__doc__.partition(":")[0] + ".")
    commands = parser.add_subparsers(dest="what", required=True)
    choice = argparse.ArgumentParser(add_help=False)
    choice.add_argument("--engine", choices=("auto", "podman", "docker", "host"), default="auto")
    choice.add_argument(
        "--peer", nargs="+", action="extend", metavar="NAME", help="only these; a folder's name: all of it"
    )
    choice.add_argument("--exclude", nargs="+", action="extend", default=[], metavar="NAME", help="not these")
    choice.add_argument("--role", type=Role, choices=tuple(Role), help="only what the peer is: server or client")
    choice.add_argument("--scenario", nargs="+", action="extend", metavar="NAME", help="only these")
    choice.add_argument("--case", nargs="+", action="extend", metavar="ID", help="only these cases")
    choice.add_argument("--full", action="store_true", help="every combination instead of every pair")
    run = commands.add_parser("run", parents=[choice], help="run the cases; exit status 0 when all is as it should be")
    run.add_argument("--report", type=Path, metavar="DIR", help="write index.html, junit.xml and results.json there")
    run.add_argument(
        "--record", type=Path, metavar="DIR", help="run the scenario transcript, and keep its sessions there"
    )
    run.add_argument("--jobs", type=int, default=6, metavar="N", help="light cases at once (default 6)")
    run.add_argument("--ci", action="store_true", help="peers of a rolling release do not change the exit status")
    run.add_argument("--loop", choices=("asyncio", "uvloop"), default="asyncio", help="the event loop of our side")
    listing = commands.add_parser("list", parents=[choice], help="show peers and scenarios")
    listing.add_argument("--cases", action="store_true", help="and every case")
    return parser


# --- what to run ---------------------------------------------------------------------------------------


def _choose(options: argparse.Namespace) -> tuple[list[Peer], list[Case]]:
    """The peers and cases that the options name. HarnessError for a name that there is not."""
    hosted = options.engine == "host"
    peers = load_peers()
    _check_names("peer", [*(options.peer or []), *options.exclude], {name for peer in peers for name in _names(peer)})
    if getattr(options, "record", None) and not options.scenario:
        options.scenario = ["transcript"]
    _check_names("scenario", options.scenario or [], {scenario.name for scenario in SCENARIOS})
    chosen = [
        peer
        for peer in peers
        if peer.hosted is hosted
        and (options.peer is None or _names(peer) & set(options.peer))
        and not _names(peer) & set(options.exclude)
    ]
    scenarios = [s for s in SCENARIOS if (s.name in options.scenario if options.scenario else not s.on_demand)]
    roles = [options.role] if options.role else list(Role)
    cases = [case for peer in chosen for case in plan(peer, scenarios, roles, options.full)]
    if options.case:
        _check_names("case", options.case, {case.id for case in cases})
        cases = [case for case in cases if case.id in options.case]
    if not cases:
        raise HarnessError("nothing to run: no peer of this engine has what was asked for")
    names = {case.peer for case in cases}
    return [peer for peer in chosen if peer.name in names], cases


def _names(peer: Peer) -> set[str]:
    return {peer.name, peer.folder.name}


def _check_names(what: str, names: Sequence[str], known: set[str]) -> None:
    for name in names:
        if name not in known:
            raise HarnessError(
                f"no {what} {name!r}; there are: {', '.join(sorted(known)) if len(known) < 80 else '...'}"
            )


def _list(options: argparse.Namespace) -> int:
    peers, cases = _choose(options)
    for peer in peers:
        roles = {role: sum(case.peer == peer.name and case.role is role for case in cases) for role in peer.roles}
        print(
            f"{peer.name:20} {peer.title}: " + ", ".join(f"{number} cases as {role}" for role, number in roles.items())
        )
    print()
    for name in dict.fromkeys(scenario.name for scenario in SCENARIOS):
        number = sum(case.scenario == name for case in cases)
        print(f"{name:20} {number} cases")
    if options.cases:
        print()
        for case in cases:
            print(case.id)
    return 0


# --- a run ---------------------------------------------------------------------------------------------


async def _run(options: argparse.Namespace) -> int:
    _end_in_order()
    peers, cases = _choose(options)
    if options.record:
        keep_in(options.record)
    began = time.monotonic()
    with Progress(len(cases)) as progress, tempfile.TemporaryDirectory(prefix="interop-") as scratch:
        credentials = make_credentials(Path(scratch) / "credentials")
        async with _engine(options.engine, credentials, progress.say) as engine:
            failed = await engine.prepare(peers, progress.say)
            facts = await _facts(engine, [peer for peer in peers if peer.name not in failed])
            progress.say(f"{len(peers)} peers are ready after {time.monotonic() - began:.0f} s")
            results: list[Result] = []
            for peer in peers:
                if peer.name in failed:
                    results += missing(peer, [c for c in cases if c.peer == peer.name], failed[peer.name])
            for result in results:
                progress.finished(result)
            runner = Runner(engine, credentials, progress, options.jobs)
            results += await runner.run(peers, [case for case in cases if case.peer not in failed])
    facts["seconds"] = f"{time.monotonic() - began:.0f}"
    print_summary(results, facts)
    if options.report:
        write_reports(options.report, results, facts)
        print(f"report: {options.report / 'index.html'}")
    return FAILED if any(fails(result, peers, options.ci) for result in results) else 0


@contextlib.asynccontextmanager
async def _engine(name: str, credentials: Credentials, say: Callable[[str], None]) -> AsyncIterator[Engine]:
    engine = await open_engine(name, credentials, say)
    try:
        yield engine
    finally:
        await engine.close()


async def _facts(engine: Engine, peers: Sequence[Peer]) -> dict[str, str]:
    facts = {"engine": engine.name, "python": platform.python_version(), "sshtransport": sshtransport.__version__}
    facts["loop"] = type(asyncio.get_running_loop()).__module__.partition(".")[0]
    versions = await asyncio.gather(*(engine.version(peer) for peer in peers))
    return facts | {peer.name: version for peer, version in zip(peers, versions, strict=True)}


def fails(result: Result, peers: Sequence[Peer], ci: bool) -> bool:
    """Whether a result makes the run fail."""
    rolling = {peer.name for peer in peers if peer.rolling}
    return result.outcome in BAD and not (ci and result.case.peer in rolling)


def _loop_factory(name: str) -> Callable[[], asyncio.AbstractEventLoop]:
    if name == "asyncio":
        return asyncio.new_event_loop
    try:
        factory: Callable[[], asyncio.AbstractEventLoop] = importlib.import_module("uvloop").new_event_loop
    except ImportError:
        raise HarnessError("uvloop is not installed") from None
    return factory


def _end_in_order() -> None:
    """SIGTERM and Ctrl-C remove what was started; Ctrl-C also where the shell that started us had it ignored."""
    task = asyncio.current_task()
    assert task is not None
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)


def main(words: Sequence[str] | None = None) -> int:
    options = arguments().parse_args(words)
    try:
        if options.what == "list":
            return _list(options)
        with asyncio.Runner(loop_factory=_loop_factory(options.loop)) as runner:
            return runner.run(_run(options))
    except HarnessError as error:
        print(f"interop: {error}", file=sys.stderr)
        return UNUSABLE
    except asyncio.CancelledError:
        print("interop: interrupted", file=sys.stderr)
        return 128 + signal.SIGINT


if __name__ == "__main__":
    sys.exit(main())
