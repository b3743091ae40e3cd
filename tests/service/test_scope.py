"""Commands outside of a sandbox, under a real systemd: each in a scope of its own (`workspace.scope`)."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from pathlib import Path

import hermes_agent
from run_in_systemd import Container, Interpreter

SCRIPT = """
cd /opt/tests
{python} -m pytest -q -p no:cacheprovider --noconftest --import-mode=importlib -c /dev/null --rootdir /opt/tests \\
    --timeout 90 --junitxml /run/report.xml service/scope_of_commands.py >&2
cat /run/report.xml
"""


def test_a_command_has_a_scope_of_its_own_and_ends_with_all_that_is_in_it() -> None:
    python = Interpreter.of_this_process(Path(hermes_agent.__file__).parent.parent)
    environment = dict(python.environment)
    environment["PYTHONPATH"] = f"{environment['PYTHONPATH']}:/opt/tests"
    binds = {
        **python.binds,
        str(Path(__file__).parents[1]): "/opt/tests",
        str(Path(__file__).parents[2] / "plugins"): "/opt/sources/plugins",
    }
    outcome = Container(binds=binds, environment=environment).run(
        SCRIPT.format(python=python.executable), timeout_s=550
    )

    assert outcome.stdout, outcome.stderr
    cases = list(ET.fromstring(outcome.stdout).iter("testcase"))
    assert len(cases) == 7 and not [case.get("name") for case in cases if len(case)], outcome.stderr
