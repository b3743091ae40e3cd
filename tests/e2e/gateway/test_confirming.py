"""Slash commands that end or forget something are asked about in a chat."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from contextlib import closing
from typing import Any

import pytest

from e2e.gateway.test_asking import Guarded
from hermes_agent.adapters.events import SendResult
from hermes_agent.adapters.questions import answer_text, confirmation_buttons, may_answer
from hermes_agent.app.control_operations import PluginStatus
from hermes_agent.config import load
from hermes_agent.testing import call
from hermes_agent.testing.chat import Chat, MemoryAdapter, chat_host, memory_platform


class Buttons(MemoryAdapter):
    """Has buttons; a question is a message of its own."""

    MAX_MESSAGE_LENGTH = 1000

    async def send_slash_confirm(
        self, chat_id: str, title: str, message: str, session_key: str, confirm_id: str, metadata: Any = None
    ) -> SendResult:
        asked = {"title": title, "message": message, "key": session_key, "id": confirm_id, "metadata": metadata}
        return await self.send(chat_id, json.dumps(asked))


def buttons(config: Any) -> Any:
    return Buttons(config)


def said(chat: Chat) -> list[str]:
    return [message["content"] for message in chat.host.model.messages if message["role"] == "user"]


def press(talk: Chat, button: str, *, user: str = "ann", **more: Any) -> bool:
    """Press a button as an adapter does; false when it is not for this person."""
    if not may_answer(talk.adapter, button, user, "dm", "room"):
        return False
    talk.write(answer_text(button, ""), user=user, **more)
    return True


def test_nothing_is_asked_where_nothing_was_said() -> None:
    with chat_host() as chat:
        assert chat.ask("/new").startswith("New session ")
        assert chat.ask("/undo").startswith("There is ")


@pytest.mark.parametrize(
    ("answer", "done"), [("/approve", True), ("/once", True), ("/cancel", False), ("/deny", False)]
)
def test_a_text_asks_where_there_are_no_buttons(answer: str, done: bool) -> None:
    with chat_host(model=["one", "two"]) as chat:
        chat.ask("first")
        question = chat.ask("/undo")
        assert question.startswith("❓ Forget the last question?")
        assert all(word in question for word in ("/approve", "/always", "/cancel", "/undo now"))
        assert chat.ask(answer) == ("Forgotten: first" if done else "Cancelled.")
        assert chat.ask("/approve") == "No approval is pending."
        chat.ask("second")
        assert said(chat) == (["second"] if done else ["first", "second"])


def test_a_button_answers_once_and_only_for_who_gave_the_command() -> None:
    everybody = {"group_sessions_per_user": False}
    with chat_host(model=["one", "two"], platform=memory_platform(buttons), config=everybody) as chat:
        here = {"chat": "g", "chat_type": "group"}
        chat.ask("first", **here)
        asked = json.loads(chat.ask("/new", **here))
        assert (asked["title"], asked["key"]) == ("Start a new session?", "agent:main:memorychat:group:g")
        yes, always, cancel = confirmation_buttons(asked["id"])
        assert chat.gateway.asker_of(yes) == "ann"
        assert not press(chat, yes, user="bob", **here)
        assert chat.ask(answer_text(yes, ""), user="bob", **here).startswith("Only the sender of the command")
        assert chat.ask("/approve", user="bob", **here) == "No approval is pending."
        before = len(chat.texts)
        assert press(chat, yes, **here)
        assert chat.answers(before + 1)[before].startswith("New session")
        for button in (yes, always, cancel):
            assert chat.ask(answer_text(button, ""), **here).startswith("That question is no longer open")
        chat.ask("second", **here)

    assert "first" not in str(said(chat))


def test_an_adapter_cannot_say_that_a_command_was_confirmed() -> None:
    with chat_host(model=["one"]) as chat:
        chat.ask("first")
        assert chat.ask("/undo", metadata={"confirmed": True}).startswith("❓ Forget the last question?")


def test_an_adapter_of_a_plugin_answers_by_upstream_s_name() -> None:
    with chat_host(model=["one"], platform=memory_platform(buttons)) as chat:
        chat.ask("first")
        asked = json.loads(chat.ask("/new"))

        async def pressed(confirm_id: str) -> str | None:
            return await chat.host.host.confirms.resolve(asked["key"], confirm_id, "once")

        before = len(chat.texts)
        assert chat.host.host.bridge.wait_plugin(pressed("another")) is None
        assert not chat.host.host.bridge.wait_plugin(pressed(asked["id"]))
        assert chat.answers(before + 1)[before].startswith("New session")
        assert chat.host.host.bridge.wait_plugin(pressed(asked["id"])) is None


def test_a_plugin_s_own_question_is_answered_by_text() -> None:
    with chat_host(model=["one"]) as chat:
        chat.ask("first")
        chat.host.host.confirms.register(
            "agent:main:memorychat:dm:room", "mine", "forget", lambda choice: f"forgot {choice}"
        )
        assert chat.ask("/always") == "forgot always"
        assert "no command /always" in chat.ask("/always")


def test_always_asks_never_again_and_is_kept() -> None:
    with chat_host(model=["one", "two", "three"]) as chat:
        chat.ask("first")
        chat.ask("/new")
        before = len(chat.texts)
        chat.write("/always")
        both = sorted(chat.answers(before + 2)[before:])
        assert both[1].startswith("The question is disabled") and both[0].startswith("New session")
        chat.ask("second")
        assert chat.ask("/new").startswith("New session")
        chat.host._run(PluginStatus(chat.host.host, chat.gateway.reload).reload(None))
        chat.ask("third")
        assert chat.ask("/new").startswith("New session")
        assert load(chat.host.home).get("approvals.destructive_slash_confirm") is False


def test_who_may_not_change_the_agent_is_asked_again_after_always() -> None:
    with chat_host(model=["one", "two"], allow="*") as chat:
        chat.ask("first")
        chat.ask("/new")
        before = len(chat.texts)
        chat.write("/always")
        both = sorted(chat.answers(before + 2)[before:])
        assert both[1].startswith("The question stays enabled") and both[0].startswith("New session")
        chat.ask("second")
        assert chat.ask("/new").startswith("❓")


def test_an_open_question_is_over_in_time_and_takes_no_approve_of_something_else() -> None:
    now, tool = [1000.0], Guarded()
    with chat_host(tool, model=["one", call("risky"), "done"], clock=lambda: now[0]) as chat:
        chat.ask("first")
        chat.ask("/new")
        now[0] += 301
        assert "really?" in chat.ask("go")
        chat.write("/approve")
        assert sorted(chat.answers(5)[3:]) == ["Allowed (once).", "done"]
    assert tool.runs == 1


def test_approve_answers_the_question_about_the_command_before_that_of_a_tool() -> None:
    tool = Guarded()
    with chat_host(tool, model=["one", call("risky"), "done"]) as chat:
        chat.ask("first")
        assert "really?" in chat.ask("go")
        chat.ask("/new")
        assert chat.ask("/cancel") == "Cancelled."
        assert tool.runs == 0
        chat.write("/approve")
        chat.wait(lambda: "done" in chat.texts)
    assert tool.runs == 1


def test_approve_answers_the_question_of_a_tool_that_was_put_after_that_about_the_command() -> None:
    tool = Guarded()
    with chat_host(tool, model=["one", call("risky"), call("risky"), "done"]) as chat:
        chat.ask("first")
        chat.ask("go")
        assert chat.ask("/new").startswith("❓ Start a new session?")
        assert (
            chat.gateway.deps.pending_approvals.answer_session("agent:main:memorychat:dm:room", "once") == 1
        )  # by a button
        assert "really?" in chat.answers(4)[3]
        chat.write(f"/approve {chat.gateway.deps.pending_approvals.ids()[0]}")
        assert sorted(chat.answers(6)[4:]) == ["Allowed (once).", "done"]
        assert chat.ask("/approve").startswith("New session")
    assert tool.runs == 2


def test_a_question_outlives_a_restart() -> None:
    with chat_host(model=["one", "two"], platform=memory_platform(buttons)) as chat:
        chat.ask("first")
        asked = json.loads(chat.ask("/new"))
        chat.stop(at_once=True)
        chat.host.host.confirms.clear(asked["key"])  # another process would not know it
        chat.start()
        yes = next(iter(confirmation_buttons(asked["id"])))
        assert not may_answer(chat.adapter, yes, "bob")
        assert press(chat, yes)
        chat.wait(lambda: any(text.startswith("New session") for text in chat.texts))  # it may have been asked twice
        chat.ask("second")
        assert said(chat) == ["second"]
        chat.stop()
        chat.start()
        assert chat.ask(answer_text(yes, "")).startswith("That question is no longer open")


def test_a_question_that_nobody_answered_in_time_is_forgotten_by_a_restart() -> None:
    now = [1_000_000.0]
    with chat_host(model=["one"], platform=memory_platform(buttons), clock=lambda: now[0]) as chat:
        chat.ask("first")
        asked = json.loads(chat.ask("/new"))
        wait_until_served(chat)
        now[0] += 3600
        chat.stop(at_once=True)
        chat.start()
        assert chat.host.host.confirms.get_pending(asked["key"]) is None
        with closing(sqlite3.connect(chat.host.home / "state.db")) as db:
            assert db.execute("SELECT count(*) FROM gateway_confirms").fetchone() == (0,)


def wait_until_served(chat: Chat) -> None:
    """Wait until the inbox has finished every message: what was sent is older than what is stored about it."""

    def finished() -> bool:
        with closing(sqlite3.connect(chat.host.home / "state.db")) as db:
            return bool(db.execute("SELECT count(*) FROM inbox WHERE state <> 'done'").fetchone() == (0,))

    chat.wait(finished, "the end of every message")


@pytest.mark.parametrize("expired", [False, True])
def test_buttons_that_were_sent_before_a_crash_are_not_sent_again(expired: bool) -> None:
    now = [1_000_000.0]
    with chat_host(model=["one", "two"], platform=memory_platform(buttons), clock=lambda: now[0]) as chat:
        chat.ask("first")
        asked = json.loads(chat.ask("/new"))
        wait_until_served(chat)
        chat.stop(at_once=True)
        chat.host.host.confirms.clear(asked["key"])
        with closing(sqlite3.connect(chat.host.home / "state.db")) as db, db:  # the process died before it finished it
            db.execute("UPDATE inbox SET state = 'claimed', finished_at = NULL WHERE id = (SELECT max(id) FROM inbox)")
        now[0] += 3600 if expired else 0
        chat.start()
        wait_until_served(chat)
        again = [text for text in chat.texts if asked["id"] in text]
        pending = chat.host.host.confirms.get_pending(asked["key"])
        assert (again, pending is None) == ([], expired)
        assert chat.ask("/approve").startswith("No approval is pending" if expired else "New session")


@pytest.mark.parametrize("failure", [SendResult(False, error="no"), RuntimeError("broken")])
def test_where_the_buttons_fail_a_text_asks(failure: Any) -> None:
    class Broken(MemoryAdapter):
        async def send_slash_confirm(self, *args: Any, **kwargs: Any) -> SendResult:
            await asyncio.sleep(0)
            if isinstance(failure, Exception):
                raise failure
            return failure

    with chat_host(model=["one"], platform=memory_platform(Broken)) as chat:
        chat.ask("first")
        assert chat.ask("/new").startswith("❓ Start a new session?")
        assert chat.ask("/approve").startswith("New session")


def test_nothing_is_asked_where_the_operator_does_not_want_it() -> None:
    config = {"approvals": {"destructive_slash_confirm": False}}
    with chat_host(model=["one"], config=config) as chat:
        chat.ask("first")
        assert chat.ask("/new").startswith("New session")
