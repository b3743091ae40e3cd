"""`ctx.llm` with a model in memory: plugin contract §5; §13 rows 26 to 28; §14.1 row 17; §15 point 10."""

from __future__ import annotations

import asyncio
import dataclasses
import inspect
import logging
import re
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from hermes_agent.config.settings import Settings
from hermes_agent.contracts.model_client import ModelAnswer, ModelDelta, ModelRequest, TextPart
from hermes_agent.core.errors import ModelError, UserError
from hermes_agent.core.messages import Message, Usage
from hermes_agent.models.client_pool import ClientPool
from hermes_agent.models.providers import ModelEndpoint, ProviderCatalog
from hermes_agent.models.selection import ModelSelection
from hermes_agent.plugins.llm_client import PluginLlm
from hermes_agent.plugins.llm_types import (
    PluginLlmCompleteResult,
    PluginLlmImageInput,
    PluginLlmStructuredResult,
    PluginLlmTextInput,
    PluginLlmTrustError,
    PluginLlmUsage,
)
from hermes_agent.runtime.bridge import Bridge

CONTRACT = (Path(__file__).resolve().parents[3] / "docs" / "plugins" / "contract.md").read_text(encoding="utf-8")
HELLO = [{"role": "user", "content": "hello"}]
PICTURE = {"type": "image", "data": b"\x89PNG", "mime_type": "image/png"}
LIMIT_S = 20.0


class MemoryModel:
    """Answers request N with step N, the last one again and again: text, an error, or nothing ever."""

    provider = "memory"
    base_url = url = ""
    api_mode = "chat_completions"

    def __init__(self, *steps: str | ModelError | None, usage: Usage | None = None) -> None:
        self.steps = steps
        self.usage = usage or Usage(10, 2)
        self.requests: list[ModelRequest] = []
        self.loops: list[asyncio.AbstractEventLoop] = []
        self.asked = asyncio.Event()

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelDelta]:
        step = self.steps[min(len(self.requests), len(self.steps) - 1)]
        self.requests.append(request)
        self.loops.append(asyncio.get_running_loop())
        self.asked.set()
        if isinstance(step, ModelError):
            raise step
        if step is None:
            await asyncio.sleep(LIMIT_S)
        text = step or "late"
        yield TextPart(text)
        yield ModelAnswer(Message("assistant", text), "stop", self.usage, f"{request.model}-2026")

    def warm_up(self) -> None:
        pass

    async def aclose(self) -> None:
        pass


class MemoryConfig:
    def __init__(self, values: dict[str, Any]) -> None:
        self.values = values

    @property
    def settings(self) -> Settings:
        return Settings(self.values)


class MemoryGround:
    """What `ctx.llm` stands on, with one model behind every provider."""

    def __init__(self, home: Path, model: MemoryModel, *, active: str, values: dict[str, Any]) -> None:
        self.home = home
        self.config = MemoryConfig(values)
        self.bridge = Bridge()
        self.clients = ClientPool()
        self.ledger = None
        self.model = model
        self.active = active

    def select_model(
        self, *, model: str = "", provider: str = "", profile: str = "", settings: Mapping[str, Any] | None = None
    ) -> ModelSelection:
        name = provider or (settings or {}).get("provider") or self.active
        known = ProviderCatalog().get(name)
        assert known is not None
        endpoint = ModelEndpoint(known, (settings or {}).get("base_url") or f"https://{name}.example/v1")
        chosen = model or (settings or {}).get("default") or "m-1"
        return ModelSelection(endpoint, chosen, "a test says so", lambda: self.model, max_tokens=77)


Build = Callable[..., tuple[PluginLlm, MemoryModel]]


@pytest.fixture
def build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Build]:
    """Make the `ctx.llm` of plugin `p` over a model, with these permissions in the home's config."""
    monkeypatch.delenv("HERMES_DECLARED_CONFIG", raising=False)
    bridges: list[Bridge] = []

    def make(
        *steps: str | ModelError | None,
        policy: str = "",
        active: str = "openrouter",
        usage: Usage | None = None,
        auxiliary: dict[str, Any] | None = None,
    ) -> tuple[PluginLlm, MemoryModel]:
        allow(tmp_path, policy)
        model = MemoryModel(*(steps or ("pong",)), usage=usage)
        ground = MemoryGround(tmp_path, model, active=active, values={"auxiliary": auxiliary or {}})
        bridges.append(ground.bridge)
        return PluginLlm("p", ground), model

    yield make
    for bridge in bridges:
        bridge.close()


def allow(home: Path, policy: str) -> None:
    (home / "config.yaml").write_text(f"plugins:\n  entries:\n    p:\n      llm: {{{policy}}}\n")


async def ask(llm: PluginLlm, *, asynchronous: bool = False, structured: bool = False, **more: Any) -> Any:
    """Call one of the four methods."""
    if structured:
        more = {"instructions": "Do it.", "input": [{"type": "text", "text": "it"}], **more}
    else:
        more = {"messages": HELLO, **more}
    method = getattr(llm, ("a" if asynchronous else "") + "complete" + ("_structured" if structured else ""))
    return await method(**more) if asynchronous else method(**more)


FORMS = [
    pytest.param(
        {"asynchronous": a, "structured": s}, id=("a" if a else "") + "complete" + ("_structured" if s else "")
    )
    for a in (False, True)
    for s in (False, True)
]


# -- shape -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["complete", "complete_structured"])
def test_the_signatures_are_those_of_the_contract(method: str) -> None:
    row = re.search(rf"^\| `{method}` \| `\((.*?)\) ->", CONTRACT, re.MULTILINE)
    assert row is not None
    printed = row[1].split(", ")

    for name in (method, f"a{method}"):
        parameters = list(inspect.signature(getattr(PluginLlm, name)).parameters.values())[1:]
        ours = [p.name if p.default is p.empty else f"{p.name}={p.default}" for p in parameters]
        keyword_only = printed.index("*")
        assert ours == [*(p for p in printed if p != "*"), "task=None"]  # the contract of 0.23 adds the last one
        assert all(p.kind is p.KEYWORD_ONLY for p in parameters[keyword_only:])


def test_the_data_classes_are_plain_and_a_structured_result_is_a_result() -> None:
    fields = {
        c: [f.name for f in dataclasses.fields(c)]
        for c in (
            PluginLlmTextInput,
            PluginLlmImageInput,
            PluginLlmUsage,
            PluginLlmCompleteResult,
            PluginLlmStructuredResult,
        )
    }

    assert list(fields.values()) == [
        ["text", "type"],
        ["data", "url", "mime_type", "file_name", "type"],
        ["input_tokens", "output_tokens", "total_tokens", "cache_read_tokens", "cache_write_tokens", "cost_usd"],
        ["text", "provider", "model", "agent_id", "usage", "audit"],
        ["text", "provider", "model", "agent_id", "usage", "audit", "parsed", "content_type"],
    ]
    assert issubclass(PluginLlmStructuredResult, PluginLlmCompleteResult)


@pytest.mark.parametrize("form", FORMS)
async def test_the_operator_s_model_answers(build: Build, form: dict[str, Any]) -> None:
    llm, model = build("pong")

    result = await ask(llm, **form, temperature=0.2, max_tokens=9, purpose="test")

    assert (result.text, result.provider, result.model, result.agent_id) == (
        "pong",
        "openrouter",
        "m-1-2026",
        "default",
    )
    assert result.usage == PluginLlmUsage(10, 2, 12)
    assert result.audit == {"plugin_id": "p", "purpose": "test", "profile": None}
    request = model.requests[0]
    assert (request.model, request.temperature, request.max_tokens, request.tools) == ("m-1", 0.2, 9, ())


def test_the_conversation_is_sent_as_it_is(build: Build) -> None:
    llm, model = build()

    llm.complete([{"role": "system", "content": "s"}, *HELLO, {"role": "assistant", "content": "a"}, *HELLO])

    hello = Message("user", "hello")
    assert model.requests[0].messages == [Message("system", "s"), hello, Message("assistant", "a"), hello]
    assert model.requests[0].max_tokens == 77  # the operator's, where the call says nothing


async def test_cached_tokens_and_a_price_that_the_provider_tells_are_passed_on(build: Build) -> None:
    details = {"cost": 0.0021, "prompt_tokens_details": {"cache_write_tokens": 4}}
    llm, _ = build(usage=Usage(10, 2, 6, details))

    assert (await ask(llm)).usage == PluginLlmUsage(10, 2, 12, 6, 4, 0.0021)


@pytest.mark.parametrize(("active", "cost"), [("local", 0.0), ("openai", None)])
async def test_the_embedded_model_costs_nothing_and_an_unknown_price_is_none(
    build: Build, active: str, cost: float | None
) -> None:
    llm, _ = build(active=active, usage=Usage(10, 2, 0, {"cost": 5}))

    assert (await ask(llm)).usage.cost_usd == cost


# -- the trust gate ----------------------------------------------------------------------------------------------

DENIED = {
    "provider": "cannot override the provider (set plugins.entries.p.llm.allow_provider_override to true to allow).",
    "model": "cannot override the model (set plugins.entries.p.llm.allow_model_override to true to allow).",
    "agent_id": "cannot run completions against a non-default agent id (set plugins.entries.p.llm."
    "allow_agent_id_override to true to allow).",
    "profile": "cannot override the auth profile (set plugins.entries.p.llm.allow_profile_override to true to allow).",
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("what", sorted(DENIED))
async def test_what_is_not_allowed_is_refused_before_the_model_is_asked(
    build: Build, what: str, form: dict[str, Any]
) -> None:
    others = ", ".join(f"allow_{name}_override: true" for name in DENIED if name != what)
    llm, model = build(policy=others)

    with pytest.raises(PluginLlmTrustError) as caught:
        await ask(llm, **form, **{what: "groq"})

    assert isinstance(caught.value, PermissionError)
    assert str(caught.value) == f"Plugin 'p' {DENIED[what]}"
    assert model.requests == []


@pytest.mark.parametrize("nothing", [None, "", "  "])
async def test_an_empty_override_asks_for_nothing(build: Build, nothing: str | None) -> None:
    llm, _ = build()

    assert (await ask(llm, provider=nothing, model=nothing, agent_id=nothing, profile=nothing)).text == "pong"


@pytest.mark.parametrize(
    ("what", "given", "listed", "passes"),
    [
        ("provider", "groq", "", True),
        ("provider", "groq", 'allowed_providers: ["*"]', True),
        ("provider", "groq", 'allowed_providers: [openai, "*"]', True),
        ("provider", " GROQ ", "allowed_providers: [openai, groq]", True),
        ("provider", "groq", 'allowed_providers: [openai, " Groq "]', True),
        ("provider", "groq", "allowed_providers: [openai]", False),
        ("provider", "groq", "allowed_providers: []", False),
        ("model", "x/y", "", True),
        ("model", "x/Y", "allowed_models: [X/y]", True),
        ("model", "x/y", "allowed_models: [x]", False),
        ("model", "x/y", "allowed_models: []", False),
    ],
)
async def test_the_lists_say_what_may_be_chosen(build: Build, what: str, given: str, listed: str, passes: bool) -> None:
    llm, model = build(policy=", ".join(t for t in (f"allow_{what}_override: true", listed) if t))

    if passes:
        assert getattr(await ask(llm, **{what: given}), what) == given.strip()
        return
    with pytest.raises(PluginLlmTrustError) as caught:
        await ask(llm, **{what: given})
    assert str(caught.value) == f"Plugin 'p' {what} override '{given}' is not in plugins.entries.p.llm.allowed_{what}s."
    assert model.requests == []


async def test_permissions_are_read_at_each_call(build: Build, tmp_path: Path) -> None:
    llm, _ = build(policy="allow_model_override: true")
    assert (await ask(llm, model="other")).model == "other"

    allow(tmp_path, "")
    with pytest.raises(PluginLlmTrustError):
        await ask(llm, model="other")

    allow(tmp_path, "allow_model_override: true, allowed_models: [other]")
    assert (await ask(llm, model="other")).model == "other"


async def test_while_the_config_is_broken_nothing_is_allowed_and_plain_calls_go_on(
    build: Build, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    llm, _ = build(policy="allow_model_override: true")
    (tmp_path / "config.yaml").write_text("plugins: [")

    with pytest.raises(PluginLlmTrustError):
        await ask(llm, model="other")

    assert "plugin p may choose nothing for the model" in caplog.text
    assert (await ask(llm)).text == "pong"


async def test_a_plugin_that_may_choose_the_model_stays_with_the_provider(build: Build) -> None:
    llm, model = build(policy="allow_model_override: true")

    result = await ask(llm, model="x/y")

    assert (result.provider, result.model, model.requests[0].model) == ("openrouter", "x/y", "x/y")


async def test_provider_and_model_together_change_both(build: Build) -> None:
    llm, model = build(policy="allow_model_override: true, allow_provider_override: true")

    result = await ask(llm, provider="groq", model="x")

    assert (result.provider, result.model, model.requests[0].model) == ("groq", "x", "x")


async def test_the_embedded_model_has_one_name(build: Build) -> None:
    llm, model = build(policy="allow_model_override: true", active="local")

    with pytest.raises(UserError, match=r"The embedded model is m-1; 'x' is none of its names\."):
        await ask(llm, model="x")
    assert model.requests == []


async def test_agent_and_profile_are_named_in_the_result(build: Build) -> None:
    llm, _ = build(policy="allow_agent_id_override: true, allow_profile_override: true")

    result = await ask(llm, agent_id="other", profile="default")

    assert (result.agent_id, result.audit["profile"]) == ("other", "default")


async def test_an_unknown_profile_is_refused_with_those_there_are(build: Build) -> None:
    llm, model = build(policy="allow_profile_override: true")

    with pytest.raises(ValueError, match=r"^unknown auth profile 'work'; known: default$"):
        await ask(llm, profile="work")
    assert model.requests == []


# -- arguments ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("asynchronous", [False, True])
@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({"instructions": " "}, "{}complete_structured requires non-empty instructions"),
        ({"input": []}, "{}complete_structured requires at least one input block"),
        ({"input": [{"type": "text"}]}, "text input block requires 'text' string"),
        ({"input": [{"type": "image"}]}, "image input block requires 'data' bytes or 'url'"),
        ({"input": [PluginLlmImageInput()]}, "image input block requires 'data' bytes or 'url'"),
        ({"input": [{"type": "image", "data": "x"}]}, "image input 'data' must be bytes"),
        ({"input": [{"type": "audio"}]}, "Unknown input block type: 'audio'"),
        ({"input": [7]}, "Unsupported input block: int"),
        ({"timeout": 0}, "timeout is 0: expected a number of seconds above 0"),
    ],
)
async def test_wrong_arguments_are_named(build: Build, asynchronous: bool, wrong: dict[str, Any], text: str) -> None:
    llm, model = build()

    with pytest.raises(ValueError) as caught:
        await ask(llm, structured=True, asynchronous=asynchronous, **wrong)

    assert str(caught.value) == text.format("a" if asynchronous else "")
    assert model.requests == []


@pytest.mark.parametrize(
    ("messages", "text"),
    [
        ([], "messages is empty: expected at least one role/content mapping"),
        ("hello", "messages is str: expected a list of role/content mappings"),
        (["hello"], "messages[0] is str: expected a mapping with role and content"),
        ([*HELLO, {"role": "bard"}], "messages[1]: unknown role 'bard': expected system, user, assistant or tool"),
    ],
)
async def test_wrong_messages_are_named(build: Build, messages: Any, text: str) -> None:
    llm, _ = build()

    with pytest.raises(ValueError) as caught:
        await ask(llm, messages=messages)

    assert str(caught.value) == text


# -- structured --------------------------------------------------------------------------------------------------

SCHEMA = {"type": "object", "required": ["n"], "properties": {"n": {"type": "integer"}}}


def test_a_structured_call_is_a_system_message_and_one_list_of_parts(build: Build) -> None:
    llm, model = build('{"n": 1}')

    llm.complete_structured(
        instructions="Count.",
        input=[
            PluginLlmTextInput("apples"),
            {"type": "text", "text": "pears"},
            PluginLlmImageInput(data=b"abc", mime_type="image/gif"),
            {"type": "image", "data": b"abc"},
            {"type": "image", "url": "https://example.org/x.png"},
        ],
        json_schema=SCHEMA,
        schema_name="fruit",
        system_prompt="You count.",
    )

    request = model.requests[0]
    system, user = request.messages
    assert system.role == "system"
    assert system.text.startswith("You count.\n\n")
    assert "single JSON object" in system.text and "no prose" in system.text and "no code fences" in system.text
    assert system.text.count("\n") == 2
    assert (user.role, user.content) == (
        "user",
        [
            {
                "type": "text",
                "text": "Count.\n\nSchema name: fruit\n\nJSON schema:\n"
                '{"properties": {"n": {"type": "integer"}}, "required": ["n"], "type": "object"}',
            },
            {"type": "text", "text": "apples"},
            {"type": "text", "text": "pears"},
            {"type": "image_url", "image_url": {"url": "data:image/gif;base64,YWJj"}},
            {"type": "image_url", "image_url": {"url": "data:image/png;base64,YWJj"}},
            {"type": "image_url", "image_url": {"url": "https://example.org/x.png"}},
        ],
    )
    assert request.extra == {
        "response_format": {
            "type": "json_schema",
            "json_schema": {"name": "plugin_structured_output", "schema": SCHEMA, "strict": False},
        }
    }


async def test_without_json_there_is_no_system_message_of_ours_and_no_parsing(build: Build) -> None:
    llm, model = build('{"n": 1}')

    result = await ask(llm, structured=True)

    assert [m.role for m in model.requests[0].messages] == ["user"]
    assert model.requests[0].extra == {}
    assert (result.parsed, result.content_type) == (None, "text")


@pytest.mark.parametrize(
    ("said", "parsed"),
    [
        ('{"n": 1}', {"n": 1}),
        (' \n[1, "ä"] ', [1, "ä"]),
        ('```json\n{"n": 1}\n```', {"n": 1}),
        ('```\n{"n": 1}```\n', {"n": 1}),
    ],
)
async def test_json_mode_parses_what_comes(build: Build, said: str, parsed: Any) -> None:
    llm, model = build(said)

    result = await ask(llm, structured=True, json_mode=True)

    assert (result.parsed, result.content_type, result.text) == (parsed, "json", said)
    assert model.requests[0].extra == {"response_format": {"type": "json_object"}}


@pytest.mark.parametrize("said", ["I cannot.", '{"n": ', "[" * 100_000])
async def test_what_is_no_json_is_given_as_text(build: Build, said: str) -> None:
    llm, _ = build(said)

    result = await ask(llm, structured=True, json_schema=SCHEMA, schema_name="s")

    assert (result.parsed, result.content_type, result.text) == (None, "text", said)
    assert result.audit["schema_name"] == "s"


@pytest.mark.parametrize("asynchronous", [False, True])
async def test_json_that_does_not_match_the_schema_is_an_error(build: Build, asynchronous: bool) -> None:
    llm, _ = build('{"n": "one"}')

    with pytest.raises(ValueError) as caught:
        await ask(llm, asynchronous=asynchronous, structured=True, json_schema=SCHEMA)

    assert str(caught.value) == ("Plugin LLM structured output did not match schema: 'one' is not of type 'integer'")


async def test_a_schema_that_is_none_is_jsonschema_s_error(build: Build) -> None:
    llm, _ = build("{}")

    with pytest.raises(jsonschema.SchemaError):
        await ask(llm, structured=True, json_schema={"type": "no such type"})


async def test_without_jsonschema_nothing_is_compared_and_the_log_says_so(
    build: Build, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "jsonschema", None)
    caplog.set_level(logging.DEBUG, "hermes_agent.plugins.llm_types")
    llm, _ = build('{"n": "one"}')

    assert (await ask(llm, structured=True, json_schema=SCHEMA)).parsed == {"n": "one"}
    assert "jsonschema is not installed" in caplog.text


# -- the audit line ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("asynchronous", [False, True])
async def test_each_call_leaves_one_line_in_the_log(
    build: Build, caplog: pytest.LogCaptureFixture, asynchronous: bool
) -> None:
    caplog.set_level(logging.INFO, "hermes_agent.plugins.llm_client")
    llm, _ = build("{}")

    await ask(llm, asynchronous=asynchronous, purpose="hooks.rewrite")
    await ask(llm, asynchronous=asynchronous, structured=True, json_mode=True, purpose="triage")

    assert [(r.levelname, r.getMessage()) for r in caplog.records] == [
        ("INFO", "plugin_llm.complete plugin=p provider=openrouter model=m-1-2026 purpose=hooks.rewrite tokens=12"),
        (
            "INFO",
            "plugin_llm.complete_structured plugin=p provider=openrouter model=m-1-2026 purpose=triage"
            " content_type=json tokens=12",
        ),
    ]


async def test_a_call_whose_answer_does_not_match_is_in_the_log_too(
    build: Build, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "hermes_agent.plugins.llm_client")
    llm, _ = build("{}")

    with pytest.raises(ValueError):
        await ask(llm, structured=True, json_schema=SCHEMA)

    assert "content_type=invalid tokens=12" in caplog.text


# -- pictures ----------------------------------------------------------------------------------------------------

VISION = {"vision": {"provider": "gemini", "model": "eyes", "timeout": 120, "extra_body": {"top_p": 0.1}}}
PARTS = [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "https://example.org/x.png"}}]}]


@pytest.mark.parametrize("asynchronous", [False, True])
async def test_pictures_go_to_the_model_for_them(build: Build, asynchronous: bool) -> None:
    llm, model = build(auxiliary=VISION)

    blocks = await ask(llm, asynchronous=asynchronous, structured=True, input=[PICTURE])
    parts = await ask(llm, asynchronous=asynchronous, messages=PARTS)
    text = await ask(llm, asynchronous=asynchronous)

    assert [r.provider for r in (blocks, parts, text)] == ["gemini", "gemini", "openrouter"]
    assert [r.model for r in model.requests] == ["eyes", "eyes", "m-1"]
    assert [dict(r.extra) for r in model.requests] == [{"top_p": 0.1}, {"top_p": 0.1}, {}]


async def test_another_model_of_the_same_provider_may_be_the_one_for_pictures(build: Build) -> None:
    llm, model = build(auxiliary={"vision": {"provider": "auto", "model": "eyes"}})

    assert (await ask(llm, structured=True, input=[PICTURE])).provider == "openrouter"
    assert model.requests[0].model == "eyes"


async def test_a_choice_of_the_call_goes_before_the_model_for_pictures(build: Build) -> None:
    llm, model = build(policy="allow_model_override: true", auxiliary=VISION)

    assert (await ask(llm, structured=True, input=[PICTURE], model="mine")).provider == "openrouter"
    assert model.requests[0].model == "mine"


async def test_without_a_model_for_pictures_the_active_one_is_shown_them(build: Build) -> None:
    llm, model = build(auxiliary={"vision": {"provider": "auto", "model": "", "base_url": "", "timeout": 120}})

    assert (await ask(llm, structured=True, input=[PICTURE])).provider == "openrouter"
    assert model.requests[0].messages[-1].content[1]["type"] == "image_url"  # type: ignore[index]


async def test_the_embedded_model_is_never_shown_a_picture(build: Build) -> None:
    llm, model = build(active="local")

    with pytest.raises(UserError, match=r"The embedded model cannot see pictures\.\nName one that can: `hermes config"):
        await ask(llm, structured=True, input=[PICTURE])
    assert model.requests == []


# -- failures ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", FORMS)
async def test_a_call_waits_no_longer_than_its_timeout(build: Build, form: dict[str, Any]) -> None:
    llm, _ = build(None)

    with pytest.raises(ModelError, match=r"Model 'm-1' of openrouter gave no whole answer within 0\.05 seconds"):
        await ask(llm, **form, timeout=0.05)


async def test_a_passing_failure_is_tried_again_as_often_as_the_operator_says(build: Build) -> None:
    down = ModelError("unreachable", "It is down.")
    llm, model = build(down, "pong", auxiliary={"transient_retries": 1})
    assert (await ask(llm)).text == "pong"
    assert len(model.requests) == 2

    llm, model = build(down, down, "pong", auxiliary={"transient_retries": 1})
    with pytest.raises(ModelError, match="It is down"):
        await ask(llm)
    assert len(model.requests) == 2


async def test_no_repetition_begins_that_the_timeout_would_end(build: Build) -> None:
    busy = ModelError("rate_limit", "Wait a minute.", retry_after_s=60.0, status=429)
    llm, model = build(busy, "pong", auxiliary={"transient_retries": 2})

    with pytest.raises(ModelError, match="Wait a minute"):
        await ask(llm, timeout=5)
    assert len(model.requests) == 1


async def test_a_lasting_failure_is_not_tried_again(build: Build) -> None:
    llm, model = build(ModelError("auth", "No.", status=401), "pong", auxiliary={"transient_retries": 2})

    with pytest.raises(ModelError, match=r"No\."):
        await ask(llm)
    assert len(model.requests) == 1


@pytest.mark.parametrize(
    ("said", "sent", "left"),
    [
        ("'temperature' is not supported with this model", {"temperature": 0.1}, (None, 77, {})),
        (
            "Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead.",
            {"max_tokens": 5},
            (None, None, {"max_completion_tokens": 5}),
        ),
        ("response_format json_object is unavailable", {"json_mode": True}, (None, 77, {})),
    ],
)
async def test_a_field_that_the_provider_refuses_is_left_out(
    build: Build, said: str, sent: dict[str, Any], left: tuple[Any, ...]
) -> None:
    llm, model = build(ModelError("refused", said, status=400), "{}")

    await ask(llm, structured=True, **sent)

    last = model.requests[-1]
    assert (last.temperature, last.max_tokens, last.extra) == left
    assert len(model.requests) == 2


# -- loops -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["complete", "complete_structured"])
async def test_a_sync_call_on_the_core_loop_is_an_error_that_names_the_other_form(build: Build, method: str) -> None:
    llm, model = build()

    async def main() -> None:
        await llm._services.bridge.run(int)
        with pytest.raises(RuntimeError) as caught:
            await ask(llm, structured=method != "complete")
        assert str(caught.value) == f"ctx.llm.{method} would block the core loop: await ctx.llm.a{method} instead"

    await main()
    assert model.requests == []


async def test_every_form_asks_on_the_core_loop(build: Build) -> None:
    llm, model = build()
    bridge = llm._services.bridge

    async def handler() -> str:
        sync = llm.complete(HELLO)  # on the plugin loop, which it blocks
        results = await asyncio.gather(*(llm.acomplete(HELLO) for _ in range(3)))
        return "".join(r.text for r in (sync, *results))

    async def main() -> None:
        async with asyncio.timeout(LIMIT_S):
            assert (await bridge.run(llm.complete, HELLO)).text == "pong"
            assert await bridge.run(lambda: bridge.wait_plugin(handler())) == "pong" * 4
            assert (await llm.acomplete(HELLO)).text == "pong"
            assert set(model.loops) == {asyncio.get_running_loop()}

    await main()
    assert len(model.loops) == 6


async def test_as_many_calls_as_there_are_workers_do_not_wait_for_themselves(build: Build) -> None:
    llm, _ = build()
    llm._services.bridge = bridge = Bridge(workers=2)  # type: ignore[misc]

    async def main() -> list[str]:
        async with asyncio.timeout(LIMIT_S):
            return [r.text for r in await asyncio.gather(*(bridge.run(llm.complete, HELLO) for _ in range(6)))]

    assert await main() == ["pong"] * 6
    bridge.close()


async def test_cancelling_an_async_call_ends_the_request(build: Build) -> None:
    llm, model = build(None)

    task = asyncio.ensure_future(llm.acomplete(HELLO))
    async with asyncio.timeout(LIMIT_S):
        await model.asked.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
