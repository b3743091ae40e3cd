"""Python processes that a plugin starts: upstream's names and its program are there as well."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from compat.guides import plugin
from hermes_agent import __version__
from hermes_agent.compat import import_hook
from hermes_agent.testing import plugin_host

STARTS = """
import json, subprocess, sys

def start(args, **kwargs):
    done = subprocess.run([sys.executable, *args["words"]], capture_output=True, text=True, cwd=args.get("cwd"))
    return json.dumps({"status": done.returncode, "out": done.stdout, "err": done.stderr})

def register(ctx):
    ctx.register_tool("start", "own", {"name": "start", "parameters": {"type": "object", "properties": {}}}, start)
"""


def started(tmp_path: Path, *words: str, cwd: Path | None = None, config: dict[str, Any] | None = None) -> Any:
    """Let a plugin start Python with these words; return status, output and errors."""
    folder = plugin(tmp_path / "starting", STARTS, "name: starting\n")
    with plugin_host(folder, config=config) as host:
        said = host.dispatch_tool("start", {"words": list(words), "cwd": None if cwd is None else str(cwd)})
        return json.loads(said) | {"home": str(host.host.home)}


def test_upstream_s_names_are_imported_in_a_process_that_a_plugin_starts(tmp_path: Path) -> None:
    code = (
        "from hermes_constants import get_hermes_home\nprint(get_hermes_home())\n"
        "from agent.memory_provider import MemoryProvider\nprint(MemoryProvider.__name__)\n"
        "from tools.registry import registry\nprint(type(registry).__name__)\n"
    )
    answer = started(tmp_path, "-c", code)
    assert answer["out"].splitlines() == [answer["home"], "MemoryProvider", "ToolRegistry"], answer


def test_a_name_that_is_not_served_says_so_there(tmp_path: Path) -> None:
    answer = started(tmp_path, "-c", "import hermes_cli.kanban_db")
    assert answer["status"] == 1
    assert "No module named 'hermes_cli.kanban_db' (hermes-agent does not serve it: " in answer["err"]


@pytest.mark.parametrize("module", ["hermes_cli.main"])
def test_the_program_of_upstream_is_the_command_hermes(tmp_path: Path, module: str) -> None:
    answer = started(tmp_path, "-m", module, "--version")
    assert (answer["status"], answer["out"]) == (0, f"hermes-agent {__version__}\n"), answer


def test_a_module_that_is_no_program_names_the_command(tmp_path: Path) -> None:
    answer = started(tmp_path, "-m", "gateway.run")
    assert answer["status"] == 1 and "it is no program here; the command is `hermes`" in answer["err"]


def test_a_module_of_the_process_itself_goes_before_upstream_s_of_that_name(tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.mkdir()
    (own / "utils.py").write_text("WHOSE = 'own'\n")
    answer = started(tmp_path, "-c", "import hermes_constants, utils\nprint(utils.WHOSE)", cwd=own)
    assert answer["out"] == "own\n", answer


def test_a_process_that_asks_for_none_of_the_names_imports_nothing_of_the_agent(tmp_path: Path) -> None:
    code = "import json, sys\nprint([n for n in sys.modules if n.startswith('hermes')])"
    assert started(tmp_path, "-c", code)["out"] == "[]\n"


def test_the_start_of_the_environment_itself_is_still_run(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "sitecustomize.py").write_text("import sys\nsys.other = 1\n")
    place = os.pathsep.join([str(import_hook.CHILD), str(other)])
    code = "import sys\nprint(sys.other)\nimport hermes_constants"
    done = subprocess.run(
        [sys.executable, "-c", code], env={"PYTHONPATH": place, "HOME": str(tmp_path)}, capture_output=True, text=True
    )
    assert (done.stdout, done.stderr) == ("1\n", "")


def test_a_command_of_the_model_does_not_see_the_folder(tmp_path: Path) -> None:
    with plugin_host(plugin(tmp_path / "starting", STARTS, "name: starting\n")) as host:
        assert str(import_hook.CHILD) in os.environ["PYTHONPATH"]
        assert "PYTHONPATH" not in str(host.dispatch_tool("terminal", {"command": "env"}))


def test_the_names_are_those_of_the_hook() -> None:
    code = "import sitecustomize\nprint(*sitecustomize.NAMES)"
    env = {"PYTHONPATH": str(import_hook.CHILD)}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
    assert set(done.stdout.split()) == import_hook.RESERVED
