"""The guide of `ctx.llm`: its two plugins, its longer calls and its settings, run as they are printed."""

from __future__ import annotations

import html
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from compat.guides import flat, guide, indented, plugin
from hermes_agent.testing import plugin_host


@pytest.fixture(scope="module")
def page() -> str:
    return guide("plugin-llm.zh.txt")


def test_tldr(page: str, tmp_path: Path) -> None:
    quick = page[page.index("/tldr") :]
    snippet = flat(quick, "def register(ctx):", "return result.text", "01011211")

    with plugin_host(plugin(tmp_path / "tldr", snippet), model=["In short: no."]) as host:
        assert host.run_command("/tldr") == "Usage: /tldr <text to summarise>"
        assert host.run_command("/tldr A very long story") == "In short: no."
        assert host.commands["tldr"].args_hint == "<text>"
        (request,) = host.model.requests
        assert (request["max_tokens"], request["temperature"]) == (256, 0.3)
        assert request["messages"][1]["content"] == "A very long story"
        assert "tldr" in next(line.text for line in host.log if "purpose" in line.text or "tldr/" in line.text)


def test_paste_to_tasks(page: str, tmp_path: Path) -> None:
    rest = page[page.index("结构化提取——") :]
    last = 'return "\\n".join(lines) or "(no tasks found)"'
    snippet = flat(rest, "def register(ctx):", last, "01" + "0" + "01211211")
    tasks = {"tasks": [{"action": "call Ann", "owner": "Bo"}, {"action": "write", "owner": ""}]}

    answers = [tasks, {"tasks": []}, "I cannot do that"]
    with plugin_host(plugin(tmp_path / "paste-to-tasks", snippet), model=answers) as host:
        assert host.run_command("/paste-to-tasks") == "Usage: /paste-to-tasks <meeting notes>"
        assert host.run_command("/paste-to-tasks Bo calls Ann") == "- [Bo] call Ann\n- [?] write"
        assert host.run_command("/paste-to-tasks nothing") == "(no tasks found)"
        answer = host.run_command("/paste-to-tasks nonsense")
        assert answer == "Couldn't parse a response. Raw output:\nI cannot do that"
        assert "response_format" in host.model.requests[0]


def body(page: str, first: str, last: str, depths: str, *, start: str) -> str:
    snippet = flat(page[page.index(start) :], first, last, depths)
    return "".join(f"    {line}\n" for line in snippet.splitlines())


def test_the_shortest_call(page: str, tmp_path: Path) -> None:
    first = 'result = ctx.llm.complete(messages=[{"role": "user", "content": "ping"}])'
    code = body(page, first, "return result.text", "00", start="最简调用")
    init = f"def ping(ctx, raw):\n{code}\ndef register(ctx): ctx.register_command('ping', ping)\n"

    with plugin_host(plugin(tmp_path / "ping", init), model=["pong"]) as host:
        assert host.run_command("/ping") == "pong"


def test_an_error_is_rewritten(page: str, tmp_path: Path) -> None:
    code = body(page, "result = ctx.llm.complete(", "return result.text", "00", start="更完整的对话示例")
    init = f"def rewrite(ctx, traceback_text):\n{code}\ndef register(ctx): ctx.register_command('rewrite', rewrite)\n"

    with plugin_host(plugin(tmp_path / "rewrite", init), model=["The disk is full."]) as host:
        assert host.run_command("/rewrite OSError: 28") == "The disk is full."
        assert host.model.requests[0]["max_tokens"] == 64


def test_a_reply_is_scored_and_handed_on(page: str, tmp_path: Path) -> None:
    last = 'await dispatch_to_oncall(result.parsed["category"], message_body)'
    code = body(page, "result = ctx.llm.complete_structured(", last, "001", start="结构化输出")
    init = (
        "TRIAGE_SCHEMA = {'type': 'object', 'required': ['urgency', 'category']}\n"
        "called = []\n"
        "async def dispatch_to_oncall(*given): called.append(given)\n"
        f"async def triage(message_body):\n    ctx = context[0]\n{code}\n"
        "context = []\n"
        "def register(ctx):\n    context.append(ctx)\n    ctx.register_command('triage', triage)\n"
    )
    scores = [{"urgency": 0.9, "category": "fire"}, {"urgency": 0.1, "category": "tea"}]

    with plugin_host(plugin(tmp_path / "triage", init), model=scores) as host:
        for text in ("It burns", "Nice weather"):
            host.run_command(f"/triage {text}")
        assert host.module.called == [("fire", "It burns")]


GATHER = """
import asyncio

async def both(ctx, raw):
    one, two = await asyncio.gather(
        ctx.llm.acomplete(messages=[{"role": "user", "content": "one"}]),
        ctx.llm.acomplete_structured(
            instructions="Count", input=[{"type": "text", "text": raw}], json_mode=True
        ),
    )
    return f"{one.text} {two.parsed}"

def register(ctx):
    ctx.register_command("both", both)
"""


def test_calls_run_side_by_side_with_gather(tmp_path: Path) -> None:
    def answer(request: dict[str, Any]) -> Any:
        return {"n": 1} if "response_format" in request else "fine"

    with plugin_host(plugin(tmp_path / "both", GATHER), model=[answer, answer]) as host:
        assert host.run_command("/both x") == "fine {'n': 1}"
        said = sorted(json.dumps(r["messages"]) for r in host.model.requests)
        assert len(said) == 2


IMAGES = """
def look(ctx, raw):
    result = ctx.llm.complete_structured(
        instructions="What is it?",
        input=[
            {"type": "text", "text": "Look:"},
            {"type": "image", "data": b"\\x89PNG", "mime_type": "image/png"},
            {"type": "image", "url": "https://example.com/cat.png"},
        ],
        json_schema={"type": "object", "required": ["is"]},
        schema_name="picture",
        purpose="look",
    )
    return f"{result.content_type} {result.parsed['is']} {result.audit['schema_name']}"

def register(ctx):
    ctx.register_command("look", look)
"""


def test_pictures_are_sent_as_data_or_as_address(tmp_path: Path) -> None:
    with plugin_host(plugin(tmp_path / "look", IMAGES), model=[{"is": "a cat"}]) as host:
        assert host.run_command("/look") == "json a cat picture"
        parts = host.model.messages[-1]["content"]
        assert [p["type"] for p in parts if p["type"] != "text"] == ["image_url", "image_url"]
        urls = [p["image_url"]["url"] for p in parts if p["type"] == "image_url"]
        assert urls == ["data:image/png;base64,iVBORw==", "https://example.com/cat.png"]


def test_every_argument_of_the_printed_signatures_is_taken(page: str, tmp_path: Path) -> None:
    plain = flat(page[page.index("complete()\n") :], "result = ctx.llm.complete(", ")", "0")
    start = page.index("complete_structured()\n", page.index("API 接口"))
    structured = flat(page[start:], "result = ctx.llm.complete_structured(", ")", "0").replace("{...}", "{}")
    structured = structured.replace('b"..."', 'b"x"').replace("https://...", "https://example.com/x.png")
    init = "def both(ctx, raw):\n" + "".join(f"    {line}\n" for line in f"{plain}\n{structured}".splitlines())
    init += "    return result.content_type\ndef register(ctx): ctx.register_command('both', both)\n"

    with plugin_host(plugin(tmp_path / "both", init), model=["Hi", {"a": 1}]) as host:
        assert host.run_command("/both") == "json"
        assert host.model.unused == 0


ASK_OTHER = """
def other(ctx, raw):
    try:
        return ctx.llm.complete([{"role": "user", "content": "x"}], model=raw).text
    except Exception as error:
        return f"{type(error).__name__}: {error}"

def register(ctx):
    ctx.register_command("other", other)
"""


def test_the_printed_settings_allow_what_they_say(page: str, tmp_path: Path) -> None:
    lines = html.unescape(page).splitlines()
    start = lines.index("plugins:", next(i for i, line in enumerate(lines) if "大多数 plugin" in line))
    end = next(i for i in range(start, len(lines)) if lines[i].startswith("allow_profile_override"))
    block = [line for line in lines[start : end + 1] if not line.strip().startswith("#")]
    depth = {"plugins:": 0, "entries:": 1, "my-plugin:": 2, "llm:": 3}
    text = "".join("  " * depth.get(line, 5 if line.startswith("- ") else 4) + line + "\n" for line in block)
    config = yaml.safe_load(text)
    assert config["plugins"]["entries"]["my-plugin"]["llm"]["allowed_models"][0] == "openai/gpt-4o-mini"

    with plugin_host(plugin(tmp_path / "my-plugin", ASK_OTHER), config=config, model=["yes"]) as host:
        assert host.run_command("/other openai/gpt-4o-mini") == "yes"
        assert host.model.requests[0]["model"] == "openai/gpt-4o-mini"
        refused = host.run_command("/other some/other-model")
        assert refused is not None
        assert refused.startswith("PluginLlmTrustError: ")
    with plugin_host(plugin(tmp_path / "again" / "my-plugin", ASK_OTHER)) as host:
        refused = host.run_command("/other openai/gpt-4o-mini")
        assert refused is not None
        assert refused.startswith("PluginLlmTrustError: ")


def test_the_indentation_is_given_back_and_nothing_else() -> None:
    lines = ["def f(", "a,", "):", '"""Doc', "of f (", '"""', "return {", "}", "f(1)"]

    assert indented(lines, "0110") == 'def f(\na,\n):\n    """Doc\nof f (\n"""\n    return {\n}\nf(1)\n'
