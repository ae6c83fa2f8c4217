"""Runs cases: one server for each peer and what it is told, many cases at once, a result for each whatever happens."""

from __future__ import annotations

import asyncio
import itertools
import time
import traceback
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Any, Protocol

from interop.model import (
    Case,
    Credentials,
    Engine,
    Expectation,
    Outcome,
    Peer,
    PeerClient,
    PeerServer,
    Result,
    Role,
    Setting,
)
from interop.scenarios import SCENARIOS, ClientPeer, Scenario, ServerPeer, Side, Weight

__all__ = ("Listener", "Runner", "expectation", "first_cause", "missing")

PEERS_AT_ONCE = 8  # servers and client containers that run
HEAVY_AT_ONCE = 2
IDLE_AT_ONCE = 32
LOGINS_AT_ONCE = 3  # at one server
DETAIL_MAX = 300


class Listener(Protocol):
    """Who wants to see how it goes: ``interop.report.Progress``."""

    def started(self, case: Case) -> None: ...
    def finished(self, result: Result) -> None: ...


@dataclass(frozen=True)
class _Group:
    """Cases that share a running peer: they tell it the same."""

    peer: Peer
    role: Role
    settings: Mapping[Setting, str]
    cases: list[Case] = field(default_factory=list)
    gate: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(LOGINS_AT_ONCE))


class Runner:
    """Runs cases against an engine's peers.

    ``jobs``: light cases at once. Cases that wait most of the time, and those that keep a core busy, are
    counted apart.
    """

    def __init__(self, engine: Engine, credentials: Credentials, listener: Listener, jobs: int = 6) -> None:
        self._engine = engine
        self._credentials = credentials
        self._listener = listener
        self._peers = asyncio.Semaphore(PEERS_AT_ONCE)
        self._turns = {
            Weight.LIGHT: asyncio.Semaphore(jobs),
            Weight.HEAVY: asyncio.Semaphore(min(jobs, HEAVY_AT_ONCE)),
            Weight.IDLE: asyncio.Semaphore(IDLE_AT_ONCE),
        }
        self._scenarios = {(s.name, role): s for s in SCENARIOS for role in s.roles}

    async def run(self, peers: Iterable[Peer], cases: Iterable[Case]) -> list[Result]:
        """A result for each case, in their order; the peers are prepared already."""
        wanted = list(cases)
        results: dict[Case, Result] = {}
        async with asyncio.TaskGroup() as group:
            for shared in self._groups(peers, wanted):
                group.create_task(self._run_group(shared, results))
        return [results[case] for case in wanted]

    def _scenario(self, case: Case) -> Scenario:
        return self._scenarios[case.scenario, case.role]

    def _groups(self, peers: Iterable[Peer], cases: Sequence[Case]) -> list[_Group]:
        """Those with most to do first: they take longest."""
        by_name = {peer.name: peer for peer in peers}
        groups: dict[tuple[Any, ...], _Group] = {}
        for case in cases:
            peer = by_name[case.peer]
            settings = self._settings(peer, case)
            told = () if case.role is Role.CLIENT else tuple(sorted(settings.items()))  # a client is told at each start
            key = (case.peer, case.role, told)
            groups.setdefault(key, _Group(peer, case.role, dict(told))).cases.append(case)
        return sorted(groups.values(), key=lambda group: -len(group.cases))

    def _settings(self, peer: Peer, case: Case) -> Mapping[Setting, str]:
        return self._scenario(case).settings(case, peer.roles[case.role])

    async def _run_group(self, group: _Group, results: dict[Case, Result]) -> None:
        async with self._peers:
            began = time.monotonic()
            try:
                async with self._start(group) as end, asyncio.TaskGroup() as tasks:
                    for case in group.cases:
                        tasks.create_task(self._run_case(group, end, case, results))
            except Exception as error:
                # It did not start, or not even its end went well: then what has a result keeps it.
                log = traceback.format_exc()
                for case in group.cases:
                    if case not in results:
                        outcome = Outcome.NOT_STARTED
                        self._finish(group.peer, results, Result(case, outcome, _since(began), _line(error), log))

    def _start(self, group: _Group) -> AbstractAsyncContextManager[PeerServer | PeerClient]:
        if group.role is Role.SERVER:
            return self._engine.serve(group.peer, group.settings)
        return self._engine.client(group.peer)

    def _side(self, group: _Group, end: Any, case: Case) -> Side:
        settings = self._settings(group.peer, case)
        common: Any = {
            "case": case,
            "peer": group.peer,
            "credentials": self._credentials,
            "engine": self._engine,
            "settings": settings,
        }
        if case.role is Role.CLIENT:
            return ClientPeer(client=end, **common)
        return ServerPeer(server=end, gate=group.gate, **common)

    async def _run_case(self, group: _Group, end: Any, case: Case, results: dict[Case, Result]) -> None:
        scenario = self._scenario(case)
        async with self._turns[scenario.weight]:
            self._listener.started(case)
            side = self._side(group, end, case)
            began = time.monotonic()
            outcome, detail, log = Outcome.PASSED, "", ""
            try:
                async with asyncio.timeout(scenario.deadline) as deadline:
                    await scenario.run(side)
            except Exception as error:
                outcome, detail = Outcome.FAILED, _line(error)
                if deadline.expired():
                    detail = f"not done within {scenario.deadline:g} s"
                log = "".join(traceback.format_exception(error)) + await _log_of(side)
            self._finish(group.peer, results, Result(case, outcome, _since(began), detail, log, dict(side.facts)))

    def _finish(self, peer: Peer, results: dict[Case, Result], result: Result) -> None:
        results[result.case] = judged(result, expectation(peer.expected, result.case))
        self._listener.finished(results[result.case])


def missing(peer: Peer, cases: Sequence[Case], reason: str) -> Iterator[Result]:
    """One result for each role of a peer that could not be made ready at all."""
    for role, _ in itertools.groupby(cases, lambda case: case.role):
        yield Result(Case(peer.name, role, "start"), Outcome.NOT_STARTED, 0.0, reason.partition("\n")[0], reason)


# --- judging -------------------------------------------------------------------------------------------


def expectation(expected: Iterable[Expectation], case: Case) -> Expectation | None:
    """The first that fits the case: all it gives must match."""
    kinds = ("scenario", "role", "variant", "kex", "host_key", "cipher", "mac")
    for one in expected:
        if all(getattr(one, kind) in ("", getattr(case, kind)) for kind in kinds):
            return one
    return None


def judged(result: Result, expected: Expectation | None) -> Result:
    """What a result means where a failure was expected."""
    if expected is None or (expected.sometimes and result.outcome is Outcome.PASSED):
        return result
    if result.outcome is Outcome.PASSED:
        detail = f"passed; expected to fail: {expected.reason}"
        return Result(result.case, Outcome.SURPRISE, result.seconds, detail, expected.evidence, result.facts)
    log = f"expected: {expected.evidence}\n{result.detail}\n{result.log}"
    return Result(result.case, Outcome.EXPECTED, result.seconds, expected.reason, log, result.facts)


def first_cause(error: BaseException) -> BaseException:
    """The first of those that a group of tasks raised."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def _line(error: BaseException) -> str:
    error = first_cause(error)
    text = f"{type(error).__name__}: {error}".partition("\n")[0]
    return text if len(text) <= DETAIL_MAX else text[:DETAIL_MAX] + "..."


def _since(began: float) -> float:
    return time.monotonic() - began


async def _log_of(side: Side) -> str:
    """Its log, or why there is none: a failure must not hide behind another one."""
    try:
        async with asyncio.timeout(10.0):
            return "\n" + await side.log()
    except Exception as error:
        return f"\nno log of the peer: {_line(error)}"
