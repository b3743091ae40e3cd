"""`tools.mcp_stdio_watchdog`: a command that a plugin starts through its file ends with the program that started it."""

from __future__ import annotations

import importlib
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from waiting import until

pytestmark = pytest.mark.usefixtures("served")
SLEEPS = (
    "import subprocess, sys, os; p = subprocess.Popen(['sleep', '60']); print(os.getpid(), p.pid, flush=True); p.wait()"
)


def started(command: Sequence[str], parent: int | None = None) -> list[str]:
    file = importlib.import_module("tools.mcp_stdio_watchdog").__file__
    return [sys.executable, str(file), "--ppid", str(parent or os.getpid()), "--", *command]


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_the_command_has_the_streams_and_gives_its_exit_status() -> None:
    echo = "import sys; print(sys.stdin.read().upper()); sys.exit(7)"
    done = subprocess.run(
        started([sys.executable, "-c", echo]), input="hello", capture_output=True, text=True, timeout=30, check=False
    )
    assert (done.stdout.strip(), done.returncode) == ("HELLO", 7)

    done = subprocess.run(started(["/no/such/program"]), capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 127
    assert "/no/such/program cannot be started" in done.stderr

    module = [sys.executable, "-m", "tools.mcp_stdio_watchdog", *started([sys.executable, "-c", "exit(5)"])[2:]]
    assert subprocess.run(module, timeout=30, check=False).returncode == 5

    killed = started([sys.executable, "-c", "import os; os.kill(os.getpid(), 9)"])
    assert subprocess.run(killed, timeout=30, check=False).returncode == 137


@pytest.mark.parametrize("end", ["signal", "parent"])
def test_all_processes_of_the_command_end_with_the_watchdog_and_with_its_parent(end: str) -> None:
    inner = started([sys.executable, "-c", SLEEPS], parent=None if end == "signal" else 1 << 22)
    if end == "parent":  # a process between, whose number the watchdog is given, ends hard
        code = (
            "import os, subprocess, sys; subprocess.Popen([str(os.getpid()) if a == str(1 << 22) else a"
            " for a in sys.argv[1:]]); sys.stdin.read()"
        )
        inner = [sys.executable, "-c", code, *inner]
    with subprocess.Popen(inner, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        pids = [int(word) for word in process.stdout.readline().split()]
        assert len(pids) == 2
        process.send_signal(signal.SIGTERM if end == "signal" else signal.SIGKILL)
        assert process.wait(15) == (143 if end == "signal" else -9)
        until(lambda: not any(map(is_running, pids)), "the end of the command's processes")
