"""Acceptance list of the plugin contract of 0.23, E5 and E18: skill_manage, and plugins in a gateway that runs."""

from __future__ import annotations

import json
from typing import Any

from compat.guides import plugin
from hermes_agent.testing import plugin_host
from hermes_agent.testing.chat import chat_host

TEXT = "---\nname: {0}\ndescription: About {0}\n---\nFirst line.\n"
LATE = """
def register(ctx):
    ctx.register_command("greet", lambda raw: "greetings from late")
    ctx.register_tool("late_tool", schema={"name": "late_tool", "description": "d"}, handler=lambda args, **kw: "{}")
"""


def quiet(ctx: Any) -> None:
    """Register nothing."""


def manage(host: Any, **args: Any) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(host.ctx.dispatch_tool("skill_manage", args))
    return found


def test_e5_skill_manage_takes_both_shapes_and_a_failing_third_operation_undoes_the_first_two() -> None:
    with plugin_host(quiet, config={"skills": {"write": "direct"}}) as host:
        skills = host.home / "skills"
        assert manage(host, action="create", name="tea", content=TEXT.format("tea"))["success"] is True
        change = {"name": "tea", "action": "patch", "old_string": "First", "new_string": "Second"}
        create = {"name": "pot", "action": "create", "content": TEXT.format("pot")}
        bad = {"name": "tea", "action": "remove_file", "file_path": "references/none.md"}
        assert "has no file" in manage(host, operations=[create, change, bad])["error"]
        assert not (skills / "pot").exists() and "First line." in (skills / "tea" / "SKILL.md").read_text()
        assert manage(host, operations=[create, change])["success"] is True
        assert (skills / "pot" / "SKILL.md").is_file()
        assert "Second line." in (skills / "tea" / "SKILL.md").read_text()


def test_e18_after_enable_and_reload_a_new_command_answers_in_an_open_chat_and_a_tool_from_the_next_turn_on() -> None:
    """Upstream shows a new tool in the next session only (docs/plugins/contract-0.23.md, Differences)."""
    with chat_host(model=["one", "two"]) as chat:
        host = chat.host
        chat.ask("hello")
        plugin(host.home / "plugins" / "late", LATE, "name: late\n")
        config = json.loads((host.home / "config.yaml").read_text(encoding="utf-8"))
        config["plugins"]["enabled"] = [*config["plugins"]["enabled"], "late"]
        (host.home / "config.yaml").write_text(json.dumps(config), encoding="utf-8")
        host.host.plugins.reload()  # what `hermes plugins reload` asks the daemon for
        assert "greetings from late" in chat.ask("/greet")
        assert "late_tool" not in host.model.tools
        chat.ask("and now?")
        assert "late_tool" in host.model.tools
