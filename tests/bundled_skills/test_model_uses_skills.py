"""A scripted model opens each bundled skill and runs its first command, where the fault is."""

from __future__ import annotations

import json
import re
import secrets
from pathlib import Path

import pytest

import hermes_agent
from bundled_skills.conftest import FULL
from bundled_skills.test_skills import SUBJECTS
from bundled_skills.trial import WHOLE, Shown, Subject, files_of, planting_of
from peers import install
from peers.scripted import command, write_fixtures
from run_in_systemd import Container, Interpreter, Process

QUESTION = "What is wrong with this machine?"
PORT = 8643
FIRST = {subject.skill: subject for subject in reversed(SUBJECTS)}
"""A subject of each skill."""
ASK = """\
export HERMES_HOME=/root/.hermes HOME=/root
mkdir -p $HERMES_HOME
cp /opt/config.yaml $HERMES_HOME/config.yaml
cd {cwd}
{python} -m hermes_agent -z '{question}' >&2 </dev/null
exec python3 /opt/requests.py
"""
REQUESTS = """\
import sys, urllib.request
asked = urllib.request.Request("http://127.0.0.1:{port}/__aimock/journal", headers={{"Authorization": "Bearer {key}"}})
sys.stdout.write(urllib.request.urlopen(asked, timeout=30).read().decode())
"""
CONFIG = """\
model: {{provider: custom, base_url: "http://127.0.0.1:{port}/v1", default: scripted-model, api_key: {key}}}
terminal: {{sandbox: "off"}}
command_allowlist: [{line}]
"""


def first_command(subject: Subject) -> tuple[str, Shown]:
    """Return the first command that runs here, with the names of the machine, and what it shows."""
    line, shown = next((line, shown) for line, shown in subject.shown.items() if shown is not None)
    return re.sub(r"\b[A-Z_]{3,}\b", lambda found: subject.names.get(found[0], found[0]), line), shown


@pytest.mark.parametrize("name", sorted(FIRST))
def test_a_model_opens_the_skill_and_sees_the_fault(name: str, machine: Path, tmp_path: Path) -> None:
    if not FULL:
        pytest.skip("boots a machine for each skill: HERMES_SKILLS_FULL=1 (make test-skills)")
    try:
        install.aimock(), install.node()
    except install.NotInstalled as exc:
        pytest.skip(f"a test server could not be installed: {exc}")
    subject, key = FIRST[name], secrets.token_urlsafe(24)
    line, shown = first_command(subject)
    calls = [
        {"id": "call_0", "name": "skill_view", "arguments": json.dumps({"name": name})},
        {"id": "call_1", "name": "terminal", "arguments": json.dumps({"command": line})},
    ]
    said = {"userMessage": QUESTION}
    fixtures = write_fixtures(
        tmp_path / "fixtures.json",
        [
            {"match": {**said, "hasToolResult": False}, "response": {"toolCalls": calls[:1]}},
            {"match": {**said, "toolCallId": "call_0"}, "response": {"toolCalls": calls[1:]}},
            {"match": {**said, "toolCallId": "call_1"}, "response": {"content": "That is wrong."}},
        ],
    )
    sources = Path(hermes_agent.__file__).resolve().parent.parent
    python = Interpreter.of_this_process(sources)
    units = {at: machine / unit if isinstance(unit, Path) else unit for at, unit in subject.units.items()}
    container = Container(
        units=units,
        enable=subject.enable,
        binds={
            **{path: path for path in (str(tmp_path), str(install.CACHE), str(install.node()))},
            **python.binds,
            str((sources / "hermes_agent" / "_bundled").resolve()): "/opt/sources/plugins",
        },
        files={
            **files_of(subject, WHOLE),
            "/opt/config.yaml": CONFIG.format(port=PORT, key=key, line=json.dumps(line)),
            "/opt/requests.py": REQUESTS.format(port=PORT, key=key),
        },
        processes=[Process("model", command(fixtures, port=PORT), {"AIMOCK_API_KEYS": key}, port=PORT)],
        environment={**python.environment, **subject.environ, "LC_ALL": "C.UTF-8"},
        root=str(machine),
    )
    asking = ASK.format(python=python.executable, question=QUESTION, cwd=subject.cwd)
    outcome = container.run(f"{planting_of(subject)}\n{asking}", timeout_s=300).succeeded()
    last = json.loads(outcome.stdout)[-1]["body"]["messages"]
    opened, ran = (message["content"] for message in last if message["role"] == "tool")
    assert "Look first" in opened and "Use this" in opened, opened
    output = json.loads(ran).get("output", "")
    assert [pattern for pattern in shown.patterns if not re.search(pattern, output, re.MULTILINE)] == [], ran
