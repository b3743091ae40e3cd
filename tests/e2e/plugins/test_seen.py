"""What a listing keeps for the next one: nothing is parsed again that is as it was, and nothing old is shown."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from hermes_agent.app.main import main
from hermes_agent.app.manifest_cache import CACHE_NAME

Write = Callable[..., Path]
Capture = pytest.CaptureFixture[str]
LISTING = """
import sys
from hermes_agent.app.main import main

main(["plugins", "list", "--plain"])
print("yaml" in sys.modules)
"""


def settle(*files: Path) -> None:
    """Let the files look as if nobody had touched them for a while."""
    for file in files:
        os.utime(file, (1_700_000_000, 1_700_000_000))


def listed(capsys: Capture) -> list[str]:
    assert main(["plugins", "list", "--plain"]) == 0
    return [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]


@pytest.fixture
def manifest(home: Path, write_plugin: Write, capsys: Capture) -> Path:
    """The manifest of an enabled plugin that was listed, and with that kept."""
    folder = write_plugin("one", manifest="name: one\nversion: 1.0\n")
    (home / "config.yaml").write_text("plugins:\n  enabled: [one]\n")
    settle(home / "config.yaml", *folder.iterdir())
    assert listed(capsys) == ["enabled user 1.0 one"]
    return folder / "plugin.yaml"


def test_what_is_as_it_was_is_not_parsed_again(manifest: Path) -> None:
    done = subprocess.run([sys.executable, "-c", LISTING], capture_output=True, text=True, timeout=60, check=True)

    assert done.stdout.split() == ["enabled", "user", "1.0", "one", "False"]


def test_a_manifest_of_the_same_size_and_time_is_seen_to_be_another(manifest: Path, capsys: Capture) -> None:
    manifest.write_text("name: one\nversion: 1.1\n")
    settle(manifest)

    assert listed(capsys) == ["enabled user 1.1 one"]


def test_a_source_that_tells_another_kind_is_seen(manifest: Path, capsys: Capture) -> None:
    manifest.with_name("__init__.py").write_text("MemoryProvider\n")

    assert listed(capsys) == ["not enabled user 1.0 one"]


def test_a_changed_config_is_seen(manifest: Path, home: Path, capsys: Capture) -> None:
    (home / "config.yaml").write_text("plugins:\n  disabled: [one]\n")

    assert listed(capsys) == ["disabled user 1.0 one"]


def test_a_plugin_that_is_gone_is_not_listed(manifest: Path, capsys: Capture) -> None:
    for file in manifest.parent.iterdir():
        file.unlink()

    assert listed(capsys) == []


def test_a_file_that_was_written_just_now_is_not_kept(home: Path, write_plugin: Write, capsys: Capture) -> None:
    folder = write_plugin("one")
    later = (folder / "plugin.yaml").stat().st_mtime + 3600  # "just now" for as long as this test may take
    os.utime(folder / "plugin.yaml", (later, later))
    listed(capsys)

    assert "plugins/one" not in (home / CACHE_NAME).read_text()


def test_a_config_that_names_a_variable_is_read_each_time(
    manifest: Path, home: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    (home / "config.yaml").write_text("plugins:\n  enabled: ['${WHICH}']\n")
    settle(home / "config.yaml")
    for value, status in (("one", "enabled"), ("two", "not enabled")):
        monkeypatch.setenv("WHICH", value)
        assert listed(capsys) == [f"{status} user 1.0 one"]


def test_no_secret_of_the_config_is_kept(manifest: Path, home: Path, capsys: Capture) -> None:
    (home / "config.yaml").write_text("plugins: {enabled: [one]}\nmodel: {api_key: hunter2-hunter2}\n")
    settle(home / "config.yaml")

    assert listed(capsys) == ["enabled user 1.0 one"]
    assert "hunter2" not in (home / CACHE_NAME).read_text()


@pytest.mark.parametrize("text", ["", "[", "[]", '{"program": 1, "seen": {}}', '{"seen": 3}', "[" * 100_000])
def test_a_damaged_file_is_not_used(manifest: Path, home: Path, capsys: Capture, text: str) -> None:
    (home / CACHE_NAME).write_text(text)

    assert listed(capsys) == ["enabled user 1.0 one"]


def test_what_another_program_kept_is_not_used(manifest: Path, home: Path, capsys: Capture) -> None:
    document = json.loads((home / CACHE_NAME).read_text())
    document["program"][0]["hermes"] = "0.0.1"
    document["seen"] = {name: [entry[0], ["wrong"]] for name, entry in document["seen"].items()}
    (home / CACHE_NAME).write_text(json.dumps(document))

    assert listed(capsys) == ["enabled user 1.0 one"]


def test_a_home_where_nothing_can_be_kept_is_listed(manifest: Path, home: Path, capsys: Capture) -> None:
    (home / CACHE_NAME).unlink()
    (home / CACHE_NAME).mkdir()

    assert listed(capsys) == ["enabled user 1.0 one"]


def test_what_is_odd_in_a_manifest_is_said_each_time(home: Path, write_plugin: Write, capsys: Capture) -> None:
    folder = write_plugin("one", manifest="name: one\nkind: strange\n")
    settle(*folder.iterdir())
    for _ in range(2):
        assert main(["plugins", "info", "one", "--json"]) == 0
        assert "unknown kind 'strange'" in json.loads(capsys.readouterr().out)["notes"][0]
