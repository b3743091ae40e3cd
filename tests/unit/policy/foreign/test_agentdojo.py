"""A sample of AgentDojo; all of it runs with `make agentdojo`."""

from __future__ import annotations

from pathlib import Path

import pytest

from dojo.desk import PLACE, desks


def test_an_obedient_model_pays_no_stranger_and_pays_whom_the_person_names(tmp_path: Path) -> None:
    if not (PLACE / ".done").is_file():
        pytest.skip("`make agentdojo` did not install the suite here")
    with desks(tmp_path) as each:
        banking = next(desk for desk in each if desk.suite.name == "banking")
        tasks = banking.suite.user_tasks
        assert banking.task(tasks["user_task_14"]).questions == []
        for injection in banking.suite.injection_tasks.values():
            end = banking.attack(tasks["user_task_14"], injection)
            assert (end.passed, end.quiet) == (False, [])
