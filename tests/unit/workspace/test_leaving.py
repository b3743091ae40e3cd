"""Leaving the sandbox and changing the agent's own rules: the user decides each time, whatever else was allowed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hermes_agent.policy import Approvals, NoApprover
from hermes_agent.tools import CallScope
from hermes_agent.tools.call_scope import current_scope

pytestmark = pytest.mark.attack("leaving the sandbox", at="bubblewrap")

ALLOWED = "command_allowlist: ['recursive delete', 'touch *', 'git status*', '*']\n"


@pytest.fixture
def allowing(place_with):
    """A workplace with a sandbox, whose operator allows nearly everything."""
    made = place_with(f"terminal: {{sandbox: auto, unconfined_commands: ['touch opened']}}\n{ALLOWED}")
    sandbox = made.registry.get("terminal").handler.loaded.shells.backend.sandbox
    if not sandbox.works:
        pytest.skip(f"no sandbox can be made here: {sandbox.problem}")
    return made


@pytest.mark.parametrize("command", ["touch x", "rm -r build", "git status"])
@pytest.mark.parametrize("background", [False, True])
def test_a_command_that_leaves_the_sandbox_is_shown_each_time_whatever_the_list_allows(allowing, command, background):
    allowing.person.answer = "deny"
    outcome = allowing.outcome("terminal", {"command": command, "unconfined": True, "background": background})
    assert outcome.status == "blocked"
    (asked,) = allowing.person.asked
    assert asked.summary.startswith("run a command outside the sandbox") and asked.answers == ("once", "deny")


@pytest.mark.parametrize("answer", ["session", "always", "once"])
def test_an_earlier_answer_covers_no_second_command_that_leaves(allowing, answer):
    allowing.person.answer = answer
    for _ in range(2):
        allowing.call("terminal", command="echo x", unconfined=True)
    assert len(allowing.person.asked) == 2


def test_one_setting_opens_it_for_exactly_its_commands(allowing):
    allowing.person.answer = "deny"
    assert allowing.call("terminal", command="touch opened", unconfined=True)["exit_code"] == 0
    assert allowing.person.asked == [] and (allowing.cwd / "opened").exists()
    allowing.call("terminal", command="touch opened too", unconfined=True)
    assert len(allowing.person.asked) == 1 and not (allowing.cwd / "too").exists()
    allowing.person.answer = "once"
    allowing.call("terminal", command="touch() { echo mine; }", unconfined=True)
    allowing.call("terminal", command="touch opened", unconfined=True)
    assert len(allowing.person.asked) == 3


def test_the_doctor_names_what_may_leave_and_what_names_nothing(place_with):
    settings = "terminal: {sandbox: auto, unconfined_commands: ['make -C /srv', 'make *']}\n"
    rows = place_with(settings).registry.get("terminal").handler.loaded.shells.backend.checks()
    named = [(ok, detail) for ok, label, detail in rows if "unconfined_commands" in label]
    assert named[0] == (True, "make -C /srv") and not named[1][0] and "'make *'" in named[1][1]


@pytest.mark.parametrize("mode", ["off", "cron"])
def test_nobody_there_is_a_no_with_approvals_off_and_in_a_job_that_may_do_everything(allowing, mode):
    from hermes_agent.gateway.scheduled_jobs import _AllowingApprover

    approver = NoApprover("here") if mode == "off" else _AllowingApprover()
    allowing.approvals = Approvals(approver, timeout_s=5, off=mode == "off")
    refused = allowing.outcome("terminal", {"command": "touch x", "unconfined": True})
    assert refused.status == "blocked" and "no user can be asked" in json.loads(refused.result)["error"]
    assert allowing.outcome("terminal", {"command": "rm -r build"}).status != "blocked"


def test_a_subagent_of_a_parent_without_questions_may_not_leave(allowing):
    from hermes_agent.agent.subagents import ParentApprover

    parent = Approvals(NoApprover("in the parent"), timeout_s=5, off=True)
    allowing.approvals = Approvals(ParentApprover(parent, "t"), timeout_s=5, off=True)
    assert allowing.outcome("terminal", {"command": "touch x", "unconfined": True}).status == "blocked"


def test_a_call_past_the_pipeline_may_not_leave(allowing):
    args = {"command": "touch x", "unconfined": True}
    assert "approval" in allowing.registry.dispatch("terminal", dict(args))
    scope = CallScope("s", "t", "u", allowing.cwd, Approvals(NoApprover("here"), timeout_s=5, off=True))
    token = current_scope.set(scope)
    try:
        assert "no user can be asked" in allowing.registry.dispatch("terminal", dict(args))
    finally:
        current_scope.reset(token)
    assert not (allowing.cwd / "x").exists()


def test_input_to_a_process_that_left_is_shown_each_time(allowing):
    allowing.person.answer = "session"
    began = allowing.call("terminal", command="cat", unconfined=True, background=True)
    for _ in range(2):
        allowing.call("process", action="submit", session_id=began["session_id"], data="ls")
    assert [asked.mandatory for asked in allowing.person.asked] == [True] * 3
    allowing.call("process", action="kill", session_id=began["session_id"])


def test_a_sandbox_that_cannot_be_made_but_must_refuses_what_a_list_allows(place_with):
    place = place_with(f"terminal: {{sandbox: systemd, exec_socket: /nowhere/socket}}\n{ALLOWED}")
    refused = place.outcome("terminal", {"command": "touch x"})
    assert refused.status == "blocked" and "no sandbox can be made" in refused.result


# -- the agent's own rules -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "command",
    ["hermes config set approvals.mode off", "python3 -m hermes_agent pairing approve x y", "touch {home}/config.yaml"],
)
@pytest.mark.parametrize("off", [False, True])
def test_a_command_about_the_agents_own_rules_is_asked_about_each_time(place_with, command, off):
    place = place_with(f"terminal: {{sandbox: off}}\n{ALLOWED}")
    place.approvals = Approvals(place.person, timeout_s=5, off=off)
    place.person.answer = "deny"
    outcome = place.outcome("terminal", {"command": command.format(home=place.home)})
    assert outcome.status == "blocked" and place.person.asked[0].answers == ("once", "deny")


@pytest.mark.parametrize("name", ["config.yaml", "pairing/x", "plugins_trust.json", "cron/jobs.json", "plugins/x/a.py"])
def test_a_file_tool_asks_each_time_before_it_changes_the_agents_state(workplace, name):
    workplace.approvals = Approvals(workplace.person, timeout_s=5, off=True)
    workplace.person.answer = "deny"
    path = workplace.home / name
    assert workplace.outcome("write_file", {"path": str(path), "content": "x"}).status == "blocked"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("a\n")
    change = {"path": str(path), "old_string": "a", "new_string": "b", "mode": "replace"}
    assert workplace.outcome("patch", change).status == "blocked" and path.read_text() == "a\n"
    assert [asked.answers for asked in workplace.person.asked] == [("once", "deny")] * 2


@pytest.mark.parametrize("where", ["home", "above", "below"])
def test_a_command_in_the_sandbox_changes_nothing_of_the_agents_state(allowing, where):
    places = {"home": allowing.home, "above": allowing.home.parent, "below": allowing.home / "work"}
    names = ["config.yaml", ".env", "pairing/x", "plugins_trust.json", "state.db", "cron/jobs.json"]
    for name in names:
        path = allowing.home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("before")
    places[where].mkdir(exist_ok=True)
    allowing.cwd = places[where]
    files = " ".join(str(allowing.home / name) for name in names)
    code = "import sys\\nfor name in sys.argv[1:]:\\n    try: open(name, 'w').write('after')\\n    except OSError: pass"
    script = Path(allowing.cwd, "spoil.py")
    script.write_text(code.replace("\\n", "\n"))
    allowing.person.answer = "once"
    allowing.call("terminal", command=f"python3 spoil.py {files}")
    assert {(allowing.home / name).read_text() for name in names} == {"before"}
