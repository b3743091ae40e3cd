from __future__ import annotations

import pytest

from hermes_agent.core.messages import Message, ToolCall, Usage, text_content

CALL = {"id": "c1", "type": "function", "function": {"name": "calc", "arguments": '{"a": 1}'}}


@pytest.mark.parametrize(
    "value",
    [
        {"role": "user", "content": "hi"},
        {"role": "system", "content": "be kind"},
        {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "image_url", "image_url": {"url": "u"}}]},
        {"role": "assistant", "content": "done"},
        {"role": "assistant", "content": "wait", "tool_calls": [CALL]},
        {"role": "assistant", "content": None, "tool_calls": [CALL]},
        {"role": "tool", "content": "42", "tool_call_id": "c1"},
    ],
)
def test_the_chat_completions_form_is_read_and_written_alike(value):
    assert Message.from_dict(value).to_dict() == value


def test_a_call_keeps_its_arguments_as_the_model_wrote_them():
    broken = {"role": "assistant", "tool_calls": [{"id": "c", "function": {"name": "x", "arguments": "{broken"}}]}

    assert Message.from_dict(broken).tool_calls == (ToolCall("c", "x", "{broken"),)


def test_arguments_that_came_as_a_mapping_become_json():
    value = {"role": "assistant", "tool_calls": [{"id": "c", "function": {"name": "x", "arguments": {"a": "ü"}}}]}

    assert Message.from_dict(value).tool_calls[0].arguments == '{"a": "ü"}'


def test_a_developer_is_a_system():
    assert Message.from_dict({"role": "developer", "content": "x"}).role == "system"


@pytest.mark.parametrize(
    "value",
    [
        {},
        {"role": "robot", "content": "x"},
        {"role": "user", "content": 5},
        {"role": "user", "content": {"text": "x"}},
        {"role": "user", "content": ["x"]},
        {"role": "assistant", "tool_calls": "x"},
        {"role": "assistant", "tool_calls": ["x"]},
        {"role": "assistant", "tool_calls": [{"id": "c", "function": None}]},
        {"role": "assistant", "tool_calls": {"id": "c"}},
    ],
)
def test_what_is_no_message_is_a_value_error(value):
    with pytest.raises(ValueError):
        Message.from_dict(value)


def test_the_text_of_parts():
    assert text_content("x") == "x"
    assert (
        text_content([{"type": "text", "text": "a"}, {"type": "image_url"}, {"type": "input_text", "text": "b"}])
        == "a\nb"
    )


def test_usage_adds_up():
    total = Usage(1, 2, 3) + Usage(10, 20, 30)

    assert (total, total.total_tokens) == (Usage(11, 22, 33), 33)
