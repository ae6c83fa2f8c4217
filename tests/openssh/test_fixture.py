"""The OpenSSH fixture itself, proved with OpenSSH at both ends."""

from __future__ import annotations

import asyncio
import hashlib
import os
import socket
from pathlib import Path

import pytest

from tests.support import openssh
from tests.support.openssh import Sshd, keypair, require_sshd, run_ssh, ssh_process, supported, write_known_hosts

pytestmark = pytest.mark.sshd
KEX = ["curve25519-sha256"]  # OpenSSH's default costs it 100 ms


async def test_runs_a_command() -> None:
    async with Sshd(kex=KEX) as sshd:
        result = await run_ssh(
            sshd.port, "cat; echo oops >&2; exit 7", stdin=b"hello", key=sshd.user_key, known_hosts=sshd.known_hosts
        )
    assert (result.returncode, result.stdout, result.stderr) == (7, b"hello", b"oops\n")


async def test_chosen_algorithms_are_the_only_ones() -> None:
    data = os.urandom(2**20)
    with Sshd(
        host_keys=["ecdsa-sha2-nistp384"],
        ciphers=["aes128-ctr"],
        macs=["hmac-sha2-512-etm@openssh.com"],
        kex=["ecdh-sha2-nistp521"],
        options={"RekeyLimit": "256K", "LogLevel": "DEBUG1"},
    ) as sshd:
        result = await run_ssh(sshd.port, "sha256sum", stdin=data, key=sshd.user_key, known_hosts=sshd.known_hosts)
        refused = await run_ssh(
            sshd.port,
            "true",
            key=sshd.user_key,
            known_hosts=sshd.known_hosts,
            ciphers=["aes256-ctr"],
            options={"LogLevel": "INFO"},
        )
        log = sshd.log
    assert result.returncode == 0
    assert result.stdout.split()[0].decode() == hashlib.sha256(data).hexdigest()
    assert refused.returncode == 255
    assert b"no matching cipher found" in refused.stderr
    for text in ("ecdh-sha2-nistp521", "ecdsa-sha2-nistp384", "cipher: aes128-ctr MAC: hmac-sha2-512-etm@openssh.com"):
        assert text in log
    assert log.count("SSH2_MSG_NEWKEYS received") >= 2  # the rekey limit works


async def test_client_options(tmp_path: Path) -> None:
    """An untrusted host key and another login key are refused; the client's own rekey limit is taken."""
    with Sshd(kex=KEX, options={"LogLevel": "DEBUG1"}) as sshd:
        stranger = keypair("ssh-ed25519", "stranger")
        wrong = write_known_hosts(tmp_path / "wrong", sshd.port, [stranger.public])
        untrusted = await run_ssh(sshd.port, "true", key=sshd.user_key, known_hosts=wrong)
        unwelcome = await run_ssh(sshd.port, "true", key=stranger.path, known_hosts=sshd.known_hosts)
        await run_ssh(
            sshd.port,
            "head -c 8000000 /dev/zero",
            key=sshd.user_key,
            known_hosts=sshd.known_hosts,
            rekey_limit="256K",
        )
        log = sshd.log
    assert untrusted.returncode == unwelcome.returncode == 255
    assert b"REMOTE HOST IDENTIFICATION HAS CHANGED" in untrusted.stderr
    assert b"Permission denied" in unwelcome.stderr
    assert log.count("SSH2_MSG_NEWKEYS received") >= 3  # one of the unwelcome, then the first and one more at least


async def test_a_dialogue() -> None:
    async with Sshd(kex=KEX) as sshd:
        async with ssh_process(sshd.port, "cat", key=sshd.user_key, known_hosts=sshd.known_hosts) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(b"one\n")
            assert await process.stdout.readline() == b"one\n"
        assert process.returncode is not None  # killed, and gone
        found = await asyncio.to_thread(sshd.wait_for_log, "Accepted publickey for")
    assert found


def process_state(pid: int) -> str:
    """The letter that Linux has for it."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return "gone"


async def test_stops_with_all_that_runs_below(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    with Sshd(kex=KEX) as sshd:
        command = f"echo $$ > {pid_file}; echo started; exec sleep 600"
        async with ssh_process(sshd.port, command, key=sshd.user_key, known_hosts=sshd.known_hosts) as process:
            assert process.stdout is not None
            assert await process.stdout.readline() == b"started\n"
            sshd.stop()
            await process.wait()
    pid = int(pid_file.read_text())
    if os.path.isdir("/proc/self"):  # killed: it may still get to hear of it, and wait for whoever inherited it
        async with asyncio.timeout(10):
            while process_state(pid) not in ("gone", "Z"):  # noqa: ASYNC110  # of a process there is no Event
                await asyncio.sleep(0.01)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((sshd.host, sshd.port))


def test_a_bad_configuration_is_told_at_once() -> None:
    with pytest.raises(RuntimeError, match="no_such_cipher"):
        Sshd(ciphers=["no_such_cipher"]).start()


def test_a_port_taken_meanwhile_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """The port found free may be gone when sshd binds it."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        busy = taken.getsockname()[1]
        answers = [busy]
        original = openssh.free_port
        monkeypatch.setattr(openssh, "free_port", lambda: answers.pop() if answers else original())
        with Sshd(kex=KEX) as sshd:
            assert sshd.port != busy
            assert answers == []


def test_supported() -> None:
    assert "curve25519-sha256" in supported("kex")
    assert "aes256-gcm@openssh.com" in supported("cipher")


def test_missing_openssh_skips_or_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(openssh, "find_program", lambda name: None)
    monkeypatch.setenv("SSHTRANSPORT_REQUIRE_SSHD", "0")
    with pytest.raises(pytest.skip.Exception, match="openssh-server"):
        require_sshd()
    monkeypatch.setenv("SSHTRANSPORT_REQUIRE_SSHD", "1")
    with pytest.raises(pytest.fail.Exception, match="openssh-server"):
        require_sshd()
