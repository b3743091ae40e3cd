"""A home to put plugins in."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

VARIABLES = (
    "HERMES_DECLARED_CONFIG",
    "HERMES_ENABLE_PROJECT_PLUGINS",
    "HERMES_PLUGINS_DEBUG",
    "HERMES_SAFE_MODE",
    "CREDENTIALS_DIRECTORY",
)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty home that the environment names; the working directory is elsewhere and empty."""
    place = tmp_path / "home"
    (place / "plugins").mkdir(parents=True)
    cwd = tmp_path / "cwd"
    cwd.mkdir()
    monkeypatch.chdir(cwd)
    monkeypatch.setenv("HERMES_HOME", str(place))
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HERMES_BUNDLED_PLUGINS", str(tmp_path / "none"))  # those that come with the agent are elsewhere
    return place


@pytest.fixture
def write_plugin(home: Path) -> Callable[..., Path]:
    """Write a directory plugin and return its folder."""

    def write(
        folder: str,
        init: str | None = "def register(ctx): pass\n",
        manifest: str | None = None,
        root: Path | None = None,
    ) -> Path:
        place = (root or home / "plugins") / folder
        place.mkdir(parents=True)
        text = f"name: {folder.rpartition('/')[2]}\n" if manifest is None else manifest
        (place / "plugin.yaml").write_text(textwrap.dedent(text), encoding="utf-8")
        if init is not None:
            (place / "__init__.py").write_text(textwrap.dedent(init), encoding="utf-8")
        return place

    return write
