"""Acceptance list of the plugin contract of 0.23, part H: hooks that fire. One test a sentence, with its number."""

from __future__ import annotations

import json
import threading
from typing import Any

import pytest

from hermes_agent.core.errors import ModelError
from hermes_agent.hooks import HOOKS
from hermes_agent.testing import ModelFailure, PluginHost, call, plugin_host
from hermes_agent.testing.chat import chat_host

IDLE_S = 30.0


class Listener:
    """A plugin that listens to some hooks and keeps the keywords."""

    def __init__(self, *hooks: str) -> None:
        self.hooks = hooks
        self.seen: list[tuple[str, dict[str, Any]]] = []

    def __call__(self, ctx: Any) -> None:
        for hook in self.hooks:
            ctx.register_hook(hook, lambda hook=hook, **kw: self.seen.append((hook, kw)))

    def of(self, hook: str) -> list[dict[str, Any]]:
        return [keywords for name, keywords in self.seen if name == hook]


def settle(host: PluginHost) -> None:
    assert host.host.hooks.wait_idle(IDLE_S)


def test_h7_the_pieces_of_a_stream_come_in_order_and_make_the_final_text() -> None:
    listener = Listener("on_stream_start", "on_stream_delta", "on_stream_end")
    with plugin_host(listener, model=["an answer of several words"]) as host:
        answer = host.ask("hi")
        settle(host)
    names = [name for name, _ in listener.seen]
    assert (names[0], names[-1]) == ("on_stream_start", "on_stream_end")
    assert set(names[1:-1]) == {"on_stream_delta"}
    (end,) = listener.of("on_stream_end")
    pieces = listener.of("on_stream_delta")
    assert "".join(piece["delta"] for piece in pieces) == end["final_text"] == answer.text
    assert {piece["kind"] for piece in pieces} == {"text"}
    assert (end["finished"], end["error"], end["iteration"], end["surface"]) == (True, None, 1, "cli")


def test_h7_a_slow_callback_does_not_delay_the_stream() -> None:
    began, released = threading.Event(), threading.Event()

    def slow(**kw: Any) -> None:
        began.set()
        released.wait(60)

    with plugin_host(lambda ctx: ctx.register_hook("on_stream_delta", slow), model=["several words", "more"]) as host:
        assert host.ask("hi").text == "several words"
        assert began.wait(60)
        assert host.ask("again").text == "more"
        assert not released.is_set()
        released.set()
        settle(host)


def test_h9_the_hooks_of_an_auxiliary_call_come_in_pairs_also_when_it_fails() -> None:
    listener = Listener("pre_auxiliary_call", "post_auxiliary_call")
    messages = [{"role": "system", "content": "Be short."}, {"role": "user", "content": "hi"}]
    with plugin_host(listener, model=["fine", ModelFailure("broken", 400)]) as host:
        host.ctx.llm.complete(messages, purpose="test", max_tokens=5)
        try:
            host.ctx.llm.complete(messages)
        except ModelError:
            failed = True
        settle(host)
    assert failed
    before, after = listener.of("pre_auxiliary_call"), listener.of("post_auxiliary_call")
    assert [b["api_request_id"] for b in before] == [a["api_request_id"] for a in after]
    assert before[0]["api_request_id"] != before[1]["api_request_id"]
    assert before[0]["system_prompt"] == "Be short."
    assert before[0]["request"]["body"]["messages"] == before[0]["request_messages"]
    assert (before[0]["message_count"], before[0]["max_tokens"], before[0]["aux_task"]) == (2, 5, "plugin")
    assert after[0]["usage"]["output_tokens"] > 0
    assert (after[0]["error"], after[0]["assistant_content_chars"]) == (None, 4)
    assert (after[1]["usage"], after[1]["response"], after[1]["error_type"]) == (None, None, "ModelError")


def test_h14_a_command_is_announced_with_its_own_name_for_an_alias() -> None:
    listener = Listener("pre_command")
    with plugin_host(listener, model=["hello"]) as host:
        host.ask("hi")
        host.run_command("/compact")
        settle(host)
    (command,) = listener.of("pre_command")
    assert (command["surface"], command["command"], command["alias_used"]) == ("cli", "compress", "compact")


@pytest.mark.parametrize(
    ("line", "name", "typed"),
    [("/reset", "new", "reset"), ("/compact", "compress", "compact"), ("/status", "status", "status")],
)
def test_h14_a_command_of_a_chat_is_announced_with_its_name_and_the_key_of_the_chat(
    line: str, name: str, typed: str
) -> None:
    listener, keys = Listener("pre_command"), Listener("post_gateway_admission")

    def register(ctx: Any) -> None:
        listener(ctx)
        keys(ctx)

    config = {"approvals": {"destructive_slash_confirm": False}}
    with chat_host(register, model=["hello"], config=config) as chat:
        chat.ask("hi")
        chat.ask(line)
        settle(chat.host)
    (command,) = listener.of("pre_command")
    assert (command["surface"], command["command"], command["alias_used"]) == ("gateway", name, typed)
    assert (command["platform"], command["session_key"]) == (
        "memorychat",
        keys.of("post_gateway_admission")[0]["session_key"],
    )


def test_h14_stop_during_a_turn_is_not_announced() -> None:
    listener, held = Listener("pre_command"), threading.Event()

    def register(ctx: Any) -> None:
        listener(ctx)
        ctx.register_hook("pre_llm_call", lambda **kw: held.wait(30) and None)

    with chat_host(register, model=["hello"]) as chat:
        chat.write("hi")
        chat.wait(lambda: bool(chat.gateway.session_store.running))
        try:
            assert chat.ask("/stop") == "Stopped."
        finally:
            held.set()
        settle(chat.host)
    assert listener.of("pre_command") == []


def test_h17_the_first_use_of_a_skill_is_reported_with_its_provenance() -> None:
    listener = Listener("on_skill_lifecycle")
    with plugin_host(listener) as host:
        folder = host.home / "skills" / "tea"
        folder.mkdir(parents=True)
        (folder / "SKILL.md").write_text("---\nname: tea\ndescription: Make tea.\n---\nBoil water.\n")
        host.dispatch_tool("skill_view", {"name": "tea"})
        host.dispatch_tool("skill_view", {"name": "tea"})
        settle(host)
    first, second = listener.of("on_skill_lifecycle")
    assert (first["skill_name"], first["provenance"], first["use_count"], first["reused"]) == ("tea", "local", 1, False)
    assert (second["use_count"], second["reused"]) == (2, True)


def test_a_callback_is_given_the_keywords_that_later_releases_added() -> None:
    seen: dict[str, dict[str, Any]] = {}

    def register(ctx: Any) -> None:
        def start(session_id: str, parent_session_id: str) -> None:
            seen.setdefault("start" if not parent_session_id else "child", {"id": session_id, "of": parent_session_id})

        def before(retry_count: int, system_prompt: str, api_call_count: int) -> None:
            seen.setdefault("before", {"retries": [], "prompt": system_prompt})["retries"].append(retry_count)

        def after(
            first_chunk_at: float, started_at: float, ended_at: float, context_length: int, moa_references: Any
        ) -> None:
            seen["after"] = {
                "in order": started_at <= first_chunk_at <= ended_at,
                "context": context_length,
                "moa": moa_references,
            }

        def ended(failed: bool, turn_exit_reason: str, session_id: str) -> None:
            seen.setdefault(turn_exit_reason, {"failed": failed})

        def stop(tool_call_history: list[dict[str, Any]]) -> None:
            seen["stop"] = {"calls": tool_call_history}

        def output(tool_call_id: str) -> None:
            seen["output"] = {"id": tool_call_id}

        def called(tool_name: str, tool_call_id: str) -> None:
            if tool_name == "terminal":
                seen["called"] = {"id": tool_call_id}

        def answered(choice: str, coalesced: bool) -> None:
            seen["answer"] = {"choice": choice, "coalesced": coalesced}

        ctx.register_hook("pre_llm_call", start)
        ctx.register_hook("pre_api_request", before)
        ctx.register_hook("post_api_request", after)
        ctx.register_hook("on_session_end", ended)
        ctx.register_hook("subagent_stop", stop)
        ctx.register_hook("transform_terminal_output", output)
        ctx.register_hook("post_tool_call", called)
        ctx.register_hook("post_approval_response", answered)

    script = [
        ModelFailure("busy", 503),
        call("terminal", command="echo hello", unconfined=True),
        call("delegate_task", goal="plan"),
        call("todo", todos=[]),
        "planned",
        "done",
        ModelFailure("broken", 400),
    ]
    with plugin_host(register, model=script, approvals=["once"]) as host:
        host.ask("go")
        session = host.conversation.session_id
        with pytest.raises(ModelError):
            host.ask("again")
        settle(host)
    assert seen["start"] == {"id": session, "of": ""}
    assert seen["child"]["of"] == session
    assert seen["before"]["retries"][:2] == [0, 1]
    assert seen["before"]["prompt"] == host.model.requests[0]["messages"][0]["content"]
    assert seen["after"]["in order"]
    assert (seen["after"]["context"] > 0, seen["after"]["moa"]) == (True, None)
    assert (seen["answered"], seen["failed"]) == ({"failed": False}, {"failed": True})
    (made,) = seen["stop"]["calls"]
    assert (made["tool_name"], made["tool_input"], made["status"]) == ("todo", {"todos": []}, "ok")
    assert made["input_bytes"] == len('{"todos": []}')
    assert made["output_bytes"] > 0
    assert seen["output"] == seen["called"]
    assert seen["output"]["id"]
    assert seen["answer"] == {"choice": "once", "coalesced": False}


EVENT_HANDLER = """\
import json, pathlib

def handle(event, context):
    with open(pathlib.Path(__file__).with_name("seen.txt"), "a") as file:
        file.write(json.dumps([event, context]) + "\\n")
"""


def test_the_end_of_a_turn_in_a_chat_names_model_and_provider() -> None:
    hooks = {"ends": ("name: ends\nevents: ['agent:end']\n", EVENT_HANDLER)}
    with chat_host(model=["hello"], hooks=hooks) as chat:
        chat.ask("hi")
        file = chat.host.home / "hooks" / "ends" / "seen.txt"
        chat.wait(lambda: file.exists() and file.read_text(encoding="utf-8").endswith("\n"))
        event, context = json.loads(file.read_text(encoding="utf-8"))
    assert event == "agent:end"
    assert context["model"]
    assert context["provider"]


def test_a_hook_of_hosted_group_chats_is_known_and_an_unknown_name_is_answered_with_all_known_ones() -> None:
    def register(ctx: Any) -> None:
        ctx.register_hook("on_room_member_activity", print)
        ctx.register_hook("on_nonsense", print)

    with plugin_host(register) as host:
        (line,) = [line.text for line in host.log if "unknown hook" in line.text]
    assert "on_room_member_activity" not in line.partition("(valid")[0]
    named = line.partition("(valid: ")[2].partition(")")[0].split(", ")
    assert set(named) == set(HOOKS) >= {"on_room_member_activity", "pre_command", "pre_tool_call"}
    assert HOOKS["on_room_member_activity"].status == "never"
