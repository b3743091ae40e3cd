"""Memory plugins without a manifest: plugin contract §1.14."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from hermes_agent.app.main import main
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


@pytest.mark.parametrize("folder", ["notes", "memory/notes"])
def test_one_without_a_manifest_is_listed_chosen_and_granted_like_any_other(
    home: Path, capsys: pytest.CaptureFixture[str], folder: str
) -> None:
    put(home, folder, __init____py=PROVIDER)
    put(home, "plain", __init____py="def register(ctx): pass\n")

    def said(*line: str) -> str:
        main(list(line))
        captured = capsys.readouterr()
        return captured.out + captured.err

    assert said("plugins", "list", "--plain").split() == ["not", "enabled", "user", "notes"]
    [row] = json.loads(said("plugins", "list", "--json"))
    assert (row["kind"], row["path"]) == ("exclusive", str(home / "plugins" / folder))
    assert "activate via <category>.provider config" in said("plugins", "info", "notes")
    doctor = said("plugins", "doctor")
    assert "plain" in doctor and "notes" in doctor and f"plugins/{folder}" not in doctor
    assert "there are: notes" in said("memory", "status")

    assert "memory.provider is notes" in said("memory", "setup", "notes")
    assert said("plugins", "list", "--plain").split()[:2] == ["enabled", "user"]
    assert "provider: notes, available" in said("memory", "status")

    (home / "plugins" / folder / "__init__.py").write_text(PROVIDER + "# mine\n")
    assert said("plugins", "list", "--plain").split()[:2] == ["changed", "user"]
    assert "notes is granted" in said("plugins", "grant", "notes", "--yes")
    assert "provider: notes, available" in said("memory", "status")
