"""The table of `make attack`: each class with its attempts, and a red end where one was not tried."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

TESTS = Path(__file__).parents[1]
SUITE = """
import pytest
@pytest.mark.attack("doors")
def test_one(): pass
@pytest.mark.attack("doors")
def test_three(attempt):
    for number in range(3): attempt(number != {through}, f"way {{number}}")
@pytest.mark.attack("walls", at="bubblewrap")
@pytest.mark.skipif({skipped}, reason="no wall here")
def test_wall(): pass
def test_no_attack(): raise AssertionError
"""
ELSEWHERE = """
import pytest
def pytest_collection_modifyitems(items):
    for item in items: item.add_marker(pytest.mark.attack("walls", at="moon"))
"""
INI = "[pytest]\nmarkers = attack: an attack\n"
CONFTEST = "from conftest_of_all import attempt\n"


PAGE = """
### doors
**Tried.** program.
### walls
**Tried.** {places}.
"""


def run(
    folder: Path, *, through: int, skipped: bool, workers: str, places: str = "bubblewrap", more: tuple[str, ...] = ()
) -> subprocess.CompletedProcess[str]:
    """Run a suite of three attacks with the table, in a process of its own."""
    (folder / "page.md").write_text(PAGE.format(places=places))
    (folder / "pytest.ini").write_text(INI)
    (folder / "conftest_of_all.py").write_text((TESTS / "conftest.py").read_text())
    (folder / "conftest.py").write_text(CONFTEST)
    (folder / "elsewhere.py").write_text(ELSEWHERE)
    (folder / "test_attacks.py").write_text(SUITE.format(through=through, skipped=skipped))
    command = [sys.executable, "-m", "pytest", "-n", workers, "-p", "attack.table", "-m", "attack", "test_attacks.py"]
    command += ["--promises", "page.md", "--basetemp", "base", "-p", "no:cacheprovider", *more]  # shared with no run
    environment = {"PYTHONPATH": f"{TESTS}:{folder}", "PATH": "/usr/bin:/bin"}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=100)


def test_attempts_are_counted_by_class_also_by_several_workers(tmp_path):
    done = run(tmp_path, through=9, skipped=False, workers="2")
    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    rows = [line.split() for line in done.stdout.splitlines()]
    assert ["class", "program", "daemon", "bubblewrap", "systemd", "tried", "held"] in rows, said
    assert ["doors", "4", "-", "-", "-", "4", "4"] in rows and ["walls", "-", "-", "1", "-", "1", "1"] in rows, said
    assert ["all", "4", "-", "1", "-", "5", "5"] in rows, said


def test_an_attempt_that_gets_through_is_counted_named_and_fails(tmp_path):
    done = run(tmp_path, through=1, skipped=False, workers="0")
    assert done.returncode == 1 and "way 1" in done.stdout
    assert ["doors", "3", "of", "4", "-", "-", "-", "4", "3"] in [line.split() for line in done.stdout.splitlines()]


def test_a_class_that_was_only_skipped_is_no_class_that_held(tmp_path):
    done = run(tmp_path, through=9, skipped=True, workers="0")
    assert done.returncode == 1 and "nothing was tried of “walls” at bubblewrap: its tests were skipped" in done.stdout


def test_a_place_that_the_page_names_and_nobody_tried_fails_a_whole_run(tmp_path):
    done = run(tmp_path, through=9, skipped=False, workers="2", places="bubblewrap, systemd")
    assert done.returncode == 1 and "nothing was tried of “walls” at systemd: no test of it ran" in done.stdout
    part = run(tmp_path, through=9, skipped=False, workers="0", places="systemd", more=("-k", "wall"))
    assert part.returncode == 0, part.stdout


def test_a_place_that_there_is_not_is_refused(tmp_path):
    done = run(tmp_path, through=9, skipped=False, workers="0", more=("-p", "elsewhere"))
    assert done.returncode != 0 and "not at 'moon'" in done.stdout + done.stderr
