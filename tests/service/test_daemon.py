"""The daemon, `hermes gateway run`, in the packaged unit under a real systemd."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from run_in_systemd.container import Outcome
from service.conftest import HOME, PACKAGING, UNIT, MakeMachine

KEY = "key-of-these-tests-0123456789"
MODEL_KEY = "sk-model-key-of-these-tests-0123456789"
LIMITS = """
WatchdogSec=5
RestartSec=200ms
TimeoutStopSec=15
"""
"""Shorter than the packaged unit's, and nothing else, so that the packaged unit is what is tested."""
SERVICE = f"{LIMITS}Environment=API_SERVER_KEY={KEY} API_SERVER_PORT=8642 OPENAI_API_KEY={MODEL_KEY}"
CONFIG = """
model: {provider: custom, base_url: BASE_URL, default: scripted-model}
plugins: {enabled: [probe]}
"""
PREPARED = f"""
set -u
systemd-sysusers; systemd-tmpfiles --create /etc/tmpfiles.d/hermes-agent.conf
show() {{ systemctl show -P "$1" hermes-agent; }}
until_() {{ for _ in $(seq 300); do eval "$1" && return 0; sleep 0.1; done; echo "never: $1" >&2; exit 1; }}
restarted() {{ [ "$(show NRestarts)" = 1 ] && [ "$(show ActiveState)" = active ]; }}
ask() {{  # question, session: the answer
  curl -s --max-time 60 -H 'Authorization: Bearer {KEY}' -H 'Content-Type: application/json' \\
    -H "X-Hermes-Session-Id: $2" http://127.0.0.1:8642/v1/chat/completions \\
    -d '{{"model": "hermes-agent", "messages": [{{"role": "user", "content": "'"$1"'"}}]}}'
}}
model-server /run/model-url & until_ '[ -s /run/model-url ]'
mkdir -p {HOME}/plugins && cp -r /opt/machine/probe {HOME}/plugins/
sed "s|BASE_URL|$(cat /run/model-url)|" /opt/config.yaml > {HOME}/config.yaml
chown -R hermes:hermes /var/lib/hermes
systemctl enable -q hermes-agent  # an inactive unit that nothing needs is unloaded and forgets its result
"""


@pytest.fixture
def run(machine: MakeMachine) -> Any:
    """Run a script on a machine where the unit can be started; arguments as those of `machine`."""

    def on_machine(script: str, *, config: str = CONFIG, timeout_s: float = 90.0, **more: Any) -> Outcome:
        files = {"/opt/config.yaml": config}
        return machine(SERVICE, files=files, **more).run(PREPARED + script, timeout_s=timeout_s)

    return on_machine


def texts(outcome: Outcome, unit: str = UNIT) -> list[str]:
    return [str(entry["MESSAGE"]) for entry in outcome.entries(_SYSTEMD_UNIT=unit)]


def test_the_start_waits_until_the_daemon_serves_and_the_status_is_shown(run: Any) -> None:
    outcome = run(
        """
        systemctl start hermes-agent || exit 1
        curl -s -o /dev/null -w '%{http_code}\\n' http://127.0.0.1:8642/health  # once, right after the start
        systemctl is-active hermes-agent
        systemctl status --no-pager -n0 hermes-agent | grep -o 'Status: .*'
        tr '\\0' '\\n' < /proc/$(show MainPID)/environ | grep -c . > /dev/null || exit 2
        """
    )
    health, active, status = outcome.succeeded().stdout.splitlines()
    assert (health, active) == ("200", "active")
    assert status.startswith('Status: "ready') and "127.0.0.1:8642" in status


def test_it_raises_the_number_of_open_files_to_what_its_unit_allows(run: Any) -> None:
    outcome = run(
        """
        systemctl start hermes-agent || exit 1
        show LimitNOFILESoft; show LimitNOFILE
        grep '^Max open files' /proc/$(show MainPID)/limits
        """
    )
    *unit, process = outcome.succeeded().stdout.splitlines()
    assert unit == ["1024", "65536"]
    soft, hard = process.split()[3:5]
    assert soft == hard and 1024 < int(hard) <= 65536, "a machine may allow fewer than the unit"


def test_it_works_in_the_directory_of_its_unit_unless_that_is_a_home(run: Any) -> None:
    outcome = run(
        """
        where() {
          systemctl daemon-reload && systemctl restart hermes-agent || exit 1
          hermes gateway status | grep '^works in'
        }
        drop_in=/etc/systemd/system/hermes-agent.service.d/z.conf
        named() { printf '[Service]\\nWorkingDirectory=%s\\n' "$1" > $drop_in; }
        where
        mkdir /var/lib/hermes/project && chown hermes: /var/lib/hermes/project && named /var/lib/hermes/project; where
        for home in /var/lib/hermes /; do named $home; where; done
        stat -c '%a %U' /var/lib/hermes/.hermes/workspace
        """
    )
    unit, project, home, root, mode = outcome.succeeded().stdout.splitlines()
    assert (unit, project) == ("works in /var/lib/hermes/workspace", "works in /var/lib/hermes/project")
    assert home == root == f"works in {HOME}/workspace"
    assert mode == "700 hermes"


def test_the_packaged_unit_has_no_mistake_and_little_exposure(run: Any) -> None:
    outcome = run(
        """
        systemd-analyze verify --man=no /etc/systemd/system/hermes-agent.service 2>&1
        systemctl start hermes-agent || exit 1
        systemd-analyze security --no-pager --threshold=15 hermes-agent >/dev/null || exit 3
        """
    )
    assert outcome.succeeded().stdout == ""


def test_sigterm_lets_a_running_turn_finish_and_the_status_is_0(run: Any) -> None:
    outcome = run(
        f"""
        systemctl start hermes-agent || exit 1
        ask 'use slow' s1 > /run/answer & asking=$!
        until_ '[ -e {HOME}/slow-runs ]'
        systemctl stop --no-block hermes-agent
        until_ '[ "$(show ActiveState)" = deactivating ]'
        until_ 'show StatusText | grep -q stopping'
        touch {HOME}/slow-may-end
        wait $asking; until_ '[ "$(show ActiveState)" = inactive ]'
        echo "$(show Result) $(show ExecMainStatus) $(show NRestarts)"
        cat /run/answer
        """
    )
    ended, answer = outcome.succeeded().stdout.split("\n", 1)
    assert ended == "success 0 0"
    assert json.loads(answer)["choices"][0]["message"]["content"] == "The tool said: slow is done"


@pytest.mark.parametrize("how", ["stopped", "hangs"])
def test_the_watchdog_restarts_a_process_that_is_stopped_or_whose_loop_hangs(run: Any, how: str) -> None:
    broken = "kill -s STOP $before" if how == "stopped" else "ask 'use hang' s1 > /dev/null &"
    outcome = run(
        f"""
        systemctl start hermes-agent || exit 1
        before=$(show MainPID)
        {broken}
        until_ restarted
        [ "$(show MainPID)" != "$before" ] && curl -s -o /dev/null -w '%{{http_code}}' http://127.0.0.1:8642/health
        """
    )
    assert outcome.succeeded().stdout == "200"
    journal = "\n".join(str(entry["MESSAGE"]) for entry in outcome.journal)
    assert "Watchdog timeout (limit 5s)!" in journal
    if how == "hangs":
        assert " in hang_the_loop\n" in journal + "\n"  # where the loop stood when it was killed


def test_a_second_daemon_of_one_home_ends_with_75_and_is_not_restarted(run: Any) -> None:
    outcome = run(
        """
        systemctl start hermes-agent || exit 1
        first=$(show MainPID)
        cp /etc/systemd/system/hermes-agent.service /etc/systemd/system/second.service
        cp -r /etc/systemd/system/hermes-agent.service.d /etc/systemd/system/second.service.d
        systemctl daemon-reload; systemctl enable -q second
        systemctl start second && exit 2
        [ "$(systemctl show -P Restart second)" = on-failure ] || exit 3
        echo "$(systemctl show -P ExecMainStatus second) $(systemctl show -P ActiveState second)"
        [ "$(show MainPID)" = "$first" ] && echo "pid $first"
        until_ 'journalctl -q -u second | grep -q "Failed to start"'
        """
    )
    ended, pid = outcome.succeeded().stdout.splitlines()
    assert ended == "75 failed"
    said = "\n".join(texts(outcome, "second.service"))
    assert f"another hermes daemon ({pid}) runs with the home {HOME}" in said


def test_a_killed_daemon_starts_again_with_its_home_and_its_sessions(run: Any) -> None:
    outcome = run(
        """
        systemctl start hermes-agent || exit 1
        ask hello s1 > /dev/null
        systemctl kill -s KILL hermes-agent
        until_ restarted
        hermes sessions list --all | grep -c hello
        """
    )
    assert outcome.succeeded().stdout == "1\n"


def test_a_wrong_config_ends_with_78_names_the_key_and_is_not_tried_again(run: Any) -> None:
    outcome = run(
        """
        systemctl start hermes-agent && exit 2
        echo "$(show ExecMainStatus) $(show NRestarts) $(show ActiveState)"
        """,
        config=CONFIG + "agent: {max_turns: many}\n",
    )
    assert outcome.succeeded().stdout == "78 0 failed\n"
    assert any("agent.max_turns" in text for text in texts(outcome))


def test_a_reload_takes_what_changed_and_the_daemon_goes_on(run: Any) -> None:
    outcome = run(
        f"""
        systemctl start hermes-agent || exit 1
        before=$(show MainPID)
        sed -i 's/scripted-model/another-model/' {HOME}/config.yaml
        systemctl reload hermes-agent || exit 2
        until_ 'journalctl -q -u hermes-agent | grep -q "reloaded: "'
        [ "$(show MainPID)" = "$before" ] && ask hello s1
        """
    )
    assert json.loads(outcome.succeeded().stdout)["choices"][0]["message"]["content"] == "Nothing to do."


FAILED_TURN = """
systemctl start hermes-agent || exit 1
ask 'use report' s1 > /run/answer
journalctl --sync
"""


def test_entries_have_fields_of_their_own_and_no_secret(run: Any, systemd_python: Path | None) -> None:
    the_journal_is_the_log = f"[ -z $(ls {HOME}/logs) ] || exit 9"
    outcome = run(FAILED_TURN + f"cat /run/answer; {the_journal_is_the_log}", site=systemd_python).succeeded()
    (entry,) = [e for e in outcome.entries(HERMES_TOOL="report") if "the tool begins" in e["MESSAGE"]]
    assert entry["MESSAGE"] == "the tool begins, key [redacted]\nsecond line"
    assert {name: entry[name] for name in ("PRIORITY", "CODE_FUNC", "SYSLOG_IDENTIFIER")} == {
        "PRIORITY": "4",
        "CODE_FUNC": "report",
        "SYSLOG_IDENTIFIER": "hermes-agent",
    }
    assert (entry["HERMES_SESSION"], entry["HERMES_PLUGIN"]) == ("s1", "probe")
    assert entry["HERMES_TURN"]
    assert (entry["_SYSTEMD_UNIT"], entry["_TRANSPORT"]) == (UNIT, "journal")
    (hook,) = [e for e in outcome.entries(HERMES_PLUGIN="probe") if e["MESSAGE"] == "the hook is called"]
    assert hook["HERMES_SESSION"] == "s1"
    failed = [e for e in outcome.entries(EXCEPTION="ValueError") if e.get("HERMES_TOOL") == "report"]
    assert failed and all("401 for [redacted]" in e["MESSAGE"] for e in failed)
    assert_no_secret(outcome)


def assert_no_secret(outcome: Outcome) -> None:
    seen = json.dumps(outcome.journal) + outcome.stdout
    assert "[redacted]" in seen
    assert MODEL_KEY not in seen and KEY not in seen


def test_without_the_extra_lines_have_priorities_and_no_secret(run: Any) -> None:
    outcome = run(FAILED_TURN + "cat /run/answer", without_extra=True).succeeded()
    mine = outcome.entries(_SYSTEMD_UNIT=UNIT, _TRANSPORT="stdout")
    (begun,) = [entry for entry in mine if "the tool begins" in entry["MESSAGE"]]
    assert begun["PRIORITY"] == "4"
    assert "key [redacted] session=s1 turn=" in begun["MESSAGE"]
    assert begun["MESSAGE"].endswith(" plugin=probe tool=report")
    assert_no_secret(outcome)


@pytest.mark.parametrize("structured", [True, False])
def test_hermes_logs_reads_the_journal_of_the_daemon(
    run: Any, request: pytest.FixtureRequest, structured: bool
) -> None:
    site = request.getfixturevalue("systemd_python") if structured else None
    outcome = run(
        FAILED_TURN
        + """
        hermes logs --json --plugin probe --level warning
        echo ---
        hermes logs --session no-such-session 2>&1
        echo ---
        timeout 20 hermes logs -f -n 0 --session s2 --level warning > /run/followed 2>/dev/null &
        until_ 'grep -qs -e "[-]-follow" /proc/[0-9]*/cmdline'
        ask 'use report' s2 > /dev/null
        until_ 'grep -q "the tool begins" /run/followed'
        grep 'the tool begins' /run/followed
        """,
        site=site,
        without_extra=not structured,
    ).succeeded()
    records, nothing, followed = outcome.stdout.split("---\n")
    (first,) = [one for one in map(json.loads, records.splitlines()) if "the tool begins" in one["message"]]
    told = {name: first[name] for name in ("level", "session", "plugin", "tool")}
    assert told == {"level": "WARNING", "session": "s1", "plugin": "probe", "tool": "report"}
    assert first["time"] and first["turn"] and first["logger"]
    assert first["message"] == "the tool begins, key [redacted]\nsecond line"
    assert nothing == f"No record in the journal of {UNIT} matches.\n"
    assert "session=s2" in followed and "tool=report" in followed


def test_a_credential_that_is_missing_ends_the_start_as_the_page_says(machine: MakeMachine) -> None:
    """docs/nixos/secrets.md: the status, what systemd says, and the command that names the file."""
    page = (PACKAGING.parents[1] / "docs" / "nixos" / "secrets.md").read_text()
    command = page.rpartition("```\nsystemctl cat")[2].partition("\n```")[0].replace("sudo ", "")
    missing = "LoadCredential=WEATHER_KEY:/run/secrets/weather"
    outcome = machine(f"{SERVICE}\n{missing}\nRestart=no", files={"/opt/config.yaml": CONFIG}).run(
        PREPARED
        + f"""
        systemctl start hermes-agent 2> /dev/null; echo $?
        systemctl status --no-pager -n0 hermes-agent | grep -o 'status=[0-9]*/[A-Z]*' | sort -u
        journalctl --sync
        journalctl --no-pager -o cat -u hermes-agent | grep -o 'Failed to set up credentials' | sort -u
        systemctl cat{command} 2>&1 | tail -n 1
        """
    )
    status, shown, said, named = outcome.succeeded().stdout.splitlines()
    assert status == "1"
    assert shown in page and said in page, (shown, said)
    assert named == "ls: cannot access '/run/secrets/weather': No such file or directory"
