"""Commands in units of their own, under a real systemd: the contract suite of backends, and thirteen attacks."""

from __future__ import annotations

import os
import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path

import pytest

import hermes_agent
from run_in_systemd import Container, Interpreter, Outcome

HERE = Path(__file__).resolve().parent
PACKAGING = HERE.parents[1] / "packaging" / "systemd"
WORK = "/var/lib/hermes/workspace"
SCRIPT = """
set -e
systemd-sysusers; mkdir -p /var/lib/hermes/.hermes /run/hermes-agent /root/.ssh /etc/hermes-agent
mkdir -p /srv/data /data /mnt/disk /var/lib/other /home/ann/Documents
echo sk-attack-0123456789 | tee /root/.ssh/id /srv/data/s /data/s /mnt/disk/s /var/lib/other/s /home/ann/Documents/s \
    > /etc/hermes-agent/KEY
{python} -c "
import os, socket, time
kept = []
for name in ('/srv/data/sock', '/data/sock', '/var/lib/other/sock', '/home/ann/sock'):
    kept.append(socket.socket(socket.AF_UNIX)); kept[-1].bind(name); kept[-1].listen(); os.chmod(name, 0o777)
time.sleep(600)" &
until test -S /home/ann/sock; do sleep 0.1; done
chown -R hermes:hermes /var/lib/hermes /run/hermes-agent /etc/hermes-agent; chmod 750 /var/lib/hermes
systemd-tmpfiles --create /etc/tmpfiles.d/hermes-agent.conf
systemd-analyze verify --man=no /etc/systemd/system/hermes-exec.socket >&2
systemctl start hermes-exec.socket
cd /opt/tests
set +e
export HOME=/var/lib/hermes HERMES_TEST_EXEC_SOCKET=/run/hermes-exec.sock HERMES_TEST_EXEC_WORK={work}
{user} {python} -m pytest -q -p no:cacheprovider --noconftest \\
    --import-mode=importlib \\
    -c /dev/null --rootdir /opt/tests --timeout 60 --junitxml /var/lib/hermes/report.xml --durations 8 {what} >&2
cat /var/lib/hermes/report.xml
journalctl -q --no-pager -p warning -u 'hermes-exec@*' >&2
"""


AGENT = "setpriv --reuid hermes --regid hermes --init-groups"


def run(what: str, *, user: str = AGENT, more: str = "") -> tuple[dict[str, str], Outcome]:
    """Run tests in the container, as the agent's user; return what became of each by name.

    Args:
        more: further text for the unit's section `[Service]`.
    """
    python = Interpreter.of_this_process(Path(hermes_agent.__file__).parent.parent)
    start = f"ExecStart=\nExecStart={python.executable} -m hermes_agent.io.exec_unit"
    drop_in = f"[Service]\n{start}\n{python.unit_environment()}\n{more}\n"
    environment = dict(python.environment)
    environment["PYTHONPATH"] = f"{environment['PYTHONPATH']}:/opt/tests"
    container = Container(
        units={name: PACKAGING / name for name in ("hermes-exec.socket", "hermes-exec@.service")},
        files={
            "/etc/sysusers.d/hermes-agent.conf": (PACKAGING / "hermes-agent.sysusers.conf").read_text(),
            "/etc/tmpfiles.d/hermes-agent.conf": (PACKAGING / "hermes-agent.tmpfiles.conf").read_text(),
            "/etc/systemd/system/hermes-exec@.service.d/test.conf": drop_in,
        },
        binds={
            **python.binds,
            str(HERE.parent): "/opt/tests",
            str(HERE.parents[1] / "plugins"): "/opt/sources/plugins",
        },
        environment=environment,
    )
    outcome = container.run(SCRIPT.format(python=python.executable, work=WORK, what=what, user=user), timeout_s=110)
    found: dict[str, str] = {}
    assert outcome.stdout, outcome.stderr
    for case in ET.fromstring(outcome.stdout).iter("testcase"):
        child = next((c for c in case if c.tag in ("failure", "error", "skipped")), None)
        found[str(case.get("name"))] = "" if child is None else f"{child.tag}: {child.get('message')}\n{child.text}"
    print(outcome.stderr)
    return found, outcome


@pytest.fixture(scope="module")
def attacks() -> dict[str, str]:
    return run("service/exec_unit_attacks.py")[0]


ATTACKS = {
    "credentials": "test_1_",
    "secrets in homes": "test_2_",
    "the agent's home and state.db": "test_3_",
    "/proc of the daemon": "test_4_",
    "a signal to the daemon": "test_5_",
    "its control socket": "test_6_",
    "its HTTP port": "test_7_",
    "loopback": "test_8_",
    "the network": "test_9_",
    "a fork bomb": "test_10_",
    "escape by a link": "test_11_",
    "a left-over process": "test_12_",
    "what others run later": "test_13_",
    "what is not listed": "test_14_",
    "sockets of other services": "test_15_",
    "what else there is": "test_more_",
}


@pytest.mark.attack("exec unit")
@pytest.mark.parametrize("attack", ATTACKS)
def test_an_attack_from_inside_is_refused(attack: str, attacks: dict[str, str]) -> None:
    mine = {name: problem for name, problem in attacks.items() if name.startswith(ATTACKS[attack])}
    assert mine and not any(mine.values()), "\n".join(mine.values())


def test_the_unit_is_a_backend_like_the_others() -> None:
    found, outcome = run("contracts/test_terminal_env.py unit/tasks/test_script.py -k 'systemd and not refused'")

    assert len(found) >= 16 and "test_a_script_in_a_unit_of_systemd_calls_tools" in found, outcome.stderr
    problems = [f"{name}: {text}" for name, text in found.items() if text]
    assert problems == []


@pytest.mark.skipif(not os.environ.get("HERMES_ATTACK_FULL"), reason="`make attack` runs it")
@pytest.mark.attack("doors")
def test_a_caller_of_the_socket_leaves_places_for_others_and_for_root(attempt: Callable[[bool, str], None]) -> None:
    limits = "Environment=HERMES_EXEC_PER_CALLER=4 HERMES_EXEC_MOST=6"
    found, outcome = run("service/exec_callers.py", user="", more=limits)

    assert len(found) == 4, outcome.stderr
    for name, problem in found.items():
        attempt(not problem, f"{name}: {problem}")
