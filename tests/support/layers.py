"""The floors of the house (design section 1) and a checker for imports that break them."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

ROOT = "sshtransport"

# A name stands for itself and all below it, unless a longer one is there too.
FLOORS: Mapping[str, int] = {
    "errors": 0,
    "constants": 0,
    "wire": 1,
    "events": 1,
    "sink": 1,
    "ident": 2,
    "messages": 2,
    "ciphers.base": 2,
    "ciphers": 3,
    "keys": 3,
    "kex": 3,
    "config": 4,
    "negotiation": 4,
    "packets": 4,
    "gates": 5,
    "exchange": 5,
    "outbox": 5,
    "keying": 6,
    "readings": 6,
    "transport": 6,
    "auth": 7,
    "connection": 7,
    "ciphers.speed": 8,  # reads a clock
    "asyncio": 8,
    "contrib": 9,
    "__init__": 9,
    "__main__": 9,
}

# Floors 0 to 7 do no input or output, read no clock and start nothing: whoever uses them does.
SANS_IO_TOP = 7
NOT_SANS_IO = frozenset(
    [
        *("asyncio", "concurrent", "multiprocessing", "sched", "select", "selectors", "signal", "socket"),
        *("socketserver", "ssl", "subprocess", "threading", "time"),
    ]
)
MAY_IMPORT_ASYNCIO = ("asyncio", "__main__")
DEPENDENCIES = frozenset({"cryptography", "bcrypt"})  # pyproject.toml: everything else is an extra
MAX_LINES = 620

Sources = Mapping[str, str]  # path below the repository -> text


def read_sources(repository: Path) -> dict[str, str]:
    """All modules of the package."""
    paths = sorted((repository / ROOT).rglob("*.py"))
    return {path.relative_to(repository).as_posix(): path.read_text(encoding="utf-8") for path in paths}


def module_name(path: str) -> str:
    """``sshtransport/kex/dh.py`` -> ``kex.dh``; the package's own ``__init__.py`` -> ``__init__``."""
    parts = path.removesuffix(".py").split("/")[1:]
    if parts[-1] == "__init__" and len(parts) > 1:
        parts.pop()
    return ".".join(parts)


def floor_of(module: str) -> int | None:
    """The floor of a module, or None for one that has no place in the house."""
    while module:
        if module in FLOORS:
            return FLOORS[module]
        module = module.rpartition(".")[0]
    return None


def violations(sources: Sources) -> list[str]:
    """What breaks the rules, a line each: ``path:line: what``."""
    modules = {module_name(path) for path in sources}
    found = []
    for path, text in sources.items():
        module = module_name(path)
        if floor_of(module) is None:
            found.append(f"{path}:1: {module} has no floor (design section 1)")
            continue
        if (lines := len(text.splitlines())) > MAX_LINES:
            found.append(f"{path}:{lines}: more than {MAX_LINES} lines")
        for line, target, lazy in _imports(path, text, modules):
            if (complaint := _judge(module, target, lazy)) is not None:
                found.append(f"{path}:{line}: {module} {complaint}")
    return found


def _judge(module: str, target: str, lazy: bool) -> str | None:
    own = floor_of(module)
    assert own is not None
    top = target.partition(".")[0]
    if top != ROOT:
        if top == "asyncio" and module.partition(".")[0] not in MAY_IMPORT_ASYNCIO:
            return "imports asyncio"
        if own <= SANS_IO_TOP and top in NOT_SANS_IO:
            return f"imports {top}, and is sans-IO"
        if top not in sys.stdlib_module_names and top not in DEPENDENCIES and not lazy:
            return f"imports {top} when it is imported itself"
        return None
    inner = target.removeprefix(ROOT).lstrip(".") or "__init__"
    floor = floor_of(inner)
    if floor is None:
        return f"imports {inner}, which has no floor"
    if floor > own:
        return f"(floor {own}) imports {inner} (floor {floor})"
    folder, other = module.partition(".")[0], inner.partition(".")[0]
    if floor == own and folder != other and _is_folder(folder) and _is_folder(other):
        return f"imports {inner}, its neighbour on floor {own}"
    return None


def _is_folder(name: str) -> bool:
    return name in ("ciphers", "keys", "kex", "auth", "connection")


def _imports(path: str, text: str, modules: set[str]) -> Iterator[tuple[int, str, bool]]:
    """Each import of a module: its line, the full name of what it imports, whether it waits in a function."""
    package = path.split("/")[:-1]
    tree = ast.parse(text, path)
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    inside = {id(node) for function in functions for node in ast.walk(function)}
    typing_only = {id(node) for block in ast.walk(tree) if _is_type_checking(block) for node in ast.walk(block)}
    for node in ast.walk(tree):
        lazy = id(node) in inside or id(node) in typing_only
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name, lazy
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            source = ".".join([*base, *([node.module] if node.module else [])])
            for alias in node.names:
                # "from .kex import dh" names a module, "from .kex import make_kex" something in one.
                full = f"{source}.{alias.name}"
                yield node.lineno, full if full.removeprefix(f"{ROOT}.") in modules else source, lazy


def _is_type_checking(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and ast.unparse(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING")
