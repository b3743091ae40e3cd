"""Acceptance list of the plugin contract of 0.23, E16 and E17: portable packages (Agent Plugins 1.0)."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from hermes_agent.app.main import main
from hermes_agent.mcp.servers import McpServers
from hermes_agent.plugins.manifest import InvalidManifest, read_manifest
from hermes_agent.plugins.pinned_files import compare_with_pins, pin_files
from hermes_agent.plugins.portable import SCHEMA, SERVERS_SCHEMA, read_content
from hermes_agent.skills import SkillLibrary
from hermes_agent.skills.skill_commands import SkillCommands
from hermes_agent.testing import plugin_host

PEERS = Path(__file__).parents[1] / "peers"
SKILL = "---\nname: {0}\ndescription: How to {0}\n---\nText of {0}.\n"


def quiet(ctx: Any) -> None:
    """Register nothing."""


def package(folder: Path, servers: dict[str, Any] | None = None, **fields: Any) -> Path:
    """Write a package with the skill `brew`."""
    skill(folder, "brew")
    manifest = {"$schema": SCHEMA, "name": folder.name, "version": "1.2.0", "description": "Tea", **fields}
    (folder / "plugin.json").write_text(json.dumps(manifest), encoding="utf-8")
    if servers is not None:
        document = {"$schema": SERVERS_SCHEMA, "mcpServers": servers}
        (folder / "mcp.json").write_text(json.dumps(document), encoding="utf-8")
    return folder


def skill(folder: Path, name: str, text: str = "") -> Path:
    file = folder / "skills" / name / "SKILL.md"
    file.parent.mkdir(parents=True)
    file.write_text(text or SKILL.format(name), encoding="utf-8")
    return file


def stdio(**more: Any) -> dict[str, Any]:
    return {"type": "stdio", "command": "./run", **more}


def bring_program(folder: Path) -> None:
    """Put a server that starts in an instant into the package."""
    shutil.copy(PEERS / "mcp_lines.py", folder / "server.py")
    run = folder / "run"
    run.write_text(f'#!/bin/sh\nexec {sys.executable} -S "$PLUGIN_ROOT/server.py" "$@"\n', encoding="utf-8")
    run.chmod(0o755)


def test_e16_skills_and_a_stdio_server_work_after_enable_and_none_before(tmp_path: Path) -> None:
    pytest.importorskip("mcp")
    with plugin_host(quiet, config={"mcp_discovery_timeout": 60}) as host:
        folder = package(host.home / "plugins" / "tea.house", {"Kettle": stdio(), "old": {"type": "sse", "url": "x"}})
        bring_program(folder)
        (folder / "__init__.py").write_text("raise RuntimeError('imported')\n", encoding="utf-8")
        skill(folder, "wrong", SKILL.format("other"))
        outside = skill(tmp_path / "outside", "far")
        (folder / "skills" / "far").mkdir()
        (folder / "skills" / "far" / "SKILL.md").symlink_to(outside)
        plugins, servers = host.host.plugins, host.host.service(McpServers)
        plugins.discover_and_load(force=True)
        namespace = plugins.records[-1].manifest.skill_namespace
        assert "tea.house" in {r.manifest.key for r in plugins.records}
        assert plugins.list_plugin_skills(namespace) == [] and "kettle" not in servers.settings

        config = json.loads((host.home / "config.yaml").read_text(encoding="utf-8"))
        config["plugins"]["enabled"] = [*config["plugins"].get("enabled", []), "tea.house"]
        (host.home / "config.yaml").write_text(json.dumps(config), encoding="utf-8")
        plugins.reload()
        record = plugins.find("tea.house")
        assert record is not None and record.enabled, record
        assert plugins.list_plugin_skills(namespace) == ["brew"]
        assert record.registers() == {"skills": [f"{namespace}:brew"], "providers": ["mcp_server:kettle"]}
        assert any("'wrong' is left out: its name is 'other'" in note for note in record.notes)
        assert any("'far' is left out: SKILL.md leads out of the package" in note for note in record.notes)
        assert any("'old' is left out: type 'sse' is not supported" in note for note in record.notes)
        servers.wait_connected(60)
        (status,) = [each for each in servers.status() if each.name == "kettle"]
        assert status.state == "connected" and status.tools, status
        text = SkillCommands(host.host.service(SkillLibrary)).message(
            f"{namespace}:brew", "now", session_id="s", platform="cli"
        )
        assert text is not None and "Text of brew." in text

        config["plugins"]["enabled"].remove("tea.house")
        (host.home / "config.yaml").write_text(json.dumps(config), encoding="utf-8")
        plugins.reload()
        assert plugins.list_plugin_skills(namespace) == [] and "kettle" not in servers.settings


@pytest.mark.parametrize(
    ("changes", "part"),
    [
        ({"$schema": SCHEMA.replace("1.0.0", "2.0.0")}, "$schema"),
        ({"name": "Tea--House"}, "name"),
        ({"version": 2}, "version"),
        ({"author": {"name": "x", "age": "9"}}, "author"),
        ({"keywords": "tea"}, "keywords"),
    ],
)
def test_e16_a_manifest_that_breaks_a_rule_is_refused_with_the_reason(
    tmp_path: Path, changes: dict[str, Any], part: str
) -> None:
    folder = package(tmp_path / "tea", **changes)
    with pytest.raises(InvalidManifest, match=part.replace("$", r"\$")):
        read_manifest(str(folder / "plugin.json"), source="user")


def test_e16_an_unknown_key_is_reported_and_ignored(tmp_path: Path) -> None:
    folder = package(tmp_path / "tea", commands="x", keywords=["tea"], author={"name": "Pia", "url": "https://x.org"})
    manifest = read_manifest(str(folder / "plugin.json"), source="user")
    assert manifest.notes == ("plugin.json: unknown key 'commands' ignored",)
    assert (manifest.portable, list(manifest.tags), manifest.author) == (True, ["tea"], "Pia, https://x.org")


def test_options_of_a_server_without_effect_are_named(tmp_path: Path) -> None:
    options = {"kettle": {"trust": "full", "app": "tea", "requires": ["x"], "liveness": {"path": "/"}}}
    folder = package(tmp_path / "tea", extensions={"com.nousresearch.hermes": {"servers": options}})
    manifest = read_manifest(str(folder / "plugin.json"), source="user")
    assert manifest.notes == ("plugin.json: app, liveness, requires of server 'kettle' has no effect here",)


def test_e16_a_plugin_yaml_goes_before_a_plugin_json(tmp_path: Path) -> None:
    with plugin_host(quiet) as host:
        folder = package(host.home / "plugins" / "tea")
        (folder / "plugin.yaml").write_text("name: other\n", encoding="utf-8")
        host.host.plugins.discover_and_load(force=True)
        keys = {r.manifest.key for r in host.host.plugins.records}
        assert "other" in keys and "tea" not in keys


def test_e16_a_skill_that_is_added_later_is_a_change_of_a_granted_package(tmp_path: Path) -> None:
    folder = package(tmp_path / "tea")
    pinned = pin_files(str(folder))
    (folder / "notes.txt").write_text("data", encoding="utf-8")
    skill(folder, "second")
    changes, _ = compare_with_pins(str(folder), pinned)
    assert changes.added == ("skills/second/SKILL.md",)


def test_e17_placeholders_are_expanded_once_in_args_env_and_cwd(tmp_path: Path) -> None:
    folder, data = package(tmp_path / "tea"), tmp_path / "data"
    server = stdio(
        args=["${PLUGIN_ROOT}/x", "${HOME}"], env={"AT": "${PLUGIN_DATA}", "B": "${PLUGIN_ROOT}"}, cwd="${PLUGIN_DATA}"
    )
    package(tmp_path / "more" / "tea", {"a": server})
    folder = tmp_path / "more" / "tea"
    (one,) = read_content(folder, data).servers
    root = str(folder.resolve())
    assert one.block == {
        "command": f"{root}/run",
        "args": [f"{root}/x", "${HOME}"],
        "env": {"AT": str(data), "B": root, "PLUGIN_ROOT": root, "PLUGIN_DATA": str(data)},
        "cwd": str(data),
    }


@pytest.mark.parametrize(
    ("server", "why"),
    [
        (stdio(env={"PLUGIN_ROOT": "/x"}), "PLUGIN_ROOT and PLUGIN_DATA are reserved"),
        (stdio(command="sh -c evil"), "command"),
        (stdio(command="/bin/sh"), "command"),
        (stdio(command="../run"), "command"),
        (stdio(command="./../../run"), "leads out of the package"),
        (stdio(cwd="/tmp"), "cwd"),
        (stdio(cwd="./../.."), "leads out of the package"),
        (stdio(shell=True), "unknown keys: shell"),
        ({"type": "streamable-http", "url": "http://example.org/mcp"}, "must use https"),
        ({"type": "streamable-http", "url": "https://me:pw@example.org/mcp"}, "without a user"),
        ({"type": "streamable-http", "url": "https://example.org/mcp#x"}, "without a user and a fragment"),
        ({"type": "streamable-http", "url": "https://example.org", "headers": {"a": 1}}, "headers"),
        ({"command": "run"}, "type None is not supported"),
        ("run", "it is no mapping"),
    ],
)
def test_e17_a_server_that_breaks_a_rule_is_left_out_alone(tmp_path: Path, server: Any, why: str) -> None:
    good = {"type": "streamable-http", "url": "http://127.0.0.1:9/mcp"}
    content = read_content(package(tmp_path / "tea", {"bad": server, "good": good}), tmp_path / "data")
    assert [each.name for each in content.servers] == ["good"]
    (problem,) = content.problems
    assert problem.startswith("server 'bad' is left out: ") and why in problem


def test_a_server_of_the_config_wins_then_the_first_package(tmp_path: Path) -> None:
    one = package(tmp_path / "a1", {"kettle": stdio(), "pot": stdio()})
    two = package(tmp_path / "b2", {"Pot": stdio()})
    with plugin_host(one, two, config={"mcp_servers": {"kettle": {"command": "mine", "enabled": False}}}) as host:
        servers = host.host.service(McpServers).settings
        assert servers["kettle"].command == "mine"
        assert servers["pot"].plugin == "a1" and servers["pot"].cwd == str(one.resolve())
        first, second = (host.host.plugins.find(key) for key in ("a1", "b2"))
        assert first is not None and "`kettle` is not used: mcp_servers of the config has one" in first.notes[0]
        assert second is not None and second.problems[0].owner == "a1"


def test_a_package_is_installed_disabled_shown_and_checked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HERMES_HOME", str(tmp_path / "home"))
    source = package(tmp_path / "src" / "tea", {"kettle": stdio()}, license="MIT")
    bring_program(source)
    assert main(["plugins", "install", str(source), "--no-enable"]) == 0
    assert "not enabled" in capsys.readouterr().out
    assert main(["plugins", "list", "--plain", "--user"]) == 0
    assert "not enabled" in capsys.readouterr().out
    assert main(["plugins", "info", "tea"]) == 0
    shown = capsys.readouterr().out
    assert "portable package" in shown and "kettle" in shown and "brew" in shown
    assert main(["plugins", "check", "--no-sandbox", "--strict", str(source)]) == 0


def test_the_gate_of_nix_lays_a_package_out_and_refuses_a_broken_one(tmp_path: Path) -> None:
    gate = Path(__file__).parents[2] / "nix" / "gates" / "plugin_dir.py"
    good, bad = package(tmp_path / "tea"), package(tmp_path / "pot", name="No Name")
    spec = tmp_path / "spec.json"
    for folders, status, part in (([good], 0, ""), ([good, bad], 1, "name is 'No Name'")):
        spec.write_text(json.dumps([str(folder) for folder in folders]), encoding="utf-8")
        done = subprocess.run(
            [sys.executable, str(gate), str(spec), str(tmp_path / f"out{status}")],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == status and part in done.stderr, done.stderr
    assert json.loads((tmp_path / "out0" / "manifests.json").read_text())["tea"]["path"] == str(good)
