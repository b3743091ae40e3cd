from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from hermes_agent.agent.transcript_writer import LOST_RESULT, HistoryRepair, repaired
from hermes_agent.core.messages import Message, ToolCall


def test_a_call_without_a_result_gets_one_that_says_that_its_end_is_unknown() -> None:
    call = ToolCall("c1", "terminal", "{}")
    assert repaired([Message("user", "go"), Message("assistant", "", (call,)), Message("user", "well?")]) == [
        Message("user", "go"),
        Message("assistant", "", (call,)),
        Message("tool", LOST_RESULT, tool_call_id="c1", tool_name="terminal"),
        Message("user", "well?"),
    ]


def test_user_messages_in_a_row_become_one_even_with_parts() -> None:
    image = {"type": "image_url", "image_url": {"url": "data:,"}}
    assert repaired([Message("user", "a"), Message("user", [image])])[0].content == [
        {"type": "text", "text": "a"},
        image,
    ]


messages = st.lists(
    st.one_of(
        st.builds(lambda t: Message("user", t), st.text(max_size=5)),
        st.builds(
            lambda ids: Message("assistant", "", tuple(ToolCall(i, "t", "{}") for i in ids)),
            st.lists(st.sampled_from("abc"), unique=True, max_size=3),
        ),
        st.builds(lambda i: Message("tool", "r", tool_call_id=i), st.sampled_from("abc")),
    ),
    max_size=12,
)


@given(messages)
def test_whatever_was_stored_what_is_sent_has_a_result_for_each_call_and_alternates(history: list[Message]) -> None:
    open_calls: list[str] = []
    last = ""
    for message in repaired(history):
        if message.role == "tool":
            open_calls.remove(message.tool_call_id)
        else:
            assert open_calls == []
            assert not (message.role == "user" and last == "user")
        open_calls += [c.id for c in message.tool_calls]
        last = message.role
    assert open_calls == []


@given(messages)
def test_repairing_twice_changes_nothing(history: list[Message]) -> None:
    assert repaired(repaired(history)) == repaired(history)


def test_the_messages_of_a_request_are_continued_unless_somebody_has_them() -> None:
    history, repair = [Message("user", "a"), Message("assistant", "b")], HistoryRepair()

    def asked(prompt: str) -> list[Message]:
        found = repair.add_prompt(Message("system", prompt), repair.repair(history))
        assert found == [Message("system", prompt), *repaired(history)]
        return found

    first = id(asked("one"))
    history += [Message("user", "c"), Message("user", "d")]
    kept = asked("two")
    assert id(kept) == first, "the list of the last request was copied"
    history += [Message("user", "e"), Message("assistant", "f")]  # the last message of the user grows
    before = list(kept)
    assert asked("three") is not kept
    assert kept == before, "the messages of an earlier request changed"
    history[0] = Message("user", "z")
    asked("four")
    history += [Message("assistant", "", (ToolCall("1", "t", "{}"),))]  # its result is lost
    asked("five")
    history += [Message("tool", "r", tool_call_id="1", tool_name="t")]
    asked("six")
