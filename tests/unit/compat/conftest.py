"""Upstream's names, served for one test."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from hermes_agent.compat import import_hook


@pytest.fixture
def served() -> Iterator[None]:
    """Serve the names, and take them away afterwards."""
    hidden = {n: sys.modules.pop(n) for n in list(sys.modules) if n.partition(".")[0] in import_hook.RESERVED}
    import_hook.install()
    yield
    import_hook.uninstall()
    sys.modules.update(hidden)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty home that the environment names."""
    place = tmp_path / "home"
    place.mkdir()
    monkeypatch.setenv("HERMES_HOME", str(place))
    for name in ("HERMES_DECLARED_CONFIG", "CREDENTIALS_DIRECTORY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HERMES_BUNDLED_PLUGINS", str(tmp_path / "none"))
    return place
