"""What people are shown: plugin contract §1.12, §13 row 15; and the note of the last load."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from hermes_agent.app.plugins.home import InstalledPlugins, installed_reports
from hermes_agent.config.home import PLUGINS_STATE
from hermes_agent.host import Host
from hermes_agent.plugins.plugin_state import last_load, read_state, report_loaded, report_rejected

Write = Callable[..., Path]
Start = Callable[..., Host]

TWO_TOOLS = """
def register(ctx):
    for name in ("calculate", "unit_convert"):
        ctx.register_tool(name, "calculator", {"name": name}, lambda args, **kw: "1")
    ctx.register_hook("post_tool_call", lambda **kw: None)
"""


def test_plugins_prints_the_form_of_the_guide(write_plugin: Write, start: Start) -> None:
    write_plugin("calculator", TWO_TOOLS, manifest="name: calculator\nversion: 1.0.0")

    host = start(enable=("calculator",))

    command = host.commands.find("plugins", "terminal")
    assert command is not None
    assert command.handler("") == "Plugins (1):\n  ✓ calculator v1.0.0 (2 tools, 1 hooks)"
    assert host.plugins.banner_lines() == ["calculator: calculate, unit_convert"]
    assert host.plugins.hints() == []


def test_every_state_has_its_line(home: Path, write_plugin: Write, start: Start, tmp_path: Path) -> None:
    write_plugin("back", root=tmp_path / "bundle", manifest="name: back\nkind: backend")
    bad = write_plugin("bad", "def register(ctx):\n    raise ValueError('no')\n", manifest="name: bad\nversion: 2")
    write_plugin("idle")
    write_plugin("twin-a", manifest="name: twin")
    write_plugin("twin-b", manifest="name: twin")
    write_plugin("weather", manifest="name: weather\nrequires_env: [WEATHER_API_KEY]")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HERMES_BUNDLED_PLUGINS", str(tmp_path / "bundle"))
        host = start(enable=("bad", "idel", "weather", "twin"))

    assert host.plugins.status_text().splitlines() == [
        "Plugins (5):",
        f"  ✗ bad v2 [failed] — ValueError: no ({bad}/__init__.py:2)",
        "  ○ idle [not enabled] — not enabled in config (run `hermes plugins enable idle` to activate)",
        "  ✓ twin",
        "  ✗ weather [disabled] — Plugin weather disabled (missing: WEATHER_API_KEY)",
        f"  ✗ twin [refused] — `twin` is already the user plugin {home}/plugins/twin-a",
        "  ! plugins.enabled: unknown plugin `idel` (did you mean `idle`?)",
        "  (+1 bundled — see: hermes plugins list)",
        "  Enable/disable: hermes plugins enable/disable <name>",
    ]
    assert host.plugins.hints() == [
        "plugins.enabled: unknown plugin `idel` (did you mean `idle`?)",
        f"plugin `twin` ({home}/plugins/twin-b) is not used: `twin` is already the user plugin {home}/plugins/twin-a",
        f"plugin `bad` failed to load: ValueError: no ({bad}/__init__.py:2)",
        "plugin `idle` is there and not enabled: hermes plugins enable idle",
        "Plugin weather disabled (missing: WEATHER_API_KEY)",
    ]


def test_without_plugins_it_says_where_they_go(home: Path, start: Start) -> None:
    assert start().plugins.status_text() == (
        "No plugins installed.\n"
        "  Install one: hermes plugins install owner/repo\n"
        f"  Or drop a plugin directory into {home}/plugins/, and enable it: hermes plugins enable NAME"
    )


def test_the_listing_of_the_manager_has_the_keys_of_the_contract(write_plugin: Write, start: Start) -> None:
    write_plugin("z")
    write_plugin("calculator", TWO_TOOLS, manifest="name: calculator\nversion: 1.0.0\ndescription: d")

    listed = start(enable=("calculator", "z")).plugins.list_plugins()

    assert [p["key"] for p in listed] == ["calculator", "z"]
    assert listed[0] == {
        "name": "calculator",
        "key": "calculator",
        "kind": "standalone",
        "version": "1.0.0",
        "description": "d",
        "source": "user",
        "enabled": True,
        "tools": 2,
        "hooks": 1,
        "middleware": 0,
        "commands": 0,
        "error": None,
    }


def test_the_process_that_loads_a_plugin_and_a_listing_that_loads_none_give_the_same_report(
    home: Path, write_plugin: Write, start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HERMES_HOME", str(home))
    write_plugin("bad", "def register(ctx):\n    raise ValueError('no')\n")
    write_plugin("calculator", TWO_TOOLS, manifest="name: calculator\nversion: 1.0.0\ndescription: Counts")
    write_plugin("idle")
    write_plugin("second", TWO_TOOLS)
    write_plugin("talker", "def register(ctx):\n    ctx.register_cli_command('speak', 'Speak', lambda parser: None)\n")
    write_plugin("twin-a", manifest="name: twin")
    write_plugin("twin-b", manifest="name: twin")
    write_plugin("weather", manifest="name: weather\nrequires_env: [WEATHER_API_KEY]")
    host = start(enable=("bad", "calculator", "second", "talker", "twin", "weather"))
    records = sorted(host.plugins.records, key=lambda record: record.manifest.key)

    loaded = [report_loaded(record) for record in records if record.manifest.source != "bundled"]
    loaded += map(report_rejected, host.plugins.rejected)
    listed = [report for report in installed_reports(InstalledPlugins(), read_state(home)) if report.source == "user"]

    assert [report.status for report in listed] == [
        *("failed", "enabled", "not enabled", "enabled", "enabled", "enabled", "disabled", "refused")
    ]
    unnoted = [report for report in loaded if report.key == "calculator"]
    assert [report._replace(registers={}) if report in unnoted else report for report in loaded] == listed
    assert listed[3].problems and listed[4].registers == {"cli_commands": ["speak"]}


def test_a_load_error_is_noted_until_the_files_change(home: Path, write_plugin: Write, start: Start) -> None:
    place = write_plugin("bad", "def register(ctx):\n    raise ValueError('no')\n")
    manifest = start(enable=("bad",)).plugins._plugins["bad"].manifest

    assert (home / PLUGINS_STATE).stat().st_mode & 0o777 == 0o600
    assert last_load(read_state(home), manifest) | {"stamp": ""} == {
        "path": str(place),
        "stamp": "",
        "error": "ValueError: no",
        "where": f"{place}/__init__.py:2",
        "remedy": "",
        "problems": [],
        "platforms": [],
        "registers": {},
        "notes": [],
    }

    (place / "__init__.py").write_text("def register(ctx): pass  # repaired\n")
    assert last_load(read_state(home), manifest) == {}

    start(enable=("bad",))
    assert read_state(home) == {}


def test_a_home_without_trouble_gets_no_note(home: Path, write_plugin: Write, start: Start) -> None:
    write_plugin("good")
    start(enable=("good",))

    assert not (home / PLUGINS_STATE).exists()


@pytest.mark.parametrize("text", ["", "[]", "{", json.dumps({"format": 99, "plugins": {"a": {}}}), '{"format": 1}'])
def test_a_note_that_cannot_be_read_is_no_note(home: Path, text: str) -> None:
    (home / PLUGINS_STATE).write_text(text)

    assert read_state(home) == {}
