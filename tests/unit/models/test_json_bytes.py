from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from hermes_agent.contracts.model_client import ToolDefinitions
from hermes_agent.core.messages import Message, ToolCall
from hermes_agent.models.wire_protocol import (
    RUN_SIZES,
    encode_json,
    encode_message_runs,
    encode_messages,
    encode_tools,
    join_list,
    mapping_pieces,
)

texts = st.text(st.characters(), max_size=8) | st.sampled_from(["\ud800", "ä", '"', "\u2028"])
messages = st.lists(
    st.builds(lambda role, text: Message(role, text), st.sampled_from(["user", "assistant"]), texts), max_size=6
)


def plain(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")


@given(messages, texts)
def test_bytes_that_are_put_together_are_those_of_the_whole(said: list[Message], model: str) -> None:
    tools = ToolDefinitions([{"type": "function", "function": {"name": "t", "description": model}}])
    for _ in range(2):  # the second time out of what is kept
        made = encode_messages(said, "someone", lambda m: [m.to_dict()])
        body = {"model": model, "tools": encode_tools(tools, "someone"), "messages": join_list(t for (t,) in made)}
        whole = {"model": model, "tools": list(tools), "messages": [m.to_dict() for m in said]}
        assert b"".join(mapping_pieces(body)) == plain(whole)


def test_a_message_is_encoded_once_for_each_who_is_asked() -> None:
    asked: list[str] = []

    def make(message: Message) -> list[dict[str, Any]]:
        asked.append(message.text)
        return [message.to_dict()]

    said = [Message("user", "one"), Message("assistant", "", (ToolCall("c", "t", "{}"),))]
    first, other = object(), object()
    encode_messages(said, first, make)
    encode_messages([*said, Message("user", "two")], first, make)
    assert asked == ["one", "", "two"]
    assert encode_messages(said, other, lambda m: [{"theirs": m.role}])[0] == (encode_json({"theirs": "user"}),)
    assert encode_messages(said, first, make)[0] == (encode_json(said[0].to_dict()),)


def test_a_long_conversation_is_put_together_out_of_few_texts_and_has_the_same_bytes() -> None:
    longest, *_, shortest = RUN_SIZES
    system = Message("system", "instructions")
    key, said = object(), [system, *(Message("user", f"message {n}") for n in range(3 * longest + shortest + 3))]
    made: list[str] = []

    def make(message: Message) -> dict[str, Any]:
        made.append(message.text)
        return message.to_dict()

    for count in (shortest, shortest + 1, longest, longest + 1, 3 * longest, len(said)):
        texts = encode_message_runs(said[:count], key, make)
        assert b"".join(mapping_pieces({"messages": join_list(texts)})) == plain(
            {"messages": [m.to_dict() for m in said[:count]]}
        )
        assert len(texts) <= 1 + count // longest + sum(one // other for one, other in pairwise((*RUN_SIZES, 1)))
    assert len(made) == len(said)
    assert len(encode_message_runs(said, key, make)) == 1 + 1 + 1 + 3
    assert len(made) == len(said)
    assert {m.last_encoding for m in said[1:-3]} == {None}, "each text is held once"
    assert sum(m.runs is not None for m in said) == 1


def test_another_system_prompt_leaves_the_texts_of_the_conversation() -> None:
    key, said = object(), [Message("user", f"message {n}") for n in range(RUN_SIZES[0])]
    encode_message_runs([Message("system", "one"), *said], key, Message.to_dict)
    made: list[str] = []
    encode_message_runs([Message("system", "two"), *said], key, lambda m: made.append(m.text) or m.to_dict())
    assert made == ["two"]


def test_what_is_sent_in_place_of_a_message_leaves_what_is_kept_as_it_is() -> None:
    key, said = object(), [Message("user", f"message {n}") for n in range(2 * RUN_SIZES[0])]
    whole = plain([m.to_dict() for m in said])
    assert encode_json(join_list(encode_message_runs(said, key, Message.to_dict))) == whole
    other = encode_json(join_list(encode_message_runs(said, key, Message.to_dict, {3: b"{}"})))
    assert json.loads(other)[3] == {} and json.loads(other)[4] == said[4].to_dict()
    assert encode_json(join_list(encode_message_runs(said, key, Message.to_dict))) == whole


def test_a_run_of_other_messages_is_not_taken_for_the_one_that_is_kept() -> None:
    key, said = object(), [Message("user", f"message {n}") for n in range(2 * RUN_SIZES[0])]
    encode_message_runs(said, key, Message.to_dict)
    shorter = [*(Message("user", "summary") for _ in range(4)), *said[RUN_SIZES[0] + 1 :], Message("user", "new")]
    assert encode_json(join_list(encode_message_runs(shorter, key, Message.to_dict))) == plain(
        [m.to_dict() for m in shorter]
    )
    assert [place for place, m in enumerate(shorter) if m.runs is not None] == [RUN_SIZES[0] - 1]
    assert encode_json(join_list(encode_message_runs(said, object(), lambda m: {"theirs": m.role}))) == plain(
        [{"theirs": m.role} for m in said]
    )
