"""Every example plugin loads in a host of its own and registers what its kind is about."""

from __future__ import annotations

from pathlib import Path

import pytest

from hermes_agent.testing import plugin_host

EXAMPLES = Path(__file__).parents[2] / "plugins" / "examples"
FOLDERS = sorted(p.name for p in EXAMPLES.iterdir() if (p / "plugin.yaml").is_file())


@pytest.mark.parametrize("name", FOLDERS)
def test_an_example_runs_and_brings_what_it_is_called_after(name: str) -> None:
    with plugin_host(EXAMPLES / name) as host:
        assert host.record.enabled
        assert host.problems == []
        owned = {
            type(store).__name__: store.owned_by(host.keys[0])
            for store in host.host.stores
            if hasattr(store, "owned_by") and store.owned_by(host.keys[0])
        }
        assert owned
        if name in host.providers:
            assert len(host.providers[name]) == 1
    with plugin_host(
        EXAMPLES / name, config={"plugins": {"enabled": []}, "memory": {"provider": ""}}, strict=False
    ) as host:
        assert not host.record.enabled
