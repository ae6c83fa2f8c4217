"""``__all__`` of every public module: there, complete, and true."""

from __future__ import annotations

import ast
import importlib
from collections import Counter
from pathlib import Path

import pytest

from tests.support.layers import read_sources

REPOSITORY = Path(__file__).parent.parent


def _is_public(path: str) -> bool:
    parts = path.removesuffix(".py").removesuffix("/__init__").split("/")
    # constants.py is nothing but public names: a list of them would say each thing twice.
    return parts[-1] != "constants" and not any(part.startswith("_") for part in parts)


SOURCES = {path: text for path, text in read_sources(REPOSITORY).items() if _is_public(path)}


def declared(text: str) -> list[str]:
    """The public names that a module's own text makes at its top level, sorted, imports apart."""
    names: list[str] = []
    for node in _top_level(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.append(node.name)
        elif isinstance(node, ast.Assign):
            leaves = [leaf for target in node.targets for leaf in ast.walk(target)]
            names += [leaf.id for leaf in leaves if isinstance(leaf, ast.Name) and isinstance(leaf.ctx, ast.Store)]
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            names.append(node.target.id)
    return sorted(name for name in set(names) if not name.startswith("_"))


def _top_level(node: ast.AST) -> list[ast.AST]:
    """The statements of a module, those under if, try and with included."""
    found: list[ast.AST] = []
    for child in ast.iter_child_nodes(node):
        found.append(child)
        if isinstance(child, ast.If | ast.Try | ast.With | ast.ExceptHandler | ast.For | ast.While):
            found += _top_level(child)
    return found


def complaints(name: str, exported: object, text: str, present: set[str]) -> list[str]:
    """What is wrong with a module's ``__all__``, given its text and the names it has once imported."""
    if exported is None:
        return [f"{name} has no __all__"]
    if not isinstance(exported, tuple | list):
        return [f"{name}.__all__ is neither tuple nor list"]
    found = [f"{name}.__all__ names {n}, which does not exist" for n in exported if n not in present]
    found += [f"{name}.__all__ names {n} {times} times" for n, times in Counter(exported).items() if times > 1]
    found += [f"{name}.__all__ names the private {n}" for n in exported if n.startswith("_") and n != "__version__"]
    found += [f"{name}.{n} is public and not in __all__" for n in declared(text) if n not in exported]
    return found


@pytest.mark.parametrize("path", SOURCES)
def test_all(path: str) -> None:
    name = path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    module = importlib.import_module(name)
    found = complaints(name, getattr(module, "__all__", None), SOURCES[path], set(dir(module)))
    assert not found, "\n".join(found)


def test_the_check_sees_what_it_should() -> None:
    text = """
from os import path
A = B = 1
(C, _d), E = x
F: int = 2
def g(): local = 1
class H: inner = 1
_private = 3
try:
    I = 1
except ImportError:
    J = 2
K.attribute = 1
async def m(): ...
if x:
    def n(): ...
for o in x: ...
"""
    assert declared(text) == ["A", "B", "C", "E", "F", "H", "I", "J", "g", "m", "n"]
    assert complaints("m", None, "", set()) == ["m has no __all__"]
    assert complaints("m", "abc", "", set()) == ["m.__all__ is neither tuple nor list"]
    assert complaints("m", ("A", "A", "_b", "C"), "A = 1\nD = 1", {"A", "_b", "D"}) == [
        "m.__all__ names C, which does not exist",
        "m.__all__ names A 2 times",
        "m.__all__ names the private _b",
        "m.D is public and not in __all__",
    ]
    assert complaints("m", ("A", "__version__"), "A = 1", {"A", "__version__"}) == []
