"""Costs of test files: the table of the repository, and the options that read and write it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from costs import ROOT, read_costs

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


def pytest_in(folder: Path, *options: str) -> str:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True).stdout


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
