"""A conversation that outgrows its model: through a real host, with a model that answers by what it is asked."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

from hermes_agent.agent.compressor import Compressor
from hermes_agent.agent.settings import CompressionSettings
from hermes_agent.contracts.context_engine import ContextEngine
from hermes_agent.core.messages import Notice, TurnEvent
from hermes_agent.testing import ModelFailure, PluginHost, ScriptedModel, call, plugin_host, served

LONG = "word " * 400
TOO_LONG = ModelFailure("This model's maximum context length is 3000 tokens.", 400)
SCHEMA = {"name": "fetch", "description": "x", "parameters": {"type": "object", "properties": {}}}


class Model(ScriptedModel):
    """Answers `say` with answer N, and every request for a summary with `SUMMARY N`."""

    def __init__(self, *answers: Any, **more: Any) -> None:
        super().__init__(*answers, **more)
        self.summaries: list[str] = []
        self.no_summary: ModelFailure | None = None

    def answer(self, request: dict[str, Any]) -> Any:
        asked = str(request["messages"][-1]["content"])
        if not asked.startswith("You keep the record"):
            return super().answer(request)
        self.summaries.append(asked)
        self._answers.insert(0, self.no_summary or f"SUMMARY {len(self.summaries)}")
        answer = super().answer(request)
        del self.requests[-1]
        return answer


@contextlib.contextmanager
def hosted(model: Model, *plugins: Any, length: int = 4000, **config: Any) -> Iterator[PluginHost]:
    config.setdefault("compression", {"protect_first_n": 1, "protect_last_n": 4})
    with served(model) as url:
        block = {"provider": "custom", "base_url": url, "default": model.name, "context_length": length}
        with plugin_host(*plugins, config={"model": block, "auxiliary": {"transient_retries": 0}, **config}) as host:
            yield host


def tools(ctx: Any) -> None:
    ctx.register_tool("fetch", "test", SCHEMA, lambda args, **kw: json.dumps({"page": "page " * 300}))


def told(events: tuple[TurnEvent, ...]) -> list[str]:
    return [event.text for event in events if isinstance(event, Notice)]


def roles(messages: list[dict[str, Any]]) -> list[str]:
    return [m["role"] for m in messages]


def are_whole(messages: list[dict[str, Any]]) -> bool:
    """Say whether each call has its result right behind it, and no result is without a call."""
    open_calls: list[str] = []
    for message in messages:
        if message["role"] == "tool":
            if message["tool_call_id"] not in open_calls:
                return False
            open_calls.remove(message["tool_call_id"])
        elif open_calls:
            return False
        open_calls += [c["id"] for c in message.get("tool_calls") or ()]
    return not open_calls


def test_at_the_threshold_the_middle_becomes_a_summary_and_the_ends_stay() -> None:
    model = Model(*[f"answer {n}" for n in range(8)])
    with hosted(model) as host:
        answers = [host.ask(f"question {n} {LONG}") for n in range(6)]
        sent = model.messages
    compacted = [a for a in answers if told(a.events)]
    assert compacted and "What was said stays" in told(compacted[0].events)[0]
    assert sent[1]["content"].startswith("question 0")
    assert "SUMMARY" in sent[1]["content"]  # joined: two messages of the user in a row
    assert sent[-1]["content"].startswith("question 5")
    assert "question 1" in model.summaries[0] and "question 5" not in model.summaries[0]


def test_what_was_said_stays_in_the_transcript_and_a_resumed_session_goes_on_with_the_short_form() -> None:
    model = Model(*[f"answer {n}" for n in range(8)])
    with hosted(model) as host:
        for n in range(6):
            host.ask(f"question {n} {LONG}")
        session = host.conversation.session_id
        transcript = host.host.open_transcript()
        said = [m.text for m in transcript.messages(session) if m.role == "user"]
        assert [text.split(" word")[0] for text in said] == [f"question {n}" for n in range(6)]
        stored = transcript.history(session)
        assert len(stored) < len(transcript.messages(session))
        assert [m.to_dict() for m in stored] == [m.to_dict() for m in host.conversation.history]
        assert any("SUMMARY" in m.text for m in stored)
        transcript.close()


def test_a_call_is_not_parted_from_its_results_and_the_instruction_survives_a_long_turn() -> None:
    steps = [[call("fetch", page=n), call("fetch", page=-n)] for n in range(1, 7)]
    model = Model(*steps, "done")
    with hosted(model, tools, length=6000) as host:
        answer = host.ask("Read everything about otters, exactly twice each.")
        assert answer.text == "done"
        assert told(answer.events)
        assert all(are_whole(request["messages"]) for request in model.requests)
        assert all(
            any("exactly twice each" in str(m["content"]) for m in request["messages"] if m["role"] == "user")
            for request in model.requests
        )


def test_old_tool_results_go_first_and_then_no_summary_is_needed() -> None:
    said: list[dict[str, Any]] = []
    for n in range(6):
        said += [
            {"role": "user", "content": f"q{n}"},
            {"role": "assistant", "content": None, "tool_calls": [json.loads(_call(n))]},
            {"role": "tool", "tool_call_id": f"c{n}", "content": "page " * 300},
            {"role": "assistant", "content": f"a{n}"},
        ]
    engine = Compressor(_nobody, CompressionSettings(protect_first_n=1, protect_last_n=4))
    engine.update_model("m", 4000)

    shorter = engine.compress(said, current_tokens=2500)

    assert len(shorter) == len(said)
    assert [len(m["content"]) > 400 for m in shorter if m["role"] == "tool"] == [False] * 5 + [True]
    assert are_whole(shorter)


def _call(n: int) -> str:
    return json.dumps({"id": f"c{n}", "type": "function", "function": {"name": "fetch", "arguments": "{}"}})


def _nobody(prompt: str, max_tokens: int) -> str:
    raise AssertionError("nobody is asked")


def test_an_overflow_compacts_and_asks_again() -> None:
    model = Model("one", "two", "three", TOO_LONG, "after all")
    with hosted(model, length=100_000) as host:
        for n in range(3):
            host.ask(f"question {n} {LONG}")
        answer = host.ask(f"question 3 {LONG}")
        assert answer.text == "after all"
        assert "was made shorter" in told(answer.events)[0]
        assert len(json.dumps(model.requests[-1])) < len(json.dumps(model.requests[-2]))


def test_an_overflow_is_survived_without_a_summary_and_the_user_s_words_are_kept() -> None:
    model = Model("one", "two", "three", TOO_LONG, "after all")
    model.no_summary = ModelFailure("no", 500)
    with hosted(model, length=100_000) as host:
        for n in range(3):
            host.ask(f"question {n} {LONG}")
        assert host.ask(f"question 3 {LONG}").text == "after all"
        assert "No summary could be made" in str(model.messages) and "- question 1 word" in str(model.messages)


def test_without_a_summary_nothing_is_lost_before_it_must_be() -> None:
    model = Model(*[f"answer {n}" for n in range(8)])
    model.no_summary = ModelFailure("no", 500)
    with hosted(model) as host:
        answers = [host.ask(f"question {n} {LONG}") for n in range(5)]
    assert any("could not be made shorter" in text for a in answers for text in told(a.events))
    assert all(f"question {n}" in str(model.messages) for n in range(5))


def test_switched_off_it_does_nothing_by_itself() -> None:
    model = Model(*[f"answer {n}" for n in range(8)])
    with hosted(model, compression={"enabled": False}) as host:
        answers = [host.ask(f"question {n} {LONG}") for n in range(6)]
    assert not any(told(a.events) for a in answers) and not model.summaries


def test_compress_and_context_are_commands() -> None:
    model = Model(*[f"answer {n}" for n in range(8)])
    with hosted(model, length=100_000) as host:
        assert "There is nothing in this conversation" in (host.run_command("/compress") or "")
        assert host.run_command("/compact") == host.run_command("/compress")
        for n in range(5):
            host.ask(f"question {n} {LONG}")
        assert "of 100000" in (host.run_command("/context") or "")
        answer = host.run_command("/compress the otters") or ""
        assert "10 messages" in answer and "became" in answer
        assert "What matters most: the otters" in model.summaries[-1]
        assert "made shorter at 50000 tokens; 1 time(s)" in (host.run_command("/context") or "")


def test_what_plugins_added_to_a_message_stays_with_it() -> None:
    model = Model(*[f"answer {n}" for n in range(8)])

    def plugin(ctx: Any) -> None:
        ctx.register_hook("pre_llm_call", lambda user_message, **kw: f"[seen {user_message.split(' word')[0]}]")

    with hosted(model, plugin) as host:
        for n in range(6):
            host.ask(f"question {n} {LONG}")
        sent = [m["content"] for m in model.messages if m["role"] == "user"]
    for text in sent[1:]:
        assert text.strip().endswith(f"[seen {text.split(' word')[0]}]")


class Halves(ContextEngine):
    """Keeps the second half, and has a tool."""

    name = "halves"
    calls: ClassVar[list[Any]] = []

    def should_compress(self, prompt_tokens: int | None = None) -> bool:
        return (prompt_tokens or 0) > self.threshold_tokens

    def compress(self, messages: list[dict[str, Any]], **options: Any) -> list[dict[str, Any]]:
        self.calls.append(("compress", len(messages)))
        return messages[len(messages) // 2 :]

    def get_tool_schemas(self) -> list[dict[str, Any]]:
        return [{**SCHEMA, "name": "look_back"}]

    def handle_tool_call(self, name: str, args: dict[str, Any], **kwargs: Any) -> str:
        return json.dumps({"name": name, "messages": len(kwargs["messages"])})

    def on_session_start(self, session_id: str, **kwargs: Any) -> None:
        self.calls.append(("start", session_id, sorted(kwargs)))

    def on_session_end(self, session_id: str, messages: Any) -> None:
        self.calls.append(("end", session_id, len(messages)))


def with_engine(engine: Callable[[], ContextEngine]) -> Callable[[Any], None]:
    return lambda ctx: ctx.register_context_engine(engine())


def test_a_plugin_s_engine_is_used_through_the_same_door_and_its_tool_reaches_the_session_s_copy() -> None:
    Halves.calls = []
    model = Model(*[f"answer {n}" for n in range(5)], call("look_back"), "seen")
    with hosted(model, with_engine(Halves), length=1600, context={"engine": "halves"}) as host:
        for n in range(5):
            host.ask(f"question {n} {LONG}")
        answer = host.ask("look back")
        session = host.conversation.session_id
        assert "look_back" in model.tools
        assert json.loads(answer.tool_calls[0].result)["messages"] > 0
        assert "of plugin" in (host.run_command("/context") or "")
    assert Halves.calls[0] == ("start", session, ["hermes_home", "model", "platform"])
    assert "compress" in [c[0] for c in Halves.calls] and Halves.calls[-1][:2] == ("end", session)
    assert not model.summaries


def test_an_engine_may_keep_all_messages_and_shorten_them() -> None:
    class Trims(Halves):
        name = "trims"

        def compress(self, messages: list[dict[str, Any]], **options: Any) -> list[dict[str, Any]]:
            self.calls.append(("compress", len(messages)))
            return [*({**m, "content": m["content"][:10]} for m in messages[:-1]), messages[-1]]

    Trims.calls = []
    model = Model(*[f"answer {n}" for n in range(20)])
    with hosted(model, with_engine(Trims), length=8000, context={"engine": "trims"}) as host:
        for n in range(20):
            host.ask(f"question {n} {LONG}")
    assert [name for name, *_ in Trims.calls].count("compress") == 1  # there is room for the other turns then


def test_an_engine_that_fails_gives_way_to_the_agent_s_own_and_the_person_is_told() -> None:
    class Broken(Halves):
        def compress(self, messages: list[dict[str, Any]], **options: Any) -> list[dict[str, Any]]:
            raise RuntimeError("no idea")

    model = Model(*[f"answer {n}" for n in range(8)])
    with hosted(model, with_engine(Broken), length=1600, context={"engine": "halves"}) as host:
        answers = [host.ask(f"question {n} {LONG}") for n in range(6)]
    (notice,) = [text for a in answers for text in told(a.events) if "is not used in this session" in text]
    assert "compress() failed: RuntimeError('no idea'). The built-in one is used" in notice
    assert model.summaries


def test_an_engine_that_loses_the_instruction_does_not() -> None:
    class Forgetful(Halves):
        def compress(self, messages: list[dict[str, Any]], **options: Any) -> list[dict[str, Any]]:
            return [{"role": "assistant", "content": "we spoke"}]

    model = Model(*[f"answer {n}" for n in range(8)])
    with hosted(model, with_engine(Forgetful), length=1600, context={"engine": "halves"}) as host:
        for n in range(6):
            host.ask(f"question {n} {LONG}")
        assert all(f"question {n}" in str(r["messages"]) for n, r in enumerate(model.requests))


def test_an_engine_that_nobody_brings_is_told_of_and_the_agent_s_own_works() -> None:
    with hosted(Model("hi"), context={"engine": "gone"}) as host:
        assert told(host.ask("hello").events) == [
            "context.engine='gone' is set but no plugin registered that name; the built-in engine is used."
        ]
