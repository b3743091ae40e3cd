"""The client against llmock's faults; a client that misses one would take half an answer for a whole one."""

from __future__ import annotations

import pytest

from peers.asking import ask, failure
from peers.faulty import faulty_model

KEY = "sk-faulty-0123456789abcdef"


def fault(kind: str, **more: object) -> dict[str, object]:
    return {"type": "stream_fault", "kind": kind, "after_chunks": 2, **more}


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        ("truncate", "the stream ended without a finish reason"),
        ("disconnect", "the connection was closed in the middle"),
        ("malformed", "is malformed"),
    ],
)
def test_stream_that_goes_wrong_in_the_middle_is_cut_off(faulty, kind: str, why: str) -> None:
    faulty.script(fault(kind))
    error = failure(faulty.base_url, key=KEY)
    assert (error.kind, error.exit_status) == ("cut_off", 1)
    assert "was cut off in the middle: " in error.message and why in error.message


def test_stream_that_stalls_is_given_up_after_the_idle_time(faulty) -> None:
    faulty.script(fault("stall", stall_seconds=30))
    error = failure(faulty.base_url, key=KEY, idle_s=0.2)
    assert error.kind == "cut_off"
    assert "nothing came for 0.2 seconds" in error.message


def test_answer_that_takes_longer_than_allowed_in_whole_is_given_up(faulty) -> None:
    faulty.script(fault("stall", stall_seconds=30))
    error = failure(faulty.base_url, key=KEY, whole_s=0.5)
    assert error.kind == "cut_off"
    assert "not complete after 0.5 seconds" in error.message


@pytest.mark.parametrize(
    ("behavior", "kind"),
    [
        ({"status": 401}, "auth"),
        ({"status": 402}, "payment"),
        ({"status": 403}, "auth"),
        ({"status": 404, "code": "model_not_found", "message": "The model does not exist"}, "unknown_model"),
        ({"status": 429, "retry_after": 12}, "rate_limit"),
        ({"status": 400, "code": "context_length_exceeded", "message": "Too long"}, "context_too_long"),
        ({"status": 400, "message": "temperature: must be at most 2"}, "refused"),
        ({"status": 500}, "overloaded"),
        ({"status": 503, "retry_after": 3}, "overloaded"),
    ],
)
def test_status_and_code_make_the_kind(faulty, behavior: dict[str, object], kind: str) -> None:
    faulty.script({"type": "fail", **behavior})
    error = failure(faulty.base_url, key=KEY)
    assert (error.kind, error.status) == (kind, behavior["status"])
    assert KEY not in f"{error}"
    if "retry_after" in behavior:
        assert error.retry_after_s == behavior["retry_after"]
    assert len(faulty.requests()) == 1, "the client does not repeat a request by itself"


def test_conversation_over_the_context_window_is_too_long() -> None:
    with faulty_model("--context-window", "50") as model:
        error = failure(model.base_url, "word " * 400, key=KEY)
    host = model.base_url.split("/")[2]
    assert error.kind == "context_too_long"
    assert error.message == f"The conversation is too long for model 'm-1' of OpenAI ({host})."


def test_tool_call_in_fragments_is_put_together(faulty) -> None:
    faulty.script({"type": "reply", "tool_calls": [{"name": "look_up", "arguments": {"city": "Zürich", "days": 3}}]})
    tool = {"type": "function", "function": {"name": "look_up", "parameters": {"type": "object", "properties": {}}}}
    _, answer = ask(faulty.base_url, key=KEY, tools=[tool])
    (call,) = answer.message.tool_calls
    assert (call.name, answer.finish_reason) == ("look_up", "tool_calls")
    assert '"days"' in call.arguments and "Z" in call.arguments
