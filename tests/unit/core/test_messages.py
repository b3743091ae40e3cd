from __future__ import annotations

from collections.abc import AsyncGenerator

import pytest

from hermes_agent.core.messages import (
    Message,
    Notice,
    StopSentence,
    TextDelta,
    ToolCall,
    ToolFinished,
    ToolStarted,
    TurnEvent,
    TurnFinished,
    TurnSink,
    Usage,
    fold,
    text_content,
)

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


class Calls(TurnSink):
    """Records which method got which event."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, object]] = []

    def text(self, delta: str) -> None:
        self.calls.append(("text", delta))

    def tool_started(self, event: ToolStarted) -> None:
        self.calls.append(("tool_started", event))

    def tool_finished(self, event: ToolFinished) -> None:
        self.calls.append(("tool_finished", event))

    def notice(self, event: Notice) -> None:
        self.calls.append(("notice", event))

    def finished(self, event: TurnFinished) -> None:
        self.calls.append(("finished", event))


STARTED, ENDED = ToolStarted("c", "calc", {}), ToolFinished("c", "calc", "4", "ok", 1)
NOTICE, END = Notice("slow"), TurnFinished("4, stop", "stopped", Usage(), "m")


async def stream(*events: TurnEvent, error: Exception | None = None) -> AsyncGenerator[TurnEvent, None]:
    for event in events:
        yield event
    if error is not None:
        raise error


async def test_fold_gives_each_event_to_its_method_and_returns_the_end():
    sink = Calls()
    end = await fold(stream(STARTED, ENDED, NOTICE, TextDelta("4"), StopSentence(", stop"), END), sink)

    assert end is END
    texts = [("text", "4"), ("text", ", stop")]
    assert sink.calls == [
        ("tool_started", STARTED),
        ("tool_finished", ENDED),
        ("notice", NOTICE),
        *texts,
        ("finished", END),
    ]


async def test_a_sink_can_tell_the_sentence_of_the_agent_from_the_answer():
    class Sentences(Calls):
        def stop_sentence(self, text: str) -> None:
            self.calls.append(("sentence", text))

    sink = Sentences()
    await fold(stream(TextDelta("4"), StopSentence(", stop"), END), sink)

    assert sink.calls == [("text", "4"), ("sentence", ", stop"), ("finished", END)]


async def test_fold_of_nothing_to_resume_is_none_and_an_error_passes():
    assert await fold(stream()) is None
    sink = Calls()
    with pytest.raises(RuntimeError, match="broken"):
        await fold(stream(TextDelta("4"), error=RuntimeError("broken")), sink)
    assert sink.calls == [("text", "4")]


async def test_fold_closes_the_stream_when_the_sink_fails():
    closed = []

    async def turn() -> AsyncGenerator[TurnEvent, None]:
        try:
            yield TextDelta("4")
            yield END
        finally:
            closed.append(True)

    class Broken(TurnSink):
        def text(self, delta: str) -> None:
            raise OSError("no terminal")

    with pytest.raises(OSError, match="no terminal"):
        await fold(turn(), Broken())
    assert closed == [True]
