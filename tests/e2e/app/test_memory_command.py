"""`hermes memory`: choosing a provider, giving it what it needs, and switching it off."""

from __future__ import annotations

import io
import json
import os
from pathlib import Path

import pytest

from hermes_agent.app.main import main
from hermes_agent.config import load


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    place = tmp_path / "home"
    place.mkdir()
    monkeypatch.setattr(os, "environ", {**os.environ, "HERMES_HOME": str(place)})
    for name in ("HTTP_MEMORY_URL", "HTTP_MEMORY_KEY", "HERMES_BUNDLED_PLUGINS"):
        os.environ.pop(name, None)
    return place


def run(capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[int, str]:
    status = main(["memory", *argv])
    captured = capsys.readouterr()
    return status, captured.out + captured.err


def test_a_provider_is_chosen_looked_at_and_switched_off(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "provider: none\nthere are: http-memory, notebook\n" in run(capsys, "status")[1]

    status, said = run(capsys, "setup", "notebook", "--set", "recall_count=3")
    assert (status, load(home).get("memory.provider")) == (0, "notebook"), said
    assert json.loads((home / "notebook.json").read_text())["recall_count"] == 3

    report = json.loads(run(capsys, "status", "--json")[1])
    assert (report["provider"], report["plugin"], report["available"]) == ("notebook", "memory/notebook", True)
    assert report["notes"] == {"MEMORY.md": "0% — 0/2,200 chars", "USER.md": "0% — 0/1,375 chars"}

    assert "notebook is not used any more" in run(capsys, "off")[1]
    assert load(home).get("memory.provider") == ""
    assert run(capsys, "off") == (0, "No memory provider is used.\n")


def test_secrets_go_to_the_env_file_and_are_not_printed(
    home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("k-4711\n"))
    status, said = run(capsys, "setup", "http-memory", "--set", "url=http://127.0.0.1:9", "--set", "api_key=-")
    assert status == 0 and "k-4711" not in said
    assert "HTTP_MEMORY_KEY=k-4711" in (home / ".env").read_text()
    assert oct((home / ".env").stat().st_mode & 0o777) == "0o600"
    assert "k-4711" not in (home / "http-memory.json").read_text() + (home / "config.yaml").read_text()


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (("gone",), "there is no memory provider 'gone'; these are: http-memory, notebook"),
        ((), "which memory provider?"),
        (("http-memory",), "needs url: Address of the service"),
        (("notebook", "--set", "colour=red"), "has no setting 'colour'; its settings: recall_count"),
        (("notebook", "--set", "colour"), "expected KEY=VALUE"),
    ],
)
def test_what_goes_wrong_is_told_and_changes_nothing(
    home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, argv: tuple[str, ...], said: str
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(""))
    status, text = run(capsys, "setup", *argv)
    assert status != 0 and said in text
    assert load(home).get("memory.provider") == ""


def test_one_that_does_not_load_is_not_chosen(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = home / "plugins" / "broken"
    folder.mkdir(parents=True)
    (folder / "plugin.yaml").write_text("name: broken\nkind: exclusive\n")
    (folder / "__init__.py").write_text("raise RuntimeError('no')\n")

    status, said = run(capsys, "setup", "broken")

    assert status != 0 and "was not loaded" in said and load(home).get("memory.provider") == ""
