"""Acceptance list of the plugin contract of 0.23, E5 and E18: skill_manage, and plugins in a gateway that runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from compat.guides import plugin
from hermes_agent.testing import plugin_host
from hermes_agent.testing.chat import chat_host
from peers.running import free_port, running
from worlds import HERMES, environment, run

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


def enable(host: Any, name: str) -> None:
    config = json.loads((host.home / "config.yaml").read_text(encoding="utf-8"))
    config["plugins"]["enabled"] = [*config["plugins"]["enabled"], name]
    (host.home / "config.yaml").write_text(json.dumps(config), encoding="utf-8")


def test_e18_a_new_command_answers_in_an_open_chat_and_a_new_tool_appears_in_the_next_session_only() -> None:
    with chat_host(model=["one", "two", "three", "four"]) as chat:
        host = chat.host
        chat.ask("hello")
        plugin(host.home / "plugins" / "late", LATE, "name: late\n")
        enable(host, "late")
        host.host.plugins.reload("late", new_sessions=True)  # what `hermes plugins enable` asks the daemon for
        assert "greetings from late" in chat.ask("/greet")
        chat.ask("and now?")
        assert "late_tool" not in host.model.tools
        chat.ask("hello", chat="another room")
        assert "late_tool" in host.model.tools
        host.host.plugins.reload("late")  # `hermes plugins reload late`: open sessions, too
        chat.ask("and now?")
        assert "late_tool" in host.model.tools


def test_e18_enable_and_disable_tell_the_running_daemon(tmp_path: Path) -> None:
    home, port = tmp_path / "home", free_port()
    plugin(home / "plugins" / "late", LATE, "name: late\n")
    environ = environment(home, API_SERVER_PORT=str(port))
    with running([HERMES, "gateway", "run"], host="127.0.0.1", port=port, path="/health", environ=environ):
        on = run(home, "plugins", "enable", "late")
        assert (on.returncode, on.stdout.splitlines()[:2]) == (
            0,
            [
                "The running daemon: late loaded",
                "Its commands answer now; its tools are there in new sessions (`/new` in a chat).",
            ],
        )
        again = run(home, "plugins", "enable", "late")
        assert again.stdout == "late is enabled already.\n"
        off = run(home, "plugins", "disable", "late")
        assert (off.returncode, off.stdout) == (0, "The running daemon: late stopped: disabled via config\n")
        (home / "plugins" / "late" / "__init__.py").write_text("raise RuntimeError('broken')\n")
        wrong = run(home, "plugins", "enable", "late")
        assert "The running daemon: late" in wrong.stdout and "loaded\n" not in wrong.stdout
    assert run(home, "plugins", "disable", "late").stdout == "late is disabled from the next start on.\n"
