"""`hermes plugins doctor`: why each plugin runs or not, and what is wrong around them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from hermes_agent.app.main import main
from hermes_agent.host import Host

Write = Callable[..., Path]
Start = Callable[..., Host]
Capture = pytest.CaptureFixture[str]


def lines(capsys: Capture) -> dict[str, list[tuple[str, str, str]]]:
    """What `doctor --json` says, by subject."""
    capsys.readouterr()
    main(["plugins", "doctor", "--json"])
    found: dict[str, list[tuple[str, str, str]]] = {}
    for line in json.loads(capsys.readouterr().out):
        found.setdefault(line["subject"], []).append((line["level"], line["text"], line["remedy"]))
    return found


def test_without_trouble_there_is_a_line_each_and_status_0(
    home: Path, write_plugin: Write, start: Start, capsys: Capture
) -> None:
    write_plugin("good")
    write_plugin("idle")
    write_plugin("away")
    start("plugins:\n  enabled: [good]\n  disabled: [away]\n")

    assert main(["plugins", "doctor"]) == 0

    assert capsys.readouterr().out.splitlines() == [
        "○ away  disabled via config",
        "✓ good  enabled, and no failure is recorded",
        "○ idle  not enabled in config (run `hermes plugins enable idle` to activate)",
    ]


def test_everything_that_is_wrong_is_named_and_the_status_is_1(
    home: Path, write_plugin: Write, start: Start, capsys: Capture
) -> None:
    bad = write_plugin("bad", "def register(ctx):\n    raise ValueError('no')\n")
    first = write_plugin("one", manifest="name: twin\n")
    second = write_plugin("two", manifest="name: twin\n")
    write_plugin("broken", manifest="name: [")
    write_plugin("weather", manifest="name: weather\nrequires_env: [WEATHER_API_KEY]\n")
    empty = write_plugin("empty", None)
    write_plugin("deps", manifest="name: deps\npip_dependencies: [not-there-at-all>=2, pyyaml]\n")
    moved = write_plugin("moved")
    text = (
        "plugins:\n  enabled: [bad, weather, empty, deps, moved, idel]\n  disabled: [weahter]\n  entries:\n"
        "    nobody-at-all: {allow_tool_override: true}\n"
    )
    start(text)
    (moved / "__init__.py").write_text("# changed\n")
    plugins = home / "plugins"
    (plugins / "bare").mkdir()
    (plugins / "bare" / "__init__.py").write_text("")
    write_plugin("far/too/deep")

    assert main(["plugins", "doctor"]) == 1
    found = lines(capsys)

    check = f"`hermes plugins check {bad}`"
    assert found["bad"] == [("wrong", f"failed: ValueError: no ({bad}/__init__.py:2)", check)]
    assert found["weather"][0][:2] == ("wrong", "Plugin weather disabled (missing: WEATHER_API_KEY)")
    assert found["weather"][0][2] == "`hermes config set WEATHER_API_KEY VALUE` stores it."
    assert found["empty"][0][:2] == ("wrong", f"No __init__.py in {empty}")
    assert found["deps"][0][0] == "ok"
    assert found["deps"][1][1] == "needs Python packages that are not installed: not-there-at-all>=2"
    assert "pip install 'not-there-at-all>=2'" in found["deps"][1][2]
    assert found["moved"][0][1].startswith("changed since it was granted: __init__.py")
    assert str(second) in found["twin"][1][1]
    assert str(first) in found["twin"][1][1]
    assert "plugin.yaml: line" in found["broken"][0][1]
    assert found["plugins.enabled"] == [
        ("wrong", "unknown plugin `idel`: `hermes plugins list` shows those that are there", "")
    ]
    assert found["plugins.disabled"][0][:2] == ("wrong", "unknown plugin `weahter` (did you mean `weather`?)")
    assert found["plugins.entries"][0][0] == "note"
    assert found[str(plugins / "bare")][0][1] == "has no plugin.yaml"
    assert found[str(plugins / "far")][0][1] == "no plugin.yaml, depth cap reached: far/too/deep has one"


@pytest.mark.parametrize("section", ["plugins: {enabled: p}", "plugins: [p]", "plugins: {entries: {p: {trust: full}}}"])
def test_a_setting_of_the_wrong_type_is_one_finding_among_others(
    home: Path, write_plugin: Write, capsys: Capture, section: str
) -> None:
    write_plugin("p")
    (home / "config.yaml").write_text(f"{section}\n")

    found = lines(capsys)

    assert found["config"][0][0] == "wrong"
    assert "config.yaml" in found["config"][0][1]
    assert "plugins" in " ".join(text for _, text, _ in found["config"])
    assert found["p"][0][0] == "idle"
    assert main(["plugins", "doctor"]) == 1


def test_a_failure_comes_with_the_remedy_that_the_list_shows(
    home: Path, write_plugin: Write, start: Start, capsys: Capture
) -> None:
    write_plugin("bad", "import nothing_of_that_name\ndef register(ctx): pass\n")
    start("plugins: {enabled: [bad]}\n")
    (found,) = lines(capsys)["bad"]
    assert found[0] == "wrong" and found[2].startswith("add the package that provides `nothing_of_that_name`")


def test_a_dev_plugin_is_marked(home: Path, write_plugin: Write, start: Start, capsys: Capture) -> None:
    write_plugin("mine")
    start("plugins:\n  enabled: [mine]\n  entries:\n    mine: {trust: dev}\n")

    assert lines(capsys)["mine"] == [("ok", "dev: its files are not pinned", "")]


def test_safe_mode_is_said(home: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    monkeypatch.setenv("HERMES_SAFE_MODE", "1")

    assert lines(capsys)["HERMES_SAFE_MODE"][0][1] == "is set: no plugin is looked for"
