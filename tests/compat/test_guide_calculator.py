"""The calculator of the published guide, its four files without a changed character: plugin contract §15 point 1.

As a directory plugin, and wrapped in a `pyproject.toml` as an installed package with an entry point.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from compat.guide_calculator import ROOT, files_of_guide, write_files

PROMPTS = {
    "What's 2 to the power of 16?": ("calculate", {"expression": "2**16"}),
    "Convert 100 fahrenheit to celsius": ("unit_convert", {"value": 100, "from_unit": "F", "to_unit": "C"}),
    "What's the square root of 2 times pi?": ("calculate", {"expression": "sqrt(2 * pi)"}),
    "How many gigabytes is 1.5 terabytes?": ("unit_convert", {"value": "1.5", "from_unit": "TB", "to_unit": "GB"}),
}
"""Step 6 of the guide, each with the call that a model makes of it."""

DRIVER = """
import inspect, json, sys
from pathlib import Path
from hermes_agent.compat import import_hook
from hermes_agent.core.messages import ToolCall
from hermes_agent.host import Host
from hermes_agent.policy import Approvals, NoApprover
from hermes_agent.tools import CallScope

host = Host.build()
import_hook.install()
host.load_plugins()
seen = []
record = host.plugins._plugins["calculator"]
host.hooks.add("post_tool_call", lambda **kw: seen.append(kw), "witness")
scope = CallScope("session-1", "task-1", "turn-1", Path.cwd(), Approvals(NoApprover("in a test"), timeout_s=1))
results = []
for name, arguments in json.loads(sys.argv[1]):
    resolved, coerced = host.dispatcher.resolve(ToolCall("call", name, json.dumps(arguments)), host.tools.names())
    results.append(json.loads(host.dispatcher.run_inline("call", resolved, coerced, scope).result))
module = record.module
print(json.dumps({
    "source": record.manifest.source,
    "tools": {n: host.tools.get_schema(n) for n in record.tools_registered},
    "toolsets": sorted({host.tools.get_toolset_for_tool(n) for n in record.tools_registered}),
    "hooks": record.hooks_registered,
    "status": host.commands.find("plugins", "terminal").handler(""),
    "banner": host.plugins.banner_lines(),
    "results": results,
    "call_log": module._call_log,
    "seen": [{k: kw[k] for k in ("tool_name", "args", "result", "task_id", "duration_ms")} for kw in seen],
    "loaded_from": str(Path(module.__file__).parent),
}))
host.bridge.close()
"""


@pytest.fixture(scope="module")
def files() -> dict[str, str]:
    """The files of the guide."""
    return files_of_guide()


def run(home: Path, *path: str) -> dict[str, Any]:
    """Load the plugin in a process of its own and make the calls of the four prompts."""
    home.mkdir(exist_ok=True)
    (home / "config.yaml").write_text("plugins:\n  enabled: [calculator]\n")
    environ = {
        **{k: v for k, v in os.environ.items() if not k.startswith("HERMES_")},
        "HERMES_HOME": str(home),
        "PYTHONPATH": os.pathsep.join([*path, *(p for p in sys.path if p)]),
    }
    done = subprocess.run(
        [sys.executable, "-c", DRIVER, json.dumps(list(PROMPTS.values()))],
        capture_output=True,
        text=True,
        timeout=60,
        env=environ,
        cwd=home,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def check(outcome: dict[str, Any], version: str) -> None:
    """Assert what the guide promises of the plugin."""
    assert list(outcome["tools"]) == ["calculate", "unit_convert"]
    assert outcome["toolsets"] == ["calculator"]
    assert outcome["hooks"] == ["post_tool_call"]
    said, _, bundled = outcome["status"].partition("\n  (+")
    assert said == f"Plugins (1):\n  ✓ calculator {version} (2 tools, 1 hooks)"
    assert bundled.endswith(" bundled — see: hermes plugins list)")
    assert outcome["banner"] == ["calculator: calculate, unit_convert"]
    power, celsius, root, gigabytes = outcome["results"]
    assert power == {"expression": "2**16", "result": 65536}
    assert celsius == {"input": "100 F", "result": 37.7778, "output": "37.7778 C"}
    assert root["result"] == pytest.approx(2.5066282746)
    assert gigabytes == {"input": "1.5 TB", "result": 1536.0, "output": "1536.0 GB"}
    assert outcome["call_log"] == [{"tool": name, "session": "task-1"} for name, _ in PROMPTS.values()]
    assert [(s["tool_name"], s["task_id"], json.loads(s["result"])) for s in outcome["seen"]] == [
        (name, "task-1", result) for (name, _), result in zip(PROMPTS.values(), outcome["results"], strict=True)
    ]
    assert [s["args"] for s in outcome["seen"]][3] == {"value": 1.5, "from_unit": "TB", "to_unit": "GB"}
    assert all(isinstance(s["duration_ms"], int) for s in outcome["seen"])


def test_it_works_as_a_directory_plugin(files: dict[str, str], tmp_path: Path) -> None:
    home = tmp_path / "home"
    write_files(files, home / "plugins" / "calculator")

    outcome = run(home)

    assert outcome["source"] == "user"
    check(outcome, "v1.0.0")


PYPROJECT = """
[build-system]
requires = ["setuptools"]
build-backend = "setuptools.build_meta"

[project]
name = "hermes-plugin-calculator"
version = "1.0.0"

[project.entry-points."hermes_agent.plugins"]
calculator = "hermes_plugin_calculator"

[tool.setuptools]
packages = ["hermes_plugin_calculator"]
"""


def test_it_works_as_an_installed_package(files: dict[str, str], tmp_path: Path) -> None:
    have = {d.metadata["Name"].lower(): d.version for d in importlib.metadata.distributions()}
    if "pip" not in have or int(have.get("setuptools", "0").partition(".")[0]) < 71:
        pytest.skip("building a wheel needs pip and setuptools 71 or later, which `make test` installs")
    project, site = tmp_path / "project", tmp_path / "site"
    write_files(files, project / "hermes_plugin_calculator")
    (project / "pyproject.toml").write_text(PYPROJECT)
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--no-build-isolation"]
    subprocess.run([*install, "--target", str(site), str(project)], check=True, timeout=90, capture_output=True)

    outcome = run(tmp_path / "home", str(site))

    assert outcome["source"] == "entrypoint"
    assert outcome["loaded_from"] == str(site / "hermes_plugin_calculator")
    check(outcome, "v1.0.0")


def test_the_agent_s_own_example_answers_the_same(files: dict[str, str], tmp_path: Path) -> None:
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    write_files(files, theirs / "plugins" / "calculator")
    (ours / "plugins").mkdir(parents=True)
    (ours / "plugins" / "calculator").symlink_to(ROOT / "examples" / "plugins" / "calculator")

    results = [
        json.loads(
            subprocess.run(
                [sys.executable, "-c", DRIVER.replace('"call_log": module._call_log,', ""), calls],
                capture_output=True,
                text=True,
                timeout=60,
                check=True,
                env={**os.environ, "HERMES_HOME": str(_enabled(home)), "PYTHONPATH": os.pathsep.join(sys.path)},
            ).stdout
        )
        for home in (ours, theirs)
        for calls in [json.dumps(list(PROMPTS.values()))]
    ]

    for key in ("results", "banner", "status", "hooks", "toolsets"):
        assert results[0][key] == results[1][key]
    shapes = [
        {n: (list(s["parameters"]["properties"]), s["parameters"]["required"]) for n, s in r["tools"].items()}
        for r in results
    ]
    assert shapes[0] == shapes[1]


def _enabled(home: Path) -> Path:
    (home / "config.yaml").write_text("plugins:\n  enabled: [calculator]\n")
    return home
