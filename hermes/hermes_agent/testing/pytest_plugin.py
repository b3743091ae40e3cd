"""Fixtures for pytest.

pytest loads this module wherever the package is installed, so it imports the test kit only when a test uses a fixture.
"""

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
    """A scripted model without answers; add them with `hermes_model.say("…")`."""
    from hermes_agent.testing import ScriptedModel  # only if a test uses the fixture

    return ScriptedModel()


@pytest.fixture
def hermes_host(hermes_model: ScriptedModel) -> Iterator[Callable[..., PluginHost]]:
    """A function that opens hosts like `plugin_host`, with `hermes_model`; they are closed after the test."""
    from hermes_agent.testing import plugin_host  # only if a test uses the fixture

    with contextlib.ExitStack() as stack:

        def open_host(*plugins: Any, **options: Any) -> PluginHost:
            options.setdefault("model", hermes_model)
            return stack.enter_context(plugin_host(*plugins, **options))

        yield open_host


@pytest.hookimpl(optionalhook=True)
def pytest_collect_directory(path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    """Collect tests in a directory plugin without importing the plugin.

    The imports of a plugin work only in a host, but by default pytest imports its `__init__.py` as that of a package.
    Versions of pytest before 8 do not have this hook.
    """
    if any((path / name).is_file() for name in ("plugin.yaml", "plugin.yml", "plugin.json")):
        directory: pytest.Collector = pytest.Dir.from_parent(parent, path=path)
        return directory
    return None
