"""The fixtures, in a pytest of their own."""

from __future__ import annotations

import importlib
import subprocess
import tomllib
from pathlib import Path

from nested_pytest import NESTED

ROOT = Path(__file__).parents[3]
TESTS = """
import pytest

def plugin(ctx):
    ctx.register_command("hello", lambda raw: "hello " + raw)

def test_both(hermes_host, hermes_model):
    host = hermes_host(plugin)
    hermes_model.say("fine")
    assert host.run_command("/hello you") == "hello you"
    assert host.ask("How are you?").text == "fine"
    assert hermes_model.messages[-1]["content"] == "How are you?"

@pytest.mark.parametrize("number", [1, 2])
def test_again(hermes_host, number):
    assert hermes_host(plugin).keys == ("under-test",)
"""


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    load = ["-p", "hermes_agent.testing.pytest_plugin", "-p", "no:hermes"]
    command = [*NESTED, *load, *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=100, check=False)


def test_the_fixtures_open_a_host_and_close_it(tmp_path: Path) -> None:
    (tmp_path / "test_plugin.py").write_text(TESTS)

    done = run(tmp_path)

    assert done.returncode == 0, done.stdout + done.stderr
    assert "3 passed" in done.stdout


def test_who_does_not_use_them_pays_nothing(tmp_path: Path) -> None:
    (tmp_path / "test_other.py").write_text(
        "import sys\n"
        "def test_it():\n"
        "    ours = {m for m in sys.modules if m.startswith('hermes_agent')}\n"
        "    assert ours == {'hermes_agent', 'hermes_agent.testing', 'hermes_agent.testing.pytest_plugin'}\n"
    )

    done = run(tmp_path)

    assert done.returncode == 0, done.stdout + done.stderr


def test_the_distribution_declares_them() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    (module,) = project["entry-points"]["pytest11"].values()

    assert {"hermes_host", "hermes_model"} <= set(vars(importlib.import_module(module)))
