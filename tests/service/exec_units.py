"""Units that run commands, under a real systemd: suites of tests run in a container, as the agent's user."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from dataclasses import dataclass
from pathlib import Path

import hermes_agent
from run_in_systemd import Container, Interpreter, Outcome

__all__ = ["AGENT", "ATTACKS", "WORK", "Packaged", "as_packaged", "as_rendered", "run"]

HERE = Path(__file__).resolve().parent
PACKAGING = HERE.parents[1] / "packaging" / "systemd"
WORK = "/var/lib/hermes/workspace"
NAMES = ("hermes-exec.socket", "hermes-exec@.service")
AGENT = "setpriv --reuid hermes --regid hermes --groups hermes,hermes-work"
SCRIPT = """
set -e
systemd-sysusers; mkdir -p /var/lib/hermes/.hermes /run/hermes-agent /root/.ssh /etc/hermes-agent
mkdir -p /srv/data /data /mnt/disk /var/lib/other /home/ann/Documents
echo sk-attack-0123456789 | tee /root/.ssh/id /srv/data/s /data/s /mnt/disk/s /var/lib/other/s /dev/shm/s \
    /home/ann/Documents/s > /etc/hermes-agent/KEY
{python} -c "
import os, socket, time
kept = []
for name in ('/srv/data/sock', '/data/sock', '/var/lib/other/sock', '/dev/shm/sock', '/home/ann/sock'):
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
"""What is tried, to how its tests in `exec_unit_attacks.py` begin."""


@dataclass(frozen=True)
class Packaged:
    """The units of one system, and what systemd-sysusers and systemd-tmpfiles make for them."""

    units: Path
    sysusers: Path
    tmpfiles: Path
    source: bool = False
    """Whether what runs is this source tree, with the tests' interpreter; else the unit's own program."""


def as_packaged() -> Packaged:
    """Return those of `packaging/systemd`."""
    return Packaged(
        PACKAGING, PACKAGING / "hermes-agent.sysusers.conf", PACKAGING / "hermes-agent.tmpfiles.conf", source=True
    )


def as_rendered(system: Path) -> Packaged:
    """Return those of a NixOS system that was built: its `toplevel`."""
    return Packaged(system, system / "sysusers.conf", system / "tmpfiles.conf")


def run(packaged: Packaged, what: str, *, user: str = AGENT, more: str = "") -> tuple[dict[str, str], Outcome]:
    """Run tests in the container, as the agent's user; return what became of each by name.

    Args:
        more: further text for the unit's section `[Service]`.
    """
    python = Interpreter.of_this_process(Path(hermes_agent.__file__).parent.parent)
    start = f"ExecStart=\nExecStart={python.executable} -m hermes_agent.system.exec_unit\n{python.unit_environment()}"
    environment = dict(python.environment)
    environment["PYTHONPATH"] = f"{environment['PYTHONPATH']}:/opt/tests"
    store = {} if packaged.source else {"/nix/store": "/nix/store"}
    container = Container(
        units={name: packaged.units / name for name in NAMES},
        files={
            "/etc/sysusers.d/hermes-agent.conf": packaged.sysusers.read_text(),
            "/etc/tmpfiles.d/hermes-agent.conf": packaged.tmpfiles.read_text(),
            "/etc/systemd/system/hermes-exec@.service.d/test.conf": (
                f"[Service]\n{start if packaged.source else ''}\n{more}\n"
            ),
        },
        binds={
            **python.binds,
            **store,
            str(HERE.parent): "/opt/tests",
            str(HERE.parents[1] / "plugins"): "/opt/sources/plugins",
        },
        environment=environment,
    )
    outcome = container.run(SCRIPT.format(python=python.executable, work=WORK, what=what, user=user), timeout_s=550)
    found: dict[str, str] = {}
    assert outcome.stdout, outcome.stderr
    for case in ET.fromstring(outcome.stdout).iter("testcase"):
        child = next((c for c in case if c.tag in ("failure", "error", "skipped")), None)
        found[str(case.get("name"))] = "" if child is None else f"{child.tag}: {child.get('message')}\n{child.text}"
    print(outcome.stderr)
    return found, outcome
