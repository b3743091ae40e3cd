"""The scripted model: what it answers, over the wire and in the script."""

from __future__ import annotations

import json

import httpx
import openai
import pytest

from hermes_agent.testing import ModelFailure, ScriptedModel, call, served

HELLO = [{"role": "user", "content": "hello"}]


def test_a_client_of_the_protocol_is_answered_whole_or_in_pieces() -> None:
    model = ScriptedModel("one\ntwo", "one\ntwo", [call("roll", sides=6), call("roll", {"sides": 20})])
    with served(model) as base_url:
        client = openai.OpenAI(base_url=base_url, api_key="any", max_retries=0)
        whole = client.chat.completions.create(model="m", messages=HELLO)  # type: ignore[arg-type]
        pieces = list(client.chat.completions.create(model="m", messages=HELLO, stream=True))  # type: ignore[call-overload]
        calls = client.chat.completions.create(model="m", messages=HELLO).choices[0]  # type: ignore[arg-type]
        names = [m.id for m in client.models.list()]
        client.close()

    assert whole.choices[0].message.content == "one\ntwo"
    assert whole.usage is not None
    assert whole.usage.total_tokens == 3
    assert [p.choices[0].delta.content for p in pieces if p.choices and p.choices[0].delta.content] == ["one\n", "two"]
    assert calls.finish_reason == "tool_calls"
    assert [json.loads(c.function.arguments) for c in calls.message.tool_calls or ()] == [{"sides": 6}, {"sides": 20}]
    assert names == ["scripted-model"]
    assert [r["messages"] for r in model.requests] == [HELLO] * 3


def test_failures_go_over_the_wire_with_status_and_waiting_time() -> None:
    model = ScriptedModel(ModelFailure("slow down", 429, retry_after_s=2), object(), lambda request: 1 / 0)  # type: ignore[arg-type, list-item]
    with served(model) as base_url:
        answers = [httpx.post(f"{base_url}/chat/completions", json={"messages": HELLO}) for _ in range(4)]
        elsewhere = httpx.get(f"{base_url}/embeddings")

    assert [a.status_code for a in answers] == [429, 400, 400, 400]
    assert answers[0].headers["retry-after"] == "2"
    texts = [a.json()["error"]["message"] for a in answers]
    assert texts[0] == "slow down"
    assert "cannot answer <object" in texts[1]
    assert "answer 3 of the scripted model failed: ZeroDivisionError" in texts[2]
    assert texts[3] == "the scripted model has no answer for request 4, with the last message: hello"
    assert elsewhere.status_code == 404


def test_what_was_asked_is_there_to_be_looked_at() -> None:
    model = ScriptedModel()
    for look in ("messages", "tools"):
        with pytest.raises(LookupError, match="was not asked"):
            getattr(model, look)
    model.say("x", {"a": 1})
    assert model.unused == 2
    model.answer({"messages": HELLO, "tools": [{"function": {"name": "roll"}}]})
    assert model.tools == ["roll"]
    reply = model.answer({"messages": HELLO})
    assert getattr(reply, "text", None) == '{"a": 1}'
    assert model.tools == []
