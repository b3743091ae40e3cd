"""A home to put plugins in, and a real host over it."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hermes_agent import config
from hermes_agent.host import Host
from unit.plugins.conftest import home, write_plugin

__all__ = ["home", "start", "write_plugin"]


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
