"""Memory plugins without a manifest: plugin contract §1.14."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from hermes_agent.host import Host

PROVIDER = (
    "from hermes_agent.contracts.memory import MemoryProvider\n"
    "class Notes(MemoryProvider):\n"
    "    name = 'notes'\n"
    "    def is_available(self): return True\n"
    "    def initialize(self, session_id, **kwargs): pass\n"
    "def register(ctx):\n"
    "    ctx.register_memory_provider(Notes())\n"
)


def put(home: Path, folder: str, **files: str) -> None:
    place = home / "plugins" / folder
    place.mkdir(parents=True)
    for name, text in files.items():
        (place / name.replace("__yaml", ".yaml").replace("__py", ".py")).write_text(text)


@pytest.mark.parametrize("folder", ["notes", "memory/notes"])
def test_the_folder_that_the_config_names_loads_without_a_manifest(
    home: Path, start: Callable[..., Host], caplog: pytest.LogCaptureFixture, folder: str
) -> None:
    put(home, folder, __init____py=PROVIDER)

    host = start("memory: {provider: notes}\n")

    assert host.providers.choose("memory", host.config.values).provider.name == "notes"
    assert host.plugins.rejected == []
    assert "memory plugin notes: it has no manifest" in caplog.messages


def test_a_folder_that_is_not_named_or_is_no_memory_stays_as_it_is(home: Path, start: Callable[..., Host]) -> None:
    put(home, "notes", __init____py=PROVIDER)
    put(home, "other", __init____py="def register(ctx): pass\n", plugin__yaml="name: [broken")

    host = start("memory: {provider: other}\n")

    assert host.plugins.records == []
    assert [r.name for r in host.plugins.rejected] == ["other"]
