"""`hermes_agent.service` under a real systemd, with the packaged unit."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from run_in_systemd import Container

MakeDaemon = Callable[..., Container]
UNIT = "hermes-agent.service"
READY = """
set -u
systemd-sysusers; systemd-tmpfiles --create /etc/tmpfiles.d/hermes-agent.conf
show() { systemctl show -P "$1" hermes-agent; }
until_() { for _ in $(seq 100); do eval "$1" && return 0; sleep 0.1; done; echo "never: $1" >&2; exit 1; }
started() { journalctl -q -u hermes-agent | grep -c 'Started hermes-agent.service'; }
"""
"""An inactive unit that nothing needs is unloaded and forgets its result, so the tests enable it."""


def test_the_start_waits_for_ready_and_status_is_shown(daemon: MakeDaemon) -> None:
    outcome = daemon(START_S="1").run(
        READY
        + """
        begun=$(date +%s%N); systemctl start hermes-agent || exit 1
        [ $(( ($(date +%s%N) - begun) / 1000000 )) -ge 1000 ] || exit 2
        systemctl is-active hermes-agent
        systemctl status --no-pager hermes-agent | grep -o 'Status: .*'
        """
    )
    assert outcome.succeeded().stdout == 'active\nStatus: "serving, 0 turns"\n'
    (entry,) = [e for e in outcome.entries(_SYSTEMD_UNIT=UNIT) if "environment:" in e["MESSAGE"]]
    assert entry["MESSAGE"].endswith("environment: []")


def test_the_packaged_unit_has_no_mistake_and_little_exposure(daemon: MakeDaemon) -> None:
    outcome = daemon().run(
        READY
        + """
        systemd-analyze verify --man=no /etc/systemd/system/hermes-agent.service 2>&1
        systemctl start hermes-agent || exit 1
        systemd-analyze security --no-pager --threshold=15 hermes-agent >/dev/null || exit 3
        """
    )
    assert outcome.succeeded().stdout == ""


def test_sigterm_lets_a_running_turn_finish_and_the_status_is_0(daemon: MakeDaemon) -> None:
    outcome = daemon(TURN_S="1").run(
        READY
        + """
        systemctl enable -q --now hermes-agent || exit 1
        systemctl kill -s WINCH hermes-agent
        until_ '[ "$(show StatusText)" = "serving, 1 turns" ]'
        systemctl stop hermes-agent
        echo "$(show Result) $(show ExecMainStatus) $(show NRestarts)"
        """
    )
    assert outcome.succeeded().stdout == "success 0 0\n"
    said = [e["MESSAGE"] for e in outcome.entries(_SYSTEMD_UNIT=UNIT)]
    assert any("turn ends" in text for text in said)
    assert said[-1].endswith("stopped: reason=SIGTERM idle=True")


@pytest.mark.parametrize("how", ["STOP", "USR2"])
def test_the_watchdog_restarts_a_process_that_is_stopped_or_a_loop_that_hangs(daemon: MakeDaemon, how: str) -> None:
    outcome = daemon().run(
        READY
        + f"""
        systemctl start hermes-agent || exit 1
        before=$(show MainPID)
        kill -s {how} "$before"
        until_ '[ "$(show NRestarts)" = 1 ] && [ "$(show ActiveState)" = active ]'
        [ "$(show MainPID)" != "$before" ] && echo "$(show StatusText)"
        """
    )
    assert outcome.succeeded().stdout == "serving, 0 turns\n"
    text = "\n".join(str(e["MESSAGE"]) for e in outcome.journal)
    assert "Watchdog timeout (limit 2s)!" in text
    if how == "USR2":
        assert " in hang\n" in text + "\n"  # where the loop stood when it was killed


def test_a_second_daemon_of_one_home_ends_with_75_and_is_not_restarted(daemon: MakeDaemon) -> None:
    outcome = daemon().run(
        READY
        + """
        systemctl start hermes-agent || exit 1
        first=$(show MainPID)
        cp /etc/systemd/system/hermes-agent.service /etc/systemd/system/second.service
        cp -r /etc/systemd/system/hermes-agent.service.d /etc/systemd/system/second.service.d
        systemctl daemon-reload; systemctl enable -q second
        systemctl start second && exit 2
        sleep 1
        echo "$(systemctl show -P ExecMainStatus second) $(systemctl show -P NRestarts second)"
        echo "$(systemctl show -P ActiveState second)"
        [ "$(show MainPID)" = "$first" ] && echo "pid $first"
        """
    )
    status, active, pid = outcome.succeeded().stdout.splitlines()
    assert (status, active) == ("75 0", "failed")
    said = "\n".join(str(e["MESSAGE"]) for e in outcome.entries(_SYSTEMD_UNIT="second.service"))
    assert f"another hermes daemon ({pid}) runs with the home /var/lib/hermes/.hermes" in said


def test_a_killed_daemon_starts_again_with_its_home(daemon: MakeDaemon) -> None:
    outcome = daemon().run(
        READY
        + """
        systemctl start hermes-agent || exit 1
        systemctl kill -s KILL hermes-agent
        until_ '[ "$(show NRestarts)" = 1 ] && [ "$(show ActiveState)" = active ]'
        """
    )
    outcome.succeeded()


def test_a_wrong_config_ends_with_78_and_is_not_tried_again(daemon: MakeDaemon) -> None:
    outcome = daemon(WRONG_CONFIG="1").run(
        READY
        + """
        systemctl enable -q hermes-agent; systemctl start hermes-agent && exit 2
        sleep 1; echo "$(show ExecMainStatus) $(show NRestarts) $(show ActiveState)"
        """
    )
    assert outcome.succeeded().stdout == "78 0 failed\n"


def test_a_reload_is_answered_and_the_daemon_goes_on(daemon: MakeDaemon) -> None:
    outcome = daemon().run(
        READY
        + """
        systemctl start hermes-agent || exit 1
        before=$(show MainPID); systemctl reload hermes-agent || exit 2
        until_ 'journalctl -q -u hermes-agent | grep -q "nothing can be reloaded"'
        [ "$(show MainPID)" = "$before" ]
        """
    )
    outcome.succeeded()


TURN = (
    READY
    + """
systemctl start hermes-agent || exit 1
systemctl kill -s WINCH hermes-agent
until_ '[ "$(show StatusText)" = "serving, 0 turns, one done" ]'
journalctl --sync
"""
)


def test_entries_have_fields_of_their_own_and_no_secret(daemon: MakeDaemon, systemd_python: Path | None) -> None:
    outcome = daemon(site=systemd_python).run(TURN + "ls /var/lib/hermes/.hermes").succeeded()
    assert outcome.stdout.split() == ["gateway.lock", "gateway_state.json"]  # no log file beside the journal
    (entry,) = outcome.entries(HERMES_TOOL="calculate")
    assert entry["MESSAGE"] == "turn begins, key [redacted]\nsecond line"
    assert {name: entry[name] for name in ("PRIORITY", "LOGGER", "CODE_FUNC", "SYSLOG_IDENTIFIER")} == {
        "PRIORITY": "4",
        "LOGGER": "hermes_agent.stand_in",
        "CODE_FUNC": "turn",
        "SYSLOG_IDENTIFIER": "hermes-agent",
    }
    assert (entry["HERMES_SESSION"], entry["HERMES_TURN"], entry["HERMES_PLUGIN"]) == ("s1", "t1", "calculator")
    assert (entry["_SYSTEMD_UNIT"], entry["_TRANSPORT"]) == (UNIT, "journal")
    (failed,) = outcome.entries(EXCEPTION="ValueError")
    assert "ValueError: 401 for [redacted]" in failed["MESSAGE"]
    assert "a-secret-of-the-tests" not in json.dumps(outcome.journal)


def test_without_the_extra_lines_have_priorities_and_no_secret(daemon: MakeDaemon) -> None:
    outcome = daemon(without_extra=True).run(TURN)
    outcome.succeeded()
    mine = [e for e in outcome.entries(_SYSTEMD_UNIT=UNIT, _TRANSPORT="stdout") if "hermes" in e["MESSAGE"]]
    begun = next(e for e in mine if "turn begins" in e["MESSAGE"])
    assert begun["PRIORITY"] == "4"
    assert begun["MESSAGE"] == (
        "hermes_agent.stand_in: turn begins, key [redacted] session=s1 turn=t1 plugin=calculator tool=calculate"
    )
    assert "a-secret-of-the-tests" not in json.dumps(outcome.journal)


@pytest.mark.parametrize("structured", [True, False])
def test_hermes_logs_reads_the_journal_of_the_daemon(
    daemon: MakeDaemon, request: pytest.FixtureRequest, structured: bool
) -> None:
    site = request.getfixturevalue("systemd_python") if structured else None
    outcome = (
        daemon(site=site, without_extra=not structured)
        .run(
            TURN
            + """
            hermes logs --json --session s1 --level warning
            echo ---
            hermes logs -n 1 --plugin calculator | sed '1s/^[^A-Z]*//'
            echo ---
            hermes logs --session nobody 2>&1
            hermes logs --since 1h -n 200 | grep -c 'systemd: Started'
            echo ---
            timeout 20 hermes logs -f -n 0 --session s1 --level error > /tmp/followed 2>/dev/null &
            until_ 'grep -qs -e "[-]-follow" /proc/[0-9]*/cmdline'
            systemctl kill -s WINCH hermes-agent
            until_ 'grep -q ValueError /tmp/followed'
            sed -n '1s/^[^A-Z]*//p' /tmp/followed
            """
        )
        .succeeded()
    )
    json_part, last, nothing, followed = outcome.stdout.split("---\n")
    first, failed = [json.loads(line) for line in json_part.splitlines()]
    assert first.pop("time")
    assert first == {
        "level": "WARNING",
        "logger": "hermes_agent.stand_in",
        "message": "turn begins, key [redacted]\nsecond line",
        "session": "s1",
        "turn": "t1",
        "plugin": "calculator",
        "tool": "calculate",
    }
    assert failed["level"] == "ERROR" and "ValueError: 401 for [redacted]" in failed["message"]
    fields = "session=s1 turn=t1 plugin=calculator tool=calculate"
    assert last == f"WARNING hermes_agent.stand_in: turn begins, key [redacted] {fields}\n    second line\n"
    assert nothing == f"No record in the journal of {UNIT} matches.\n1\n"
    assert followed == "ERROR hermes_agent.stand_in: the tool failed session=s1 turn=t1\n"
