"""Which tool the embedded model calls first, with real weights; `make eval` asks more requests of each kind.

The two tests with many requests take a minute: `make test-model` runs them, and `make test-light`.
"""

from __future__ import annotations

import asyncio
import json
import os
from typing import Any

import pytest
from first_calls import WITH_OTHER_TOOL, WITH_TOOL, WITHOUT_TOOL, Case, find_wrong
from toolbox import OTHERS, SYSTEM, step

from hermes_agent.contracts.model_client import ModelClient
from hermes_agent.core.messages import Message

pytestmark = [pytest.mark.model, pytest.mark.xdist_group("model"), pytest.mark.timeout(1200)]

LONG = pytest.mark.skipif(not os.environ.get("HERMES_MODEL_FULL"), reason="it takes a minute: `make test-model`")
MOST_READ = 80
"""Tokens that two cores read in less than two seconds."""
OF_EACH_TOOL = [next(case for case in WITH_TOOL if case[1] == name) for name in dict.fromkeys(c[1] for c in WITH_TOOL)]


def ask(runner: asyncio.Runner, model: ModelClient, question: str, tools: list[dict[str, Any]]) -> tuple[str, Any]:
    answer, _ = runner.run(step(model, [SYSTEM, Message("user", question)], tools))
    calls = answer.message.tool_calls
    return (calls[0].name, json.loads(calls[0].arguments)) if calls else ("", answer.message.text)


def wrong(runner: asyncio.Runner, model: ModelClient, cases: list[Case], tools: list[dict[str, Any]]) -> list[Any]:
    judged = [(q, find_wrong(ask(runner, model, q, tools), name, right)) for q, name, right in cases]
    return [(question, why) for question, why in judged if why]


@LONG
def test_of_the_shipped_tools_the_right_one_is_called(
    runner: asyncio.Runner, model: ModelClient, shipped: list[dict[str, Any]]
) -> None:
    missed = wrong(runner, model, OF_EACH_TOOL, shipped)
    assert len(missed) <= 1, missed


def test_a_greeting_and_a_question_of_general_knowledge_are_answered_without_a_tool(
    runner: asyncio.Runner, model: ModelClient, shipped: list[dict[str, Any]]
) -> None:
    called = [(q, picked) for q in WITHOUT_TOOL[:4:3] if (picked := ask(runner, model, q, shipped)[0])]
    assert called == []


@LONG
def test_tools_that_the_examples_know_nothing_of_are_called_as_well(runner: asyncio.Runner, model: ModelClient) -> None:
    assert wrong(runner, model, WITH_OTHER_TOOL[3:5], OTHERS) == []


def test_without_tools_it_answers_in_plain_text(runner: asyncio.Runner, model: ModelClient) -> None:
    answer, streamed = runner.run(step(model, [Message("user", "What is the capital of France?")], []))
    assert "Paris" in answer.message.text
    assert streamed == answer.message.text
    assert answer.finish_reason == "stop"
    assert answer.usage.output_tokens > 0


def test_the_next_question_of_a_conversation_needs_only_its_own_words_to_be_read(
    runner: asyncio.Runner, model: ModelClient, shipped: list[dict[str, Any]]
) -> None:
    first = [SYSTEM, Message("user", "What is the capital of France?")]
    answer, _ = runner.run(step(model, first, shipped))
    assert not answer.message.tool_calls
    second, _ = runner.run(step(model, [*first, answer.message, Message("user", "And of Italy?")], shipped))
    read = second.usage.input_tokens - second.usage.cached_tokens
    assert second.usage.cached_tokens > 1000
    assert read < MOST_READ, f"{read} tokens are read before the first one of the answer"
