"""Under a real systemd: each promise of the rendered units holds, and does not without the directive that keeps it."""

from __future__ import annotations

import json
import os
import platform
from pathlib import Path

import pytest

from nix.promises import PRELUDE, PROMISES, SAMPLE, variant
from run_in_systemd import Container

pytestmark = [
    pytest.mark.nix,
    pytest.mark.service,
    pytest.mark.xdist_group("systemd"),
    pytest.mark.skipif(platform.machine() != "x86_64", reason="system calls are named by their numbers on x86-64"),
]

FULL = bool(os.environ.get("HERMES_NIX_FULL"))
TABLE = PROMISES if FULL else SAMPLE

SCRIPT = """#!/bin/bash
set -eu
mkdir -p /home/someone /usr/lib/modules/probe /nix/var/nix
touch /home/someone/secret /root/secret /tmp/marker /run/probe-secret
chmod 755 /home/someone /root; chmod 644 /root/secret
mkdir -p /run/hermes-agent && chown hermes /run/hermes-agent
install -d -o hermes -g hermes /var/lib/hermes/.hermes
install -o nobody -m 0600 /dev/null /srv/probes/foreign
for device in probe kmsg; do rm -f /dev/$device; mknod -m 666 /dev/$device c 1 11; done
ip address add 169.254.169.254/32 dev lo 2>/dev/null || true
setpriv --reuid hermes --clear-groups sleep 1000 & agent=$!
{ echo agent=$agent; for n in ipc uts net; do echo $n=$(readlink /proc/self/ns/$n); done; } > /srv/probes/facts
chmod 644 /srv/probes/facts
cd /etc/systemd/system
systemctl start $(ls | grep '^probe-') >/dev/null 2>&1 || true
for unit in $(ls | grep '^probe-'); do
  echo "$unit $(systemctl show -P Result $unit) $(systemctl show -P ExecMainStatus $unit)"
done
"""


@pytest.fixture(scope="module")
def outcomes(nix) -> dict[str, tuple[str, int, str]]:
    """How each probe ended, by the name of its unit: systemd's result, the status, what it said."""
    system = nix.build("systems.calculator.toplevel").path
    units = {
        "agent": (system / "hermes-agent.service").read_text(),
        "exec": (system / "hermes-exec@.service").read_text(),
    }
    given, files = {}, {}
    for number, promise in enumerate(TABLE):
        program = f"/srv/probes/probe-{number}.py"
        files[program] = f"{PRELUDE}\n{promise.code}\n"
        for which, more in (("with", {}), ("without", promise.kept_by)):
            name = f"probe-{number}-{which}"
            given[f"{name}.service"] = variant(units[promise.unit], name, program, promise.around, more)
    container = Container(
        units=given,
        binds={"/nix/store": "/nix/store"},
        files={
            **files,
            "/etc/hermes-agent/environment": "A=b\n",
            "/etc/sysusers.d/hermes.conf": (system / "sysusers.conf").read_text(),
            "/etc/tmpfiles.d/hermes.conf": (system / "tmpfiles.conf").read_text(),
        },
    )
    outcome = container.run(SCRIPT, timeout_s=110).succeeded()
    found = {}
    for line in outcome.stdout.splitlines():
        unit, result, status = line.split()
        said = " ".join(str(entry["MESSAGE"]) for entry in outcome.entries(UNIT=unit, PRIORITY="3"))
        said += " ".join(str(entry["MESSAGE"]) for entry in outcome.entries(_SYSTEMD_UNIT=unit))
        found[unit] = (result, int(status), said)
    Path(os.environ.get("PROMISES_OUT", os.devnull)).write_text(json.dumps(found, indent=1))
    return found


@pytest.mark.parametrize("number", range(len(TABLE)), ids=[f"{p.unit}: {p.text}" for p in TABLE])
def test_a_promise_holds_because_of_its_directive(number: int, outcomes) -> None:
    kept = outcomes[f"probe-{number}-with.service"]
    assert kept[:2] == ("success", 0), kept
    broken = outcomes[f"probe-{number}-without.service"]
    assert broken[0] != "success", f"it holds without {', '.join(TABLE[number].kept_by)}"


def test_there_are_enough_of_them() -> None:
    assert len(PROMISES) >= 40
    assert len({(p.unit, p.text) for p in PROMISES}) == len(PROMISES)
