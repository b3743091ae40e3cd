"""`pre_verify`: before a turn ends in which files were written, a plugin may send the model back to work."""

from __future__ import annotations

from typing import Any

import pytest

from hermes_agent.testing import call, plugin_host

WRITE = call("write_file", path="a.txt", content="x")


def reviewer(answers: list[Any], asked: list[dict[str, Any]]) -> Any:
    def review(**kwargs: Any) -> Any:
        asked.append(kwargs)
        return answers.pop(0) if answers else None

    return lambda ctx: ctx.register_hook("pre_verify", review)


@pytest.mark.parametrize(
    "answer",
    [
        {"action": "continue", "message": "run the tests"},
        {"action": "continue", "reason": "run the tests"},
        {"decision": "block", "reason": "run the tests"},
    ],
)
def test_the_model_is_told_and_goes_on(answer: dict[str, str]) -> None:
    asked: list[dict[str, Any]] = []
    with plugin_host(reviewer([answer], asked), model=[WRITE, "done", "tested"]) as host:
        end = host.ask("write")
        messages = host.model.messages

    assert (end.text, end.reason) == ("done\n\ntested", "answered")
    assert messages[-1] == {"role": "user", "content": "run the tests"}
    first, second = asked
    assert (first["changed_paths"], first["final_response"], first["attempt"]) == (["a.txt"], "done", 0)
    assert (first["coding"], second["attempt"], second["final_response"]) == (True, 1, "tested")


def test_without_a_written_file_nobody_is_asked() -> None:
    asked: list[dict[str, Any]] = []
    with plugin_host(reviewer([], asked), model=[call("read_file", path="nowhere"), "done"]) as host:
        host.ask("read")

    assert asked == []


@pytest.mark.parametrize("answer", [None, "text", {"action": "continue"}, {"decision": "allow", "reason": "x"}])
def test_any_other_answer_lets_the_turn_end(answer: Any) -> None:
    with plugin_host(reviewer([answer], []), model=[WRITE, "done"]) as host:
        assert host.ask("write").text == "done"


def test_a_reviewer_that_is_never_content_is_heard_so_often_and_no_more() -> None:
    asked: list[dict[str, Any]] = []
    always = [{"action": "continue", "message": "more"}] * 9
    config = {"agent": {"max_verify_nudges": 2}}
    with plugin_host(reviewer(always, asked), model=[WRITE, "1", "2", "3"], config=config) as host:
        assert host.ask("write").text == "1\n\n2\n\n3"

    assert [a["attempt"] for a in asked] == [0, 1]
