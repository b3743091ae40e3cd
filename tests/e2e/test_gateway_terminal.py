"""`hermes gateway run` as an operator at a terminal sees it, and what `hermes logs` shows afterwards."""

from __future__ import annotations

import re
import socket
from pathlib import Path

import pexpect
import pytest

from peers.running import free_port
from worlds import HERMES, PROMPTS, environment, make_home, run, script

FAILS = "def register(ctx):\n    raise ValueError('no luck')\n"


def daemon(home: Path, *options: str, port: int = 0) -> pexpect.spawn:
    """Start the daemon in a terminal."""
    variables = environment(home, API_SERVER_PORT=str(port or free_port()))
    return pexpect.spawn(
        HERMES,
        ["gateway", "run", *options],
        env=variables,  # type: ignore[arg-type]
        cwd=str(home.parent),
        encoding="utf-8",
        dimensions=(40, 200),
        timeout=60,
    )


def add_failing_plugin(home: Path, name: str = "breaks") -> None:
    folder = home / "plugins" / name
    folder.mkdir()
    (folder / "plugin.yaml").write_text(f"name: {name}\n")
    (folder / "__init__.py").write_text(FAILS)
    config = (home / "config.yaml").read_text()
    (home / "config.yaml").write_text(config.replace("enabled: [calculator", f"enabled: [calculator, {name}"))


@pytest.mark.parametrize("failing", [False, True])
def test_a_start_prints_ten_lines_at_most_and_a_plugin_that_fails_is_one_of_them(
    tmp_path: Path, scripted, failing: bool
) -> None:
    with scripted(script(PROMPTS[0])) as model:
        home = make_home(tmp_path, model)
        if failing:
            add_failing_plugin(home)
        process = daemon(home)
        process.expect("ready: .*\n")
        lines = (process.before + process.after).strip().splitlines()
        process.sendintr()
        process.expect(pexpect.EOF)
        process.close()
    assert process.exitstatus == 0
    assert len(lines) <= 10, lines
    assert not any("registered" in line or "Traceback" in line for line in lines), lines
    assert any("breaks" in line and "no luck" in line for line in lines) is failing


def test_a_start_at_which_much_fails_is_as_short_and_says_how_much_more_there_is(tmp_path: Path, scripted) -> None:
    with scripted(script(PROMPTS[0])) as model:
        home = make_home(tmp_path, model)
        names = [f"breaks{n}" for n in range(12)]
        for name in names:
            add_failing_plugin(home, name)
        with (home / "config.yaml").open("a") as file:
            refused = "".join(f"  {name}: {{enabled: true}}\n" for name in ("telegram", "matrix", "slack", "discord"))
            file.write(f"platforms:\n  irc: {{enabled: true, server: 127.0.0.1, port: 1, nickname: h}}\n{refused}")
        process = daemon(home)
        process.expect("ready: .*\n")
        lines = (process.before + process.after).strip().splitlines()
        process.expect(["more follows: .*\n", pexpect.TIMEOUT], timeout=5)  # the platform that is tried again
        later = process.before.strip().splitlines() if process.after is pexpect.TIMEOUT else [process.after]
        log = run(home, "logs", "-n", "200").stdout
        process.sendintr()
        process.expect(pexpect.EOF)
    assert len(lines) + len(later) <= 10, [lines, later]
    assert "no luck" in lines[0]
    (more,) = (line for line in lines if line.startswith("and "))
    assert re.match(r"and \d+ more: `hermes gateway status` and `hermes doctor` say", more)
    assert all(f"'{name}'" in log for name in names) and "telegram" in log


def test_status_and_doctor_name_each_plugin_of_the_daemon_that_failed_with_its_reason(tmp_path: Path, scripted) -> None:
    with scripted(script(PROMPTS[0])) as model:
        home = make_home(tmp_path, model)
        add_failing_plugin(home)
        process = daemon(home)
        process.expect("ready: .*\n")
        status, doctor = run(home, "gateway", "status"), run(home, "doctor")
        process.sendintr()
        process.expect(pexpect.EOF)
    assert re.search(r"^plugin breaks: failed: ValueError: no luck \(.*__init__\.py:2\)", status.stdout, re.MULTILINE)
    assert re.search(r"^✗ daemon +its plugin breaks \(failed\): ValueError: no luck", doctor.stdout, re.MULTILINE)
    assert doctor.returncode == 1


def test_a_start_that_fails_says_the_reason_last(tmp_path: Path, scripted) -> None:
    with scripted(script(PROMPTS[0])) as model, socket.create_server(("127.0.0.1", 0)) as taken:
        home = make_home(tmp_path, model)
        port = taken.getsockname()[1]
        with (home / "config.yaml").open("a") as file:
            file.write(f"server:\n  port: {port}\n")
        process = pexpect.spawn(
            HERMES,
            ["gateway", "run"],
            env=environment(home),  # type: ignore[arg-type]
            cwd=str(home.parent),
            encoding="utf-8",
            dimensions=(40, 200),
            timeout=60,
        )
        process.expect(pexpect.EOF)
        process.close()
    lines = process.before.strip().splitlines()
    assert process.exitstatus == 1
    assert len(lines) <= 10, lines
    assert re.search(rf"ERROR port {port} on 127\.0\.0\.1 is in use$", lines[-2]), lines
    assert lines[-1].strip().startswith("Stop the process that uses it, or choose another port")


def test_a_start_that_fails_after_much_else_says_that_reason_last(tmp_path: Path, scripted) -> None:
    with scripted(script(PROMPTS[0])) as model, socket.create_server(("127.0.0.1", 0)) as taken:
        home = make_home(tmp_path, model)
        for n in range(12):
            add_failing_plugin(home, f"breaks{n}")
        process = daemon(home, port=taken.getsockname()[1])
        process.expect(pexpect.EOF)
        process.close()
    lines = process.before.strip().splitlines()
    assert (process.exitstatus, len(lines) <= 10) == (1, True), lines
    assert lines[-3].startswith("and ") and "is in use" in lines[-2], lines


def test_without_a_model_the_start_is_as_short(tmp_path: Path) -> None:
    process = daemon(make_home(tmp_path, None))
    process.expect("ready: .*\n")
    lines = (process.before + process.after).strip().splitlines()
    process.sendintr()
    process.expect(pexpect.EOF)
    assert len(lines) <= 10, lines
    assert any("There is no model. `hermes doctor` says more." in line for line in lines), lines


def test_the_log_tells_what_happened_and_not_what_was_registered(tmp_path: Path, scripted) -> None:
    with scripted(script(PROMPTS[0])) as model:
        home = make_home(tmp_path, model)
        assert run(home, "-z", PROMPTS[0].question).returncode == 0
    assert run(home, "-z", PROMPTS[0].question).returncode == 1
    shown = [re.sub(r"^\S+ \S+ ", "", line) for line in run(home, "logs").stdout.splitlines()]
    levels_and_subjects = [re.sub(r" (session|turn|tool|plugin)=\S+|\d+ ms|\d+ tokens", "", line) for line in shown]
    assert [line.partition(": ")[2][:40] for line in levels_and_subjects[:4]] == [
        "plugins pinned as they are now: calculat",
        "terminal.sandbox is off: commands run ou",
        "calculate: ok after ",
        "turn ended: answered, 1 tool call(s), ",
    ]
    assert "turn ended: failed" in shown[-1] and "cannot be reached" in shown[-1], shown
