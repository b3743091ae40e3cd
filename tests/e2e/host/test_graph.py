from __future__ import annotations

import json
from pathlib import Path

import pytest

from hermes_agent.core.errors import ConfigError, UserError
from hermes_agent.host import Host, current


async def test_a_host_has_the_built_in_tools_and_says_who_is_current(tmp_path: Path) -> None:
    host = Host.build(tmp_path / "home")
    assert host.tools.get_all_tool_names() == [
        "clarify",
        "cronjob",
        "delegate_task",
        "execute_code",
        "image_generate",
        "memory",
        "patch",
        "process",
        "read_file",
        "search_files",
        "session_search",
        "skill_manage",
        "skill_view",
        "skills_list",
        "terminal",
        "text_to_speech",
        "todo",
        "tool_call",
        "tool_describe",
        "tool_search",
        "video_generate",
        "vision_analyze",
        "web_extract",
        "web_search",
        "write_file",
    ]
    assert host.commands.owner("plugins") == "builtin"
    assert current() is host
    await host.aclose()


async def test_the_definitions_of_the_built_in_tools_are_terse(tmp_path: Path) -> None:
    host = Host.build(tmp_path)
    assert len(json.dumps(host.agent.definitions("cli"))) < 11_800
    await host.aclose()


async def test_a_disabled_toolset_is_not_shown_to_the_model(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("agent:\n  disabled_toolsets: [terminal]\n")
    host = Host.build(tmp_path)
    assert "terminal" not in [d["function"]["name"] for d in host.agent.definitions("cli")]
    await host.aclose()


async def test_sub_agents_may_do_what_the_config_says(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("delegation: {max_spawn_depth: 2, max_iterations: 7}\n")
    host = Host.build(tmp_path)
    assert (host.agent.delegation.max_spawn_depth, host.agent.delegation.max_iterations) == (2, 7)
    assert host.agent.delegation.max_concurrent_children == 3
    await host.aclose()


def test_a_broken_config_stops_the_start(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("modle: x\n")
    with pytest.raises(ConfigError, match="did you mean `model`"):
        Host.build(tmp_path)


def test_a_home_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="cannot make the home"):
        Host.build(tmp_path / "file" / "home")
