from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from hermes_agent.core.messages import Message, ToolCall
from hermes_agent.models.encoding import encoded, joined, listed, pieces, tools_text
from hermes_agent.models.request import Definitions

texts = st.text(st.characters(), max_size=8) | st.sampled_from(["\ud800", "ä", '"', "\u2028"])
messages = st.lists(
    st.builds(lambda role, text: Message(role, text), st.sampled_from(["user", "assistant"]), texts), max_size=6
)


def plain(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")


@given(messages, texts)
def test_bytes_that_are_put_together_are_those_of_the_whole(said: list[Message], model: str) -> None:
    tools = Definitions([{"type": "function", "function": {"name": "t", "description": model}}])
    for _ in range(2):  # the second time out of what is kept
        made = pieces(said, "someone", lambda m: [m.to_dict()])
        body = {"model": model, "tools": tools_text(tools, "someone"), "messages": listed(t for (t,) in made)}
        whole = {"model": model, "tools": list(tools), "messages": [m.to_dict() for m in said]}
        assert joined(body) == plain(whole)


def test_a_message_is_encoded_once_for_each_who_is_asked() -> None:
    asked: list[str] = []

    def make(message: Message) -> list[dict[str, Any]]:
        asked.append(message.text)
        return [message.to_dict()]

    said = [Message("user", "one"), Message("assistant", "", (ToolCall("c", "t", "{}"),))]
    first, other = object(), object()
    pieces(said, first, make)
    pieces([*said, Message("user", "two")], first, make)
    assert asked == ["one", "", "two"]
    assert pieces(said, other, lambda m: [{"theirs": m.role}])[0] == (encoded({"theirs": "user"}),)
    assert pieces(said, first, make)[0] == (encoded(said[0].to_dict()),)
