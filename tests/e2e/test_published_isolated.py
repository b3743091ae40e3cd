"""Published plugins register the same in a process of their own, but for what the contract of 0.23 §2.7 leaves out.

`make test` runs one; `HERMES_PUBLISHED_ISOLATED=1`, which `make compat` sets, runs all of the open list.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from compat.corpus.install import CannotInstall, installed
from compat.corpus.lists import Plugin, plugins
from hermes_agent.workspace.paths import PathRules
from hermes_agent.workspace.sandbox.bubblewrap import BubblewrapSandbox

LIMIT_S = 300
ONE = "hermes-tweet"
PROBLEM = BubblewrapSandbox(PathRules("/nonexistent", str(Path.home())), path=os.environ.get("PATH")).problem
pytestmark = pytest.mark.skipif(bool(PROBLEM), reason=f"no sandbox works here: {PROBLEM}")
ALL = os.environ.get("HERMES_PUBLISHED_ISOLATED") == "1"
IN_PROCESS_ONLY = ("register_platform", "model provider", "memory of an installed package")
"""Parts of the reasons for which §2.7 refuses a plugin."""
CHILD = """
import json, os, sys
sys.path.insert(0, sys.argv[1])
from hermes_agent.plugins.entry_points import GROUP, find_entry_points
from hermes_agent.testing import plugin_host
points = [point for point in find_entry_points([sys.argv[1]]) if point.group == GROUP]
entries = {point.name: {"ignore_missing_env": True} for point in points}
found = {}
if points:
    config = {"plugins": {"isolation": sys.argv[2], "entries": entries, "load_timeout_s": 150}}
    with plugin_host(*(point.value for point in points), config=config, strict=False) as host:
        for record in host.host.plugins.records:
            if record.manifest.key in entries:
                found[record.manifest.key] = [record.enabled, record.error, record.registers()]
with open(sys.argv[3], "w") as file:
    json.dump(found, file)
os._exit(0)
"""


def chosen() -> list[Plugin]:
    """Return the plugins to try."""
    return [plugin for plugin in plugins([] if ALL else [ONE]) if plugin.listing == "open.txt"]


def registered(site: Path, mode: str, answer: Path) -> dict[str, Any]:
    """Load the plugins of a folder of packages, and return what they register."""
    ran = subprocess.run(
        [sys.executable, "-c", CHILD, str(site), mode, str(answer)],
        capture_output=True, text=True, timeout=LIMIT_S, check=False,
    )  # fmt: skip
    assert answer.exists(), ran.stderr[-2000:]
    found: dict[str, Any] = json.loads(answer.read_text())
    return found


@pytest.mark.parametrize("plugin", chosen(), ids=lambda plugin: plugin.name)
def test_a_published_plugin_registers_the_same_in_both_modes(plugin: Plugin, tmp_path: Path) -> None:
    try:
        site = installed(plugin)
    except CannotInstall as exc:
        pytest.skip(f"it cannot be installed here: {exc}")
    inside = registered(site, "in_process", tmp_path / "inside.json")
    apart = registered(site, "host", tmp_path / "apart.json")
    if not inside:
        pytest.skip("it is no plugin with an entry point")
    for key, (enabled, error, names) in inside.items():
        is_enabled, why, own = apart[key]
        if enabled and not is_enabled and any(part in why for part in IN_PROCESS_ONLY):
            assert why.endswith("set plugins.isolation: in_process to load it")
            continue
        names.pop("cli_commands", None)  # skipped, with a warning
        assert (is_enabled, own) == (enabled, names), (error, why)
