"""What the daemon writes about itself, and how it finds its unit."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hermes_agent.service.daemon_state import (
    STATE_NAME,
    DaemonState,
    SystemdUnit,
    describe_self,
    own_unit,
    read_state,
    unit_of,
    write_state,
)


@pytest.mark.parametrize(
    ("cgroup", "unit"),
    [
        ("0::/system.slice/hermes-agent.service\n", SystemdUnit("hermes-agent.service", "system")),
        ("0::/system.slice/hermes-agent.service/payload\n", SystemdUnit("hermes-agent.service", "system")),
        ("0::/a.slice/a-b.slice/hermes@one.service\n", SystemdUnit("hermes@one.service", "system")),
        (
            "0::/user.slice/user-1000.slice/user@1000.service/app.slice/hermes.service\n",
            SystemdUnit("hermes.service", "user"),
        ),
        ("12:pids:/x\n1:name=systemd:/system.slice/h.service\n0::/\n", SystemdUnit("h.service", "system")),
        ("0::/user.slice/user-1000.slice/session-2.scope\n", None),
        ("0::/user.slice/user-1000.slice/user@1000.service/app.slice/term.scope\n", None),
        ("0::/\n", None),
        ("", None),
    ],
)
def test_the_unit_is_read_from_the_cgroup(cgroup: str, unit: SystemdUnit | None) -> None:
    assert unit_of(cgroup) == unit


def test_a_process_that_no_service_manager_started_has_no_unit() -> None:
    assert own_unit({}) is None


def test_the_state_is_read_as_it_was_written(tmp_path: Path) -> None:
    state = DaemonState(4711, 1.5, "journal", "hermes-agent.service", "user", "abc")
    write_state(tmp_path, state)
    assert read_state(tmp_path) == state


def test_the_state_of_this_process_has_its_pid_and_no_unit_outside_of_systemd(tmp_path: Path) -> None:
    state = describe_self("file", {})
    assert (state.pid, state.log, state.unit, state.invocation) == (os.getpid(), "file", None, None)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"pid": 1, "started": 2, "log": "somewhere"}', '{"pid": 1}'])
def test_a_state_that_cannot_be_used_counts_as_none_and_is_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, text: str
) -> None:
    (tmp_path / STATE_NAME).write_text(text)
    assert read_state(tmp_path) is None
    assert str(tmp_path / STATE_NAME) in caplog.text


def test_a_home_without_a_state_has_none(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert read_state(tmp_path) is None
    assert caplog.records == []
