"""The daemon in its packaged unit, its commands in units of their own: the attacks of `tests/attack/test_daemon.py`.

They run inside the container, as its root, who starts the daemon and its model server. `make attack` runs all of them.
"""

from __future__ import annotations

import os
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

import hermes_agent
from attack import test_daemon
from attack.attempts import ATTEMPTS
from run_in_systemd import Container, Interpreter
from service.conftest import PACKAGING, UNIT

HERE = Path(__file__).resolve().parent
PLACE = "systemd"
DATA = f"{test_daemon.test_an_attempt_is_held_off_where_the_same_way_works_without_it.__name__}["
CASES = {f"{one.kind}: {one.name}": one.kind for one in ATTEMPTS if PLACE in one.places} | test_daemon.OTHERS
"""Names of attempts, with their class."""
ADDRESS = "192.0.2.77"
"""An address of the container that is none of its loopback's."""
SCRIPT = """
systemd-sysusers && systemd-tmpfiles --create /etc/tmpfiles.d/hermes-agent.conf
ip address add {address}/32 dev lo
mkdir -p /var/lib/hermes/.hermes /etc/hermes-agent
systemctl enable -q hermes-agent && systemctl start hermes-exec.socket || exit 3
cd /opt/tests
{python} -m pytest -q -p no:cacheprovider --noconftest --import-mode=importlib -c /dev/null --rootdir /opt/tests \\
    --timeout 120 --junitxml /run/report.xml --basetemp /run/attacks attack/test_daemon.py >&2
cat /run/report.xml
"""


@pytest.fixture(scope="module")
def attacks() -> dict[str, str]:
    """Return what got through, by the name of the attempt; empty where it was held off."""
    sources = Path(hermes_agent.__file__).resolve().parent.parent
    python = Interpreter.of_this_process(sources)
    starts = {UNIT: "-m hermes_agent gateway run", "hermes-exec@.service": "-m hermes_agent.system.exec_unit"}
    path = f"{python.environment.get('PYTHONPATH', '')}:/opt/tests:/opt/tests/e2e"
    container = Container(
        units={name: PACKAGING / name for name in (*starts, "hermes-exec.socket")},
        files={
            "/etc/sysusers.d/hermes-agent.conf": (PACKAGING / "hermes-agent.sysusers.conf").read_text(),
            "/etc/tmpfiles.d/hermes-agent.conf": (PACKAGING / "hermes-agent.tmpfiles.conf").read_text(),
            **{
                f"/etc/systemd/system/{unit}.d/test.conf": (
                    f"[Service]\nExecStart=\nExecStart={python.executable} {start}\n{python.unit_environment()}\n"
                )
                for unit, start in starts.items()
            },
        },
        binds={
            **python.binds,
            str(HERE.parent): "/opt/tests",
            str((sources / "hermes_agent" / "_bundled").resolve()): "/opt/sources/plugins",
        },
        environment={
            **python.environment,
            "PYTHONPATH": path,
            "HERMES_ATTACK_PLACE": PLACE,
            "HERMES_ATTACK_ADDRESS": ADDRESS,
            "HERMES_ATTACK_FULL": "1",
        },
    )
    outcome = container.run(SCRIPT.format(python=python.executable, address=ADDRESS), timeout_s=3000)
    assert outcome.stdout, outcome.stderr
    found: dict[str, str] = {}
    for case in ET.fromstring(outcome.stdout).iter("testcase"):
        name = str(case.get("name"))
        name = name[len(DATA) : -1] if name.startswith(DATA) else name.partition("[")[0]
        child = next((c for c in case if c.tag in ("failure", "error", "skipped")), None)
        problem = "" if child is None else f"{child.tag}: {child.get('message')}\n{child.text}\n"
        found[name] = found.get(name, "") + problem
    print(outcome.stderr[-4000:])
    return found


@pytest.mark.timeout(3600)
@pytest.mark.skipif(os.environ.get("HERMES_ATTACK_FULL") != "1", reason="`make attack` runs it")
@pytest.mark.parametrize(
    "attempt",
    [
        pytest.param(name, marks=[pytest.mark.attack(kind, at=PLACE), pytest.mark.xdist_group("attacked systemd")])
        for name, kind in CASES.items()
    ],
)
def test_an_attempt_on_the_unit_is_held_off(attempt: str, attacks: dict[str, str]) -> None:
    assert attempt in attacks, sorted(attacks)
    assert attacks[attempt] == ""
