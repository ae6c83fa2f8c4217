"""What the run of the test suite in a container carries in; no container is started."""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest

from interop.suite.__main__ import ROOT, download_command, pack, published_vectors, requirements


def test_the_requirements_are_those_of_the_project() -> None:
    names = {name.partition(">=")[0] for name in requirements()}
    assert {"cryptography", "bcrypt", "pytest", "pytest-xdist", "hypothesis"} <= names


def test_wheels_are_fetched_for_the_other_python() -> None:
    command = download_command("3.13", Path("/wheels"), ["bcrypt>=4"])
    assert command[-1] == "bcrypt>=4"
    assert {"--python-version=3.13", "--only-binary=:all:", "--dest=/wheels"} < set(command)
    assert any(word.startswith("--platform=manylinux_2_28_") for word in command)
    assert not any(word.startswith(("--index-url", "http")) for word in command), "pip's own settings say where"


def test_the_vectors_are_those_of_this_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SSHTRANSPORT_VECTORS", raising=False)
    assert published_vectors() is None
    monkeypatch.setenv("SSHTRANSPORT_VECTORS", "vectors")
    assert published_vectors() == Path("vectors").absolute()


def test_the_checkout_goes_in_without_what_git_ignores(tmp_path: Path) -> None:
    if not (ROOT / ".git").exists():
        pytest.skip("not a checkout: git does not tell what belongs to it")
    pack(tmp_path / "checkout.tar")
    with tarfile.open(tmp_path / "checkout.tar") as archive:
        names = archive.getnames()
    assert {"pyproject.toml", "sshtransport/__init__.py", "interop/suite/Containerfile"} <= set(names)
    assert not any(name.startswith((".venv", "build/")) or "__pycache__" in name for name in names)
