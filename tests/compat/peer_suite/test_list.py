"""The list of upstream's tests is complete, and its change is seen."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from compat.peer_suite import stand_ins
from compat.peer_suite.outcomes import REASONS, UNEXPLAINED, changes, judge, load_list, load_reasons, text_of
from compat.peer_suite.run import NotFound, Outcome, extract


def test_each_test_that_does_not_pass_has_its_reason() -> None:
    verdicts = [verdict for tests in load_list().values() for verdict in tests.values()]
    keys = {verdict.partition(" ")[2] for verdict in verdicts if verdict.startswith("differs ")}

    assert len(verdicts) > 1_500
    assert UNEXPLAINED not in verdicts
    assert keys == set(load_reasons()), f"reasons of {REASONS} that no test has, or the other way round"


def test_the_list_is_read_as_it_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = {"a.py": {"T::one": "pass", "T::two": "private x.y", "three": "pass", "T::four[a::b]": "differs k"}}
    found["b.py"] = {"T::five[rm -rf  /]": "pass", "six[ ]": "skipped"}
    (tmp_path / "list.txt").write_text(text_of(found))
    monkeypatch.setattr("compat.peer_suite.outcomes.LIST", tmp_path / "list.txt")

    assert load_list() == found


def test_a_verdict_comes_from_the_outcome_and_the_reasons() -> None:
    reasons = {"k": {"a.py": ["T::*"]}}
    outcomes = [
        Outcome("T::one", "failed", "assert 1 == 2"),
        Outcome("two", "failed", "PrivateStructureError: tools.approval._smart_approve"),
        Outcome("three", "failed", "assert 1 == 2"),
        Outcome("four", "passed"),
    ]

    assert judge("a.py", outcomes, reasons) == {
        "T::one": "differs k",
        "two": "private tools.approval._smart_approve",
        "three": UNEXPLAINED,
        "four": "pass",
    }


def test_another_verdict_is_a_change() -> None:
    assert changes({"a.py": {"one": "pass", "two": "pass"}}, {"a.py": {"one": "skipped", "new": "pass"}}) == [
        "a.py::new: not on the list on the list, pass now",
        "a.py::one: pass on the list, skipped now",
        "a.py::two: pass on the list, not run now",
    ]


def test_a_stand_in_raises_its_name_at_each_use() -> None:
    stand_in = stand_ins.StandIn("tools.x._y")
    for use in (lambda: stand_in(), lambda: stand_in.z, lambda: list(stand_in), lambda: stand_in == 1):
        with pytest.raises(stand_ins.PrivateStructureError, match=r"tools\.x\._y"):
            use()


def test_tests_are_taken_from_a_checkout_and_a_folder_without_them_is_named(tmp_path: Path) -> None:
    source, root = tmp_path / "source", tmp_path / "root"
    (source / "tests" / "tools").mkdir(parents=True)
    for name in ("conftest.py", "tools/test_a.py", "tools/test_b.py"):
        (source / "tests" / name).write_text("")

    extract(source, ["tools/test_a.py"], root)

    assert sorted(p.name for p in root.rglob("*.py")) == ["conftest.py", "test_a.py"]
    with pytest.raises(NotFound, match=r"has no tests/tools/test_c\.py"):
        extract(source, ["tools/test_c.py"], root)
    subprocess.run(["git", "init", "-q", "--bare", str(tmp_path / "bare")], check=True)
    with pytest.raises(NotFound, match="git ls-tree"):
        extract(tmp_path / "bare", ["tools/test_a.py"], root)
