"""Under a real systemd: each promise of the rendered units holds, and does not without the directive that keeps it."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable
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

CONTROLLERS = Path("/sys/fs/cgroup/cgroup.controllers")
FULL = bool(os.environ.get("HERMES_NIX_FULL"))
TABLE = PROMISES if FULL else SAMPLE
ENOUGH = {"agent": 40, "strict": 39, "workspace": 42, "host": 24}

NAMES = """
import os, socket, threading
server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
server.bind(("192.0.2.1", 53))
# What glibc asks first; it is closed at once, and glibc asks the servers itself.
daemon = socket.socket(socket.AF_UNIX)
daemon.bind("/run/nscd/socket")
os.chmod("/run/nscd/socket", 0o666)
daemon.listen(64)
def refuse():
    while True:
        daemon.accept()[0].close()
threading.Thread(target=refuse).start()
while True:
    asked, who = server.recvfrom(512)
    end = asked.index(b"\\0", 12) + 5
    is_address = asked[end - 4 : end - 2] == b"\\0\\1"
    answer = asked[:2] + b"\\x81\\x80\\0\\1\\0" + bytes([is_address]) + b"\\0\\0\\0\\0" + asked[12:end]
    server.sendto(answer + (b"\\xc0\\x0c\\0\\1\\0\\1\\0\\0\\0\\x3c\\0\\4\\xc0\\0\\2\\x09" if is_address else b""), who)
"""
"""A name server for `probe.test`, where those of systemd-resolved would be, and the socket of nscd."""

SCRIPT = """#!/bin/bash
set -eu
mkdir -p /home/someone/project /usr/lib/modules/probe /nix/var/nix/{profiles,daemon-socket}
mkdir -p /run/current-system/sw /srv/other /var/lib/{other,private}
touch /home/someone/secret /root/secret /tmp/marker /run/probe-secret /dev/shm/marker /var/lib/private/secret
chmod 755 /home/someone /root; chmod 644 /root/secret
install -d -o hermes -g hermes -m 0750 /run/hermes-agent
install -d -o hermes -g hermes /var/lib/hermes/.hermes
touch /var/lib/hermes/.hermes/probe-secret
install -o nobody -m 0600 /dev/null /srv/probes/foreign
for device in probe kmsg; do rm -f /dev/$device; mknod -m 666 /dev/$device c 1 11; done
for address in 169.254.169.254 192.0.2.1; do ip address add $address/32 dev lo 2>/dev/null || true; done
mkdir -p /run/systemd/resolve /run/nscd
ln -sf ../run/systemd/resolve/stub-resolv.conf /etc/resolv.conf
echo nameserver 192.0.2.1 > /run/systemd/resolve/resolv.conf
echo nameserver 127.0.0.53 > /run/systemd/resolve/stub-resolv.conf
/usr/bin/python3 /srv/names.py & while ! test -S /run/nscd/socket; do kill -0 $! && sleep 0.05; done
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
def units(nix) -> dict[str, str]:
    """The rendered units, by the names of `Promise.unit`."""
    found = {"agent": (nix.build("systems.calculator.toplevel").path / "hermes-agent.service").read_text()}
    for profile in ("strict", "workspace", "host"):
        found[profile] = (nix.build(f"sandboxed.{profile}.toplevel").path / "hermes-exec@.service").read_text()
    return found


@pytest.fixture(scope="module")
def outcomes(nix, units: dict[str, str]) -> Callable[[int], dict[str, tuple[str, int, str]]]:
    """Return how the probes of a promise ended, by the name of the unit: systemd's result, the status, what it said.

    A container for each unit, or one for the sample.
    """
    system = nix.build("systems.calculator.toplevel").path
    ran: dict[str, dict[str, tuple[str, int, str]]] = {}

    def of(number: int) -> dict[str, tuple[str, int, str]]:
        group = TABLE[number].unit if FULL else ""
        if group not in ran:
            ran[group] = run(system, units, [n for n, p in enumerate(TABLE) if group in ("", p.unit)])
        return ran[group]

    return of


def run(system: Path, units: dict[str, str], numbers: list[int]) -> dict[str, tuple[str, int, str]]:
    given, files = {}, {}
    for number in numbers:
        promise = TABLE[number]
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
            "/srv/names.py": NAMES,
            "/etc/hermes-agent/environment": "A=b\n",
            "/etc/sysusers.d/hermes.conf": (system / "sysusers.conf").read_text(),
            "/etc/tmpfiles.d/hermes.conf": (system / "tmpfiles.conf").read_text(),
        },
    )
    outcome = container.run(SCRIPT, timeout_s=300).succeeded()
    found = {}
    for line in outcome.stdout.splitlines():
        unit, result, status = line.split()
        said = " ".join(str(entry["MESSAGE"]) for entry in outcome.entries(UNIT=unit, PRIORITY="3"))
        said += " ".join(str(entry["MESSAGE"]) for entry in outcome.entries(_SYSTEMD_UNIT=unit))
        found[unit] = (result, int(status), said)
    return found


@pytest.mark.timeout(360)
@pytest.mark.parametrize("number", range(len(TABLE)), ids=[f"{p.unit}: {p.text}" for p in TABLE])
def test_a_promise_holds_because_of_its_directive(number: int, outcomes) -> None:
    found = outcomes(number)
    kept = found[f"probe-{number}-with.service"]
    assert kept[:2] == ("success", 0), kept
    broken = found[f"probe-{number}-without.service"]
    assert broken[0] != "success", f"it holds without {', '.join(TABLE[number].kept_by)}"


@pytest.mark.parametrize(
    ("controller", "limit", "program"),
    [
        ("memory", {"MemoryMax": "64M"}, "bytearray(256 << 20)"),
        (
            "pids",
            {"TasksMax": "8"},
            "import threading as t\nfor _ in range(16): t.Thread(target=t.Event().wait, args=(1,)).start()",
        ),
    ],
)
def test_a_command_has_no_more_memory_and_processes_than_its_unit_gives(controller, limit, program, units) -> None:
    there = CONTROLLERS.read_text().split() if CONTROLLERS.exists() else []
    (directive,) = limit
    assert f"\n{directive}=" in units["strict"]
    if controller not in there:
        pytest.skip(f"{directive} is not enforced here: the unified control groups have no `{controller}`")
    given = {
        "limited.service": variant(units["strict"], "limited", "/srv/probes/p.py", limit),
        "free.service": variant(units["strict"], "free", "/srv/probes/p.py", {directive: "infinity"}),
    }
    script = "systemctl start limited free; for u in free limited; do systemctl show -P Result $u; done"
    outcome = Container(units=given, files={"/srv/probes/p.py": program}).run(script).succeeded()
    free, limited = outcome.stdout.split()
    assert free == "success" and limited != "success"


def test_there_are_enough_of_them() -> None:
    assert all(len([p for p in PROMISES if p.unit == unit]) >= n for unit, n in ENOUGH.items())
    assert len({(p.unit, p.text) for p in PROMISES}) == len(PROMISES)
