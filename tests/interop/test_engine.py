"""The engines' command lines, the images' names, and who may remove whose containers; no container is started."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from interop.credentials import make_credentials
from interop.engine import (
    ContainerEngine,
    RunMark,
    build_command,
    image_name,
    list_command,
    open_engine,
    process_start,
    remove_command,
    run_command,
)
from interop.host import HostEngine, descendants
from interop.model import Credentials, HarnessError, Login, Peer, Role, Setting, Target
from interop.peers import load_peers
from interop.processes import ChildProgram, run
from interop.setup import may_raise_limits
from interop.starting import arguments, client_variables, identification

MARK = RunMark("0123abcd", 77, 88)
CREDENTIALS = Credentials(Path("/keys"), "secret")


def peer(name: str = "openssh-trixie") -> Peer:
    return next(item for item in load_peers() if item.name == name)


def copied(folder: Path) -> Peer:
    """A peer whose files a test may change."""
    original = peer()
    shutil.copytree(original.folder, folder / "openssh")
    return next(item for item in load_peers(folder) if item.name == original.name)


# --- images ---------------------------------------------------------------------------------------------


def test_an_image_has_a_new_name_when_its_files_or_arguments_change(tmp_path: Path) -> None:
    own = copied(tmp_path)
    names = [image_name(own)]
    assert names == [image_name(peer())], "the folder's place does not matter"
    assert names[0].startswith("sshtransport-interop-openssh-trixie:")
    (own.folder / "server").chmod(0o600)
    names.append(image_name(own))
    with (own.folder / "server").open("a") as file:
        file.write("# more\n")
    names.append(image_name(own))
    (own.folder / "extra").touch()
    names.append(image_name(own))
    names.append(image_name(next(item for item in load_peers(tmp_path) if item.name == "openssh-forky")))
    assert len(set(names)) == len(names)


def test_an_image_keeps_its_name_when_only_peer_toml_changes(tmp_path: Path) -> None:
    own = copied(tmp_path)
    before = image_name(own)
    with (own.folder / "peer.toml").open("a") as file:
        file.write("# a remark\n")
    (own.folder / "__pycache__").mkdir()
    (own.folder / "__pycache__" / "x.pyc").touch()
    assert image_name(own) == before


def test_an_engine_stays_with_the_image_that_it_began_with(tmp_path: Path) -> None:
    own = copied(tmp_path)
    engine = ContainerEngine("podman", CREDENTIALS)
    before = engine._image(own)
    (own.folder / "extra").touch()
    assert engine._image(own) == before != image_name(own)


def test_a_build_asks_no_registry_for_what_is_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://proxy.example.org:3128")
    monkeypatch.delenv("https_proxy", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    gcm = peer("dropbear-gcm")
    command = build_command("podman", gcm, "image:1")
    assert command[:4] == ["podman", "build", "--tag", "image:1"]
    assert command[-1] == str(gcm.folder)
    assert "--pull" not in command
    assert {"SUITE=trixie", "GCM=yes"} < set(command)
    assert not any("proxy" in word for word in command), "Podman passes it on by itself"
    assert "http_proxy=http://proxy.example.org:3128" in build_command("docker", gcm, "image:1")


# --- containers -----------------------------------------------------------------------------------------


def test_a_container_tells_whose_it_is() -> None:
    name = f"sshtransport-interop-{MARK.label}-5"
    command = run_command("docker", MARK, name, "image:1", Path("/keys"), ["--publish", "127.0.0.1::22"], ["./server"])
    assert command[:5] == ["docker", "run", "--detach", "--name", name]
    assert "sshtransport-interop=0123abcd-77-88" in command
    assert "/keys:/interop:ro,z" in command
    assert command[-4:] == ["--publish", "127.0.0.1::22", "image:1", "./server"]
    assert RunMark.of(name) == MARK
    assert list_command("docker")[:3] == ["docker", "ps", "--all"]
    assert remove_command("podman", ["a", "b"]) == ["podman", "rm", "--force", "--time", "0", "a", "b"]
    assert remove_command("docker", ["a"]) == ["docker", "rm", "--force", "a"]


@pytest.mark.parametrize("name", ["web", "sshtransport-interop-x-1-2-3", "sshtransport-interop-0123abcd-77-88", ""])
def test_other_containers_are_nobodys(name: str) -> None:
    assert RunMark.of(name) is None


def test_only_the_dead_runs_of_this_machine_are_dead() -> None:
    ours = RunMark.ours()
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    assert not ours.dead()
    assert RunMark(ours.host, ended.pid, 1).dead()
    assert not RunMark("ffffffff" if ours.host != "ffffffff" else "0" * 8, ended.pid, 1).dead()
    assert process_start(ended.pid) is None
    if Path("/proc/self/stat").exists():
        assert RunMark(ours.host, ours.pid, ours.started + 1).dead(), "the number was given to another process"


# An engine's command line that only keeps a list: names in one file, what it was told in another.
FAKE = """#!{python}
import pathlib, sys
names, told = pathlib.Path({folder!r}, "names"), pathlib.Path({folder!r}, "told")
with told.open("a") as file:
    file.write(" ".join(sys.argv[1:]) + "\\n")
if sys.argv[1] == "ps":
    print(names.read_text())
elif sys.argv[1] == "rm":
    names.write_text("\\n".join(name for name in names.read_text().split() if name not in sys.argv))
elif sys.argv[1] == "run" and "--name" in sys.argv:
    names.write_text(names.read_text() + "\\n" + sys.argv[sys.argv.index("--name") + 1])
    sys.exit(pathlib.Path({folder!r}, "fail").exists())
"""


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    program = tmp_path / "podman"
    program.write_text(FAKE.format(python=sys.executable, folder=str(tmp_path)))
    program.chmod(0o755)
    (tmp_path / "names").write_text("")
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    return tmp_path


def left(fake: Path) -> list[str]:
    return (fake / "names").read_text().split()


async def test_leftovers_of_dead_runs_go_and_nothing_else(fake: Path) -> None:
    ours = RunMark.ours()
    dead = f"sshtransport-interop-{ours.host}-{ours.pid}-{ours.started + 1}-1"
    others = ["web", "sshtransport-interop-ffffffff-1-2-3", f"sshtransport-interop-{ours.label}-9"]
    (fake / "names").write_text("\n".join([*others, dead]))
    said: list[str] = []
    await ContainerEngine("podman", CREDENTIALS).remove_leftovers(said.append)
    assert left(fake) == others
    assert len(said) == 1


async def test_a_container_that_did_not_start_is_removed_all_the_same(fake: Path) -> None:
    (fake / "fail").touch()
    engine = ContainerEngine("podman", CREDENTIALS)
    with pytest.raises(HarnessError, match="exit status 1"):
        async with engine.client(peer()):
            raise AssertionError("not reached")
    assert left(fake) == []
    await engine.close()


async def test_a_cancelled_block_removes_its_container(fake: Path) -> None:
    engine = ContainerEngine("podman", CREDENTIALS)
    entered = asyncio.Event()

    async def use() -> None:
        async with engine.client(peer()):
            entered.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(use())
    await entered.wait()
    assert len(left(fake)) == 1
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()
    assert left(fake) == []
    await engine.close()


async def test_close_removes_what_is_left_of_this_run(fake: Path) -> None:
    engine = ContainerEngine("podman", CREDENTIALS)
    own = f"sshtransport-interop-{RunMark.ours().label}-7"
    (fake / "names").write_text(f"web\n{own}")
    await engine.close()
    assert left(fake) == ["web"]


async def test_the_last_resort_removes_them_without_a_loop(fake: Path) -> None:
    own = f"sshtransport-interop-{RunMark.ours().label}-7"
    (fake / "names").write_text(f"web\n{own}")
    ContainerEngine("podman", CREDENTIALS).remove_now()
    assert left(fake) == ["web"]


async def test_prepare_names_the_peers_that_cannot_run(fake: Path) -> None:
    engine = ContainerEngine("podman", CREDENTIALS)
    failed = await engine.prepare([peer(), peer("openssh-machine")], lambda text: None)
    assert list(failed) == ["openssh-machine"]
    assert "--engine host" in failed["openssh-machine"]
    await engine.close()


async def test_no_engine_is_told_with_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(HarnessError, match="docker info"):
        await open_engine("docker", CREDENTIALS, lambda text: None)


# --- what a peer is told --------------------------------------------------------------------------------


def test_settings_become_arguments() -> None:
    words = arguments(peer(), Role.SERVER, {Setting.CIPHER: "aes256-ctr", Setting.REKEY: "1048576"})
    assert words == ["./server", "-o", "Ciphers=aes256-ctr", "-o", "RekeyLimit=1048576"]
    with pytest.raises(HarnessError, match="putty-trixie as client has no setting cipher"):
        arguments(peer("putty-trixie"), Role.CLIENT, {Setting.CIPHER: "aes256-ctr"})


def test_a_client_is_told_by_its_environment() -> None:
    target = Target(2022, Login.RSA, right_host_key=False)
    assert client_variables(CREDENTIALS, "/interop", "127.0.0.1", "tester", "cat", target) == {
        "INTEROP_FOLDER": "/interop",
        "INTEROP_HOST": "127.0.0.1",
        "INTEROP_PORT": "2022",
        "INTEROP_USER": "tester",
        "INTEROP_PASSWORD": "secret",
        "INTEROP_LOGIN": "rsa",
        "INTEROP_KNOWN_HOSTS": "/interop/known_hosts_wrong",
        "INTEROP_COMMAND": "cat",
    }


def test_credentials_are_what_the_model_says(tmp_path: Path) -> None:
    credentials = make_credentials(tmp_path / "new")
    secret = {f"user_{name}" for name in ("ed25519", "ecdsa", "rsa")}
    for kind in ("host", "wrong"):
        secret |= {f"{kind}_{name}" for name in ("ed25519", "ecdsa256", "ecdsa384", "ecdsa521", "rsa")}
    public = {f"{name}.pub" for name in secret} | {"authorized_keys", "known_hosts", "known_hosts_wrong"}
    modes = {path.name: path.stat().st_mode & 0o777 for path in credentials.folder.iterdir()}
    assert modes == dict.fromkeys(secret, 0o600) | dict.fromkeys(public, 0o644)
    assert len(credentials.path("authorized_keys").read_text().splitlines()) == 3
    assert len(credentials.path("known_hosts").read_text().splitlines()) == 5
    assert len(credentials.password) >= 16


# --- processes and machines -----------------------------------------------------------------------------


async def test_a_failed_program_is_told_with_what_it_wrote() -> None:
    with pytest.raises(HarnessError, match=r"(?s)exit status 3.*why"):
        await run("sh", "-c", "echo why >&2; exit 3")
    assert await run("sh", "-c", "echo out; exit 3", check=False) == (3, "out\n")


async def test_a_cancelled_run_ends_its_program(tmp_path: Path) -> None:
    ready = tmp_path / "pid"
    os.mkfifo(ready)
    task = asyncio.create_task(run("sh", "-c", f"echo $$ > {ready}; exec sleep 60"))
    pid = int(await asyncio.to_thread(ready.read_text))
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()
    assert process_start(pid) is None


async def test_a_killed_program_is_gone_with_its_pipes() -> None:
    program = await ChildProgram.start(["cat"])
    program.stdin.write(b"x")
    assert await program.stdout.read(1) == b"x"
    await program.kill()
    assert await program.wait() == -9
    await program.close()


async def test_descendants_are_found() -> None:
    if not Path("/proc/self/stat").exists():
        pytest.skip("only /proc tells who started whom")
    program = await ChildProgram.start(["sh", "-c", "sleep 60 & echo $!; wait"])
    child = int(await program.stdout.readline())
    assert child in descendants(os.getpid())
    os.kill(child, 9)
    await program.wait()
    await program.close()


async def test_a_silent_port_has_no_identification() -> None:
    server = await asyncio.start_server(lambda reader, writer: writer.close(), "127.0.0.1", 0)
    async with server:
        assert await identification("127.0.0.1", server.sockets[0].getsockname()[1]) == ""


async def test_a_server_is_known_by_its_first_line() -> None:
    async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"SSH-2.0-here\r\n")
        writer.close()

    async with await asyncio.start_server(greet, "127.0.0.1", 0) as server:
        assert await identification("127.0.0.1", server.sockets[0].getsockname()[1]) == "SSH-2.0-here"


async def test_host_runs_no_peers_of_containers() -> None:
    engine = HostEngine(CREDENTIALS)
    failed = await engine.prepare([peer()], lambda text: None)
    assert "container" in failed["openssh-trixie"]


@pytest.mark.parametrize(
    ("line", "may"),
    [("CapEff:\t000001ffffffffff", True), ("CapEff:\t000001fffeffffff", False), ("CapInh:\t0", True)],
)
def test_who_may_raise_limits(tmp_path: Path, line: str, may: bool) -> None:
    status = tmp_path / "status"
    status.write_text(f"Name:\tpython\n{line}\n")
    assert may_raise_limits(status) == may


def test_without_proc_everybody_may(tmp_path: Path) -> None:
    assert may_raise_limits(tmp_path / "status")


async def test_a_kill_without_the_engines_help_is_a_kill_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("interop.processes.KILL_TIMEOUT", 0.01)
    program = await ChildProgram.start(["cat"], kill=lambda: asyncio.Event().wait())
    await program.kill()
    assert await program.wait() == -9
    await program.close()
