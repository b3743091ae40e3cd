"""Places where commands run, for the suites over them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from hermes_agent.io.processes import Finished
from hermes_agent.workspace.backends.backend import Backend, Call
from hermes_agent.workspace.backends.local import Local
from hermes_agent.workspace.bwrap import Bwrap
from hermes_agent.workspace.exec_unit import ExecUnit
from hermes_agent.workspace.places import Places
from hermes_agent.workspace.sandbox import Sandbox
from hermes_agent.workspace.shell_state import ShellState

ENVIRON = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/nonexistent", "OPENAI_API_KEY": "sk-0123456789abcdef"}


class Place:
    """A backend, and one task in it."""

    def __init__(self, backend: Backend, cwd: str) -> None:
        self.backend, self.cwd, self.state = backend, cwd, ShellState()

    def __call__(self, command: str, *, cwd: str | None = None, **more: Any) -> Finished:
        """Run a command where the last one ended."""
        where = (self.state.cwd or self.cwd) if cwd is None else cwd
        call = Call(command, where, more.pop("timeout_s", 30), "task", root=self.cwd, **more)
        return self.backend.execute(call, self.state)

    def say(self, command: str, **more: Any) -> str:
        """Run a command and return its output."""
        return self(command, **more).output.decode()


def local(tmp_path: Path) -> Place:
    return Place(Local(ENVIRON), str(tmp_path))


def bwrap(tmp_path: Path) -> Place:
    sandbox = Sandbox([Bwrap(Places(str(tmp_path / "home"), str(tmp_path)), path=ENVIRON["PATH"])])
    if not sandbox.works:
        pytest.skip(f"no sandbox can be made here: {sandbox.problem}")
    work = tmp_path / "work"
    work.mkdir()
    return Place(Local(ENVIRON, sandbox=sandbox), str(work))


def systemd(tmp_path: Path) -> Place:
    """Inside the container of tests/service alone, which names the socket."""
    socket = os.environ.get("HERMES_TEST_EXEC_SOCKET")
    if not socket:
        pytest.skip("no hermes-exec.socket: tests/service/test_exec_unit.py runs this under a real systemd")
    work = os.environ["HERMES_TEST_EXEC_WORK"]
    sandbox = Sandbox([ExecUnit(socket, work)], mode="systemd")
    assert not sandbox.refusal
    return Place(Local(ENVIRON, sandbox=sandbox), work)


OWN = {"local": local, "bwrap": bwrap, "systemd": systemd}
"""The agent's own backends."""
