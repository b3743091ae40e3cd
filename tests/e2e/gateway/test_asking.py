"""Approvals in a chat."""

from __future__ import annotations

import json
import re
import threading
from pathlib import Path
from typing import Any

import pytest

from hermes_agent.adapters.events import MessageType, SendResult
from hermes_agent.adapters.questions import approval_buttons
from hermes_agent.policy import Approvals, Clarifier, PendingQuestions
from hermes_agent.testing import ScriptedModel, call
from hermes_agent.testing.chat import MemoryAdapter, chat_host, memory_platform

WONDERS = {"name": "wonders", "description": "x", "parameters": {"type": "object", "properties": {}}}
RISKY = {"name": "risky", "description": "x", "parameters": {"type": "object", "properties": {}}}


class Guarded:
    """A tool whose every call a guard asks about."""

    def __init__(self) -> None:
        self.runs = self.asked = 0

    def __call__(self, ctx: Any) -> None:
        ctx.register_tool("risky", "risky", RISKY, self.run)
        ctx.register_hook("pre_tool_call", self.ask)

    def ask(self, **kwargs: Any) -> dict[str, str]:
        self.asked += 1
        return {"action": "approve", "message": "really?", "rule_key": "risk"}

    def run(self, args: dict[str, Any], **kwargs: Any) -> str:
        self.runs += 1
        return json.dumps({"ok": True})


def last_result(model: ScriptedModel) -> str:
    return str([m["content"] for m in model.messages if m["role"] == "tool"][-1])


def test_a_question_is_asked_in_the_chat_and_the_tool_runs_after_approve() -> None:
    tool = Guarded()
    with chat_host(tool, model=[call("risky"), "done"]) as chat:
        question = chat.ask("go")
        assert "really?" in question
        assert "/approve" in question
        assert tool.runs == 0
        chat.write("/approve")
        assert sorted(chat.answers(3)[1:]) == ["Allowed (once).", "done"]

    assert tool.runs == 1


def test_deny_refuses_with_its_reason() -> None:
    tool = Guarded()
    with chat_host(tool, model=[call("risky"), "as you like"]) as chat:
        chat.ask("go")
        chat.write("/deny not today")
        chat.wait(lambda: "as you like" in chat.texts)
        assert "not today" in last_result(chat.host.model)

    assert tool.runs == 0


def test_silence_is_a_no() -> None:
    tool = Guarded()
    with chat_host(tool, model=[call("risky"), "then not"], config={"approvals": {"gateway_timeout": 1}}) as chat:
        chat.ask("go")
        chat.wait(lambda: "then not" in chat.texts)
        assert "no answer within" in last_result(chat.host.model)
        assert chat.ask("/approve") == "No approval is pending."

    assert tool.runs == 0


def test_session_covers_the_next_messages_of_the_session_and_not_the_next_session() -> None:
    tool = Guarded()
    model = [call("risky"), "one", call("risky"), "two", call("risky"), "three"]
    with chat_host(tool, model=model) as chat:
        chat.ask("go")
        chat.write("/approve session")
        chat.wait(lambda: {"one", "Allowed (session)."} <= {*chat.texts})
        assert chat.ask("again") == "two"
        chat.ask("/new now")
        assert "really?" in chat.ask("and now")
        chat.write("/deny")
        chat.wait(lambda: "three" in chat.texts)

    assert tool.runs == 2


def test_a_session_that_is_taken_up_in_another_chat_asks_there() -> None:
    tool = Guarded()
    with chat_host(tool, model=[call("risky"), "one", call("risky"), "two"]) as chat:
        chat.ask("go")
        chat.write("/approve")
        chat.wait(lambda: {"one", "Allowed (once)."} <= {*chat.texts})
        session = chat.ask("/status").splitlines()[0].split()[1]
        chat.ask(f"/resume {session}", chat="elsewhere")
        assert "really?" in chat.ask("again", chat="elsewhere")
        assert chat.adapter.sent[-1].chat == "elsewhere"
        chat.write("/approve", chat="elsewhere")
        chat.wait(lambda: "two" in chat.texts)

    assert tool.runs == 2


def test_a_session_that_was_asked_before_is_asked_through_a_platform_that_was_connected_anew() -> None:
    tool = Guarded()
    with chat_host(tool, model=[call("risky"), "one", call("risky"), "two"]) as chat:
        chat.ask("go")
        chat.write("/approve")
        chat.wait(lambda: {"one", "Allowed (once)."} <= {*chat.texts})
        host = chat.host.host
        platforms = {"memorychat": {"enabled": True, "reply_to_mode": "all"}}
        host.config = host.config._replace(values={**host.config.values, "platforms": platforms})
        chat.host._run(chat.gateway.reload())
        chat.until("connected", times=2)
        assert "really?" in chat.ask("again")
        chat.write(f"/approve {host.asked.ids()[0]}")
        chat.wait(lambda: "two" in chat.texts)

    assert tool.runs == 2


def test_stop_ends_a_turn_that_waits_for_an_approval() -> None:
    tool = Guarded()
    with chat_host(tool, model=[call("risky"), "next"]) as chat:
        chat.ask("go")
        assert chat.ask("/stop") == "Stopped."
        assert chat.ask("/approve") == "No approval is pending."
        assert chat.ask("hello") == "next"

    assert tool.runs == 0


def test_a_shutdown_in_the_middle_of_a_question_is_no_error(caplog: pytest.LogCaptureFixture) -> None:
    tool = Guarded()
    with chat_host(tool, model=[call("risky"), "next"]) as chat:
        assert "really?" in chat.ask("go")

    assert tool.runs == 0
    assert [record.getMessage() for record in caplog.records if record.levelname == "ERROR"] == []


def test_somebody_else_s_approve_does_not_count_and_a_known_one_s_in_the_same_room_does() -> None:
    tool = Guarded()
    config = {"platforms": {"memorychat": {"group_allow_admin_from": ["bob"]}}}
    with chat_host(tool, model=[call("risky"), "done"], config=config) as chat:
        chat.ask("go", chat="g", chat_type="group")
        assert chat.ask("/approve", chat="g", chat_type="group").startswith("You may not run /approve")
        assert chat.ask("/approve", user="bob", chat="elsewhere") == "No approval is pending."
        assert tool.runs == 0
        chat.write("/approve", user="bob", chat="g", chat_type="group")
        chat.wait(lambda: "done" in chat.texts)

    assert tool.runs == 1


def test_a_question_that_does_not_reach_the_chat_is_a_no() -> None:
    tool = Guarded()
    with chat_host(tool, model=[call("risky"), "cannot ask"]) as chat:
        chat.adapter.failures = [SendResult(False, error="gone")]
        assert chat.ask("go") == "cannot ask"
        assert "Failed to send approval request" in last_result(chat.host.model)

    assert tool.runs == 0


class Buttons(MemoryAdapter):
    """Has buttons."""

    asked: dict[str, Any]

    async def send_exec_approval(self, chat_id: str, command: str, session_key: str, **more: Any) -> SendResult:
        with self.changed:
            self.asked = {"chat": chat_id, "command": command, "key": session_key, **more}
            self.changed.notify_all()
        return SendResult(True, message_id="b1")


def test_an_adapter_s_button_answers() -> None:
    tool = Guarded()
    with chat_host(tool, model=[call("risky"), "done"], platform=memory_platform(Buttons)) as chat:
        chat.write("go")
        asked = chat.wait(lambda: getattr(chat.adapter, "asked", None))
        from tools.approval import resolve_gateway_approval  # type: ignore[import-not-found]

        assert resolve_gateway_approval(asked["key"], "once") == 1
        assert chat.answers(1) == ["done"]

    assert (asked["chat"], asked["key"], asked["smart_denied"]) == ("room", "agent:main:memorychat:dm:room", False)
    assert tool.runs == 1


def test_a_command_that_is_made_up_while_it_runs_offers_once_and_deny_alone_as_text_and_as_buttons() -> None:
    made_up = call("terminal", command="$(cat program) x")
    with chat_host(model=[made_up, made_up, "done"], config={"terminal": {"sandbox": "off"}}) as chat:
        question = chat.ask("go")
        assert "/approve allows this call; /deny refuses it." in question
        chat.write("/approve always")
        chat.wait(lambda: sum("/approve allows" in text for text in chat.texts) == 2)  # the same call asks again
        chat.wait(lambda: "Allowed (once): this call needs an approval each time." in chat.texts)
        chat.write("/deny")
        chat.wait(lambda: "done" in chat.texts)

    with chat_host(
        model=[made_up, "done"], platform=memory_platform(Buttons), config={"terminal": {"sandbox": "off"}}
    ) as chat:
        chat.write("go")
        asked = chat.wait(lambda: getattr(chat.adapter, "asked", None))
        assert (asked["allow_session"], asked["allow_permanent"]) == (False, False)
        chat.write("/deny")
        chat.wait(lambda: "done" in chat.texts)
    assert list(approval_buttons(permanent=False, session=False)) == ["approve", "deny"]


def test_a_button_of_a_question_that_is_over_answers_no_later_one() -> None:
    tool = Guarded()
    model = [call("risky"), call("risky"), "done"]
    with chat_host(tool, model=model, platform=memory_platform(Buttons)) as chat:
        chat.write("go")
        first = chat.wait(lambda: getattr(chat.adapter, "asked", None))["approval_id"]
        assert chat.ask(f"/deny {first}") == "Refused."
        chat.wait(lambda: chat.adapter.asked["approval_id"] != first)
        assert chat.ask(f"/approve {first}") == "That question is no longer open."
        assert tool.runs == 0
        chat.write(f"/approve session {chat.adapter.asked['approval_id']}")
        chat.wait(lambda: "done" in chat.texts)
        assert "Allowed (session)." in chat.texts
    assert tool.runs == 1


def test_observers_hear_of_a_question_in_a_chat_with_the_session_s_key() -> None:
    heard: list[dict[str, Any]] = []
    told = threading.Event()
    tool = Guarded()

    def register(ctx: Any) -> None:
        tool(ctx)
        ctx.register_hook("pre_approval_request", lambda **kw: (heard.append(kw), told.set()))

    with chat_host(register, model=[call("risky"), "done"]) as chat:
        chat.ask("go")
        assert told.wait(60)
        chat.write("/deny")
        chat.wait(lambda: "done" in chat.texts)

    assert (heard[0]["surface"], heard[0]["session_key"]) == ("gateway", "agent:main:memorychat:dm:room")


class Wonders:
    """A tool that asks the person something."""

    def __init__(self) -> None:
        self.host: Any = None

    def __call__(self, ctx: Any) -> None:
        ctx.register_tool("wonders", "wonders", WONDERS, self.run)

    def run(self, args: dict[str, Any], **kwargs: Any) -> str:
        from hermes_agent.tools import current_scope

        scope = current_scope.get()
        assert scope is not None
        approver: Any = scope.approvals.approver
        clarifier: Clarifier = approver
        answer = self.host.bridge.wait_core(clarifier.clarify("Which colour?", ["red", "blue"]))
        return json.dumps({"answer": str(answer)})


@pytest.mark.parametrize(("said", "answer"), [("2", "blue"), ("green, please", "green, please")])
def test_a_question_to_the_person_is_answered_by_number_or_in_words(said: str, answer: str) -> None:
    tool = Wonders()
    with chat_host(tool, model=[call("wonders"), "painted", "next"]) as chat:
        tool.host = chat.host.host
        assert chat.ask("paint") == "❓ Which colour?\n1. red\n2. blue"
        assert chat.ask("/status").startswith("Session")
        chat.write(said)
        chat.wait(lambda: "painted" in chat.texts)
        assert json.loads(last_result(chat.host.model)) == {"answer": answer}
        assert chat.ask("and?") == "next"


def test_a_picture_does_not_answer_a_question_to_the_person_and_is_looked_at_itself(tmp_path: Path) -> None:
    tool = Wonders()
    picture = tmp_path / "cat.png"
    picture.write_bytes(b"\x89PNG\r\n\x1a\n")
    with chat_host(tool, model=[call("wonders"), "painted", "a cat"]) as chat:
        tool.host = chat.host.host
        chat.ask("paint")
        chat.write("", media_urls=[str(picture)], media_types=["image/png"], message_type=MessageType.PHOTO)
        chat.write("red")
        chat.wait(lambda: "a cat" in chat.texts)
        assert json.loads(last_result(chat.host.model)) == {"answer": "red"}
        assert f"{picture} (image/png)" in chat.host.model.messages[-1]["content"]


def test_a_button_answers_a_question_to_the_person() -> None:
    tool = Wonders()
    asked: list[str] = []

    class Choices(MemoryAdapter):
        async def send_clarify(
            self, chat_id: str, question: str, choices: Any, clarify_id: str, session_key: str, metadata: Any = None
        ) -> SendResult:
            with self.changed:
                asked.append(clarify_id)
                self.changed.notify_all()
            return SendResult(True)

    with chat_host(tool, model=[call("wonders"), "painted"], platform=memory_platform(Choices)) as chat:
        tool.host = chat.host.host
        chat.write("paint")
        chat.wait(lambda: asked)
        from tools.clarify_gateway import resolve_gateway_clarify  # type: ignore[import-not-found]

        assert resolve_gateway_clarify(asked[0], "red")
        assert chat.answers(1) == ["painted"]
        assert json.loads(last_result(chat.host.model)) == {"answer": "red"}


@pytest.fixture
def guarded(monkeypatch: pytest.MonkeyPatch) -> Guarded:
    """A guarded tool whose first question is closed after a second, and whose others wait."""
    tool = Guarded()
    waits = property(lambda _approvals: 1.0 if tool.asked == 1 else 300.0, lambda _approvals, _set: None)
    monkeypatch.setattr(Approvals, "_timeout_s", waits, raising=False)
    return tool


def asked_twice(tool: Guarded, **more: Any) -> Any:
    """A chat whose first question gets no answer in time, and in which a second one is open."""
    return chat_host(tool, model=[call("risky"), call("risky"), "done"], **more)


def code_in(question: str) -> str:
    found = re.search(r"/approve ([0-9a-f]{5})", question)
    assert found is not None, question
    return found[1]


@pytest.mark.attack("approvals")
def test_an_answer_to_a_question_that_is_closed_allows_nothing_that_is_asked_next(guarded: Guarded) -> None:
    with asked_twice(guarded) as chat:
        chat.ask("go")
        second = chat.answers(2)[1]
        for late in ("/approve", "/approve session", "/approve all"):
            assert f"/approve {code_in(second)}: " in chat.ask(late)
        assert guarded.runs == 0
        chat.write(f"/approve {code_in(second)}")
        chat.wait(lambda: "done" in chat.texts)
    assert guarded.runs == 1


@pytest.mark.attack("approvals")
def test_an_answer_that_comes_when_nothing_is_open_is_for_the_question_that_was_closed(guarded: Guarded) -> None:
    with chat_host(guarded, model=[call("risky"), "no answer", call("risky"), "done"]) as chat:
        chat.ask("go")
        chat.wait(lambda: "no answer" in chat.texts)
        assert chat.ask("/approve") == "No approval is pending."
        assert "/approve allows this call" in chat.ask("again")
        chat.write("/approve")
        chat.wait(lambda: "done" in chat.texts)
    assert guarded.runs == 1


@pytest.mark.attack("approvals")
def test_two_answers_to_one_question_allow_one_call() -> None:
    tool = Guarded()
    with chat_host(tool, model=[call("risky"), call("risky"), "done"]) as chat:
        chat.ask("go")
        chat.write("/approve")
        chat.wait(lambda: sum("really?" in text for text in chat.texts) == 2 and "Allowed (once)." in chat.texts)
        assert "Select the question" in chat.ask("/approve") and tool.runs == 1
        chat.write("/deny")
        chat.wait(lambda: "done" in chat.texts)
    assert tool.runs == 1


@pytest.mark.attack("approvals")
def test_an_answer_to_a_question_from_before_a_restart_allows_nothing_that_is_asked_after_it() -> None:
    tool = Guarded()
    with chat_host(tool, model=[call("risky"), call("risky"), "done"]) as chat:
        chat.ask("go")
        chat.stop(at_once=True)
        chat.host.host.asked = PendingQuestions()  # as in a new process
        chat.start()
        question = chat.wait(lambda: next((t for t in chat.texts if "really?" in t), None))
        assert code_in(question) in chat.ask("/approve") and tool.runs == 0
        chat.write(f"/approve {code_in(question)}")
        chat.wait(lambda: "done" in chat.texts)
    assert tool.runs == 1


@pytest.mark.attack("approvals")
def test_a_platform_that_answers_whatever_is_open_does_not_allow_the_next_question(guarded: Guarded) -> None:
    class Unbound(MemoryAdapter):
        async def send_exec_approval(self, chat_id: str, command: str, session_key: str) -> SendResult:
            with self.changed:
                self.key = session_key
                self.changed.notify_all()
            return SendResult(True, message_id="b1")

    with asked_twice(guarded, platform=memory_platform(Unbound)) as chat:
        chat.write("go")
        question = chat.answers(1)[0]  # the second one, as a text
        from tools.approval import resolve_gateway_approval

        assert resolve_gateway_approval(chat.adapter.key, "once") == 0 and guarded.runs == 0
        chat.write(f"/approve {code_in(question)}")
        chat.wait(lambda: "done" in chat.texts)
    assert guarded.runs == 1
