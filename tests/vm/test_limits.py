"""Limits of commands where the kernel has every controller in the second version of control groups.

In a virtual machine: the suite of `tests/unit/workspace/test_bounds.py` under a scope of systemd (for root, and for a
user with a manager) and under control groups without systemd, the limits of `hermes-exec@.service`, and what `hermes
doctor` says.
"""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET

import pytest

from vm.machine import boot

SUITE = (
    "counted_together or fork_bomb or memory_of or temporary_files or change_its_own or told_which"
    " or groups_are_gone or former_agent or in_the_background"
)
BEGIN = """#!/bin/bash
export PATH=/usr/sbin:/usr/bin:/sbin:/bin PYTHONPATH=/opt/sources:/opt/packages:/opt/tests
cd /opt/tests
# suite NAME FILES…: pytest's report, between lines that say whose it is
suite() {
    name=$1; shift; rm -rf /tmp/of-$name; mkdir -m 777 /tmp/of-$name
    $AS python3 -m pytest -q -p no:cacheprovider -p vm.booted.plugin --noconftest --import-mode=importlib \\
        -c /dev/null --rootdir /opt/tests --basetemp /tmp/of-$name/t --timeout 300 \\
        --junitxml /tmp/of-$name/report.xml "$@" 2>&1 | tail -60
    printf '\\n<<%s\\n' $name; cat /tmp/of-$name/report.xml; printf '\\n>>\\n'
}
# doctor NAME: what it says, the same way
doctor() {
    printf '\\n<<%s\\n' $1; $AS env HERMES_HOME=/tmp/home-$1 python3 -m hermes_agent doctor --offline --json 2>/tmp/err
    printf '\\n>>\\n'; cat /tmp/err
}
"""
ROOT = f"""
cd /srv; doctor doctor-root; cd /opt/tests
suite root unit/workspace/test_bounds.py -k "{SUITE}"
"""
USER = f"""
useradd --create-home ann
loginctl enable-linger ann
for n in $(seq 300); do test -S /run/user/$(id -u ann)/systemd/private && break; sleep 0.2; done
AS="setpriv --reuid ann --regid ann --init-groups env HOME=/home/ann XDG_RUNTIME_DIR=/run/user/$(id -u ann)"
suite user unit/workspace/test_bounds.py -k "{SUITE}"
mkdir -p /home/ann/work; chown ann: /home/ann/work; cd /home/ann/work; doctor doctor-user; cd /opt/tests
AS=
"""
EXEC_UNIT = """
cp /opt/packaging/hermes-exec* /etc/systemd/system/
cp /opt/packaging/hermes-agent.sysusers.conf /usr/lib/sysusers.d/hermes-agent.conf
cp /opt/packaging/hermes-agent.tmpfiles.conf /usr/lib/tmpfiles.d/hermes-agent.conf
systemctl daemon-reload; systemd-sysusers; mkdir -p /var/lib/hermes/.hermes; chown -R hermes: /var/lib/hermes
systemd-tmpfiles --create /usr/lib/tmpfiles.d/hermes-agent.conf
systemctl start hermes-exec.socket
python3 -m compileall -q /opt/sources/hermes_agent/system
printf '\\n<<shown\\n'; systemctl show -p MemoryMax -p TasksMax hermes-exec@x.service; printf '\\n>>\\n'
mkdir -p /run/systemd/system/hermes-exec@.service.d
printf '[Service]\\nMemoryMax=200M\\nTasksMax=40\\n' >/run/systemd/system/hermes-exec@.service.d/less.conf
systemctl daemon-reload
export HERMES_TEST_EXEC_SOCKET=/run/hermes-exec.sock HERMES_TEST_EXEC_WORK=/var/lib/hermes/workspace
AS="setpriv --reuid hermes --regid hermes --init-groups"
suite exec vm/booted/exec_unit.py
AS=
"""
DROP_IN = """[Service]
ExecStart=
ExecStart=/usr/bin/python3 -m hermes_agent.system.exec_unit
Environment=PYTHONPATH=/opt/sources:/opt/packages
"""
BY_SCOPE = "a scope is gone with its command, and what it counted"
NOT_BY_SCOPE = "control groups are not used here"


@pytest.fixture(scope="module")
def with_systemd(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What the script said on a machine with systemd."""
    drop_in = {"/etc/systemd/system/hermes-exec@.service.d/python.conf": DROP_IN}
    return boot(BEGIN + ROOT + EXEC_UNIT + USER, tmp_path_factory.mktemp("systemd"), files=drop_in)


@pytest.fixture(scope="module")
def without_systemd(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The same on one that has control groups alone."""
    return boot(BEGIN + ROOT, tmp_path_factory.mktemp("groups"), systemd=False)


def part(said: str, name: str) -> str:
    found = re.search(rf"^<<{name}\n(.*?)\n>>$", said, re.MULTILINE | re.DOTALL)
    assert found, said[-6000:]
    return found[1].strip()


def passed(said: str, name: str, *, skipped: tuple[str, ...] = ()) -> int:
    """Return how many tests passed; no other was skipped than for one of these reasons."""
    report = part(said, name)
    assert report, said[-6000:]
    cases = list(ET.fromstring(report).iter("testcase"))
    for case in cases:
        for trouble in case:
            text = f"{trouble.get('message')} {trouble.text}"
            assert trouble.tag == "skipped" and any(reason in text for reason in skipped), f"{case.get('name')}: {text}"
    return sum(not len(case) for case in cases)


def limits(said: str, name: str) -> str:
    """Return what the doctor says of limits."""
    (line,) = [line["text"] for line in json.loads(part(said, name)) if "limits of the sandbox" in line["text"]]
    return str(line)


@pytest.mark.parametrize("who", ["root", "user"])
def test_a_scope_of_systemd_holds_all_processes_of_a_command_together(with_systemd: str, who: str) -> None:
    assert passed(with_systemd, who, skipped=(BY_SCOPE, NOT_BY_SCOPE)) == 9


@pytest.mark.parametrize("who", ["root", "user"])
def test_the_doctor_names_the_scope(with_systemd: str, who: str) -> None:
    assert limits(with_systemd, f"doctor-{who}").endswith(
        "2048 MiB of memory and 256 processes of a command, by a scope of systemd"
    )


def test_control_groups_hold_all_processes_of_a_command_together(without_systemd: str) -> None:
    assert passed(without_systemd, "root") == 11


def test_the_doctor_names_the_control_group(without_systemd: str) -> None:
    assert limits(without_systemd, "doctor-root").endswith(
        "2048 MiB of memory and 256 processes of a command, by a control group"
    )


def test_the_limits_of_a_unit_hold(with_systemd: str) -> None:
    assert passed(with_systemd, "exec") == 3
    assert part(with_systemd, "shown").splitlines() == [f"MemoryMax={2 << 30}", "TasksMax=512"]
