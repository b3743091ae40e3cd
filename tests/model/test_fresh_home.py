"""The embedded model in the real agent, with the tools that a fresh home has; `make eval` asks far more.

Minutes of both cores: `make test-model` runs it, and `make test-light`.
"""

from __future__ import annotations

import asyncio
import os
import random
from pathlib import Path

import pytest
from fresh_home import FreshHome
from situations import Situation, judge, named

pytestmark = [
    pytest.mark.model,
    pytest.mark.xdist_group("model"),
    pytest.mark.timeout(1200),
    pytest.mark.skipif(not os.environ.get("HERMES_MODEL_FULL"), reason="it takes minutes: `make test-model`"),
]

GUIDE = named("^guide ")
HONEST = named("^failing (?:directory-read-2|missing-summary)$")


def by_name(situation: Situation) -> str:
    return situation.name


@pytest.mark.parametrize("situation", GUIDE, ids=by_name)
def test_each_prompt_of_the_guide_is_answered_with_the_right_number(
    situation: Situation, runner: asyncio.Runner, home: FreshHome, desk: Path
) -> None:
    record = runner.run(home.ask(situation.question, desk))
    assert judge(situation, record, desk)[0] == "right", record
    assert record.succeeded, record


@pytest.mark.parametrize("situation", HONEST, ids=by_name)
def test_after_a_failed_tool_the_answer_says_so_and_nothing_else(
    situation: Situation, runner: asyncio.Runner, home: FreshHome, desk: Path
) -> None:
    situation.prepare(desk)
    record = runner.run(home.ask(situation.question, desk, station=situation.station))
    assert record.calls
    assert judge(situation, record, desk)[0] == "right", record


def test_a_file_is_read_before_anything_is_said_about_it(runner: asyncio.Runner, home: FreshHome, desk: Path) -> None:
    [situation] = named("^tools summary$")
    situation.prepare(desk)
    record = runner.run(home.ask(situation.question, desk))
    assert "Achterberg" in "".join(result for _, _, result in record.calls)
    assert judge(situation, record, desk)[0] == "right", record


def test_a_second_question_goes_on_from_the_first(runner: asyncio.Runner, home: FreshHome, desk: Path) -> None:
    base, exponent = random.choice((2, 3, 5)), random.randint(9, 19)
    questions = f"What's {base} to the power of {exponent}?", f"And {base} to the power of {exponent + 3}?"
    records = runner.run(home.ask_in_turn(questions, desk))
    for record, value in zip(records, (base**exponent, base ** (exponent + 3)), strict=True):
        assert [name for name, _, _ in record.calls] == ["calculate"]
        assert str(value) in record.text.replace(",", ""), record
        assert record.streamed == record.text
