"""Callers of the exec socket who want all of it: run in the container, as root, by test_exec_unit.py.

The unit lets one user run 4 commands at once there, and all users but root 6.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Iterator

import pytest

from hermes_agent.system.exec_unit import EXIT_UNREACHABLE
from hermes_agent.workspace.sandbox.sandbox import SystemdSandbox

SOCKET, WORK = os.environ["HERMES_TEST_EXEC_SOCKET"], os.environ["HERMES_TEST_EXEC_WORK"]
AGENT = ("setpriv", "--reuid", "hermes", "--regid", "hermes", "--init-groups")
MEMBER = ("setpriv", "--reuid", "4242", "--regid", "hermes", "--clear-groups")
ROOT = ()
Caller = tuple[str, ...]
Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def start() -> Iterator[Start]:
    """Start commands of callers; they end with the test."""
    running: list[subprocess.Popen[str]] = []

    def one(caller: Caller, *argv: str) -> subprocess.Popen[str]:
        words = [*caller, *SystemdSandbox(SOCKET, WORK).wrap(argv, WORK, {}, root=WORK)[0]]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        running.append(subprocess.Popen(words, text=True, **pipes))  # type: ignore[call-overload]
        return running[-1]

    yield one
    for process in running:
        process.kill()
        process.communicate()
    while subprocess.run(["systemctl", "list-units", "--plain", "-q", "hermes-exec@*"], capture_output=True).stdout:
        time.sleep(0.1)


def stays(process: subprocess.Popen[str]) -> None:
    """Wait until a command runs."""
    assert process.stdout is not None and process.stdout.readline() == "up\n", process.communicate()


def fill(start: Start, caller: Caller, number: int) -> list[subprocess.Popen[str]]:
    made = [start(caller, "/bin/sh", "-c", "echo up; exec sleep 100") for _ in range(number)]
    for process in made:
        stays(process)
    return made


def ends(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    out, err = process.communicate(timeout=30)
    return process.returncode, out, err


def test_one_user_has_so_many_commands_and_no_more(start: Start) -> None:
    first = fill(start, AGENT, 4)
    code, out, err = ends(start(AGENT, "/bin/echo", "through"))
    assert (code, out) == (EXIT_UNREACHABLE, "") and "runs 4 commands at once already" in err
    assert ends(start(MEMBER, "/bin/echo", "another user"))[:2] == (0, "another user\n")
    first[0].kill()
    first[0].wait()
    limit = time.monotonic() + 20
    while (last := ends(start(AGENT, "/bin/echo", "again")))[0] and time.monotonic() < limit:
        time.sleep(0.2)
    assert last[:2] == (0, "again\n")


def test_all_users_together_leave_places_for_root(start: Start) -> None:
    fill(start, AGENT, 4)
    fill(start, MEMBER, 2)
    code, out, err = ends(start(MEMBER, "/bin/echo", "through"))
    assert (code, out) == (EXIT_UNREACHABLE, "") and "6 commands run at once already" in err
    fill(start, ROOT, 3)
    assert ends(start(ROOT, "/bin/echo", "operator"))[:2] == (0, "operator\n")


def test_a_flood_keeps_root_out_of_nothing(start: Start) -> None:
    flood = [start(AGENT, "/bin/sleep", "100") for _ in range(30)]
    assert ends(start(ROOT, "/bin/echo", "operator"))[:2] == (0, "operator\n")
    limit = time.monotonic() + 30
    while sum(process.poll() is None for process in flood) > 4 and time.monotonic() < limit:
        time.sleep(0.1)
    assert sum(process.poll() is None for process in flood) <= 4


def test_a_command_does_not_see_the_limits(start: Start) -> None:
    assert "HERMES_EXEC" not in ends(start(AGENT, "/usr/bin/env"))[1]
