"""`agent.skill_commands`, `agent.skill_utils`, `tools.skills_tool`, `hermes_cli.commands`: plugin contract §11."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hermes_agent.contracts.command import SlashCommand
from hermes_agent.host import Host


@pytest.fixture
def tea(host: Host) -> Host:
    folder = host.home / "skills" / "kitchen" / "Tea Time"
    folder.mkdir(parents=True)
    (folder / "SKILL.md").write_text("---\nname: Tea Time\ndescription: Brew\nplatforms: [linux, macos]\n---\nText\n")
    return host


def test_skills_are_commands_under_upstream_s_names(served: None, tea: Host) -> None:
    from agent.skill_commands import extract_user_instruction_from_skill_message, get_skill_commands

    folder = tea.home / "skills" / "kitchen" / "Tea Time"
    assert get_skill_commands() == {
        "/tea-time": {
            "name": "Tea Time",
            "description": "Brew",
            "skill_md_path": str(folder / "SKILL.md"),
            "skill_dir": str(folder),
        }
    }
    message = tea.slash.skills.message("tea-time", "two cups", session_id="", platform="cli")
    assert extract_user_instruction_from_skill_message(message) == "two cups"


def test_the_tools_answer_as_functions(served: None, tea: Host) -> None:
    from tools.skills_tool import SKILLS_DIR, skill_view, skills_list

    assert tea.home / "skills" == SKILLS_DIR
    assert json.loads(skill_view("Tea Time"))["content"].endswith("Text\n")
    assert json.loads(skills_list())["count"] == 1


def test_a_skill_is_read_as_upstream_does(served: None, tea: Host, tmp_path: Path) -> None:
    from agent.skill_utils import (
        get_disabled_skill_names,
        get_external_skills_dirs,
        is_valid_namespace,
        parse_frontmatter,
        parse_qualified_name,
        skill_matches_platform,
    )

    assert parse_frontmatter("---\nname: a\nplatforms: [windows]\n---\nb") == (
        {"name": "a", "platforms": ["windows"]},
        "b",
    )
    assert not skill_matches_platform({"platforms": ["windows"]})
    assert skill_matches_platform({})
    assert (get_disabled_skill_names(), get_external_skills_dirs()) == (set(), [])
    assert (parse_qualified_name("p:s"), parse_qualified_name("s")) == (("p", "s"), (None, "s"))
    assert [is_valid_namespace(n) for n in ("a-b", "a b", "", None)] == [True, False, False, False]


def test_commands_are_known_by_name(served: None, host: Host) -> None:
    from hermes_cli.commands import COMMAND_REGISTRY, is_gateway_known_command, resolve_command

    host.commands.register(SlashCommand("scan", lambda raw_args: raw_args, "Find", "<x>"), owner="p")

    assert [entry.name for entry in COMMAND_REGISTRY] == [
        "blueprint",
        "bundles",
        "compress",
        "context",
        "personality",
        "plugins",
        "proposals",
        "reload-mcp",
        "rollback",
        "tools",
        "undo",
        "usage",
    ]
    entry = resolve_command("/Plugins")
    assert entry is not None and entry.args_hint.startswith("[NAME")
    assert resolve_command("scan") is None
    names = ("scan", "/reset", "nothing", "", None)
    assert [is_gateway_known_command(n) for n in names] == [True, True, False, False, False]
