"""Gateway hooks: `hooks/<name>/{HOOK.yaml,handler.py}`."""

from __future__ import annotations

import json
from typing import Any

import pytest

from hermes_agent.testing import call
from hermes_agent.testing.chat import Chat, chat_host

WRITES = """
import json, os, pathlib
def handle(event_type, context):
    with open(pathlib.Path(os.environ["HERMES_HOME"]) / "events.jsonl", "a") as out:
        out.write(json.dumps([event_type, context]) + "\\n")
"""
ASYNC = WRITES.replace("def handle", "async def handle")


def events(chat: Chat, *wanted: str) -> list[tuple[str, dict[str, Any]]]:
    """Stop the chat, which waits for its hooks, and return what they heard."""
    chat.stop()
    file = chat.host.home / "events.jsonl"
    found = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
    return [(name, context) for name, context in found if not wanted or name in wanted]


@pytest.mark.parametrize("handler", [WRITES, ASYNC], ids=["sync", "async"])
def test_every_event_comes_with_its_keys(handler: str) -> None:
    manifest = "name: all\nevents: ['gateway:*', 'session:*', 'agent:*', 'command:*']\n"
    model = [call("read_file", path="/nowhere"), "done", "more"]
    with chat_host(model=model, hooks={"all": (manifest, handler)}) as chat:
        chat.ask("go")
        chat.ask("/new now")
        chat.ask("again")
        heard = events(chat)

    assert [name for name, _ in heard] == [
        *("gateway:startup", "session:start", "agent:start", "agent:step", "agent:end"),
        *("command:new", "session:end", "session:reset", "session:start", "agent:start", "agent:end"),
    ]
    by_name = dict(heard)
    assert by_name["gateway:startup"] == {"platforms": ["memorychat"]}
    start = next(context for name, context in heard if name == "agent:start")
    whose = {"platform": "memorychat", "user_id": "ann", "chat_id": "room", "thread_id": None, "chat_type": "dm"}
    assert start == {**whose, "session_id": start["session_id"], "message": "go"}
    step = by_name["agent:step"]
    assert (step["iteration"], step["tool_names"], step["tools"][0]["name"]) == (1, ["read_file"], "read_file")
    end = by_name["agent:end"]
    assert (end["message"], end["response"], end["duration_seconds"] >= 0) == ("again", "more", True)
    assert {"platform", "user_id", "session_key"} <= set(by_name["session:reset"])
    command = by_name["command:new"]
    assert (command["command"], command["raw_command"], command["args"], command["user_id"]) == (
        "new",
        "new",
        "now",
        "ann",
    )


def test_a_conversation_that_was_made_shorter_is_told_of() -> None:
    config = {"compression": {"protect_first_n": 0, "protect_last_n": 1}}
    hooks = {"all": ("events: ['session:compress']\n", WRITES)}
    with chat_host(model=["one", "two", "SUMMARY"], hooks=hooks, config=config) as chat:
        chat.ask("first " * 200)
        chat.ask("second " * 200)
        assert "was made shorter" in chat.ask("/compact")
        ((_, told),) = events(chat)
    assert told.items() >= {"platform": "memorychat", "in_place": True, "compression_count": 1}.items()
    assert told["session_id"] == told["old_session_id"]


DECIDES = """
def handle(event_type, context):
    return {"deny": {"decision": "deny", "message": "Not today."}, "silent": {"decision": "deny"},
            "handled": {"decision": "handled", "message": "Done by a hook."},
            "rewrite": {"decision": "rewrite", "command_name": "whoami", "raw_args": ""},
            "strange": {"decision": "perhaps"}}.get(context["args"])
"""


def test_a_hook_decides_about_a_command() -> None:
    with chat_host(hooks={"decides": ("events: ['command:status']\n", DECIDES)}) as chat:
        assert chat.ask("/status deny") == "Not today."
        assert chat.ask("/status silent") == "Command `/status` was blocked by a hook."
        assert chat.ask("/status handled") == "Done by a hook."
        assert chat.ask("/status rewrite").startswith("memorychat:ann")
        assert chat.ask("/status strange").startswith("Session: none yet")


def test_exact_names_come_before_wildcards_and_folders_in_their_order() -> None:
    order = "def handle(event_type, context):\n    return {'decision': 'handled', 'message': __name__}\n"
    hooks = {"a-wild": ("events: ['command:*']\n", order), "b-exact": ("events: ['command:status']\n", order)}
    with chat_host(hooks=hooks) as chat:
        assert chat.ask("/status") == "hermes_hook_b-exact"
        assert chat.ask("/help") == "hermes_hook_a-wild"


def test_a_hook_that_raises_hangs_or_cannot_be_loaded_holds_up_nothing() -> None:
    hooks = {
        "broken": ("events: [\n", WRITES),
        "empty": ("name: empty\n", WRITES),
        "fails": (
            "events: ['agent:*', 'command:*']\n",
            "def handle(event_type, context): raise ValueError('bad hook')\n",
        ),
        "hangs": ("events: ['agent:start']\n", "import threading\ndef handle(e, c): threading.Event().wait(5)\n"),
        "imports": ("events: ['agent:end']\n", "import nothing_of_that_name\n"),
        "nothing": ("events: ['agent:end']\n", "x = 1\n"),
        "works": ("events: ['agent:end']\n", WRITES),
    }
    with chat_host(model=["fine"], hooks=hooks) as chat:
        assert chat.ask("go") == "fine"
        assert chat.ask("/status").startswith("Session")
        assert [name for name, _ in events(chat)] == ["agent:end"]
        log = chat.host.log_text

    assert "[hooks] Skipping broken: invalid HOOK.yaml" in log
    assert "[hooks] Skipping empty: no events declared" in log
    assert "[hooks] Skipping nothing: no 'handle' function found" in log
    assert "[hooks] Error loading hook" in log
    assert "No module named 'nothing_of_that_name'" in log
    assert "[hooks] Error in handler for 'agent:start': bad hook" in log
    assert "[hooks] Loaded hook 'works' for events: ['agent:end']" in log
