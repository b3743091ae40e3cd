from __future__ import annotations

import os
from pathlib import Path

import pytest

from contracts.terminal_places import ENVIRON, Place
from hermes_agent.workspace.backend_selection import LocalBackend
from hermes_agent.workspace.sandbox.limits import ProcessLimits, SystemdScope


def test_where_no_manager_answers_commands_run_with_limits_for_each_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    scope = SystemdScope({**ENVIRON, "XDG_RUNTIME_DIR": str(tmp_path)}, memory_mb=4096, processes=64)
    place = Place(LocalBackend(ENVIRON, scope=scope, limits=ProcessLimits(memory_mb=4096)), str(tmp_path))

    assert scope.problem == f"no systemd listens at {tmp_path}/systemd/private"
    assert scope.wrap(["true"], ENVIRON) == (["true"], ENVIRON)
    assert place.say("ulimit -v") == "4194304\n"
    assert place.backend.checks()[1][2] == f"of each process ({scope.problem})"


def test_a_manager_that_refuses_is_tried_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    (tmp_path / "systemd").mkdir()
    (tmp_path / "systemd/private").touch()
    program = tmp_path / "systemd-run"
    program.write_text("#!/bin/sh\necho called >> $XDG_RUNTIME_DIR/calls\necho Access denied >&2\nexit 1\n")
    program.chmod(0o755)
    scope = SystemdScope({"PATH": f"{tmp_path}:/usr/bin:/bin", "XDG_RUNTIME_DIR": str(tmp_path)})

    assert scope.problem == scope.problem == f"{program} says: Access denied"
    assert (tmp_path / "calls").read_text() == "called\n"


def test_a_command_is_not_told_the_way_to_the_manager(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    (tmp_path / "systemd").mkdir()
    (tmp_path / "systemd/private").touch()
    program = tmp_path / "systemd-run"
    program.write_text('#!/bin/sh\nwhile test "$1" != --; do shift; done; shift; exec "$@"\n')
    program.chmod(0o755)
    scope = SystemdScope({**ENVIRON, "PATH": f"{tmp_path}:/usr/bin:/bin", "XDG_RUNTIME_DIR": str(tmp_path)})

    assert scope.problem == ""
    assert Place(LocalBackend(ENVIRON, scope=scope), str(tmp_path)).say("echo -${XDG_RUNTIME_DIR-}-") == "--\n"


@pytest.mark.parametrize(
    ("said", "holds"), [("4294967296\n64", True), ("max\nmax", False), ("max\n64", False), ("", False)]
)
def test_limits_that_are_not_in_the_scope_do_not_hold(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str, holds: bool
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    (tmp_path / "systemd").mkdir()
    (tmp_path / "systemd/private").touch()
    program = tmp_path / "systemd-run"
    program.write_text(f"#!/bin/sh\necho '{said}'\n")
    program.chmod(0o755)
    environ = {"PATH": f"{tmp_path}:/usr/bin:/bin", "XDG_RUNTIME_DIR": str(tmp_path)}
    scope = SystemdScope(environ, memory_mb=4096, processes=64)

    assert (scope.problem, scope.is_effective) == ("", holds)
    assert scope.missing_reason == "systemd's scopes have no controller of memory or processes here"
