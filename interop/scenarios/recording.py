"""Sessions recorded and at once replayed without the peer (``interop/transcripts.py``); kept with ``--record``."""

from __future__ import annotations

import asyncio
import itertools
import os
import random
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import sshtransport
from interop.model import USERNAME, Case, Login, RoleSpec, Setting, Target
from interop.transcripts import COMMAND, DATA, Mismatch, Transcript, record_client, record_server, replay

from .sides import HOST, HOST_KEYS, Check, ClientPeer, ServerPeer, Side, complete, key_at
from .table import Names, Shared, all_kex

__all__ = ("keep_in", "record_with_client", "record_with_server", "recorded", "what_it_needs")

_folder: Path | None = None  # where transcripts are kept; None: nowhere


def keep_in(folder: Path) -> None:
    """From here on, keep every transcript there."""
    global _folder
    folder.mkdir(parents=True, exist_ok=True)
    _folder = folder


def recorded(both: Shared) -> Iterable[Names]:
    """Every cipher, key exchange and host key at least once, in turns; and a rekey by whoever can begin one."""
    kinds = (both.few, both.kex, both.host_keys)
    if not all(kinds):
        return []
    rows = itertools.islice(zip(*map(itertools.cycle, kinds), strict=False), max(map(len, kinds)))
    cases = [{"cipher": cipher, "mac": mac, "kex": kex, "host_key": key} for (cipher, mac), kex, key in rows]
    rekeys = ("rekey-ours", "rekey-theirs") if Setting.REKEY in both.spec.settings else ("rekey-ours",)
    cases += [{**case, "variant": variant} for case, variant in zip(cases, rekeys, strict=False)]
    return cases


def what_it_needs(case: Case, spec: RoleSpec) -> Mapping[Setting, str]:
    """The key exchange of the case, and a rekey after so little that any session reaches it."""
    rekey = {Setting.REKEY: "500"} if case.variant == "rekey-theirs" else {}
    return {**all_kex(case, spec), **rekey}


async def record_with_server(side: ServerPeer) -> None:
    """Our client's session with a server peer."""
    key = key_at(side.credentials.path(f"user_{Login.ED25519}"))
    about = await _about(side)
    async with side.gate:
        transcript = await record_client(side.server.host, side.server.port, key=key, **about)
    _check(side, transcript)


async def record_with_client(side: ClientPeer) -> None:
    """A client peer's session with our server."""
    user_key = key_at(side.credentials.path(f"user_{Login.ED25519}")).public_key
    host_keys = [
        key
        for key in (key_at(side.credentials.path(f"host_{name}")) for name in HOST_KEYS)
        if side.case.host_key in key.public_key.signature_algorithms
    ]
    about = await _about(side)
    async with record_server(HOST, user_key=user_key, host_keys=host_keys, **about) as (port, recording):
        program = await side.client.start(COMMAND, Target(port, Login.ED25519, side.settings))
        try:
            done = await complete(program, DATA)
        finally:
            await program.kill()
        if done.stdout != DATA or done.status:
            raise Check(f"the client went wrong: {done!r:.500}")
        async with asyncio.timeout(10):
            _check(side, await recording)


async def _about(side: Side) -> dict[str, Any]:
    case = side.case
    config = {
        "kex": [case.kex],
        "host_key_algorithms": [case.host_key],
        "ciphers": [case.cipher],
        "macs": [case.mac] if case.mac else list(sshtransport.mac_names()),
    }
    return {
        "seed": os.urandom(16),
        "username": side.server.username if isinstance(side, ServerPeer) else USERNAME,
        "config": config,
        "peer": case.peer,
        "version": await side.engine.version(side.peer),
        "rekey": case.variant == "rekey-ours",
    }


def _check(side: Side, transcript: Transcript) -> None:
    """It repeats itself, however it is cut."""
    case = side.case
    side.facts.update(
        {"kex": case.kex, "host_key": case.host_key, "cipher": case.cipher, "mac": case.mac}
        | {"rekeys": str(transcript.rekeys), "steps": str(len(transcript.steps))}
    )
    # Whether a peer rekeys when told to is judged by the scenario rekey: here a session can be over before.
    if case.variant == "rekey-ours" and not transcript.rekeys:
        raise Check("there was no rekey")
    if _folder is not None:
        transcript.save(_folder / file_name(case))
    try:
        replay(transcript)
        replay(transcript, lambda data: (data[n : n + 1] for n in range(len(data))))
        replay(transcript, _pieces(random.Random(case.id)))
    except Mismatch as error:
        raise Check(f"the replay differs: {error}") from error


def _pieces(chosen: random.Random) -> Any:
    def cut(data: bytes) -> Iterable[bytes]:
        start = 0
        while start < len(data):
            size = chosen.randint(1, 200)
            yield data[start : start + size]
            start += size

    return cut


def file_name(case: Case) -> str:
    """``openssh-trixie-server-rekey-ours-curve25519-sha256-aes256-gcm.jsonl``: what tells transcripts apart."""
    parts = (case.peer, str(case.role), case.variant, case.kex, case.host_key, case.cipher, case.mac)
    return "-".join(part.partition("@")[0] for part in parts if part) + ".jsonl"
