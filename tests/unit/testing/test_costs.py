"""Costs of test files: the table of the repository, and the options that read and write it."""

from __future__ import annotations

import subprocess
from pathlib import Path

from costs import ROOT, read_costs
from nested_pytest import NESTED

CONFTEST = f"""
import sys
from pathlib import Path
sys.path.insert(0, {str(ROOT / "tests")!r})
import costs
costs.TABLE, costs.ROOT = Path("costs.txt").absolute(), Path.cwd()
costs.read_costs.__defaults__ = (costs.TABLE,)
costs.LEAST_S = 0.2
pytest_plugins = ["costs"]
"""

RECORD = """
import os, pytest
@pytest.fixture(autouse=True)
def record(request):
    with open(f"ran-{os.environ['PYTEST_XDIST_WORKER']}", "a") as file:
        file.write(request.node.nodeid + " ")
"""


def pytest_in(folder: Path, *options: str) -> str:
    return subprocess.run([*NESTED, *options], cwd=folder, capture_output=True, text=True, check=True).stdout


def test_the_table_names_files_that_are_there() -> None:
    assert [path for path in read_costs() if not (ROOT / path).is_file()] == []


def test_a_run_writes_the_table_and_a_limit_leaves_dear_files_out(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = cost: seconds\n")
    (tmp_path / "costs.txt").write_text("# seconds\n    9.0 test_gone.py\n")
    (tmp_path / "test_slow.py").write_text("import time\ndef test_it():\n    time.sleep(0.5)\n")
    (tmp_path / "test_fast.py").write_text("def test_it(): pass\n")

    assert "2 passed" in pytest_in(tmp_path, "--write-costs")

    assert list(read_costs(tmp_path / "costs.txt")) == ["test_slow.py"]
    assert "1 passed, 1 deselected" in pytest_in(tmp_path, "--max-cost", "0.3")
    assert "2 passed" in pytest_in(tmp_path, "--max-cost", "60")


def test_workers_take_whole_files_the_dearest_first_and_groups_across_files(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(CONFTEST + RECORD)
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = cost: seconds\n")
    (tmp_path / "costs.txt").write_text("# seconds\n   90.0 test_dear.py\n   10.0 test_mixed.py\n")
    four = "import pytest\n@pytest.mark.parametrize('number', range(4))\ndef test_it(number): pass\n"
    for name in ("cheap", "dear", "free", "mixed"):
        (tmp_path / f"test_{name}.py").write_text(four)
    for name in ("mixed", "other"):
        with (tmp_path / f"test_{name}.py").open("a") as file:
            file.write("import pytest\n@pytest.mark.xdist_group('pair')\ndef test_pair(): pass\n")

    assert "18 passed" in pytest_in(tmp_path, "-p", "xdist", "-n", "2", "--dist", "loadgroup")

    ran = {worker: (tmp_path / f"ran-{worker}").read_text().split() for worker in ("gw0", "gw1")}
    first = [tests[0].partition("::")[0] for tests in ran.values()]
    assert sorted(first) == ["test_dear.py", "test_mixed.py"]
    units = [{t.partition("@")[2] or t.partition("::")[0] for t in tests} for tests in ran.values()]
    assert not units[0] & units[1]
