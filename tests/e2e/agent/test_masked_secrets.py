"""A known secret, followed from where it comes in to everywhere it could go out."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from hermes_agent.contracts.model_client import ModelRequest, ToolDefinitions
from hermes_agent.core.messages import Message
from hermes_agent.core.redaction import mask_message, redactor
from hermes_agent.testing import call, plugin_host
from hermes_agent.testing.chat import chat_host
from local_model import build_prompt

pytestmark = pytest.mark.attack("secrets")

MARKER = "k9Xw2LmQ8vRt4ZbN7cYd"
FORMS: dict[str, Callable[[str], str]] = {
    "plain": lambda s: s,
    "base64": lambda s: base64.b64encode(b"user:" + s.encode()).decode(),
    "hex": lambda s: s.encode().hex(":"),
    "reversed": lambda s: s[::-1],
    "spelled": lambda s: " ".join(s),
}
INNER = ("9Xw2LmQ8vRt4ZbN7cY", "5OVh3MkxtUTh2UnQ0WmJON2", "39:58:77:32:4c", "Yc7NbZ4tRv8QmL2wX9", "9 X w 2 L m")
"""What is left of each form wherever it begins."""


def clean(text: str) -> bool:
    return not any(inner in text for inner in INNER)


def kept(home: Path) -> str:
    """Everything in the home: state.db, its journal, logs."""
    files = [path for path in home.rglob("*") if path.is_file() and path.name != ".env"]
    assert any(path.name == "state.db" for path in files)
    return "\n".join(path.read_bytes().decode("latin-1") for path in files)


@pytest.fixture(autouse=True)
def known() -> Iterator[None]:
    before = redactor.snapshot()
    yield
    redactor.restore(before)


@pytest.mark.parametrize("form", FORMS)
def test_what_a_user_types_reaches_neither_the_model_nor_the_store_nor_an_answer(form: str) -> None:
    typed = FORMS[form](MARKER)
    with plugin_host(lambda ctx: None, env={"DOOR_TOKEN": MARKER}, model=[f"You said {typed}, did you?"]) as host:
        answer = host.ask(f"the key is {typed} today")
        assert host.host.credentials.get("DOOR_TOKEN") == MARKER
        store, asked, log = kept(host.home), json.dumps(host.model.requests, default=str), host.log_text

    assert clean(asked) and "the key is" in asked
    assert clean(answer.text) and clean(str(answer.events)) and "did you?" in answer.text
    assert clean(store) and "the key is" in store
    assert clean(log)


@pytest.mark.parametrize("form", FORMS)
def test_what_a_tool_encodes_reaches_neither_the_model_nor_the_store(form: str) -> None:
    shown = FORMS[form](MARKER)

    def register(ctx: Any) -> None:
        schema = {"name": "leak", "description": "Say it.", "parameters": {"type": "object", "properties": {}}}
        ctx.register_tool("leak", schema=schema, handler=lambda args, **kw: json.dumps({"output": shown}))

    with plugin_host(register, env={"DOOR_TOKEN": MARKER}, model=[call("leak", say=shown), "done"]) as host:
        answer = host.ask("go")
        store, asked, log = kept(host.home), json.dumps(host.model.requests, default=str), host.log_text

    assert "[redacted]" in answer.tool_calls[0].result
    assert all(map(clean, (str(answer.events), asked, store, log)))


def test_what_a_plugin_adds_to_a_message_and_puts_in_place_of_an_answer_is_masked() -> None:
    def register(ctx: Any) -> None:
        ctx.register_hook("pre_llm_call", lambda **kw: {"context": f"recalled: {MARKER}"})
        ctx.register_hook("transform_llm_output", lambda **kw: f"instead: {MARKER}")

    with plugin_host(register, env={"DOOR_TOKEN": MARKER}, model=["well"]) as host:
        answer = host.ask("go")
        asked = json.dumps(host.model.requests, default=str)

    assert "recalled: [redacted]" in asked and clean(asked)
    assert answer.text == "instead: [redacted]"


def test_a_sub_agent_and_its_answer_are_masked() -> None:
    task = call("delegate_task", goal=f"use {MARKER} there", context="none")
    with plugin_host(lambda ctx: None, env={"DOOR_TOKEN": MARKER}, model=[task, f"it was {MARKER}", "done"]) as host:
        answer = host.ask("go")
        store, asked = kept(host.home), json.dumps(host.model.requests, default=str)

    assert all(map(clean, (str(answer.events), asked, store)))


def test_what_merely_looks_like_a_secret_may_be_typed() -> None:
    with plugin_host(lambda ctx: None, model=["done"]) as host:
        host.ask("write password=hunter22 into the file")
        asked = json.dumps(host.model.requests, default=str)

    assert "password=hunter22" in asked


@pytest.mark.parametrize("form", FORMS)
def test_what_is_written_in_a_chat_reaches_neither_the_inbox_nor_the_answer(form: str) -> None:
    typed = FORMS[form](MARKER)
    with chat_host(env={"DOOR_TOKEN": MARKER}, model=[f"So {typed} it is."]) as chat:
        sent = chat.ask(f"the key is {typed}")
        store = kept(chat.host.home)

    assert "[redacted]" in sent and clean(sent)
    assert clean(store) and "the key is" in store


def test_a_script_that_prints_a_secret_in_base64_shows_none() -> None:
    code = f"import base64; print(base64.b64encode(b'user:{MARKER}').decode())"
    with plugin_host(
        lambda ctx: None,
        env={"DOOR_TOKEN": MARKER},
        config={"terminal": {"sandbox": "bwrap"}},
        model=[call("execute_code", code=code), "done"],
    ) as host:
        if "execute_code" not in host.visible_tools:
            pytest.skip("no sandbox of bubblewrap can be made here")
        answer = host.ask("go")
        store = kept(host.home)

    assert "[redacted]" in answer.tool_calls[0].result
    assert clean(str(answer.events)) and clean(store)


def test_a_title_is_masked() -> None:
    with chat_host(env={"DOOR_TOKEN": MARKER}, model=["Hello."]) as chat:
        chat.ask("hi")
        answer = chat.ask(f"/title key {MARKER}")
        store = kept(chat.host.home)

    assert clean(answer)
    assert "key [redacted]" in store and clean(store)


@pytest.mark.parametrize("form", FORMS)
def test_a_question_in_a_chat_shows_no_secret_and_the_call_that_it_allows_runs_as_it_is(form: str) -> None:
    shown, ran = FORMS[form](MARKER), []

    def register(ctx: Any) -> None:
        schema = {"name": "act", "parameters": {"type": "object", "properties": {"key": {"type": "string"}}}}
        ctx.register_tool("act", "t", schema, lambda args, **_: ran.append(args["key"]) or "{}")
        ask = {"action": "approve", "message": f"use {shown} now?", "rule_key": "risk"}
        ctx.register_hook("pre_tool_call", lambda tool_name, **kw: ask if tool_name == "act" else None)

    model = [[call("act", key=shown)], call("clarify", question=f"Is it {shown}?", choices=["yes", shown]), "done"]
    with chat_host(register, env={"DOOR_TOKEN": MARKER}, model=model) as chat:
        question = chat.ask("go")
        chat.write("/approve")
        chat.wait(lambda: any("Is it" in text for text in chat.texts))
        chat.write("1")
        chat.wait(lambda: "done" in chat.texts)
        texts, store = "\n".join(chat.texts), kept(chat.host.home)

    assert "[redacted]" in question and ran == [shown]
    assert clean(texts) and clean(store)


@pytest.mark.parametrize("form", FORMS)
def test_a_text_that_is_sent_into_a_chat_shows_no_secret_whoever_wrote_it(form: str) -> None:
    with chat_host(env={"DOOR_TOKEN": MARKER}) as chat:
        chat.host._run(chat.gateway.send_text("memorychat:room", f"The key is {FORMS[form](MARKER)}."))
        sent = chat.answers(1)[0]
        store = kept(chat.host.home)
    assert sent.startswith("The key is ") and "[redacted]" in sent
    assert clean(sent) and clean(store)


@pytest.mark.parametrize("form", FORMS)
def test_what_is_remembered_or_scheduled_is_kept_without_a_secret(form: str) -> None:
    shown = FORMS[form](MARKER)
    with plugin_host(
        lambda ctx: None,
        env={"DOOR_TOKEN": MARKER},
        model=[
            call("memory", target="user", action="add", content=f"The key is {shown}"),
            call("cronjob", action="create", schedule="0 4 * * *", name=f"use {shown}", prompt=f"use {shown}"),
            "done",
        ],
    ) as host:
        host.ask("go")
        store = kept(host.home)
    assert "The key is " in store and '"prompt": "use ' in store
    assert clean(store)


def test_an_embedded_model_is_sent_no_secret() -> None:
    before = redactor.snapshot()
    redactor.learn([MARKER])
    said = [Message("system", f"s {MARKER}"), Message("user", f"the key is {MARKER}")]
    prompt = build_prompt(ModelRequest("m", said, ToolDefinitions(), 100), 8_000, mask_message)
    redactor.restore(before)
    assert "the key is [redacted]" in str(prompt.messages) and clean(str(prompt))


def test_a_message_is_searched_again_after_a_secret_was_learned() -> None:
    message = mask_message(Message("user", f"the key is {MARKER}"))
    assert message.text == f"the key is {MARKER}" and mask_message(message) is message
    redactor.learn([MARKER])
    masked = mask_message(message)
    assert masked.text == "the key is [redacted]" and mask_message(masked) is masked


def test_parts_that_a_plugin_changed_are_searched_again() -> None:
    redactor.learn([MARKER])
    part = {"type": "text", "text": "the key is elsewhere"}
    message = mask_message(Message("user", [part]))
    part["text"] = f"the key is {MARKER}"
    assert mask_message(message).text == "the key is [redacted]"
