"""Recorded sessions with real peers, repeated byte for byte; and a replay that differs is noticed.

The files: ``python -m interop run --scenario transcript --record DIR``, and a choice of what came out. When
bytes of ours change for a good reason, record them again.
"""

from __future__ import annotations

import asyncio
import dataclasses
from pathlib import Path
from typing import Any

import pytest

from interop.transcripts import Mismatch, Transcript, record_client, record_server, replay
from sshtransport import PublicKey
from sshtransport.errors import SSHError
from tests.support.pair import CUTS, host_key
from tests.support.private_keys import private_key

FOLDER = Path(__file__).parents[1] / "transcripts"
FILES = sorted(FOLDER.glob("*.jsonl"))
HOST = "127.0.0.1"


@pytest.fixture(params=FILES, ids=[path.stem for path in FILES])
def transcript(request: pytest.FixtureRequest) -> Transcript:
    return Transcript.load(request.param)


@pytest.mark.parametrize("cut", CUTS)
def test_a_session_repeats_itself(transcript: Transcript, cut: str) -> None:
    replay(transcript, CUTS[cut])


def test_they_cover_what_there_is_to_cover() -> None:
    transcripts = [Transcript.load(path) for path in FILES]
    used = {kind: {each.config[kind][0] for each in transcripts} for kind in ("kex", "ciphers", "host_key_algorithms")}
    for family in ("mlkem", "curve25519", "ecdh", "diffie-hellman"):
        assert any(name.startswith(family) for name in used["kex"])
    assert used["ciphers"] >= {
        "chacha20-poly1305@openssh.com",
        "aes256-gcm@openssh.com",
        "aes128-gcm@openssh.com",
        "aes128-ctr",
        "aes256-ctr",
    }
    assert {(each.role, each.rekeys > 0) for each in transcripts} == {
        (role, rekeyed) for role in ("client", "server") for rekeyed in (False, True)
    }
    assert sum(path.stat().st_size for path in FILES) < 100 * 1024


def test_a_changed_byte_is_noticed(transcript: Transcript) -> None:
    for number, (_, data) in enumerate(transcript.steps):
        if data:
            steps = list(transcript.steps)
            # The sixth byte is a version, a message's number, or encrypted: padding in the clear nobody checks.
            steps[number] = (steps[number][0], data[:5] + bytes([data[5] ^ 1]) + data[6:])
            # What arrived ends the session, or what left differs.
            with pytest.raises((AssertionError, SSHError)):
                replay(dataclasses.replace(transcript, steps=steps))


def test_other_items_are_noticed(transcript: Transcript) -> None:
    with pytest.raises(Mismatch, match="other payloads"):
        replay(dataclasses.replace(transcript, items="0" * 64))


@pytest.mark.parametrize("rekey", [False, True])
@pytest.mark.parametrize("kex", ["mlkem768x25519-sha256", "ecdh-sha2-nistp521", "diffie-hellman-group14-sha256"])
async def test_recording_both_ends_at_once(tmp_path: Path, kex: str, rekey: bool) -> None:
    """Our own two sides record each other; both come back from a file as they were, and repeat themselves."""
    user, host = private_key("ssh-ed25519"), host_key("ecdsa-sha2-nistp256")
    config = {
        "kex": [kex],
        "host_key_algorithms": ["ecdsa-sha2-nistp256"],
        "ciphers": ["aes256-gcm@openssh.com"],
        "macs": [],
    }
    about: dict[str, Any] = {"username": "tester", "config": config, "peer": "ourselves", "version": "0"}
    user_key = PublicKey.from_text(user.public_key.to_text())
    async with record_server(HOST, seed=b"server", user_key=user_key, host_keys=[host], **about) as (port, recording):
        client = await record_client(HOST, port, seed=b"client", key=user, rekey=rekey, **about)
        server = await asyncio.wait_for(recording, 10)
    for number, each in enumerate((client, server)):
        path = tmp_path / f"{number}.jsonl"
        each.save(path)
        loaded = Transcript.load(path)
        assert dataclasses.replace(loaded, host_keys=tuple(loaded.host_keys)) == dataclasses.replace(
            each, host_keys=tuple(each.host_keys)
        )
        assert loaded.rekeys == rekey
        for cut in CUTS.values():
            replay(loaded, cut)
