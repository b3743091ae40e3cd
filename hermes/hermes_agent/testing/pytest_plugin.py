"""Fixtures for pytest, there wherever this package is installed; nothing of it is imported until one is used."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from hermes_agent.testing import PluginHost, ScriptedModel

__all__ = ["hermes_host", "hermes_model", "pytest_collect_directory"]


@pytest.fixture
def hermes_model() -> ScriptedModel:
    """A model without answers yet: `hermes_model.say("…")`."""
    from hermes_agent.testing import ScriptedModel  # only for who uses the fixture

    return ScriptedModel()


@pytest.fixture
def hermes_host(hermes_model: ScriptedModel) -> Iterator[Callable[..., PluginHost]]:
    """Open hosts as `plugin_host` does, with `hermes_model`; they are closed after the test."""
    from hermes_agent.testing import plugin_host  # only for who uses the fixture

    with contextlib.ExitStack() as stack:

        def open_host(*plugins: Any, **options: Any) -> PluginHost:
            options.setdefault("model", hermes_model)
            return stack.enter_context(plugin_host(*plugins, **options))

        yield open_host


@pytest.hookimpl(optionalhook=True)
def pytest_collect_directory(path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    """Look for tests in a directory plugin without importing it: what it imports is there in a host alone.

    Without this pytest takes `__init__.py` for that of a package. pytest before 8 has no such hook.
    """
    if any((path / name).is_file() for name in ("plugin.yaml", "plugin.yml")):
        directory: pytest.Collector = pytest.Dir.from_parent(parent, path=path)
        return directory
    return None
