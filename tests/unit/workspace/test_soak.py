"""Many commands through one shell leave nothing: no process, no descriptor, no memory. `make soak` runs 10,000."""

from __future__ import annotations

import gc
import json
import os
from pathlib import Path

import pytest

COMMANDS = (
    "echo $COUNT; export COUNT=$((COUNT + 1))",
    "cd /tmp; pwd; cd - >/dev/null",
    "yes | head -c 200000; exit 3",
    "(sleep 600 &) ; echo left",
    "setsid -f sleep 600; true",
    "f() { echo f; }; f; cat <<< text",
    "echo 'unclosed",
)
SAMPLE = int(os.environ.get("HERMES_SOAK", "105"))
WARM_UP = 35
GROWTH_BYTES = 6_000_000


def resident() -> int:
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def processes() -> set[str]:
    """Return the processes whose environment shows that a command started them, and our own children."""
    found = set()
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or entry.name == str(os.getpid()):
            continue
        try:
            parent = (entry / "stat").read_text().rpartition(")")[2].split()[1]
            marked = b"HERMES_CALL=" in (entry / "environ").read_bytes() and str(Path.cwd())
        except OSError:
            continue
        if parent == str(os.getpid()) or (marked and b"sleep\x00600" in (entry / "cmdline").read_bytes()):
            found.add(entry.name)
    return found


@pytest.mark.timeout(3600 if SAMPLE > 1_000 else 120)
def test_many_commands_leave_nothing(workplace):
    terminal = workplace.registry.get("terminal").handler.loaded

    def run(number: int) -> None:
        told = json.loads(terminal({"command": COMMANDS[number % len(COMMANDS)]}, task_id="t"))
        assert told.get("status") != "error", told

    for number in range(WARM_UP):
        run(number)
    before = resident(), descriptors(), processes()
    for number in range(WARM_UP, SAMPLE):
        run(number)

    assert processes() <= before[2]
    assert descriptors() <= before[1]
    assert resident() - before[0] < GROWTH_BYTES
    assert int(terminal.shells.state("", confined=False).variables["COUNT"]) == (SAMPLE + 6) // 7
