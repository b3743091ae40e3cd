"""Members of the daemon's group: what they may ask, and of whom."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hermes_agent.app.control_operations import KEY_LENGTH, GroupOperations
from hermes_agent.core.errors import UserError
from hermes_agent.testing import plugin_host

ANNA, BOB = "a" * KEY_LENGTH, "b" * KEY_LENGTH


def test_members_see_their_own_sessions_and_no_more_than_they_ask_for() -> None:
    with plugin_host(model=["one", "two", "three"]) as host:
        members, wait = GroupOperations(host.host.agent, host.host.slash, at_once=1), host.host.bridge.wait_core

        def talk(key: str) -> dict[str, Any]:
            return wait(members.converse({"key": key, "text": "hello"}))  # type: ignore[no-any-return]

        def listed(**question: Any) -> list[dict[str, Any]]:
            return wait(members.sessions(question))["sessions"]  # type: ignore[no-any-return]

        mine = [talk(ANNA)["session"], talk(ANNA)["session"]]
        talk(BOB)
        assert {one["id"] for one in listed(key=ANNA)} == set(mine)
        assert len(listed(key=ANNA, limit=-1)) == 1
        with pytest.raises(UserError, match="there is no session"):
            wait(members.session({"key": BOB, "id": mine[0]}))
        with pytest.raises(UserError, match="needs `key`"):
            listed(key="")


PLUGIN = """
import json

def register(ctx):
    def say(raw_args):
        if raw_args:
            ctx.inject_message(raw_args)
        return f"said {raw_args}".strip()

    def seen(raw_args):
        return ctx.dispatch_tool("session_search", {"query": raw_args})

    def jobs(raw_args):
        action = "create" if raw_args else "list"
        return ctx.dispatch_tool("cronjob", {"action": action, "prompt": raw_args, "schedule": "every day at 9:00"})

    ctx.register_command("jobs", jobs, description="Schedules")
    ctx.register_command("say", say, description="Says something")
    ctx.register_command("seen", seen, description="Searches")
"""


def test_members_give_commands_of_plugins_and_of_their_session_and_none_that_changes_the_agent(tmp_path: Path) -> None:
    folder = tmp_path / "talker"
    folder.mkdir()
    (folder / "plugin.yaml").write_text("name: talker\n")
    (folder / "__init__.py").write_text(PLUGIN)
    with plugin_host(folder, model=["heard", "heard otters", "swims", "fine"]) as host:
        wait = host.host.bridge.wait_core
        members = GroupOperations(host.host.agent, host.host.slash, at_once=1)

        def talk(text: str, key: str = ANNA, session: str = "") -> dict[str, Any]:
            return wait(members.converse({"key": key, "text": text, "session": session}))  # type: ignore[no-any-return]

        first = talk("/say")
        assert (first["text"], first["reason"]) == ("said", "answered")
        assert talk("hello", session=first["session"])["text"] == "heard"
        assert talk("/say otters", session=first["session"])["text"] == "said otters\nheard otters"
        with pytest.raises(UserError, match="there is no session"):
            talk("/say", key=BOB, session=first["session"])

        bob = talk("walrus", key=BOB)["session"]
        other = talk("again", key=BOB)["session"]
        assert bob not in talk("/seen walrus", session=first["session"])["text"]
        assert bob in talk("/seen walrus", key=BOB, session=other)["text"]
        assert "count otters" in talk("/jobs count otters")["text"]
        assert "count otters" in talk("/jobs")["text"] and "count otters" not in talk("/jobs", key=BOB)["text"]
        assert "There is nothing" in talk("/compact", session=bob, key=BOB)["text"]
        assert "all sessions" not in talk("/usage", session=bob, key=BOB)["text"]

        told = talk("/help")["text"]
        assert all(f"/{name} " in told for name in ("say", "compress", "usage", "new", "help"))
        assert "/plugins" not in told and "/rollback" not in told
        for line in ("/plugins", "/tools", "/rollback 1", "/reload-mcp"):
            with pytest.raises(UserError, match="is for the agent's operator"):
                talk(line)
        with pytest.raises(UserError, match=r"There is no command /sey\. Did you mean /say\?"):
            talk("/sey")
        with pytest.raises(UserError, match="/undo is about a session, and none is open"):
            talk("/undo")
