"""`ctx.llm` of a loaded plugin, over HTTP against a server that others wrote; the guide's plugins as printed."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from hermes_agent.compat import import_hook
from hermes_agent.core.errors import ModelError
from hermes_agent.host import Host
from hermes_agent.plugins.context import PluginContext
from hermes_agent.plugins.llm_client import PluginLlm
from hermes_agent.plugins.llm_types import PluginLlmTrustError
from hermes_agent.policy import Approvals, NoApprover
from hermes_agent.tools import CallScope
from peers import install
from peers.scripted import ScriptedModel, scripted_model

ROOT = Path(__file__).resolve().parents[3]
GUIDES = Path(os.environ.get("HERMES_GUIDES") or ROOT.parent / "shared" / "guides")
EMPTY = "KEPT = []\ndef register(ctx): KEPT.append(ctx)\n"
HELLO = [{"role": "user", "content": "hello"}]
SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
NOBODY = [{"match": {"userMessage": "what nobody says"}, "response": {"content": "never"}}]

Scripted = Callable[..., AbstractContextManager[ScriptedModel]]
Write = Callable[..., Path]
Start = Callable[..., Host]


@pytest.fixture
def scripted(monkeypatch: pytest.MonkeyPatch) -> Scripted:
    """`scripted_model`, where aimock can be had; keys and proxies of who runs the tests do not take part."""
    for name in list(os.environ):
        if name.lower().endswith("_proxy") or name.startswith("OPENAI_") or name.endswith("_API_KEY"):
            monkeypatch.delenv(name)
    try:
        install.aimock(), install.node()
    except install.NotInstalled as exc:
        if os.environ.get("CI"):
            raise
        pytest.skip(f"a test server could not be installed: {exc}")
    return scripted_model


def configured(model: ScriptedModel, *, llm: str = "", more: str = "", enabled: str = "p") -> str:
    """The config of a home whose model is `model`, with the permissions `llm` for the plugin `p`."""
    return (
        f"plugins:\n  enabled: [{enabled}]\n  entries:\n    p:\n      llm: {{{llm}}}\n"
        f"model: {{default: m-1, provider: custom, base_url: '{model.base_url}', api_key: {model.key}}}\n{more}"
    )


def context_of(host: Host, key: str = "p") -> PluginContext:
    ctx: PluginContext = host.plugins._plugins[key].module.KEPT[0]
    return ctx


def test_the_context_gives_the_same_object_at_every_access(write_plugin: Write, start: Start) -> None:
    write_plugin("p", EMPTY)
    write_plugin("cat/nested", EMPTY)
    host = start(enable=("p", "cat/nested"))

    assert context_of(host).llm is context_of(host).llm
    assert context_of(host, "cat/nested").llm.plugin_id == "cat/nested"


def test_upstream_s_names_are_the_objects_themselves() -> None:
    import_hook.install()
    try:
        from agent import plugin_llm

        assert plugin_llm.PluginLlm is PluginLlm
        assert plugin_llm.PluginLlmTrustError is PluginLlmTrustError
        assert plugin_llm.PluginLlmImageInput(url="u").mime_type == "image/png"
        assert issubclass(plugin_llm.PluginLlmStructuredResult, plugin_llm.PluginLlmCompleteResult)
        assert plugin_llm.PluginLlmTextInput("t").type == "text"
        assert plugin_llm.PluginLlmUsage().cost_usd is None
    finally:
        import_hook.uninstall()


def test_a_call_without_a_core_loop_is_one_request(scripted: Scripted, write_plugin: Write, start: Start) -> None:
    write_plugin("p", EMPTY)
    with scripted([{"match": {"userMessage": "hello"}, "response": {"content": "Good day."}}]) as model:
        host = start(configured(model))
        llm = context_of(host).llm

        result = llm.complete(HELLO, max_tokens=9, temperature=0.25, purpose="greet")

        bodies = model.bodies()
    assert (result.text, result.provider, result.model) == ("Good day.", "custom", "m-1")
    assert result.usage.total_tokens == result.usage.input_tokens + result.usage.output_tokens > 0
    assert result.usage.cost_usd is None
    spent = host.account.usage_of("p")
    assert (spent.llm_calls, spent.llm_input_tokens, spent.llm_output_tokens, spent.llm_cost_usd) == (
        1,
        result.usage.input_tokens,
        result.usage.output_tokens,
        0.0,
    )
    assert len(bodies) == 1
    assert {k: bodies[0][k] for k in ("model", "messages", "max_tokens", "temperature")} == {
        "model": "m-1",
        "messages": HELLO,
        "max_tokens": 9,
        "temperature": 0.25,
    }
    assert "tools" not in bodies[0]


def test_the_shape_that_is_wanted_reaches_the_provider(scripted: Scripted, write_plugin: Write, start: Start) -> None:
    write_plugin("p", EMPTY)
    with scripted([{"match": {}, "response": {"content": '```json\n{"n": 3}\n```'}}]) as model:
        llm = context_of(start(configured(model))).llm

        result = llm.complete_structured(
            instructions="Count.", input=[{"type": "text", "text": "a b c"}], json_schema=SCHEMA
        )

        body = model.bodies()[0]
    assert (result.parsed, result.content_type) == ({"n": 3}, "json")
    assert body["response_format"] == {
        "type": "json_schema",
        "json_schema": {"name": "plugin_structured_output", "schema": SCHEMA, "strict": False},
    }
    assert [m["role"] for m in body["messages"]] == ["system", "user"]
    assert [p["type"] for p in body["messages"][1]["content"]] == ["text", "text"]


def test_pictures_go_to_the_server_for_them_with_its_key(scripted: Scripted, write_plugin: Write, start: Start) -> None:
    write_plugin("p", EMPTY)
    seen = [{"match": {}, "response": {"content": "a cat"}}]
    with scripted(NOBODY, key="key-of-the-first-one") as text, scripted(seen, key="key-of-the-second-one") as eyes:
        vision = f"auxiliary: {{vision: {{model: eyes, base_url: '{eyes.base_url}', api_key: {eyes.key}}}}}\n"
        llm = context_of(start(configured(text, more=vision))).llm

        result = llm.complete_structured(
            instructions="What is it?", input=[{"type": "image", "data": b"\x89PNG", "mime_type": "image/png"}]
        )

        assert text.bodies() == []
        parts = eyes.bodies()[0]["messages"][0]["content"]
    assert (result.text, result.model) == ("a cat", "eyes")
    assert parts[1] == {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw=="}}


def test_another_provider_s_key_is_found_by_the_host_and_needs_leave(
    scripted: Scripted, write_plugin: Write, start: Start, home: Path
) -> None:
    write_plugin("p", EMPTY)
    with scripted([{"match": {}, "response": {"content": "from the other one"}}]) as other:
        (home / ".env").write_text(f"GROQ_API_KEY={other.key}\nGROQ_BASE_URL={other.base_url}\n")
        allowed = "allow_provider_override: true, allowed_providers: [groq], allow_model_override: true"
        llm = context_of(start(configured(ScriptedModel("http://127.0.0.1:1/v1", "none"), llm=allowed))).llm

        with pytest.raises(PluginLlmTrustError, match=r"'openai' is not in plugins\.entries\.p\.llm\.allowed_prov"):
            llm.complete(HELLO, provider="openai", model="m-2")
        result = llm.complete(HELLO, provider="groq", model="m-2")

        assert [b["model"] for b in other.bodies()] == ["m-2"]
    assert (result.text, result.provider, result.model) == ("from the other one", "groq", "m-2")


def test_a_provider_that_refuses_is_the_model_s_own_error(
    scripted: Scripted, write_plugin: Write, start: Start
) -> None:
    write_plugin("p", EMPTY)
    with scripted(NOBODY) as model:
        text = configured(ScriptedModel(model.base_url, "another-key"))
        llm = context_of(start(text)).llm

        with pytest.raises(ModelError) as caught:
            llm.complete(HELLO)

    assert caught.value.kind == "auth"
    assert "another-key" not in str(caught.value)


GATHERING = """
import asyncio, json

def register(ctx):
    async def translate(args, **kwargs):
        results = await asyncio.gather(*(
            ctx.llm.acomplete([{"role": "user", "content": f"translate {word}"}], purpose="translate")
            for word in args["words"]
        ))
        return json.dumps([r.text for r in results])

    schema = {"name": "translate", "description": "d", "parameters": {"type": "object", "properties": {"words":
              {"type": "array"}}}}
    ctx.register_tool("translate", schema=schema, handler=translate, is_async=True)
    ctx.register_command("tr", lambda raw: ctx.llm.complete([{"role": "user", "content": f"translate {raw}"}]).text)
"""


async def test_an_async_handler_gathers_calls_and_a_command_makes_one(
    scripted: Scripted, write_plugin: Write, start: Start, tmp_path: Path
) -> None:
    write_plugin("p", GATHERING)
    words = {"one": "eins", "two": "zwei", "three": "drei"}
    script = [{"match": {"userMessage": f"translate {a}"}, "response": {"content": b}} for a, b in words.items()]
    with scripted(script) as model:
        host = start(configured(model))
        scope = CallScope("s", "t", "u", tmp_path, Approvals(NoApprover("in a test"), timeout_s=1))

        async def main() -> tuple[str, str]:
            async with asyncio.timeout(30):
                outcome = await host.dispatcher.run(
                    "c", "translate", {"words": list(words)}, scope, valid=["translate"]
                )
                said = await host.bridge.run(host.plugins._plugin_commands["tr"]["handler"], "two")
                await host.clients.aclose()
                return outcome.result, said

        assert await main() == ('["eins", "zwei", "drei"]', "zwei")
        assert len(model.bodies()) == 4


# -- the guide ---------------------------------------------------------------------------------------------------


def printed(page: str, first: str, last: str) -> str:
    """Take a plugin out of the guide's text, whose indentation was lost, and indent it again."""
    text = page[page.index(first) : page.index(last, page.index(first)) + len(last)]
    lines, depth, block = [], 0, 0
    for line in text.splitlines():
        if depth == 0 and re.match(r"def |_?[A-Z][A-Z_]* = ", line):
            block = 0
        lines.append("    " * (block + depth - (line[0] in ")]}")) + line)
        depth += sum(line.count(c) for c in "([{") - sum(line.count(c) for c in ")]}")
        if depth == 0 and line.endswith(":"):
            block += 1
        elif depth == 0 and line.startswith("return "):
            block -= 1
    return "\n".join(lines) + "\n"


@pytest.fixture
def page() -> str:
    """The guide to `ctx.llm`."""
    file = GUIDES / "plugin-llm.zh.txt"
    if not file.is_file():
        pytest.skip(f"the guides are not at hand: there is no {file} (HERMES_GUIDES names their folder)")
    return file.read_text(encoding="utf-8")


async def run_command(host: Host, name: str, argument: str) -> Any:
    """Run a slash command of a plugin as a conversation does: in a worker, beside a core loop."""

    async def main() -> Any:
        async with asyncio.timeout(30):
            try:
                return await host.bridge.run(host.plugins._plugin_commands[name]["handler"], argument)
            finally:
                await host.clients.aclose()

    return await main()


async def test_the_guide_s_tldr_runs_as_printed(
    scripted: Scripted, write_plugin: Write, start: Start, page: str
) -> None:
    write_plugin(
        "tldr", printed(page, 'def register(ctx):\nctx.register_command(\nname="tldr"', "return result.text\n")
    )
    script = [
        {"match": {"systemMessage": "one tight paragraph", "userMessage": "long"}, "response": {"content": "short"}}
    ]
    with scripted(script) as model:
        host = start(configured(model, enabled="tldr"))

        assert await run_command(host, "tldr", " ") == "Usage: /tldr <text to summarise>"
        assert await run_command(host, "tldr", "a long text") == "short"
        assert [(b["max_tokens"], b["temperature"]) for b in model.bodies()] == [(256, 0.3)]


async def test_the_guide_s_paste_to_tasks_runs_as_printed(
    scripted: Scripted, write_plugin: Write, start: Start, page: str
) -> None:
    start_at = 'def register(ctx):\nctx.register_command(\nname="paste-to-tasks"'
    write_plugin("tasks", printed(page, start_at, '"(no tasks found)"\n'))
    tasks = '{"tasks": [{"owner": "Ada", "action": "write it"}, {"action": "read it"}]}'
    script = [
        {"match": {"userMessage": "good notes"}, "response": {"content": tasks}},
        {"match": {"userMessage": "bad notes"}, "response": {"content": "I see no tasks."}},
    ]
    with scripted(script) as model:
        host = start(configured(model, enabled="tasks"))

        assert await run_command(host, "paste-to-tasks", "good notes") == "- [Ada] write it\n- [?] read it"
        assert await run_command(host, "paste-to-tasks", "bad notes") == (
            "Couldn't parse a response. Raw output:\nI see no tasks."
        )
        text = model.bodies()[0]["messages"][1]["content"][0]["text"]
    assert "\n\nSchema name: meeting.tasks\n\nJSON schema:\n{" in text
