"""Commands of this machine in scopes of systemd: run in the container, as root, by test_scope.py."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from contracts.terminal_places import ENVIRON, Place
from hermes_agent.contracts.terminal_env import BackendCommand
from hermes_agent.workspace.backend_selection import LocalBackend
from hermes_agent.workspace.background_processes import BackgroundProcesses
from hermes_agent.workspace.sandbox.limits import CommandLimits, ProcessLimits, SystemdScope

DETACHED = (
    "env -i setsid sh -c 'sleep 1000 & echo $! > {file}' </dev/null >/dev/null 2>&1;"
    " while ! test -s {file}; do sleep 0.05; done"
)
"""Leaves its session, loses its parent, and has no environment by which it would be known."""


@pytest.fixture
def place(tmp_path: Path) -> Place:
    scope = SystemdScope(ENVIRON, memory_mb=256, processes=64)
    assert scope.problem == ""
    return Place(LocalBackend(ENVIRON, scope=scope), str(tmp_path))


def is_alive(pid: int) -> bool:
    """Say whether a process runs; what has ended may wait for its parent."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


def gone(pid: int) -> bool:
    limit = time.monotonic() + 30
    while is_alive(pid) and time.monotonic() < limit:
        time.sleep(0.02)
    return not is_alive(pid)


def unit(pid: str | int) -> str:
    return Path(f"/proc/{pid}/cgroup").read_text().split("0::")[1].split("\n")[0].rsplit("/", 1)[1]


def shown(name: str) -> str:
    words = ["systemctl", "show", "-p", "MemoryMax", "-p", "TasksMax", "-p", "Description", name]
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout


def test_a_command_has_a_scope_with_both_limits_and_its_words_are_not_in_the_journal(place: Place) -> None:
    said = place.say(
        "systemctl show -p MemoryMax -p TasksMax -p Description $(basename $(sed -n s/^0:://p /proc/self/cgroup))"
    )

    assert f"MemoryMax={256 << 20}\n" in said and "TasksMax=64\n" in said
    assert "Description=a command of hermes-agent\n" in said


def test_what_left_the_session_ends_with_the_command(place: Place, tmp_path: Path) -> None:
    done = place(DETACHED.format(file=tmp_path / "pid"))

    assert done.exit_code == 0 and done.ended_children >= 1
    assert gone(int((tmp_path / "pid").read_text()))


def test_what_left_the_session_ends_at_the_time_limit(place: Place, tmp_path: Path) -> None:
    done = place(DETACHED.format(file=tmp_path / "pid") + "; sleep 1000", timeout_s=5)

    assert done.timed_out and gone(int((tmp_path / "pid").read_text()))


def test_a_background_process_ends_with_its_scope(place: Place, tmp_path: Path) -> None:
    processes = BackgroundProcesses(tmp_path / "processes")
    command = DETACHED.format(file=tmp_path / "pid") + "; sleep 1000"
    start = place.backend.start(command, BackendCommand(command, str(tmp_path), 30, "task"))
    process = processes.start(start, command=command, cwd=str(tmp_path), backend="local", task_id="task", session_id="")
    while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text():
        time.sleep(0.02)
    detached = int((tmp_path / "pid").read_text())
    assert unit(detached) == unit(process.pid) and "TasksMax=64" in shown(unit(detached))

    assert processes.kill(process) == "killed" and gone(detached)


def test_output_input_and_state_are_as_without_one(place: Place) -> None:
    place("cd /usr; export A='b c'")

    assert place.say("pwd; echo $A; cat", stdin=b"in") == "/usr\nb c\nin"
    assert place("kill -TERM $$").exit_code == 128 + signal.SIGTERM


def test_the_sandbox_trusts_a_scope_only_where_the_kernel_holds_its_limits(tmp_path: Path) -> None:
    bounds = CommandLimits(ENVIRON, ProcessLimits(256, 64))
    own = Path("/proc/self/cgroup").read_text().split("0::")[1].split("\n")[0]
    controllers = Path(f"/sys/fs/cgroup{own}/cgroup.controllers").read_text().split()

    holds, label, how = bounds.check()

    if {"memory", "pids"} <= set(controllers):
        assert (holds, how) == (True, "256 MiB of memory and 64 processes of a command, by a scope of systemd")
    else:
        assert (holds, label) == (False, "processes of the sandbox are not limited")
        assert "systemd's scopes have no controller of memory or processes here; no control group can be made" in how


def test_an_agent_that_is_in_a_scope_itself_is_not_ended_with_its_commands() -> None:
    code = (
        "import sys; sys.path[:0] = sys.argv[1].split(':'); from contracts.terminal_places import *;"
        "p = Place(LocalBackend(ENVIRON), '/'); print(p.say('echo inner', timeout_s=20)); print('agent lives')"
    )
    scope = SystemdScope(os.environ)
    argv, env = scope.wrap([sys.executable, "-c", code, os.environ["PYTHONPATH"]], dict(os.environ))
    said = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=60)

    assert said.stdout == "inner\n\nagent lives\n", said.stderr
