"""A home to put plugins in, and a real host over it."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hermes_agent import config
from hermes_agent.host import Host

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


@pytest.fixture
def start(home: Path) -> Iterator[Callable[..., Host]]:
    """Build a host over the home with this config, its plugins loaded."""
    hosts: list[Host] = []
    modules = set(sys.modules)

    def build(text: str | None = None, *, enable: tuple[str, ...] = ()) -> Host:
        if text is None:
            text = "plugins:\n  enabled: [" + ", ".join(enable) + "]\n"
        (home / "config.yaml").write_text(textwrap.dedent(text), encoding="utf-8")
        host = Host(home, config.load(home))
        hosts.append(host)
        host.plugins.discover_and_load()
        return host

    yield build
    for host in hosts:
        host.bridge.close()
    for name in set(sys.modules) - modules:
        if name.partition(".")[0] in ("hermes_plugins", "fresh_package"):
            del sys.modules[name]
