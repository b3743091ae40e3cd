"""What a chat sees while the agent works: typing, answers that grow, tools in one message."""

from __future__ import annotations

import asyncio
import json
import threading
from typing import Any

from hermes_agent.adapters.events import SendResult
from hermes_agent.testing import ScriptedModel, call
from hermes_agent.testing.chat import MemoryAdapter, Sent, chat_host, memory_platform
from hermes_agent.testing.scripted_model import Reply

WAIT = {
    "name": "wait",
    "description": "x",
    "parameters": {"type": "object", "properties": {"what": {"type": "string"}}},
}
STREAM = {"streaming": {"enabled": True, "edit_interval": 0, "buffer_threshold": 1}}


class Editing(MemoryAdapter):
    """Its messages can be changed."""

    edits_fail = False

    async def edit_message(self, chat_id: str, message_id: str, content: str, *, finalize: bool = False) -> SendResult:
        if self.edits_fail:
            return SendResult(False, error="too late")
        with self.changed:
            number = int(message_id[1:]) - 1
            self.sent[number] = Sent(chat_id, content, self.sent[number].reply_to, self.sent[number].metadata)
            self.edits.append((message_id, content + (" [final]" if finalize else "")))
            self.changed.notify_all()
        return SendResult(True, message_id=message_id)


class Tool:
    """Runs until it is let go."""

    def __init__(self) -> None:
        self.go = threading.Event()

    def __call__(self, ctx: Any) -> None:
        def wait(args: dict[str, Any], **kwargs: Any) -> str:
            self.go.wait(60)
            return json.dumps({"ok": True})

        ctx.register_tool("wait", "wait", WAIT, wait, emoji="⏳")


def test_an_answer_grows_in_one_message_and_ends_as_it_is() -> None:
    tool = Tool()
    model = [Reply("I look.\n", (call("wait"),)), "Found it."]
    with chat_host(tool, model=model, platform=memory_platform(Editing), config=STREAM) as chat:
        chat.write("go")
        assert chat.answers(1)[0].startswith("I look.")
        growing = chat.texts[0]
        tool.go.set()
        chat.wait(lambda: chat.adapter.outcomes)
        assert chat.texts == ["I look.\n\n\nFound it."]
        assert chat.adapter.edits[-1][1].endswith("[final]")

    assert growing.endswith(" ▉")


def test_what_is_on_its_way_when_the_answer_is_whole_becomes_the_answer() -> None:
    held, ended, go = threading.Event(), threading.Event(), threading.Event()

    class Far(Editing):
        """The service has what it is sent long before the adapter is told so."""

        async def send(self, *args: Any, **kwargs: Any) -> SendResult:
            result = await super().send(*args, **kwargs)
            held.set()
            while not go.is_set():  # noqa: ASYNC110 - set by the test's thread
                await asyncio.sleep(0.01)
            return result

    def register(ctx: Any) -> None:
        ctx.register_hook("on_session_end", lambda **kw: ended.set())

    with chat_host(register, model=["Found it."], platform=memory_platform(Far), config=STREAM) as chat:
        chat.write("go")
        assert held.wait(60) and ended.wait(60)
        go.set()
        chat.wait(lambda: chat.adapter.outcomes)
        assert chat.texts == ["Found it."]


def test_when_the_last_edit_fails_the_answer_is_sent_whole() -> None:
    tool = Tool()
    model = [Reply("I look.\n", (call("wait"),)), "Found it."]
    with chat_host(tool, model=model, platform=memory_platform(Editing), config=STREAM) as chat:
        chat.write("go")
        chat.answers(1)
        chat.adapter.edits_fail = True
        tool.go.set()
        chat.wait(lambda: chat.adapter.outcomes)
        assert chat.texts[-1] == "I look.\n\n\nFound it."


def test_tools_are_shown_in_one_message_that_is_edited() -> None:
    tool = Tool()
    tool.go.set()
    model = [call("wait", what="one"), call("wait", what="two"), "done"]
    config = {"display": {"tool_progress": "all"}, "streaming": {"edit_interval": 0}}
    with chat_host(tool, model=model, platform=memory_platform(Editing), config=config) as chat:
        chat.write("go")
        chat.wait(lambda: "done" in chat.texts)
        texts = chat.texts

    assert len(texts) == 2
    assert texts[0].startswith("⏳ wait: one")


def test_where_nothing_can_be_edited_only_the_answer_is_sent() -> None:
    tool = Tool()
    tool.go.set()
    config = {"display": {"tool_progress": "all"}, **STREAM}
    with chat_host(tool, model=[call("wait"), "done"], config=config) as chat:
        chat.write("go")
        chat.wait(lambda: chat.adapter.outcomes)
        assert chat.texts == ["done"]


def test_typing_is_shown_while_it_works_unless_it_is_switched_off() -> None:
    tool = Tool()
    with chat_host(tool, model=[call("wait"), "done"]) as chat:
        chat.write("go")
        while not chat.adapter.typing:
            threading.Event().wait(0.01)
        tool.go.set()
        chat.answers(1)
    quiet = Tool()
    quiet.go.set()
    config = {"platforms": {"memorychat": {"typing_indicator": False}}}
    with chat_host(quiet, model=ScriptedModel(call("wait"), "done"), config=config) as chat:
        chat.ask("go")
        assert chat.adapter.typing == 0
