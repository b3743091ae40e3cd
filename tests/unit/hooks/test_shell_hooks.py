"""Shell hooks: what a program is given, how it answers, who may run it."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from hermes_agent.config.settings import Settings
from hermes_agent.hooks.shell_consent import HookConsent
from hermes_agent.hooks.shell_hooks import (
    BLOCKED,
    HookRun,
    ShellHook,
    ShellHookCallback,
    read_answer,
    read_shell_hooks,
    run_program,
)


def script(path: Path, body: str, name: str = "hook.py") -> str:
    """Write a Python program and return its path as a command."""
    file = path / name
    file.write_text(f"#!{sys.executable}\nimport json, os, sys, time\n{body}\n")
    file.chmod(0o755)
    return str(file)


def call(hook: ShellHook, **values: Any) -> Any:
    callback = ShellHookCallback(
        hook, run_program, environment=lambda: {"PATH": "/usr/bin:/bin"}, cwd=os.getcwd, profile="work"
    )
    return callback(**values)


def guard(command: str, **more: Any) -> ShellHook:
    return ShellHook("pre_tool_call", command, **more)


def test_both_forms_of_the_config_give_the_same_hooks() -> None:
    by_event = {"post_tool_call": [{"command": "notify {tool_name}", "matcher": "terminal|patch"}], "output_spill": {}}
    listed = [{"event": "post_tool_call", "command": "notify {tool_name}", "when": {"tools": ["terminal", "patch"]}}]
    assert read_shell_hooks(by_event) == read_shell_hooks(listed)
    assert read_shell_hooks(None) == ([], [])


@pytest.mark.parametrize(
    ("config", "problem"),
    [
        (
            {"pre_tool_cal": [{"command": "x"}]},
            "hooks.pre_tool_cal: there is no such event (did you mean `pre_tool_call`?)",
        ),
        ({"pre_tool_call": [{"matcher": "x"}]}, "hooks.pre_tool_call: an entry is a mapping with `command`"),
        ({"pre_tool_call": [{"command": "'x"}]}, "`command` cannot be split into words: No closing quotation"),
        ({"post_tool_call": [{"command": "sh -c 'echo {tool_name}'"}]}, "a placeholder in the text of a shell"),
        ({"post_tool_call": [{"command": "x", "fail_closed": True}]}, "has a meaning for pre_tool_call alone"),
        ({"transform_api_error_classification": [{"command": "x"}]}, "there is no such event"),
    ],
)
def test_what_is_wrong_with_an_entry_is_said_with_its_event(config: Any, problem: str) -> None:
    _, problems = read_shell_hooks(config)
    assert len(problems) == 1 and problem in problems[0]


def test_a_program_reads_the_event_as_json_and_placeholders_as_arguments(tmp_path: Path) -> None:
    said = tmp_path / "said.json"
    body = f"json.dump([json.load(sys.stdin), sys.argv[1:], dict(os.environ)], open({str(said)!r}, 'w'))"
    hook = ShellHook("post_tool_call", script(tmp_path, body) + " 'ran: {tool_name}' {unknown}")
    name = "terminal; touch /tmp/x $(id)"
    assert call(hook, tool_name=name, args={"a": 1}, parent_session_id="p1", result="r", odd=object) is None
    payload, arguments, environment = json.loads(said.read_text())
    assert arguments == [f"ran: {name}", "{unknown}"]
    assert payload["hook_event_name"] == "post_tool_call" and payload["tool_input"] == {"a": 1}
    assert payload["session_id"] == "p1" and payload["profile"] == "work" and payload["cwd"] == os.getcwd()
    assert payload["extra"]["result"] == "r" and "object" in payload["extra"]["odd"]
    assert environment["HERMES_TOOL_NAME"] == name and environment["HERMES_HOOK_EVENT"] == "post_tool_call"


@pytest.mark.parametrize(
    ("body", "answer"),
    [
        ("print(json.dumps({'action': 'block', 'message': 'no'}))", {"action": "block", "message": "no"}),
        ("print(json.dumps({'decision': 'block', 'reason': 'why'}))", {"action": "block", "message": "why"}),
        ("print(json.dumps({'decision': 'block'}))", {"action": "block", "message": BLOCKED}),
        ("sys.stderr.write('x' * 500); sys.exit(2)", {"action": "block", "message": "x" * 400}),
        ("sys.exit(2)", {"action": "block", "message": BLOCKED}),
        ("print(json.dumps({'action': 'modify', 'args': {'b': 2}}))", {"action": "modify", "args": {"b": 2}}),
        ("print(json.dumps({'decision': 'modify', 'tool_input': {}}))", {"action": "modify", "args": {}}),
        ("print(json.dumps({'action': 'approve', 'message': 'm', 'rule_key': 'r'}))",
         {"action": "approve", "message": "m", "rule_key": "r"}),
        ("print(json.dumps({'decision': 'approve'}))", None),
        ("print('no json')", None),
        ("sys.exit(1)", None),
        ("", None),
    ],
)  # fmt: skip
def test_a_guard_answers_on_standard_output_or_by_its_status(tmp_path: Path, body: str, answer: Any) -> None:
    assert call(guard(script(tmp_path, body)), tool_name="terminal", args={}) == answer


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("sys.exit(1)", "exit status 1"),
        ("print('no json')", "its output is no JSON object"),
        ("time.sleep(60)", "no answer within 1 seconds"),
    ],
)
def test_a_guard_that_fails_blocks_where_it_is_to_fail_closed(tmp_path: Path, body: str, reason: str) -> None:
    hook = guard(script(tmp_path, body), fail_closed=True, timeout_s=1)
    said = call(hook, tool_name="terminal", args={})
    assert said == {"action": "block", "message": f"hook {hook.command} failed closed: {reason}"}
    missing = guard("/no/such/program", fail_closed=True)
    assert "failed closed: cannot be started" in call(missing, tool_name="t", args={})["message"]


def test_only_tools_of_the_matcher_are_asked_about_under_either_name() -> None:
    hook = guard("/bin/false", matcher="term.*|todo")
    assert [hook.matches(name) for name in ("terminal", "todo", "todo_list", "read_file")] == [True, True, True, False]
    assert guard("x", matcher="a(").matches("a(") and not guard("x", matcher="a(").matches("a")


def test_an_answer_for_other_events_is_context_or_a_decision_about_the_end() -> None:
    done = HookRun(0, json.dumps({"context": "now", "action": "continue", "reason": "tests"}))
    assert read_answer(ShellHook("pre_llm_call", "x"), done) == {"context": "now"}
    assert read_answer(ShellHook("pre_verify", "x"), done) == {"action": "continue", "message": "tests"}
    assert read_answer(ShellHook("transform_tool_result", "x"), HookRun(0, '"text"')) is None


def test_a_program_that_hangs_costs_its_limit_and_its_children_end_with_it(tmp_path: Path) -> None:
    pid, program = tmp_path / "pid", tmp_path / "hang.sh"
    program.write_text(f"#!/bin/sh\nsleep 300 &\necho $! >{pid}\nwait\n")
    program.chmod(0o755)
    callback = ShellHookCallback(
        ShellHook("post_tool_call", str(program), timeout_s=3),
        run_program, environment=dict, cwd=os.getcwd, profile="default",
    )  # fmt: skip
    assert callback(tool_name="terminal") is None
    deadline = time.monotonic() + 30
    while Path(f"/proc/{pid.read_text()}/stat").exists() and _state(pid) != "Z":
        assert time.monotonic() < deadline, "the child of the program is left"


@pytest.mark.parametrize(
    ("event", "fail_closed", "asked"),
    [("post_tool_call", False, 2), ("pre_llm_call", False, 2), ("pre_tool_call", True, 2), ("pre_tool_call", False, 4)],
)
def test_a_program_that_hangs_costs_its_time_limit_once(event: str, fail_closed: bool, asked: int) -> None:
    now, runs = 100.0, 0

    def hang(*call: Any) -> HookRun:
        nonlocal runs
        runs += 1
        return HookRun(None, problem="no answer within 3 seconds")

    callback = ShellHookCallback(
        ShellHook(event, "guard", timeout_s=3, fail_closed=fail_closed),
        hang, environment=dict, cwd=os.getcwd, profile="default", clock=lambda: now,
    )  # fmt: skip
    answers = []
    for later in (0.0, 1.0, 58.0, 2.0):
        now += later
        answers.append(callback(tool_name="terminal"))
    assert runs == asked
    if fail_closed:
        reason = "hook guard failed closed: no answer within 3 seconds"
        rests = [f"{reason}; it is asked again in {seconds} seconds" for seconds in (59, 1)]
        assert [answer and answer["message"] for answer in answers] == [reason, *rests, reason]
    else:
        assert answers == [None] * 4


def _state(pid: Path) -> str:
    try:
        return Path(f"/proc/{pid.read_text()}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "Z"


def test_much_input_and_output_neither_blocks_nor_grows(tmp_path: Path) -> None:
    hook = ShellHook("pre_llm_call", script(tmp_path, "sys.stdout.write('y' * 3_000_000); sys.stdin.read()"))
    assert call(hook, history="x" * 2_000_000) is None
    deaf = guard(script(tmp_path, "print(json.dumps({'action': 'block', 'message': 'no'}))", "deaf.py"))
    assert call(deaf, tool_name="t", args={"text": "x" * 2_000_000})["action"] == "block"


def test_an_approval_is_for_one_pair_and_by_setting_for_the_content(tmp_path: Path) -> None:
    hook = guard(script(tmp_path, "pass"))
    consent = HookConsent(tmp_path)
    assert consent.explain(hook) == "not allowed yet"
    consent.allow(hook)
    assert consent.explain(hook) == "" and consent.explain(hook._replace(event="post_tool_call"))
    entry = json.loads((tmp_path / "shell-hooks-allowlist.json").read_text())["approvals"][0]
    assert entry["event"] == "pre_tool_call" and entry["command"] == hook.command
    assert entry["approved_at"] and entry["script_mtime_at_approval"]

    script(tmp_path, "sys.exit(0)")
    assert consent.explain(hook) == ""
    strict = HookConsent(tmp_path, by_content=True)
    assert strict.explain(hook) == "its script has changed since it was allowed"
    assert "-pass" in strict.difference(hook) and "+sys.exit(0)" in strict.difference(hook)
    strict.allow(hook)
    assert strict.explain(hook) == "" and len(strict.entries()) == 1
    assert strict.revoke(hook.command) == 1 and strict.explain(hook)


def test_the_list_of_upstream_is_honoured_and_one_switch_allows_all(tmp_path: Path) -> None:
    hook = guard("~/bin/guard.sh")
    text = {"approvals": [{"event": "pre_tool_call", "command": hook.command, "approved_at": "2026-01-01T00:00:00Z"}]}
    (tmp_path / "shell-hooks-allowlist.json").write_text(json.dumps(text))
    assert HookConsent(tmp_path).explain(hook) == ""
    other = guard("other")
    for config, environ in (({"hooks_auto_accept": True}, {}), ({}, {"HERMES_ACCEPT_HOOKS": "1"})):
        assert HookConsent.from_config(tmp_path, Settings(config), environ).explain(other) == ""
    assert HookConsent.from_config(tmp_path, Settings({}), {}).explain(other)
