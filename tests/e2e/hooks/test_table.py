"""The table of hooks against what is really sent: a host in which every hook that is marked as fired fires."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hermes_agent.adapters.base import PlatformEvent
from hermes_agent.contracts.speech import TranscriptionProvider, TTSProvider
from hermes_agent.core.errors import ModelError
from hermes_agent.hooks import HOOKS
from hermes_agent.hooks.catalog import FIRED, OBSERVERS, VALID_HOOKS, WITHOUT_SCHEMA
from hermes_agent.media.service import MediaService
from hermes_agent.policy import NoApprover
from hermes_agent.testing import ModelFailure, PluginHost, call, plugin_host
from hermes_agent.testing.chat import chatting, memory_platform
from hermes_agent.testing.scripted_model import Reply

SCHEMA = "telemetry_schema_version"
LIMIT_S = 20.0


class Deaf(TranscriptionProvider):
    """A transcription provider that hears nothing."""

    name = "deaf"

    def is_available(self) -> bool:
        return True

    def transcribe(self, file_path: str, *, model: str | None = None, **extra: Any) -> dict[str, Any]:
        return {"success": True, "transcript": "", "provider": self.name}


class Mute(TTSProvider):
    """A provider of speech that says nothing."""

    name = "mute"

    def is_available(self) -> bool:
        return True

    def synthesize(self, text: str, output_path: str, **extra: Any) -> str:
        Path(output_path).write_bytes(b"")
        return output_path


class Witness:
    """A plugin that listens to every hook and keeps what it is given; it brings a chat platform, too."""

    def __init__(self) -> None:
        self.seen: dict[str, list[dict[str, Any]]] = {}
        self.order: list[str] = []

    def __call__(self, ctx: Any) -> None:
        memory_platform()(ctx)
        ctx.register_transcription_provider(Deaf())
        ctx.register_tts_provider(Mute())
        for hook in HOOKS:
            ctx.register_hook(hook, lambda hook=hook, **kw: self.note(hook, kw))

    def note(self, hook: str, keywords: dict[str, Any]) -> None:
        self.seen.setdefault(hook, []).append(keywords)
        self.order.append(hook)


@pytest.fixture(scope="module")
def told() -> Witness:
    """What a busy session tells."""
    witness = Witness()
    script = [
        Reply("I look.", (call("terminal", command="echo hello", unconfined=True),)),
        call("write_file", path="new.txt", content="hi"),
        "done",
        "to a plugin",
        "looked",
        ModelFailure("broken", 500),
        "again",
        "to a chat",
    ]
    once = {"agent": {"api_max_retries": 0}, "stt": {"provider": "deaf"}, "tts": {"provider": "mute"}}
    env = {"MEMORYCHAT_ALLOWED_USERS": "ann"}
    with plugin_host(witness, config=once, model=script, approvals=["once", "session"], env=env) as host:
        host.ask("go")
        host.ctx.llm.complete([{"role": "user", "content": "hi"}], purpose="test")
        host.dispatch_tool("delegate_task", {"goal": "look"})
        with pytest.raises(ModelError):
            host.ask("fail")
        host.run_command("/plugins")
        host.new_session()
        take_up(host, witness.seen["on_session_start"][0]["session_id"])
        skill(host)
        with chatting(host) as chat:
            chat.write("hi", user="a stranger")
            chat.ask("hi")
            event = PlatformEvent("reaction", {}, chat.adapter.build_source(chat_id="room", user_id="ann"))
            host.host.bridge.wait_plugin(chat.adapter.notify_platform_event(event))
        host.host.service(MediaService).transcribe("/tmp/recording.ogg")
        host.host.service(MediaService).synthesize("hello")
        assert host.host.hooks.wait_idle(LIMIT_S)
    return witness


def take_up(host: PluginHost, session_id: str) -> None:
    """Go on with a stored session, as another program would."""

    async def work() -> None:
        agent = host.host.agent
        talk = await agent.open(session_id, platform="api_server", approver=NoApprover("here"))
        async for _ in talk.turn("more"):
            talk.interrupt()
        await talk.close("session_boundary")

    host._run(work())


def skill(host: PluginHost) -> None:
    folder = host.home / "skills" / "tea"
    folder.mkdir(parents=True)
    (folder / "SKILL.md").write_text("---\nname: tea\ndescription: Make tea.\n---\nBoil water.\n")
    host.dispatch_tool("skill_view", {"name": "tea"})


@pytest.mark.parametrize("hook", sorted(FIRED))
def test_a_hook_that_is_marked_as_fired_fires_with_the_keywords_of_the_table(told: Witness, hook: str) -> None:
    assert hook in told.seen
    for keywords in told.seen[hook]:
        assert set(keywords) - {SCHEMA} == set(HOOKS[hook].keywords)
        assert keywords.get(SCHEMA) == (None if hook in WITHOUT_SCHEMA else "hermes.observer.v1")


def test_no_hook_fires_that_is_not_marked(told: Witness) -> None:
    assert set(told.seen) == FIRED


def test_no_keyword_stands_twice_in_a_row() -> None:
    for name, hook in HOOKS.items():
        assert len(hook.keywords) == len(set(hook.keywords)), name


def test_what_may_answer_is_what_the_contract_says() -> None:
    assert {name for name in VALID_HOOKS if name not in OBSERVERS} == {
        *("pre_tool_call", "pre_gateway_dispatch", "transform_terminal_output", "transform_tool_result"),
        *("transform_llm_output", "pre_llm_call", "pre_verify"),
    }


def test_the_boundaries_of_a_session_bear_both_ids(told: Witness) -> None:
    first = told.seen["on_session_start"][0]["session_id"]
    reset = told.seen["on_session_reset"][0]
    finalized = told.seen["on_session_finalize"]

    assert (reset["old_session_id"], reset["reason"], reset["platform"]) == (first, "new_session", "cli")
    assert reset["session_id"] == reset["new_session_id"] != first
    ends = [(f["session_id"], f["reason"], f["new_session_id"]) for f in finalized if f["session_id"] == first]
    assert ends == [(first, "new_session", reset["session_id"]), (first, "shutdown", "")]


def test_a_stored_session_that_is_taken_up_is_resumed_and_not_started(told: Witness) -> None:
    (resumed,) = told.seen["on_session_resume"]

    assert resumed["session_id"] == told.seen["on_session_start"][0]["session_id"]
    assert resumed["message_count"] > 0
    assert [s["session_id"] for s in told.seen["on_session_start"]].count(resumed["session_id"]) == 1


def test_question_and_answer_of_an_approval(told: Witness) -> None:
    asked, answered = told.seen["pre_approval_request"][0], told.seen["post_approval_response"][0]

    assert asked["command"].startswith("echo hello")
    assert (asked["surface"], asked["pattern_keys"]) == ("cli", [asked["pattern_key"]])
    assert asked["turn_id"] == told.seen["pre_tool_call"][0]["turn_id"]
    assert asked["tool_call_id"] == told.seen["pre_tool_call"][0]["tool_call_id"]
    assert answered == {**asked, "choice": "once", "coalesced": False}


def test_a_request_in_both_guides_words(told: Witness) -> None:
    before, after = told.seen["pre_api_request"][0], told.seen["post_api_request"][0]

    assert before["method"] == before["request"]["method"] == "POST"
    assert before["url"] == f"{before['base_url']}/chat/completions"
    assert before["headers"]["authorization"] == "[redacted]"
    assert before["body"] == before["request"]["body"]
    assert [m["role"] for m in before["request_messages"]] == ["system", "user"]
    assert before["message_count"] == 2
    assert (after["status_code"], after["api_request_id"]) == (200, before["api_request_id"])
    assert after["usage"]["total_tokens"] == after["usage"]["input_tokens"] + after["usage"]["output_tokens"]
    assert after["assistant_tool_call_count"] == 1
    assert after["assistant_message"].tool_calls[0].function.name == "terminal"
    assert after["ended_at"] >= after["started_at"]


def test_a_request_that_failed(told: Witness) -> None:
    (failed,) = told.seen["api_request_error"]

    assert (failed["status_code"], failed["error"]["type"]) == (500, "ModelError")
    assert "broken" in failed["error"]["message"]


def test_a_stream_piece_by_piece_in_order(told: Witness) -> None:
    request = told.seen["on_stream_end"][2]["api_request_id"]
    pieces = [d for d in told.seen["on_stream_delta"] if d["api_request_id"] == request]
    (end,) = [e for e in told.seen["on_stream_end"] if e["api_request_id"] == request]

    assert "".join(p["delta"] for p in pieces) == "done"
    assert [p["index"] for p in pieces] == list(range(len(pieces)))
    assert (end["chars"], end["completed"], end["finish_reason"]) == (4, True, "stop")


def test_a_call_of_a_plugin_s_own(told: Witness) -> None:
    (before,), (after,) = told.seen["pre_auxiliary_call"], told.seen["post_auxiliary_call"]

    assert (before["plugin_id"], before["purpose"], before["message_count"]) == ("under-test", "test", 1)
    assert (after["status"], after["error"], after["usage"]["output_tokens"] > 0) == ("ok", None, True)
    assert before["api_request_id"] == after["api_request_id"]


def test_a_command_is_announced(told: Witness) -> None:
    (command,) = told.seen["pre_command"]
    assert (command["command"], command["args"], command["platform"]) == ("plugins", "", "cli")


def test_a_note_says_that_a_hook_is_not_called_yet_and_none_that_it_never_is() -> None:
    with plugin_host(Witness()) as host:
        notes = [n for n in host.notes if "hook" in n]

    later = [name for name, hook in HOOKS.items() if hook.status == "later"]
    assert notes == [f"this release does not call the hook `{name}` yet" for name in later]


def test_the_question_of_a_guard_is_told_like_any_other() -> None:
    told: list[tuple[str, Any]] = []

    def register(ctx: Any) -> None:
        ask = {"action": "approve", "message": "really?", "rule_key": "mine"}
        ctx.register_hook("pre_tool_call", lambda **kw: ask)
        for hook in ("pre_approval_request", "post_approval_response"):
            ctx.register_hook(hook, lambda hook=hook, **kw: told.append((hook, kw)))

    with plugin_host(register, approvals=["session"]) as host:
        host.dispatch_tool("search_files", {"pattern": "x", "target": "files"})
        host.dispatch_tool("search_files", {"pattern": "y", "target": "files"})
        assert host.host.hooks.wait_idle(LIMIT_S)

    (_, asked), (_, answered) = told
    assert (asked["pattern_key"], asked["description"], asked["surface"]) == ("plugin_rule:mine", "really?", "cli")
    assert answered["choice"] == "session"
