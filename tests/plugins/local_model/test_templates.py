"""Model files of the user's own: tool calls in the form of the family, by the template in the file's metadata.

The runtime is real; the model is tiny and always says the same. The templates are written for the tests, with the
special tokens, the place of the tools and the form of a call that each family documents.
"""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
from pathlib import Path
from typing import Any

import pytest

from hermes_agent.contracts.model_client import ModelAnswer, ModelRequest, RequestOptions
from hermes_agent.core.errors import ModelError
from hermes_agent.core.messages import Message, Notice, ToolCall
from hermes_agent.host import Host
from hermes_agent.policy import NoApprover
from local_model import (
    PLUGIN,
    GgufError,
    LocalModelClient,
    LocalServerSettings,
    fit_request,
    format_bytes,
    read_metadata,
    services,
)
from tiny_gguf import write_gguf
from waiting import wait_for_end

needs_runtime = pytest.mark.skipif(importlib.util.find_spec("xllamacpp") is None, reason="the runtime is not installed")
pytestmark = pytest.mark.xdist_group("model")

PAINT = {
    "type": "function",
    "function": {
        "name": "paint",
        "description": "Paint the wall.",
        "parameters": {
            "type": "object",
            "properties": {"colour": {"type": "string", "enum": ["red", "blue"]}},
            "required": ["colour"],
        },
    },
}
CHATML = (
    "{%- for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content or '' }}{% for c in (m.tool_calls or []) %}"
    '\n<tool_call>\n{"name": "{{ c.function.name }}", "arguments": {{ c.function.arguments | tojson }}}\n</tool_call>'
    "{% endfor %}<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
QWEN = (
    "{%- if tools %}<|im_start|>system\n<tools>{% for tool in tools %}\n{{ tool | tojson }}{% endfor %}\n</tools>\n"
    'Write each call within <tool_call></tool_call>:\n<tool_call>\n{"name": NAME, "arguments": OBJECT}\n</tool_call>'
    "<|im_end|>\n{% endif %}" + CHATML
)
LLAMA = (
    "{%- if tools is not none and tools %}<|start_header_id|>system<|end_header_id|>\n\nEnvironment: ipython\nA call is"
    ' {"name": NAME, "parameters": OBJECT}.\n{% for t in tools %}{{ t | tojson }}\n{% endfor %}<|eot_id|>{% endif %}'
    "{%- for m in messages %}<|start_header_id|>{{ 'ipython' if m.role == 'tool' else m.role }}<|end_header_id|>\n\n"
    '{% if m.tool_calls %}{"name": "{{ m.tool_calls[0].function.name }}", "parameters":'
    " {{ m.tool_calls[0].function.arguments | tojson }}}{% else %}{{ m.content }}{% endif %}<|eot_id|>{% endfor %}"
    "{%- if add_generation_prompt %}<|start_header_id|>assistant<|end_header_id|>\n\n{% endif %}"
)
MISTRAL = (
    "{%- for m in messages %}{% if m.role == 'user' %}{% if tools is not none and tools and loop.last %}"
    "[AVAILABLE_TOOLS] [{% for t in tools %}{{ t | tojson }}{% endfor %}][/AVAILABLE_TOOLS]{% endif %}"
    "[INST] {{ m.content }}[/INST]{% elif m.role == 'tool' %}[TOOL_RESULTS] {{ m.content }}[/TOOL_RESULTS]"
    '{% elif m.tool_calls %}[TOOL_CALLS] [{% for c in m.tool_calls %}{"name": "{{ c.function.name }}", "arguments":'
    ' {{ c.function.arguments | tojson }}, "id": "{{ c.id }}"}{% if not loop.last %}, {% endif %}{% endfor %}]</s>'
    "{% else %} {{ m.content }}</s>{% endif %}{% endfor %}"
)
DEEPSEEK = (
    "{%- if tools %}# Tools\n{% for t in tools %}{{ t | tojson }}\n{% endfor %}{% endif %}{%- for m in messages %}"
    "{% if m.role == 'user' %}<｜User｜>{{ m.content }}{% elif m.role == 'tool' %}<｜tool▁outputs▁begin｜>"
    "<｜tool▁output▁begin｜>{{ m.content }}<｜tool▁output▁end｜><｜tool▁outputs▁end｜>{% elif m.role == 'assistant' %}"
    "<｜Assistant｜>{% if m.tool_calls %}<｜tool▁calls▁begin｜>{% for c in m.tool_calls %}<｜tool▁call▁begin｜>function"
    "<｜tool▁sep｜>{{ c.function.name }}\n```json\n{{ c.function.arguments | tojson }}\n```<｜tool▁call▁end｜>"
    "{% endfor %}<｜tool▁calls▁end｜>{% else %}{{ m.content }}{% endif %}<｜end▁of▁sentence｜>{% else %}{{ m.content }}"
    "{% endif %}{% endfor %}{% if add_generation_prompt %}<｜Assistant｜>{% endif %}"
)
GEMMA = (
    "{%- for m in messages %}{% if m.role == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}"
    "{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('Roles must alternate') }}{% endif %}"
    "<start_of_turn>{{ 'model' if m.role == 'assistant' else m.role }}\n{{ m.content }}<end_of_turn>\n{% endfor %}"
    "{% if add_generation_prompt %}<start_of_turn>model\n{% endif %}"
)
STRICT = (
    "{%- for m in messages %}{% if m.role == 'system' and not loop.first %}{{ raise_exception('One system message') }}"
    "{% endif %}{% if m.tool_calls and m.tool_calls | length > 1 %}{{ raise_exception('One call') }}{% endif %}"
    "{% for c in m.tool_calls or [] %}{% if c.id | length != 9 %}{{ raise_exception('Nine letters') }}{% endif %}"
    "{% endfor %}{% if m.role == 'tool' and m.tool_call_id | length != 9 %}{{ raise_exception('Nine letters') }}"
    "{% endif %}{% endfor %}{%- set ns = namespace(at=0) %}{%- for m in messages %}"
    "{% if m.role in ('user', 'assistant') and not m.tool_calls %}{% if (m.role == 'user') != (ns.at % 2 == 0) %}"
    "{{ raise_exception('Roles must alternate') }}{% endif %}{% set ns.at = ns.at + 1 %}{% endif %}{% endfor %}" + QWEN
)
"""It refuses what the published templates of Llama and Mistral refuse."""
ARGUMENTS = '{"colour": "red"}'
FAMILIES = {
    "qwen": (QWEN, f'<tool_call>\n{{"name": "paint", "arguments": {ARGUMENTS}}}\n</tool_call>'),
    "llama": (LLAMA, f'{{"name": "paint", "parameters": {ARGUMENTS}}}'),
    "mistral": (MISTRAL, f'[TOOL_CALLS] [{{"name": "paint", "arguments": {ARGUMENTS}, "id": "a1b2c3d4e"}}]'),
    "deepseek": (
        DEEPSEEK,
        "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>paint\n```json\n"
        f"{ARGUMENTS}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
    ),
    "gemma": (GEMMA, f'{{"action": "paint", "arguments": {ARGUMENTS}}}'),
}
QUESTION = Message("user", "Paint it red")


def client_of(path: Path, **local: Any) -> LocalModelClient:
    """The client that the plugin makes for a file of the user's own."""
    return PLUGIN.PROFILE.make_client(services({"path": str(path), **local}, path.stem))


async def ask(client: LocalModelClient, *messages: Message, **more: Any) -> ModelAnswer:
    async for delta in client.stream(ModelRequest("m", messages or [QUESTION], **more)):
        if isinstance(delta, ModelAnswer):
            return delta
    raise AssertionError("the stream has no end")


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


@needs_runtime
@pytest.mark.parametrize("family", FAMILIES)
async def test_a_call_in_the_form_of_the_family_becomes_a_tool_call(family: str, tmp_path: Path) -> None:
    template, says = FAMILIES[family]
    form = "grammar" if family == "gemma" else "template"
    client = client_of(write_gguf(tmp_path / "m.gguf", template, says), tool_calls=form)
    system, before = Message("system", "Be brief.\n\nToday: Monday"), Message("assistant", "Hello.")
    try:
        answer = await ask(client, system, Message("user", "Hi"), before, QUESTION, tools=[PAINT], temperature=0)
        [call] = answer.message.tool_calls
        assert (call.name, json.loads(call.arguments)) == ("paint", {"colour": "red"})
        assert answer.finish_reason == "tool_calls"
        assert answer.listed_cost_usd == 0.0
        made = Message("assistant", "", (ToolCall("a1b2c3d4e", "paint", '{"colour": "blue"}'),))
        told = Message("tool", '{"done": true}', tool_call_id="a1b2c3d4e", tool_name="paint")
        again = await ask(client, system, QUESTION, made, told, tools=[PAINT], temperature=0)
        assert again.message.tool_calls, again
    finally:
        await client.aclose()


@needs_runtime
async def test_a_template_that_refuses_much_takes_a_conversation_of_another_model(tmp_path: Path) -> None:
    client = client_of(write_gguf(tmp_path / "m.gguf", STRICT, "Good day."), tool_calls="template")
    ids = ("call_1", "toolu_01A09q90qw90lq917835lq9")
    made = Message("assistant", "", tuple(ToolCall(each, "paint", ARGUMENTS) for each in ids))
    results = [Message("tool", "done", tool_call_id=each, tool_name="paint") for each in reversed(ids)]
    interrupted = [QUESTION, made, *results, Message("user", "Stop"), Message("user", "Now blue")]
    answered = [Message("assistant", "Blue it is."), Message("system", "It is Tuesday."), Message("user", "Thanks")]
    try:
        answer = await ask(client, Message("system", "Be brief."), *interrupted, *answered, tools=[PAINT])
        assert answer.message.text == "Good day."
    finally:
        await client.aclose()


def test_each_call_is_followed_by_its_result_and_nothing_of_a_conversation_is_lost() -> None:
    calls = (ToolCall("call_1", "paint", ARGUMENTS), ToolCall("a1b2c3d4e", "paint", '{"colour": "blue"}'))
    results = [Message("tool", f"of {call.id}", tool_call_id=call.id) for call in reversed(calls)]
    picture = [{"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}]
    given = [Message("system", "A"), QUESTION, Message("assistant", "I paint.", calls), *results]
    given += [Message("user", "Look"), Message("user", picture), Message("system", "B")]
    taken = fit_request(ModelRequest("m", given), 8192, lambda message: message).messages
    assert [message.role for message in taken] == ["system", "user", *["assistant", "tool"] * 2, "assistant", "user"]
    assert taken[0].text == "A\n\nB"
    assert [message.text for message in taken[2:6]] == ["I paint.", "of call_1", "", "of a1b2c3d4e"]
    assert [m.tool_calls[0].id for m in taken[2:6:2]] == [m.tool_call_id for m in taken[3:6:2]]
    assert taken[4].tool_calls[0].id == "a1b2c3d4e"
    assert taken[7].content == [{"type": "text", "text": "Look"}, *picture]


@needs_runtime
async def test_a_model_without_tools_in_its_request_answers_in_plain_text(tmp_path: Path) -> None:
    client = client_of(write_gguf(tmp_path / "m.gguf", QWEN, "Good day."), tool_calls="template")
    answer = await ask(client)
    assert (answer.message.text, answer.finish_reason) == ("Good day.", "stop")
    await client.aclose()


@needs_runtime
async def test_what_was_read_stays_on_disk_while_the_process_is_ended(tmp_path: Path, cache: Path) -> None:
    client = client_of(write_gguf(tmp_path / "m.gguf", QWEN, "Good day."), tool_calls="template", idle_s=0.05)
    long = Message("user", "Count the sheep on the hill. " * 20)
    first = await ask(client, long)
    if (pid := client._server.pid) is not None:
        await asyncio.to_thread(wait_for_end, pid)
    [state] = (cache / "hermes" / "model-state").iterdir()
    assert state.stat().st_mode & 0o777 == 0o600
    second = await ask(client, long, first.message, QUESTION)
    assert second.usage.cached_tokens > 500
    await client.aclose()


@needs_runtime
async def test_a_line_says_that_the_model_is_loaded_and_only_then(tmp_path: Path) -> None:
    says = '{"action": "final", "text": "Good day."}'
    path = write_gguf(tmp_path / "m.gguf", CHATML, says, context=20_000)
    home = tmp_path / "home"
    home.mkdir()
    config = {"model": {"provider": "local", "local": {"path": str(path)}}}
    (home / "config.yaml").write_text(json.dumps(config))
    host = Host.build(home)
    try:
        conversation = await host.agent.open(None, platform="cli", approver=NoApprover("without a terminal"))
        turns = [[event async for event in conversation.turn(text)] for text in ("Hi", "And now?")]
        await conversation.close("cli_close")
    finally:
        await host.aclose()
    told = [[(e.text, e.level) for e in events if isinstance(e, Notice)] for events in turns]
    assert told == [[(f"Loading the embedded model m ({format_bytes(path.stat().st_size)}) …", "info")], []]
    assert [events[-1].text for events in turns] == ["Good day.", "Good day."]


@needs_runtime
async def test_a_state_that_does_not_fit_is_deleted_and_the_model_answers(tmp_path: Path, cache: Path) -> None:
    client = client_of(write_gguf(tmp_path / "m.gguf", QWEN, "Good day."), tool_calls="template")
    await ask(client)
    await client.aclose()
    [state] = (cache / "hermes" / "model-state").iterdir()
    state.write_bytes(b"broken" * 100)
    again = client_of(tmp_path / "m.gguf", tool_calls="template")
    assert (await ask(again)).message.text == "Good day."
    assert not state.exists()
    await again.aclose()


def test_by_itself_a_large_file_with_tools_in_its_template_calls_them_by_the_template(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "m.gguf", QWEN)
    assert not client_of(path)._settings.writes_tool_calls
    os.truncate(path, 1_600_000_000)  # sparse
    assert client_of(path)._settings.writes_tool_calls
    assert not client_of(path, tool_calls="grammar")._settings.writes_tool_calls
    without_tools = DEEPSEEK.partition("{% endfor %}{% endif %}")[2]  # it writes calls, and describes no tool
    for template in (GEMMA, without_tools):
        os.truncate(write_gguf(tmp_path / "g.gguf", template), 1_600_000_000)
        assert not client_of(tmp_path / "g.gguf")._settings.writes_tool_calls


def test_the_whole_context_of_the_model_is_used_unless_the_config_sets_another(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "m.gguf", QWEN, context=40_960)
    assert client_of(path).fits_within == 40_960
    assert client_of(path, context_length=2048).fits_within == 2048
    assert client_of(write_gguf(tmp_path / "s.gguf", QWEN, context=2048)).fits_within == 2048


async def test_the_oldest_turns_go_when_the_context_is_full_and_a_turn_that_never_fits_is_refused(
    tmp_path: Path,
) -> None:
    client = client_of(write_gguf(tmp_path / "m.gguf", QWEN), context_length=600, tool_calls="template")
    with pytest.raises(ModelError, match="The last turn needs about") as refused:
        await ask(client, Message("user", "x" * 3000))
    assert refused.value.kind == "context_too_long"


def test_options_that_the_grammar_leaves_no_room_for_are_taken_by_a_model_with_its_own_calls(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "m.gguf", QWEN)
    options = RequestOptions(tool_choice="required", extra={"stop": ["x"]})
    assert client_of(path).unsupported("m", options) is not None
    assert client_of(path, tool_calls="template").unsupported("m", options) is None


def test_the_metadata_of_a_file_are_read_without_the_runtime(tmp_path: Path) -> None:
    found = read_metadata(write_gguf(tmp_path / "m.gguf", GEMMA, context=512, name="tiny one"))
    assert (found.architecture, found.name, found.context_length) == ("llama", "tiny one", 512)
    assert found.chat_template == GEMMA
    assert (found.writes_tool_calls, found.system_place) == (False, "question")
    assert read_metadata(write_gguf(tmp_path / "q.gguf", QWEN)).writes_tool_calls


@pytest.mark.parametrize(
    "content", [b"", b"GGUF", b"GGUF\x03\0\0\0", b"GGUF\x07\0\0\0", b"PK\x03\x04", b"GGUF\x03\0\0\0" + b"\xff" * 64]
)
def test_a_broken_file_is_an_error_that_says_so(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "broken.gguf"
    path.write_bytes(content)
    with pytest.raises(GgufError):
        read_metadata(path)
    assert LocalServerSettings(path, "broken").context_length == client_of(path).fits_within
