"""The acceptance list of the plugin contract (§13, §15) as far as it is about chats, through the whole gateway."""

from __future__ import annotations

import html
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from compat.guides import guide, indented, plugin
from hermes_agent.adapters.events import build_session_key
from hermes_agent.testing import ScriptedModel, plugin_host
from hermes_agent.testing.chat import Chat, chat_host, chatting
from peers.lines import LINE_PLUGIN, LineServer, line_server

NOTING = """
import json, os, pathlib
def note(name, context):
    with open(pathlib.Path(os.environ["HERMES_HOME"]) / "noted", "a") as out:
        out.write(json.dumps([name, context]) + "\\n")
"""


def noted(chat: Chat) -> str:
    chat.stop()
    return (chat.host.home / "noted").read_text()


def test_13_row_22_the_guide_s_platform_answers_through_the_gateway(tmp_path: Path) -> None:
    lines = html.unescape(guide("build-a-plugin.newest.ko.txt")).splitlines()
    start = lines.index("# plugins/platforms/myplatform/adapter.py")
    last = 'platform_hint="You are chatting via MyPlatform. Keep responses concise.",'
    adapter = indented(lines[start : lines.index(last, start) + 2], "00011101101112101")
    folder = plugin(
        tmp_path / "platforms" / "myplatform",
        "from .adapter import register\n",
        "name: myplatform-platform\nkind: platform\nrequires_env: [MYPLATFORM_TOKEN]\n",
        adapter_py=adapter,
    )
    env = {"MYPLATFORM_TOKEN": "a-token-of-it", "MYPLATFORM_ALLOWED_USERS": "ann"}
    second = threading.Event()
    model = ScriptedModel("Hello.", lambda request: (second.set(), "Again.")[1])
    config = {"display": {"busy_input_mode": "queue"}}
    with plugin_host(folder.parent, env=env, config=config, model=model) as host, chatting(host, "myplatform") as chat:
        chat.write("hi")
        chat.write("again")  # its turn begins when the answer to the first is in the outbox
        assert second.wait(20)
        assert host._run(host.host.delivery.wait_settled("in-1-0", 20)) == "sent"
        hint = str(host.model.messages[0]["content"])

    assert "You are chatting via MyPlatform." in hint


def test_13_row_24_the_guide_s_hook_is_told_how_long_the_agent_took() -> None:
    lines = html.unescape(guide("build-a-plugin.newest.ko.txt")).splitlines()
    start = lines.index("# ~/.hermes/hooks/long-task-alert/HOOK.yaml")
    manifest = "\n".join(lines[start : lines.index("- agent:end", start) + 1]) + "\n"
    first = lines.index("# ~/.hermes/hooks/long-task-alert/handler.py")
    handler = indented(lines[first + 1 : lines.index("pass", first) + 1], "0122")
    assert 'context.get("duration_seconds", 0) > 120' in handler
    fast = handler.replace("> 120", ">= 0").replace("pass", 'note(event_type, context["duration_seconds"] < 60)')

    with chat_host(model=["done"], hooks={"long-task-alert": (manifest, handler)}) as chat:
        assert chat.ask("go") == "done"
        assert "Error in handler" not in chat.host.log_text
        assert "[hooks] Loaded hook 'long-task-alert' for events: ['agent:end']" in chat.host.log_text
    with chat_host(model=["done"], hooks={"long-task-alert": (manifest, NOTING + fast)}) as chat:
        chat.ask("go")
        assert noted(chat) == '["agent:end", true]\n'


def test_13_row_34_a_menu_offers_the_commands_that_need_nothing_more() -> None:
    def register(ctx: Any) -> None:
        ctx.register_command("plain-one", lambda raw: "", description="Plain")
        ctx.register_command("optional", lambda raw: "", args_hint="[what]", description="Optional")
        ctx.register_command("needs", lambda raw: "", args_hint="<what>", description="Needs")
        ctx.register_command("x" * 40, lambda raw: "", description="Long")

    with chat_host(register) as chat:
        menu = dict(chat.adapter.gateway_runner.menu())

    assert (menu["plain_one"], menu["optional"]) == ("Plain", "Optional")
    assert not {"needs", "x" * 40, "background"} & set(menu)
    assert {"new", "stop", "help", "approve"} <= set(menu)


@pytest.fixture
def lines() -> Iterator[LineServer]:
    with line_server() as served:
        yield served


def test_15_13_a_platform_with_the_standard_library_alone_runs(tmp_path: Path, lines: LineServer) -> None:
    folder = plugin(tmp_path / "lines", LINE_PLUGIN, "name: lines-platform\nkind: platform\n")
    env = {"LINES_SERVER": lines.address, "LINES_FRIENDS": "ann,bob"}

    with plugin_host(folder, env=env, model=["hello ann", "hello all", "hello bob"]) as host:
        with chatting(host, "lines") as chat:
            lines.say("1 ann ann hi there")
            lines.heard("ann hello ann")
            lines.say("2 ann #room hi all")
            lines.heard("#room hello all")
            lines.say("3 eve eve let me in")
            lines.say("3 ann #room hi all")  # an id is one of its chat
            lines.say("2 ann #room again, after a reconnect")
            lines.say("4 bob bob /whoami")
            lines.heard("bob lines:bob (allowed by: list)")
            assert any("pairing code" in line for line in lines.received if line.startswith("eve"))
            adapter = chat.adapter
            source = adapter.build_source(chat_id="#room", user_id="ann", chat_type="group")
            assert host._run(chat.gateway.session_store.route(build_session_key(source))) is not None
            lines.heard("#room hello bob")
        assert len(host.model.requests) == 3

    assert adapter.platform.value == "lines"
    assert build_session_key(source) == "agent:main:lines:group:#room:ann"


def test_15_17_gateway_hooks_with_wildcards_and_decisions() -> None:
    watches = NOTING + "def handle(event_type, context): note(event_type, context['command'])\n"
    decides = (
        "async def handle(event_type, context):\n"
        "    if context['args'] == 'no': return {'decision': 'deny'}\n"
        "    if context['args'] == 'me': return {'decision': 'rewrite', 'command_name': 'whoami'}\n"
    )
    hooks = {
        "watches": ("events: ['command:*']\n", watches),
        "decides": ("name: decides\nevents: [command:status]\n", decides),
    }
    with chat_host(hooks=hooks) as chat:
        assert chat.ask("/status no") == "Command `/status` was blocked by a hook."
        assert chat.ask("/status me").startswith("memorychat:ann")
        assert chat.ask("/status").startswith("Session: none yet")
        assert noted(chat).count('["command:status", "status"]') == 3


def test_in_the_gateway_the_workspace_of_dispatched_tools_is_terminal_cwd(tmp_path: Path) -> None:
    (tmp_path / "note.txt").write_text("the tea is ready")
    seen: list[str] = []

    def register(ctx: Any) -> None:
        def where(raw: str) -> str:
            seen.append(os.environ["TERMINAL_CWD"])
            return str(ctx.dispatch_tool("read_file", {"path": "note.txt"}))

        ctx.register_command("where", where)

    unset = {"terminal": {"cwd": "."}}
    with chat_host(register, config=unset, env={"TERMINAL_CWD": str(tmp_path)}) as chat:
        assert "the tea is ready" in str(chat.ask("/where"))
    with chat_host(register, config={"terminal": {"cwd": str(tmp_path)}}, env={"TERMINAL_CWD": "/"}) as chat:
        assert "the tea is ready" in str(chat.ask("/where"))  # what the operator set wins
    assert seen == [str(tmp_path.resolve())] * 2
