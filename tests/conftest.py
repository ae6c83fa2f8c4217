"""What every test gets: both event loops, hypothesis profiles, a guard against hanging, the sshd marker."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable

import hypothesis
import pytest

from tests.support.hang_guard import (
    pytest_configure,
    pytest_runtest_call,
    pytest_runtest_protocol,
    pytest_unconfigure,
)
from tests.support.openssh import require_sshd

__all__ = ("pytest_configure", "pytest_runtest_call", "pytest_runtest_protocol", "pytest_unconfigure")

LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {"asyncio": asyncio.new_event_loop}
try:
    import uvloop
except ImportError:  # no uvloop on Windows
    pass
else:
    LOOPS["uvloop"] = uvloop.new_event_loop

# On a loaded machine generating an example can take long: that says nothing about our code.
hypothesis.settings.register_profile("local", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow])
hypothesis.settings.register_profile("ci", parent=hypothesis.settings.get_profile("local"), derandomize=True)
hypothesis.settings.load_profile("ci" if os.environ.get("CI") else "local")


def pytest_asyncio_loop_factories() -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Every async test runs once a loop; ``@pytest.mark.asyncio(loop_factories=[...])`` narrows it."""
    return LOOPS


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """Names of tests must be the same in every process of a run: no bytes and long texts, which may hold fresh keys."""
    if isinstance(val, bytes):
        return f"{argname}-{len(val)}-bytes"
    return f"{argname}-{len(val)}-long" if isinstance(val, str) and len(val) > 30 else None


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("sshd"):
        require_sshd()
