"""What operators do in a chat: `/restart`, `/sethome`, commands of their own; and who may not."""

from __future__ import annotations

import json

from hermes_agent.app.control_operations import PluginStatus
from hermes_agent.testing.chat import chat_host

OPEN = {"allow": "", "env": {"MEMORYCHAT_ALLOW_ALL_USERS": "true"}}
"""A door for everybody: nobody is known by name."""


def test_a_restart_is_asked_for_in_a_chat_and_its_end_is_told_there() -> None:
    told: list[str] = []
    with chat_host(restart=told.append) as chat:
        assert chat.ask("/restart", thread_id="7") == "Restarting after the running turns."
    assert [json.loads(one) for one in told] == [["memorychat", "room", "7"]]

    with chat_host(restarted_for=told[0]) as chat:
        (said,) = chat.answers(1)
        sent = chat.adapter.sent[0]
    assert (said, sent.chat, sent.metadata["thread_id"]) == (
        "The agent has restarted. Interrupted turns resume.",
        "room",
        "7",
    )


def test_who_came_through_an_open_door_restarts_nothing_and_runs_nothing() -> None:
    told: list[str] = []
    config = {"quick_commands": {"disk": {"command": "echo secret"}}}
    with chat_host(restart=told.append, config=config, **OPEN) as chat:
        for command in ("/restart", "/sethome", "/disk"):
            assert chat.ask(command).startswith(f"You may not run {command} here.")
        assert "disk" not in chat.ask("/help")
    assert told == []


def test_a_chat_becomes_the_platform_s_home_and_stays_it() -> None:
    with chat_host() as chat:
        assert "now go to this chat" in chat.ask("/sethome", chat="den")
        chat.host._run(chat.gateway.send_text("memorychat", "A job is done."))
        chat.wait(lambda: any((one.chat, one.text) == ("den", "A job is done.") for one in chat.adapter.sent))
        adapter = chat.adapter
        chat.host.host.reread_config()
        chat.host._run(chat.gateway.reload())
        assert chat.adapter is adapter, "it is connected anew for nothing"
        kept = chat.gateway.config.platforms
        assert [one.home_channel.chat_id for one in kept.values() if one.home_channel] == ["den"]


def test_commands_of_the_operator_s_own_run_without_the_agent_and_aliases_stand_for_others() -> None:
    config = {
        "quick_commands": {
            "disk": {"command": "echo 42% used; exit 3", "description": "how full it is"},
            "who": {"type": "alias", "target": "/whoami"},
            "say": {"type": "alias", "target": "queue please say"},
            "none": {},
            "status": {"command": "echo not mine"},
        }
    }
    with chat_host(config=config, model=["said"]) as chat:
        assert chat.ask("/disk") == "42% used\n(exit status 3)"
        assert chat.ask("/who").startswith("memorychat:ann")
        assert chat.ask("/say hello") == "said"
        assert chat.host.model.messages[-1]["content"] == "please say hello"
        assert "quick_commands.none has no command" in chat.ask("/none")
        assert "Session:" in chat.ask("/status")
        assert ("disk", "how full it is") in chat.gateway.menu()


def test_a_reload_takes_over_what_chats_are_set_to_and_names_what_needs_a_restart() -> None:
    with chat_host(config={"reset_triggers": ["/new"]}, model=["one", "two"]) as chat:
        chat.ask("hi")
        first = chat.ask("/status").splitlines()[0]
        file = chat.host.home / "config.yaml"
        config = json.loads(file.read_text()) | {"reset_triggers": ["again"], "limits": {"day_tokens": 5}}
        file.write_text(json.dumps(config))
        door = PluginStatus(chat.host.host, chat.gateway.reload)
        done = chat.host._run(door.reload(None))
        assert chat.ask("again").startswith("❓ Start a new session?")
        assert chat.ask("/approve").startswith("New session")
        assert chat.ask("/status").splitlines()[0] != first
    assert {"key": "config limits", "outcome": "needs a restart", "reason": ""} in done
