"""Acceptance list of the plugin contract of 0.23, H8 to H23: hooks, shell hooks, webhooks and event hooks."""

from __future__ import annotations

import hashlib
import hmac
import json
import logging
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from contract23.test_hooks import Listener, settle
from hermes_agent.adapters.base import PlatformEvent
from hermes_agent.contracts.speech import TranscriptionProvider, TTSProvider
from hermes_agent.core.errors import ModelError
from hermes_agent.hooks import HOOKS
from hermes_agent.media.service import MediaService
from hermes_agent.policy import NoApprover
from hermes_agent.testing import ModelFailure, call, plugin_host
from hermes_agent.testing.chat import chat_host
from hermes_agent.testing.scripted_model import Reply


@pytest.fixture(autouse=True)
def debug_log(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    caplog.set_level(logging.DEBUG, "hermes_agent")
    yield


# -- H8: reasoning ---------------------------------------------------------------------------------------------

CHUNKS = (
    {"role": "assistant", "reasoning_content": "let me "},
    {"reasoning_content": "think"},
    {"content": "forty-two"},
)


class Thinker(BaseHTTPRequestHandler):
    """A model server that streams its reasoning before the answer."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        pieces = [{"index": 0, "delta": delta, "finish_reason": None} for delta in CHUNKS]
        pieces.append({"index": 0, "delta": {}, "finish_reason": "stop"})
        same = {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "thinker"}
        lines = [f"data: {json.dumps({**same, 'choices': [piece]})}\n\n" for piece in pieces]
        body = ("".join(lines) + "data: [DONE]\n\n").encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: Any) -> None: ...


def serving(handler: type[BaseHTTPRequestHandler]) -> Iterator[ThreadingHTTPServer]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.fixture
def thinker() -> Iterator[str]:
    for server in serving(Thinker):
        yield f"http://127.0.0.1:{server.server_port}/v1"


@pytest.mark.parametrize("wanted", [True, False])
def test_h8_reasoning_pieces_come_only_with_the_setting(thinker: str, wanted: bool) -> None:
    listener = Listener("on_stream_delta", "on_stream_end")
    model = {"provider": "custom", "base_url": thinker, "default": "thinker"}
    config = {"model": model, "plugins": {"stream_reasoning_deltas": wanted}}
    with plugin_host(listener, config=config) as host:
        assert host.ask("hi").text == "forty-two"
        settle(host)
    pieces = [(piece["kind"], piece["delta"]) for piece in listener.of("on_stream_delta")]
    text = "".join(delta for kind, delta in pieces if kind == "reasoning")
    assert text == ("let me think" if wanted else "")
    assert "".join(delta for kind, delta in pieces if kind == "text") == "forty-two"
    assert listener.of("on_stream_end")[0]["final_text"] == "forty-two"


# -- H10 to H15 ------------------------------------------------------------------------------------------------


def test_h10_an_interim_text_is_reported_once_and_was_streamed() -> None:
    listener = Listener("on_interim_message")
    first = Reply("I look at it.", (call("skills_list"),))
    with plugin_host(listener, model=[first, call("skills_list"), "done"]) as host:
        host.ask("hi")
        settle(host)
    (interim,) = listener.of("on_interim_message")
    assert (interim["text"], interim["already_streamed"], interim["iteration"]) == ("I look at it.", True, 1)


def test_h11_a_handled_message_gets_the_reply_and_no_turn_and_a_raising_callback_lets_it_run() -> None:
    def register(ctx: Any) -> None:
        ctx.register_hook("post_gateway_admission", answer)

    async def answer(text: str, platform: str, session_key: str, source: dict[str, Any], **kwargs: Any) -> Any:
        if text == "raise":
            raise RuntimeError("no luck")
        assert (platform, source["user_id"]) == ("memorychat", "ann")
        assert session_key.startswith("agent:main:memorychat:")
        return {"action": "handled", "reply": "by the plugin"} if text == "ping" else None

    with chat_host(register, model=["by the model", "after the error"]) as chat:
        assert chat.ask("ping") == "by the plugin"
        assert chat.ask("hello") == "by the model"
        assert chat.ask("raise") == "after the error"
        assert chat.host.model.unused == 0


class Ears(TranscriptionProvider):
    name = "ears"

    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []

    def is_available(self) -> bool:
        return True

    def transcribe(self, file_path: str, *, model: str | None = None, **extra: Any) -> dict[str, Any]:
        self.asked.append({"file_path": file_path, "model": model, **extra})
        return {"success": True, "transcript": "heard", "provider": self.name}


def test_h12_the_prompt_of_a_plugin_reaches_the_provider_and_the_file_cannot_be_changed() -> None:
    ears = Ears()

    def register(ctx: Any) -> None:
        ctx.register_transcription_provider(ears)
        ctx.register_hook("pre_transcription", lambda **kwargs: {"prompt": "first", "language": "de"})
        ctx.register_hook(
            "pre_transcription", lambda **kwargs: {"prompt": "names: Ottilie", "file_path": "/etc/passwd"}
        )

    with plugin_host(register, config={"stt": {"provider": "ears"}}) as host:
        media = host.host.service(MediaService)
        assert host.host.bridge.run_with_limit(lambda: media.transcript_text("/tmp/x.ogg"), 30) == "heard"
        assert ears.asked == [{"file_path": "/tmp/x.ogg", "model": None, "language": "de", "prompt": "names: Ottilie"}]
        assert any("file_path cannot be changed" in line.text for line in host.log if line.level == "WARNING")


def test_h13_a_classification_changes_what_is_done_and_an_unknown_reason_nothing() -> None:
    seen: list[dict[str, Any]] = []

    def register(ctx: Any) -> None:
        ctx.register_hook("transform_api_error_classification", classify)

    def classify(**kwargs: Any) -> Any:
        seen.append(kwargs)
        return {"reason": "moon"} if "moon" in kwargs["error_message"] else {"reason": "RATE_LIMIT", "message": "slow"}

    failure = ModelFailure("a word of its own", 418, retry_after_s=0.01)
    with plugin_host(register, model=[failure, "answered after all"]) as host:
        assert host.ask("hi").text == "answered after all"
    assert (seen[0]["status_code"], seen[0]["provider"]) == (418, "custom")
    with (
        plugin_host(register, model=[ModelFailure("moon", 418), "never"]) as host,
        pytest.raises(ModelError) as refused,
    ):
        host.ask("hi")
    assert refused.value.kind == "refused"


def test_h15_the_wait_for_a_user_is_reported_in_pairs_without_what_was_typed() -> None:
    listener = Listener("on_human_input_request", "on_human_input_resolved")

    def register(ctx: Any) -> None:
        listener(ctx)
        ctx.register_hook(
            "pre_tool_call",
            lambda tool_name, **kwargs: {"action": "approve", "message": "really?", "rule_key": "r"},
        )
        ctx.register_tool(
            "act", schema={"name": "act", "description": "x", "parameters": {}}, handler=lambda args, **kw: "done"
        )

    with plugin_host(register, approvals=["once", "deny"]) as host:
        host.dispatch_tool("act")
        host.dispatch_tool("act")
        settle(host)
    asked, resolved = listener.of("on_human_input_request"), listener.of("on_human_input_resolved")
    assert [a["request_id"] for a in asked] == [r["request_id"] for r in resolved]
    assert len({a["request_id"] for a in asked}) == 2
    assert [(r["kind"], r["outcome"]) for r in resolved] == [("approval", "once"), ("approval", "deny")]
    assert asked[0]["prompt"].startswith("really?")
    assert asked[0]["session_id"]


def test_h15_the_answer_that_a_user_types_to_a_question_is_in_no_hook_of_the_wait() -> None:
    listener = Listener("on_human_input_request", "on_human_input_resolved")
    script = [call("clarify", question="Which tea?"), "as you like"]
    with chat_host(listener, model=script) as chat:
        chat.write("make tea")
        chat.wait(lambda: any("Which tea?" in text for text in chat.texts))
        assert chat.ask("lapsang souchong") == "as you like"
        settle(chat.host)
        assert "lapsang souchong" in str(chat.host.model.messages)
    (asked,), (resolved,) = listener.of("on_human_input_request"), listener.of("on_human_input_resolved")
    assert (asked["kind"], asked["platform"], asked["request_id"]) == ("clarify", "memorychat", resolved["request_id"])
    assert "Which tea?" in asked["prompt"]
    assert resolved["outcome"] == "answered"
    assert "lapsang" not in str(listener.seen)


def test_h16_there_is_no_board_so_its_hooks_are_stored_and_said_to_be_never_called() -> None:
    listener = Listener("on_kanban_dispatch_tick")
    with plugin_host(listener) as host:
        assert "on_kanban_dispatch_tick" in host.hooks
        assert host.notes == []
    assert HOOKS["on_kanban_dispatch_tick"].status == "never"


# -- H18, H19 --------------------------------------------------------------------------------------------------


def test_h18_a_long_context_is_in_a_file_and_its_ends_and_the_path_in_the_prompt() -> None:
    text = "begin" + "x" * 20_000 + "end"
    with plugin_host(
        lambda ctx: ctx.register_hook("pre_llm_call", lambda **kw: {"context": text}), model=["ok"]
    ) as host:
        host.ask("hi")
        (file,) = (host.home / "hook_outputs").rglob("*.txt")
        asked = str(host.model.messages[-1]["content"])
        assert file.read_text(encoding="utf-8") == text
        assert str(file) in asked
        assert "begin" + "x" * 495 in asked
        assert asked.endswith("x" * 497 + "end")
        assert len(asked) < 2000


@pytest.mark.parametrize("scripted", [["hello"], [Reply("I look.", (call("skills_list"),)), "hello"]])
def test_h19_the_transformed_answer_is_what_the_session_store_holds(scripted: list[Any]) -> None:
    def register(ctx: Any) -> None:
        ctx.register_hook("transform_llm_output", lambda response_text, **kw: response_text.replace("hello", "HELLO"))

    with plugin_host(register, model=[*scripted, "again"]) as host:
        shown = host.ask("hi").text
        assert shown.endswith("HELLO")
        stored = host._run(host.host.agent.call_transcript("messages", host.conversation.session_id))
        assert stored[-1].text == "HELLO"
        assert "hello" not in "".join(message.text for message in stored)
        loaded = host._run(host.host.agent.call_transcript("load", host.conversation.session_id))
        assert loaded.messages[-1].text == "HELLO"
        host.ask("more")
        sent = [m["content"] for m in host.model.messages if m["role"] == "assistant"]
        assert sent[-1] == "HELLO"
        found = host._run(host.host.agent.call_transcript("messages", host.conversation.session_id))
        assert [m.text for m in found if m.role == "assistant"][-2:] == ["HELLO", "again"]


# -- H20, H21: shell hooks -------------------------------------------------------------------------------------


def guarded(script: str, folder: Path, **entry: Any) -> dict[str, Any]:
    path = folder / "guard.py"
    path.write_text(script, encoding="utf-8")
    hook = {"command": f"{sys.executable} {path}", **entry}
    return {"hooks": {"pre_tool_call": [hook]}, "hooks_auto_accept": True}


@pytest.mark.parametrize(
    ("status", "closed", "blocked"), [(2, False, True), (1, False, False), (1, True, True), (0, False, False)]
)
def test_h20_a_shell_hook_blocks_with_status_2_and_with_status_1_only_if_it_fails_closed(
    tmp_path: Path, status: int, closed: bool, blocked: bool
) -> None:
    script = f"import sys\nsys.stdin.read()\nsys.stderr.write('n' * 500)\nsys.exit({status})\n"
    with plugin_host(tool, config=guarded(script, tmp_path, fail_closed=closed)) as host:
        text = host.dispatch_tool("say", {"word": "tea"})
    assert (text == "tea") is not blocked
    if status == 2:
        assert "n" * 400 in text
        assert "n" * 401 not in text


def tool(ctx: Any) -> None:
    parameters = {"type": "object", "properties": {"word": {"type": "string"}}}
    ctx.register_tool(
        "say",
        schema={"name": "say", "description": "x", "parameters": parameters},
        handler=lambda args, **kwargs: args["word"],
    )


def test_h21_a_shell_hook_changes_the_arguments(tmp_path: Path) -> None:
    script = (
        "import json, sys\njson.load(sys.stdin)\nprint(json.dumps({'action': 'modify', 'args': {'word': 'coffee'}}))\n"
    )
    with plugin_host(tool, config=guarded(script, tmp_path)) as host:
        assert host.dispatch_tool("say", {"word": "tea"}) == "coffee"


# -- H22: outbound webhooks ------------------------------------------------------------------------------------


class Receiver(BaseHTTPRequestHandler):
    """A service that answers with scripted statuses and keeps the requests."""

    statuses: list[int]
    got: list[tuple[str, dict[str, str], bytes]]
    came: threading.Condition

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        with type(self).came:
            type(self).got.append((self.path, dict(self.headers), body))
            status = self.statuses.pop(0) if self.statuses else 200
            type(self).came.notify_all()
        self.send_response(status)
        if status == 302:
            self.send_header("Location", "/elsewhere")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *args: Any) -> None: ...


@pytest.fixture
def receiver() -> Iterator[tuple[type[Receiver], str]]:
    kind = type("One", (Receiver,), {"statuses": [], "got": [], "came": threading.Condition()})
    for server in serving(kind):
        yield kind, f"http://127.0.0.1:{server.server_port}"


def awaited(kind: type[Receiver], count: int) -> list[tuple[str, dict[str, str], bytes]]:
    with kind.came:
        assert kind.came.wait_for(lambda: len(kind.got) >= count, 30)
        return list(kind.got)


def test_h22_a_webhook_is_signed_tried_twice_and_not_redirected(receiver: tuple[type[Receiver], str]) -> None:
    kind, url = receiver
    kind.statuses += [500, 200, 302, 200]
    hook = {"name": "ops", "url": f"{url}/in", "events": ["post_tool_call"], "matcher": "say", "secret_env": "HOOK_KEY"}
    config = {"hooks": {"outbound": [hook, {"url": "ftp://x", "events": ["post_tool_call"]}, {"url": url}]}}
    with plugin_host(tool, config=config, env={"HOOK_KEY": "s3cret-of-hooks"}) as host:
        host.dispatch_tool("say", {"word": "tea"})
        first, second = awaited(kind, 2)
        assert first == second
        path, headers, body = first
        payload = json.loads(body)
        digest = hmac.new(b"s3cret-of-hooks", body, hashlib.sha256).hexdigest()
        assert headers["X-Hermes-Signature-256"] == f"sha256={digest}"
        assert (path, headers["X-Hermes-Event"]) == ("/in", "post_tool_call")
        assert headers["X-Hermes-Delivery"] == payload["delivery_id"]
        assert (payload["hook_event_name"], payload["tool_name"]) == ("post_tool_call", "say")
        assert payload["tool_input"] == {"word": "tea"}
        host.dispatch_tool("skills_list")  # another tool than the matcher's
        host.dispatch_tool("say", {"word": "cake"})
        host.dispatch_tool("say", {"word": "end"})
        paths = [each[0] for each in awaited(kind, 4)]
        assert paths == ["/in"] * 4  # the redirect was not followed, nor tried again
        words = [json.loads(each[2])["tool_input"]["word"] for each in awaited(kind, 4)]
        assert words == ["tea", "tea", "cake", "end"]
        text = host.log_text
    assert "expected an http or https address" in text
    assert "`events` names no event" in text


def test_h22_without_its_secret_and_in_safe_mode_nothing_is_sent(receiver: tuple[type[Receiver], str]) -> None:
    kind, url = receiver
    hook = {"url": url, "events": ["post_tool_call"], "secret_env": "NO_SUCH_KEY"}
    with plugin_host(tool, config={"hooks": {"outbound": [hook]}}) as host:
        host.dispatch_tool("say", {"word": "tea"})
        assert "NO_SUCH_KEY of secret_env is not set" in host.log_text
    safe = {"hooks": {"outbound": [{"url": url, "events": ["post_tool_call"]}]}}
    with plugin_host(config=safe, env={"HERMES_SAFE_MODE": "1"}) as host:
        host.dispatch_tool("skills_list")
    assert kind.got == []


# -- H23: event hooks ------------------------------------------------------------------------------------------

HANDLER = """
from pathlib import Path

def handle(event, context):
    with Path(__file__).with_name("seen.txt").open("a") as file:
        file.write(event + "\\n")
"""


def test_h23_a_bare_base_name_is_no_pattern_and_base_star_is() -> None:
    hooks = {
        "bare": ("name: bare\nevents: [agent]\n", HANDLER),
        "star": ("name: star\nevents: ['agent:*']\n", HANDLER),
        "exact": ("name: exact\nevents: ['agent:start']\n", HANDLER),
    }
    with chat_host(model=["hello"], hooks=hooks) as chat:
        chat.ask("hi")
        seen = {name: (chat.host.home / "hooks" / name / "seen.txt") for name in hooks}
        chat.wait(lambda: seen["star"].exists() and "agent:end" in seen["star"].read_text(encoding="utf-8"))
        chat.wait(lambda: seen["exact"].exists() and seen["exact"].read_text(encoding="utf-8").endswith("\n"))
        assert not seen["bare"].exists()
        assert {"agent:start", "agent:end"} <= set(seen["star"].read_text(encoding="utf-8").split())
        assert set(seen["exact"].read_text(encoding="utf-8").split()) == {"agent:start"}


class Voice(TTSProvider):
    """A provider of speech that remembers what it spoke."""

    name = "voice"

    def __init__(self) -> None:
        self.spoken: list[str] = []

    def is_available(self) -> bool:
        return True

    def synthesize(self, text: str, output_path: str, **extra: Any) -> str:
        self.spoken.append(text)
        Path(output_path).write_bytes(b"sound")
        return output_path


def late(**kwargs: Any) -> None:
    raise TimeoutError("too late")


@pytest.mark.parametrize(
    ("answers", "spoken", "error"),
    [
        ([None, None], ["say it"], ""),
        ([None, {"action": "block", "message": "not this word"}], [], "refuses it: not this word"),
        ([{"text": "say that"}, None], ["say that"], ""),
        ([{"text": "say that"}, {"text": "say this"}], [], "do not agree on the text"),
        ([{"text": ""}], [], "answered pre_tts_synthesis with"),
        ([{"action": "approve"}], [], "answered pre_tts_synthesis with"),
        (["yes"], [], "answered pre_tts_synthesis with 'yes'"),
        ([late], [], "did not judge the text: too late"),
    ],
)
def test_plugins_refuse_or_rewrite_a_text_before_it_is_spoken(
    answers: list[Any], spoken: list[str], error: str
) -> None:
    voice, asked = Voice(), []

    def register(ctx: Any) -> None:
        ctx.register_tts_provider(voice)
        for answer in answers:
            ctx.register_hook("pre_tts_synthesis", answer if callable(answer) else lambda answer=answer, **kw: answer)
        ctx.register_hook("pre_tts_synthesis", lambda **kw: asked.append((kw["text"], kw["provider"])))

    with plugin_host(register, config={"tts": {"provider": "voice"}}) as host:
        media = host.host.service(MediaService)
        result = host.host.bridge.run_with_limit(lambda: media.synthesize("say it"), 30)
    assert (voice.spoken, result["success"]) == (spoken, not error)
    assert error in result.get("error", "")
    assert asked[0] == ("say it", "voice")
    assert len(asked) == (2 if any(isinstance(each, dict) and each.get("text") for each in answers) else 1)


def test_a_required_plugin_without_the_hook_refuses_speech() -> None:
    voice = Voice()
    config = {"tts": {"provider": "voice", "pre_synthesis": {"required_plugins": ["guardian"]}}}
    with plugin_host(lambda ctx: ctx.register_tts_provider(voice), config=config) as host:
        media = host.host.service(MediaService)
        result = host.host.bridge.run_with_limit(lambda: media.synthesize("say it"), 30)
    assert (voice.spoken, result["success"]) == ([], False)
    assert result["error"] == "tts.pre_synthesis.required_plugins: guardian does not judge texts"


def test_an_interrupted_turn_is_told_once_with_its_reason() -> None:
    seen: list[dict[str, Any]] = []

    def register(ctx: Any) -> None:
        ctx.register_hook("agent_loop_stopped", lambda **kwargs: seen.append(kwargs))

    with plugin_host(register, model=["first", "second"]) as host:

        async def work() -> None:
            talk = await host.host.agent.open(None, platform="api_server", approver=NoApprover("here"))
            talk.interrupt("before any turn")
            async for _ in talk.turn("go"):
                talk.interrupt("stopped")
            await talk.close("session_boundary")

        host._run(work())
        assert host.host.hooks.wait_idle(30)
    [keywords] = seen
    assert (keywords["platform"], keywords["reason"], keywords["invalidation_reason"]) == ("api_server", "stopped", "")
    assert keywords["session_key"]


# -- §7.4: what happens besides messages -----------------------------------------------------------------------


def test_events_of_a_platform_reach_plugins_only_for_users_with_access() -> None:
    seen: list[dict[str, Any]] = []
    with chat_host(lambda ctx: ctx.register_hook("gateway_platform_event", lambda **kw: seen.append(kw))) as chat:
        adapter, payload = chat.adapter, {"chat_id": "room", "message_id": "m1", "emojis": ["👍"]}
        for user in ("mallory", "ann"):
            source = adapter.build_source(chat_id="room", user_id=user)
            event = PlatformEvent("reaction", {**payload, "user": user}, source)
            chat.host.host.bridge.wait_plugin(adapter.notify_platform_event(event))
        assert chat.host.host.hooks.wait_idle(20.0)
    assert seen == [{"platform": "memorychat", "event_type": "reaction", "payload": {**payload, "user": "ann"}}]
