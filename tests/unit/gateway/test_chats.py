"""A chat from end to end: the gateway, a scripted model over HTTP, a platform in memory."""

from __future__ import annotations

from hermes_agent.testing import call
from hermes_agent.testing.chat import chat_host


def test_a_message_is_answered_as_a_reply_in_its_chat() -> None:
    with chat_host(model=["Hello Ann."]) as chat:
        number = chat.write("hi")
        (answer,) = chat.answers(1)
        sent = chat.adapter.sent[0]

    assert answer == "Hello Ann."
    assert (sent.chat, sent.reply_to, sent.metadata["notify"]) == ("room", number, True)
    assert chat.host.model.messages[-1] == {"role": "user", "content": "hi"}


def test_the_next_message_goes_on_in_the_same_session_and_another_chat_has_its_own() -> None:
    with chat_host(model=["one", "two", "three"]) as chat:
        chat.ask("first")
        chat.ask("second")
        said = [m["content"] for m in chat.host.model.messages if m["role"] == "user"]
        chat.ask("elsewhere", chat="other")
        elsewhere = [m["content"] for m in chat.host.model.messages if m["role"] == "user"]

    assert said == ["first", "second"]
    assert elsewhere == ["elsewhere"]


def test_a_tool_runs_and_the_answer_follows() -> None:
    with chat_host(model=[call("read_file", path="/nowhere/at/all"), "There is nothing."]) as chat:
        assert chat.ask("read it") == "There is nothing."
