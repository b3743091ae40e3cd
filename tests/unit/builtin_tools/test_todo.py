"""The list of what there is to do."""

from __future__ import annotations

import json
from typing import Any

import pytest

from hermes_agent.builtin_tools.session_tools import Todo
from hermes_agent.core.errors import ToolFailed

ONE = {"id": "1", "content": "look", "status": "in_progress"}
TWO = {"id": "2", "content": "leap", "status": "pending"}


def run(todo: Todo, session: str = "s", **args: Any) -> Any:
    return json.loads(todo(args, session_id=session))


def test_a_list_is_kept_replaced_merged_and_belongs_to_its_session() -> None:
    todo = Todo(lambda session, tool: "")
    assert run(todo) == {
        "todos": [],
        "summary": {"total": 0, "pending": 0, "in_progress": 0, "completed": 0, "cancelled": 0},
    }
    assert run(todo, todos=[ONE, TWO])["summary"]["pending"] == 1
    merged = run(todo, todos=[{"id": "1", "status": "completed"}, {"id": "3", "content": "new"}], merge=True)
    assert [(t["id"], t["content"], t["status"]) for t in merged["todos"]] == [
        ("1", "look", "completed"),
        ("2", "leap", "pending"),
        ("3", "new", "pending"),
    ]
    assert run(todo)["todos"] == merged["todos"]
    assert run(todo, "other")["todos"] == []
    assert run(todo, todos=[TWO])["todos"] == [TWO]


def test_after_a_restart_the_list_is_that_of_the_last_result() -> None:
    stored = json.dumps({"todos": [ONE], "summary": {}})
    todo = Todo(lambda session, tool: stored if (session, tool) == ("s", "todo") else "")
    assert run(todo, todos=[TWO], merge=True)["todos"] == [ONE, TWO]
    assert run(Todo(lambda session, tool: "no JSON"))["todos"] == []


@pytest.mark.parametrize(
    ("todos", "said"),
    [
        ("look", "no list"),
        ([{"content": "x"}], "is no item"),
        ([{"id": "1", "content": "x", "status": "later"}], "expected pending"),
        ([{"id": "1", "status": "pending"}], "is empty"),
        ([{"id": str(n), "content": "x"} for n in range(201)], "200 is the most"),
    ],
)
def test_what_is_no_list_is_refused_and_the_old_one_stays(todos: Any, said: str) -> None:
    todo = Todo(lambda session, tool: "")
    run(todo, todos=[ONE])
    with pytest.raises(ToolFailed, match=said):
        run(todo, todos=todos)
    assert run(todo)["todos"] == [ONE]
