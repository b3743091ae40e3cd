"""Example plugins, each loaded by a real host; the contract suites run over what they register."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from hermes_agent.compat import import_hook
from hermes_agent.host import Host

EXAMPLES = Path(__file__).parents[1] / "plugins" / "examples"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty home that the environment names."""
    place = tmp_path / "home"
    (place / "plugins").mkdir(parents=True)
    monkeypatch.setenv("HERMES_HOME", str(place))
    for name in ("HERMES_BUNDLED_PLUGINS", "HERMES_DECLARED_CONFIG", "HERMES_SAFE_MODE", "CREDENTIALS_DIRECTORY"):
        monkeypatch.delenv(name, raising=False)
    return place


@pytest.fixture
def served() -> Iterator[None]:
    """Upstream's import names."""
    modules = set(sys.modules)
    import_hook.install()
    yield
    import_hook.uninstall()
    for name in set(sys.modules) - modules:
        if name.partition(".")[0] == "hermes_plugins":
            del sys.modules[name]


@pytest.fixture
def start(home: Path, served: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Host]]:
    """Build the process's host over the home, with the example plugins of these kinds enabled and loaded."""
    hosts: list[Host] = []
    monkeypatch.setattr("hermes_agent.host.graph._current", None)

    def build(*kinds: str, config: str = "") -> Host:
        for kind in kinds:
            shutil.copytree(EXAMPLES / kind, home / "plugins" / kind, ignore=shutil.ignore_patterns("__pycache__"))
        enabled = ", ".join(f"example-{kind.replace('_', '-')}" for kind in kinds)
        (home / "config.yaml").write_text(f"plugins:\n  enabled: [{enabled}]\n{config}")
        host = Host.build(home)
        hosts.append(host)
        host.plugins.discover_and_load()
        return host

    yield build
    for host in hosts:
        host.bridge.close()


@pytest.fixture
def example(start: Callable[..., Host]) -> Callable[[str], Any]:
    """Return the one provider that the example plugin of a kind registers."""

    def load(kind: str, config: str = "") -> Any:
        host = start(kind, config=config)
        assert [record.error for record in host.plugins.records] == [None]
        ((_, provider),) = host.providers[kind].items()
        return provider

    return load
