"""known_hosts: who is trusted, what wins, what is written."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sshtransport.errors import KeyFileError, LocalError
from sshtransport.keys import HOST_KEY_ALGORITHMS, HostKeyVerdict, KnownHosts, PublicKey
from sshtransport.keys import known_hosts as module
from sshtransport.keys.known_hosts import KNOWN_HOSTS_FILE_MAX, KNOWN_HOSTS_LINE_MAX
from tests.support.private_keys import private_key

KEYGEN = shutil.which("ssh-keygen") or ""
needs_keygen = pytest.mark.skipif(not KEYGEN, reason="ssh-keygen is not installed")
needs_posix_modes = pytest.mark.skipif(sys.platform == "win32", reason="file modes are POSIX")

ED, ED2 = (private_key("ssh-ed25519", n).public_key for n in (0, 1))
EC = private_key("ecdsa-sha2-nistp256").public_key
RSA = private_key("ssh-rsa").public_key


def line(names: str, key: PublicKey = ED, marker: str = "") -> str:
    return f"{marker} {names} {key.to_text()}\n".lstrip()


def outcome(text: str, key: PublicKey = ED, host: str = "host", port: int = 22) -> str:
    return KnownHosts.from_text(text).lookup(host, port).verdict(key).outcome


# --- names -----------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("names", "host", "port", "expected"),
    [
        ("host", "host", 22, "trusted"),
        ("HOST", "host", 22, "trusted"),
        ("host", "HOST", 22, "trusted"),
        ("other,host", "host", 22, "trusted"),
        ("other", "host", 22, "unknown"),
        ("hos", "host", 22, "unknown"),
        ("h*", "host", 22, "trusted"),
        ("h?st", "host", 22, "trusted"),
        ("h[aeiou]st", "host", 22, "unknown"),
        ("*,!host", "host", 22, "unknown"),
        ("!host,*", "host", 22, "unknown"),
        ("!h*,host", "host", 22, "unknown"),
        ("!other,host", "host", 22, "trusted"),
        ("!other", "host", 22, "unknown"),
        ("[host]:22", "host", 22, "unknown"),
        ("[host]:2222", "host", 2222, "trusted"),
        ("[host]:2222", "host", 22, "unknown"),
        ("[host]:2222", "host", 2223, "unknown"),
        ("[h*]:2222", "host", 2222, "trusted"),
        ("[host]:*", "host", 2222, "trusted"),
        ("::1", "::1", 22, "trusted"),
        ("[::1]:2222", "::1", 2222, "trusted"),
        ("10.0.0.*", "10.0.0.7", 22, "trusted"),
        ("*", "host", 2222, "trusted"),
        (",,host,", "host", 22, "trusted"),
    ],
)
def test_names(names: str, host: str, port: int, expected: str) -> None:
    """known bugs K 141: own matcher, brackets are ordinary characters."""
    assert outcome(line(names), ED, host, port) == expected


#: Made by ssh-keygen -H.
HASHED = {
    "example.org": "|1|NkuDgBNdLUFXpmoqhwKdjqbfTfo=|n6uohikG8247wNMuw5jPLjdYJR4=",
    "[example.org]:2222": "|1|B+aEd0ASjaKP2ufifuG763++7s0=|gx3uJycXmzXWrzkzaF17gIM287U=",
}


def test_hashed_names() -> None:
    plain, with_port = (line(name) for name in HASHED.values())
    assert outcome(plain, ED, "example.org") == outcome(plain, ED, "EXAMPLE.org") == "trusted"
    assert outcome(plain, ED2, "example.org") == "changed"
    assert outcome(plain, ED, "example.com") == "unknown"
    assert outcome(with_port, ED, "example.org", 2222) == "trusted"
    assert outcome(with_port, ED, "example.org") == "unknown"
    assert outcome(line(HASHED["example.org"], ED, "@revoked"), ED, "example.org") == "revoked"


@pytest.mark.parametrize(
    "name", ["|", "|1", "|1|", "|1||", "|1|AAAA", "|2|AAAA|AAAA", "|1|AAAA|AAAA", "|1|!|AAAA", "|1|é|é", "|1|A|B|C"]
)
def test_malformed_hashed_names_are_skipped(name: str) -> None:
    known = KnownHosts.from_text(line(name) + line("host"))
    assert [skipped.line for skipped in known.skipped] == [1]
    assert known.lookup("host").verdict(ED).outcome == "trusted"


@given(st.text(max_size=30), st.integers(1, 65535))
def test_any_host_name_can_be_looked_up(host: str, port: int) -> None:
    text = line(HASHED["example.org"]) + line("a*b,!c") + line("?", ED, "@revoked")
    assert KnownHosts.from_text(text).lookup(host, port).verdict(ED2).outcome in ("unknown", "changed")


# --- verdicts --------------------------------------------------------------------------------------------
def test_several_lines_for_a_host() -> None:
    text = line("host", ED2) + line("host", ED) + line("host", RSA)
    known = KnownHosts.from_text(text)
    for number, key in ((1, ED2), (2, ED), (3, RSA)):
        entry = known.lookup("host").verdict(key).entry
        assert entry is not None and (entry.key, entry.path, entry.line) == (key, None, number)


def test_changed_means_another_key_of_the_same_type() -> None:
    lookup = KnownHosts.from_text("\n" + line("host", RSA) + line("host", ED2)).lookup("host")
    verdict = lookup.verdict(ED)
    assert verdict.outcome == "changed" and verdict.entry is not None and verdict.entry.line == 3
    # Known with other types only: not changed, but not the same as never seen either.
    other = lookup.verdict(EC)
    assert other.outcome == "unknown" and other.entry is not None and other.entry.line == 2
    assert KnownHosts().lookup("host").verdict(ED) == HostKeyVerdict("unknown", None)


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 0, 2), (2, 0, 1)])
def test_revoked_wins_in_any_order(order: tuple[int, ...]) -> None:
    """known bugs K 138: revoked wins over everything, CA or key, before or after."""
    lines = (line("host", ED), line("*", ED, "@revoked"), line("host", RSA))
    lookup = KnownHosts.from_text("".join(lines[i] for i in order)).lookup("host")
    verdict = lookup.verdict(ED)
    assert verdict.outcome == "revoked" and verdict.entry is not None and verdict.entry.line == order.index(1) + 1
    assert lookup.verdict(RSA).outcome == "trusted"
    assert lookup.verdict(ED2).outcome == "changed"


def test_revoked_wins_across_files(tmp_path: Path) -> None:
    """known bugs K 138: in a second file too."""
    good, bad = tmp_path / "good", tmp_path / "bad"
    good.write_text(line("host") + line("[host]:2222"))
    bad.write_text(line("host", ED, "@revoked"))
    for paths in ((good, bad), (bad, good)):
        known = KnownHosts.load(paths)
        for port in (22, 2222):  # what is revoked for the host is so on all its ports
            verdict = known.lookup("host", port).verdict(ED)
            assert verdict.outcome == "revoked" and verdict.entry is not None and verdict.entry.path == str(bad)


def test_a_revoked_authority_is_none() -> None:
    """known bugs K 138."""
    text = line("*", ED, "@cert-authority") + line("*", RSA, "@cert-authority") + line("host", ED, "@revoked")
    lookup = KnownHosts.from_text(text).lookup("host")
    assert [entry.key for entry in lookup.authorities] == [RSA]
    assert [entry.key for entry in lookup.revoked] == [ED]


def test_authorities_say_nothing_about_plain_keys() -> None:
    """known bugs K 139: no trust and no 'changed' from an @cert-authority line."""
    lookup = KnownHosts.from_text(line("host", ED, "@cert-authority")).lookup("host")
    assert lookup.verdict(ED) == lookup.verdict(ED2) == HostKeyVerdict("unknown", None)
    assert lookup.key_types == ()
    both = KnownHosts.from_text(line("host", ED, "@cert-authority") + line("host", ED2)).lookup("host")
    assert both.verdict(ED2).outcome == "trusted"
    assert [entry.line for entry in both.authorities] == [1]


def test_another_port_falls_back_to_the_bare_host() -> None:
    """A matching key of the bare host is trusted; a differing one is not 'changed'."""
    bare = line("host", ED)
    assert outcome(bare, ED, port=2222) == "trusted"
    assert outcome(bare, ED2, port=2222) == "unknown"
    own = bare + line("[host]:2222", ED2)
    assert outcome(own, ED2, port=2222) == "trusted"
    assert outcome(own, ED, port=2222) == "changed"
    assert outcome(own, ED2, port=22) == "changed"
    assert outcome(bare + line("[host]:2222", RSA), ED, port=2222) == "trusted"
    assert outcome(line("[host]:2222"), ED, port=22) == "unknown"


def test_key_types_and_preferred_order() -> None:
    """known bugs K 147: an order that begins with a known type stays."""
    text = line("host", RSA) + line("host", EC) + line("two", RSA) + line("two", ED) + line("three", ED)
    text += line("three", ED, "@revoked")
    known = KnownHosts.from_text(text)
    assert known.lookup("host").key_types == ("ssh-rsa", "ecdsa-sha2-nistp256")
    assert known.lookup("host", 2222).key_types == ("ssh-rsa", "ecdsa-sha2-nistp256")
    assert known.lookup("host").preferred(HOST_KEY_ALGORITHMS) == (
        "ecdsa-sha2-nistp256",
        "rsa-sha2-512",
        "rsa-sha2-256",
        "ssh-ed25519",
        "ecdsa-sha2-nistp384",
        "ecdsa-sha2-nistp521",
    )
    assert known.lookup("two").preferred(HOST_KEY_ALGORITHMS) == HOST_KEY_ALGORITHMS
    assert known.lookup("three").key_types == ()
    for host in ("three", "unknown"):
        assert known.lookup(host).preferred(HOST_KEY_ALGORITHMS) == HOST_KEY_ALGORITHMS
    assert known.lookup("host").preferred(()) == ()


# --- bad lines -------------------------------------------------------------------------------------------
BAD = [
    "host",
    "host ssh-ed25519",
    "host ssh-ed25519 AAAA",
    "host ssh-dss AAAAB3NzaC1kc3M=",
    "@unknown " + line("host").strip(),
    "@revoked @cert-authority " + line("host").strip(),
    "@revoked",
    "@revoked host",
    "host 2048 65537 12345678901234567890",  # protocol 1
    line("host").replace("ssh-ed25519 ", "ssh-rsa ", 1).strip(),
    "host\x0b" + ED.to_text(),
    "x" * (KNOWN_HOSTS_LINE_MAX + 1),
    "x" * KNOWN_HOSTS_LINE_MAX + " " + line("host", ED2).strip(),
]


@pytest.mark.parametrize("bad", BAD, ids=range(len(BAD)))
def test_bad_lines_are_skipped_and_recorded(bad: str) -> None:
    known = KnownHosts.from_text(f"# comment\n\n{bad}\r\n" + line("host", RSA))
    (skipped,) = known.skipped
    assert (skipped.path, skipped.line) == (None, 3) and skipped.reason
    lookup = known.lookup("host")
    assert lookup.verdict(RSA).outcome == "trusted"
    assert lookup.verdict(ED).outcome == lookup.verdict(ED2).outcome == "unknown"


def test_blanks_and_comments() -> None:
    text = f"  host \t ssh-ed25519\t{ED.to_text().split()[1]}  some words \r\n#host x\n   # x\n"
    text += f"@revoked\tother {ED.to_text()}"
    known = KnownHosts.from_text(text)
    assert known.skipped == ()
    assert known.lookup("host").trusted[0].key.comment == "some words"
    assert known.lookup("other").verdict(ED).outcome == "revoked"


@given(st.text(max_size=300), st.sampled_from(["", "@revoked ", "@cert-authority ", "|1|", "host ssh-rsa "]))
def test_random_text(text: str, head: str) -> None:
    known = KnownHosts.from_text(head + text)
    assert known.lookup("host").trusted == ()


# --- files -----------------------------------------------------------------------------------------------
def test_default_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files of the default list that do not exist are left out; the first one is created by add."""
    paths = [tmp_path / "none" / "known_hosts", tmp_path / "second", tmp_path / "second" / "below-a-file"]
    monkeypatch.setattr(module, "KNOWN_HOSTS_FILES", tuple(map(str, paths)))
    paths[1].write_text(line("host"))
    known = KnownHosts.load()
    entry = known.lookup("host").verdict(ED).entry
    assert entry is not None and entry.path == str(paths[1])
    known.add("new", 22, RSA)
    assert paths[0].read_text() == f"new {' '.join(RSA.to_text().split()[:2])}\n"
    assert known.lookup("new").verdict(RSA).outcome == "trusted"
    assert KnownHosts.load().lookup("new").verdict(RSA).outcome == "trusted"


@needs_posix_modes
def test_a_new_file_is_private(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "dot-ssh" / "known_hosts"
    monkeypatch.setattr(module, "KNOWN_HOSTS_FILES", (str(path),))
    KnownHosts.load().add("host", 22, ED)
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700


def test_named_files_must_exist(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text(line("host"))
    for paths in (tmp_path / "none", [path, tmp_path / "none"], str(tmp_path), "none", "a\0b"):
        with pytest.raises(KeyFileError):
            KnownHosts.load(paths)
    for good in (path, str(path), [path], (str(path), path)):
        assert KnownHosts.load(good).lookup("host").verdict(ED).outcome == "trusted"


def test_a_default_file_that_cannot_be_read_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may hold revocations."""
    monkeypatch.setattr(module, "KNOWN_HOSTS_FILES", (str(tmp_path),))
    with pytest.raises(KeyFileError):
        KnownHosts.load()


def test_an_empty_list_trusts_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """known bugs K 141: 'none' never means the default files."""
    path = tmp_path / "known_hosts"
    path.write_text(line("host"))
    monkeypatch.setattr(module, "KNOWN_HOSTS_FILES", (str(path),))
    known = KnownHosts.load(())
    assert known.lookup("host").verdict(ED).outcome == "unknown"
    with pytest.raises(KeyFileError):
        known.add("host", 22, ED)
    with pytest.raises(KeyFileError):
        KnownHosts.from_text("").add("host", 22, ED)


def test_the_size_of_a_file_is_limited(tmp_path: Path) -> None:
    path = tmp_path / "file"
    with path.open("wb") as file:
        file.truncate(KNOWN_HOSTS_FILE_MAX + 1)
    with pytest.raises(KeyFileError):
        KnownHosts.load(path)


# --- add -------------------------------------------------------------------------------------------------
OLD = "# comment\n@unknown marker\nhost ssh-mldsa44-ed25519 AAAA\n\n  odd \xff line\n"


@pytest.mark.parametrize("ending", ["", "\n", "\r\n", "no newline at the end"])
def test_add_leaves_the_rest_as_it_is(ending: str, tmp_path: Path) -> None:
    """known bugs K 142: append-only; comments, markers and unknown types stay, the mode too."""
    path = tmp_path / "file"
    old = (OLD + ending).encode("latin-1")
    path.write_bytes(old)
    path.chmod(0o644)
    known = KnownHosts.load(path)
    known.add("host", 2222, ED)
    known.add("Host", 22, RSA)
    new = path.read_bytes()
    separator = b"\n" if ending == "no newline at the end" else b""
    key, rsa_key = (" ".join(k.to_text().split()[:2]) for k in (ED, RSA))
    assert new == old + separator + f"[host]:2222 {key}\nhost {rsa_key}\n".encode()
    if sys.platform != "win32":
        assert path.stat().st_mode & 0o777 == 0o644
    for source in (known, KnownHosts.load(path)):  # in memory the same as on disk, line numbers too
        entry = source.lookup("host", 2222).verdict(ED).entry
        assert entry is not None and new.split(b"\n")[entry.line - 1].startswith(b"[host]")


def test_add_hashed(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.touch()
    known = KnownHosts.load(path)
    known.add("Example.org", 2222, ED, hashed=True)
    known.add("example.org", 22, ED, True, random=lambda n: bytes(range(n)))
    text = path.read_text()
    assert "xample" not in text and text.count("|1|") == 2
    again = KnownHosts.load(path)
    for port in (22, 2222):
        assert len(again.lookup("example.org", port).trusted) == 1
    assert again.lookup("example.org", 2223).trusted == ()


def test_add_is_not_repeated(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text(line("host"))
    known = KnownHosts.load(path)
    known.add("host", 22, ED)
    assert path.read_text() == line("host")
    known.add("host", 2222, ED)  # trusted by the fall-back only
    known.add("host", 2222, ED)
    assert path.read_text().count("\n") == 2


@pytest.mark.parametrize(
    "host",
    [
        "",
        "a b",
        "a\tb",
        "a\nb",
        "a,b",
        "*",
        "a?",
        "!a",
        "@revoked",
        "#a",
        "|1|a|b",
        "[a]",
        'a"',
        "a\0",
        "a\u2028b",
        "a\ud800",
    ],
)
def test_names_that_no_line_can_hold(host: str, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.touch()
    with pytest.raises(LocalError):
        KnownHosts.load(path).add(host, 22, ED)
    assert path.read_bytes() == b""


@pytest.mark.parametrize("port", [0, -1, 65536])
def test_ports_that_do_not_exist(port: int, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.touch()
    with pytest.raises(LocalError):
        KnownHosts.load(path).add("host", port, ED)


@needs_posix_modes
def test_a_file_that_cannot_be_written(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.touch()
    known = KnownHosts.load(path)
    path.unlink()
    os.mkdir(path)
    with pytest.raises(KeyFileError) as caught:
        known.add("host", 22, ED)
    assert caught.value.path == str(path)
    assert known.lookup("host").trusted == ()


# --- against ssh-keygen ----------------------------------------------------------------------------------
def keygen(*arguments: str) -> str:
    return subprocess.run([KEYGEN, *arguments], check=False, capture_output=True, text=True).stdout


@needs_keygen
def test_ssh_keygen_finds_what_we_add(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.touch()
    known = KnownHosts.load(path)
    names = (
        ("plain.example", 22, False),
        ("hashed.example", 22, True),
        ("plain.example", 2222, False),
        ("::1", 2200, True),
    )
    for host, port, hashed in names:
        known.add(host, port, ED, hashed)
    for number, (host, port, _) in enumerate(names, 1):
        name = host if port == 22 else f"[{host}]:{port}"
        assert f"found: line {number}" in keygen("-F", name, "-f", str(path))


@needs_keygen
def test_we_find_what_ssh_keygen_hashed(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text(line("one.example,10.0.0.1") + line("[two.example]:2222", RSA))
    keygen("-q", "-H", "-f", str(path))
    assert "example" not in path.read_text()
    known = KnownHosts.load(path)
    assert known.lookup("one.example").verdict(ED).outcome == "trusted"
    assert known.lookup("10.0.0.1").verdict(ED).outcome == "trusted"
    assert known.lookup("two.example", 2222).verdict(RSA).outcome == "trusted"
