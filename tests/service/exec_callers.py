"""Callers of the exec socket who want all of it: run in the container, as root, by test_exec_unit.py.

The socket is for the daemon's user and for root. The unit lets one user run 4 commands at once there, and all users
but root 6.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hermes_agent.system.exec_unit import EXIT_UNREACHABLE
from hermes_agent.workspace.sandbox.sandbox import SystemdSandbox

SOCKET, WORK = os.environ["HERMES_TEST_EXEC_SOCKET"], os.environ["HERMES_TEST_EXEC_WORK"]
AGENT = ("setpriv", "--reuid", "hermes", "--regid", "hermes", "--init-groups")
MEMBER = ("setpriv", "--reuid", "4242", "--regid", "hermes", "--clear-groups")
OTHER = ("setpriv", "--reuid", "4242", "--regid", "4242", "--clear-groups")
ROOT = ()
FEWER = Path("/etc/systemd/system/hermes-exec@.service.d/zz-fewer.conf")
Caller = tuple[str, ...]
Start = Callable[..., subprocess.Popen[str]]


def units() -> str:
    """Return the units of commands that there are."""
    listing = ["systemctl", "list-units", "--plain", "-q", "hermes-exec@*"]
    return subprocess.run(listing, capture_output=True, text=True, check=True).stdout


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
    while units():
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


@pytest.fixture
def three_of_all() -> Iterator[None]:
    """Let all users but root run three commands together, and one user more than that."""
    FEWER.write_text("[Service]\nEnvironment=HERMES_EXEC_PER_CALLER=10 HERMES_EXEC_MOST=3\n")
    subprocess.run(["systemctl", "daemon-reload"], check=True)
    yield
    FEWER.unlink()
    subprocess.run(["systemctl", "daemon-reload"], check=True)


@pytest.mark.parametrize("caller", [MEMBER, OTHER], ids=["of the daemon's group", "of no group of it"])
def test_another_user_is_refused_and_starts_no_unit(start: Start, caller: Caller) -> None:
    assert ends(start(caller, "/bin/echo", "through")) == (EXIT_UNREACHABLE, "", f"{SOCKET}: Permission denied\n")
    assert units() == ""
    assert ends(start(AGENT, "/bin/echo", "the daemon's user"))[:2] == (0, "the daemon's user\n")


def test_one_user_has_so_many_commands_and_no_more(start: Start) -> None:
    first = fill(start, AGENT, 4)
    code, out, err = ends(start(AGENT, "/bin/echo", "through"))
    assert (code, out) == (EXIT_UNREACHABLE, "") and "runs 4 commands at once already" in err
    first[0].kill()
    first[0].wait()
    limit = time.monotonic() + 20
    while (last := ends(start(AGENT, "/bin/echo", "again")))[0] and time.monotonic() < limit:
        time.sleep(0.2)
    assert last[:2] == (0, "again\n")


def test_all_users_together_leave_places_for_root(start: Start, three_of_all: None) -> None:
    fill(start, AGENT, 3)
    code, out, err = ends(start(AGENT, "/bin/echo", "through"))
    assert (code, out) == (EXIT_UNREACHABLE, "") and "3 commands run at once already" in err
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
