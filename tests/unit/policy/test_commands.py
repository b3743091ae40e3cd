"""What the operator's lists say of a command."""

from __future__ import annotations

from pathlib import Path

import pytest

from hermes_agent.policy.operator_rules import CommandPolicy


@pytest.mark.parametrize("command", ["git push -f", "GIT  push   -f"])
def test_a_glob_of_the_deny_list_refuses_and_is_named(command: str) -> None:
    review = CommandPolicy(deny=["git push*"]).review(command)
    assert review.verdict == "refuse"
    assert "matches the user-defined deny rule 'git push*'" in review.reason


def test_the_deny_list_beats_the_allow_list() -> None:
    assert CommandPolicy(deny=["rm *"], allow=["recursive delete", "rm *"]).review("rm -r x").verdict == "refuse"


def test_the_hard_line_beats_both_lists() -> None:
    everything = CommandPolicy(allow=["*", "recursive delete", "delete in root path"])
    assert everything.review("rm -rf /").reason.startswith("BLOCKED (hardline): recursive delete of root filesystem")


def test_a_key_allows_what_is_dangerous_for_that_reason_and_no_other() -> None:
    policy = CommandPolicy(allow=["recursive delete"])
    assert policy.review("rm -r build").verdict == "allow"
    assert policy.review("rm -r build; git push -f").verdict == "ask"


def test_a_glob_allows_no_command_with_shell_operators() -> None:
    policy = CommandPolicy(allow=["git *"])
    assert policy.review("git status").verdict == "allow"
    for command in (
        "git status; rm -r x",
        "git status && ls",
        "git log | sh",
        "git $(rm -r x)",
        "git log > x",
        "git a\nls",
    ):
        assert policy.review(command).verdict == "ask", command


def test_what_no_list_names_is_asked_about_with_the_keys_of_what_is_dangerous() -> None:
    assert CommandPolicy().review("ls")[:3] == ("ask", "", ())
    assert CommandPolicy().review("rm -r x").keys == ("recursive delete",)


PUSHES = """
git push
/usr/bin/git push origin main
sudo git push
env A=1 git push
A=1 git push
nice -n 5 git push
timeout --signal=KILL 5 git push
echo origin | xargs git push
cd a && git push
bash -c 'git push'
true | git push
git -C x push
git -c alias.p=push p
git --git-dir=x --work-tree y push
x=push; git $x
(git push)
if true; then git push; fi
find . -exec git push {} +
stdbuf -oL nohup git push
nix develop -c git push
sg staff -c 'git push'
""".strip().split("\n")


@pytest.mark.parametrize("command", PUSHES)
def test_a_denied_command_is_refused_whatever_runs_it(command: str) -> None:
    assert CommandPolicy(deny=["git push*"]).review(command).verdict == "refuse"


def test_a_command_that_may_turn_out_to_be_a_denied_one_counts_as_made_up() -> None:
    policy = CommandPolicy(deny=["git push*", "*--no-verify*"])
    assert policy.review('git "$WHAT" origin').keys == ("a command that is made up while it runs",)
    for other in ("git commit -m 'do not git push yet'", 'git commit -m "$TEXT"', "git status", 'echo "git push"'):
        assert (policy.review(other).verdict, policy.review(other).keys) == ("ask", ()), other


@pytest.mark.parametrize(
    "command",
    [
        "sudo make all",
        "./make all",
        "make all; ls",
        "PATH=. make all",
        "export PATH=.; make all",
        "make() { ls; }; make all",
        "echo x | make all",
        "make all > out",
        "make $(cat targets)",
        "make `cat targets`",
        "bash -c 'make all'",
        "cd x && make all",
    ],
)
def test_an_entry_covers_no_more_than_the_command_that_it_names(command: str) -> None:
    policy = CommandPolicy(allow=["make *", "cat", "xargs *", "sudo *", "timeout *"])
    assert policy.review("make all").verdict == "allow"
    assert policy.review(command).verdict == "ask"
    assert policy.review("timeout 5 rm -r x", confined=True).verdict == "ask"


def test_a_line_is_allowed_when_entries_name_all_of_its_commands() -> None:
    policy = CommandPolicy(allow=["git status*", "git log *", "sudo systemctl restart web*", "recursive delete"])
    for command in ("git status && git log -1", "sudo systemctl restart web-1", "git status; rm -r build"):
        assert policy.review(command).verdict == "allow", command
    for command in ("systemctl restart web", "rm -r build; ls", "rm -r build > log", "X=1 rm -r build"):
        assert policy.review(command).verdict == "ask", command
    assert policy.review("rm -r build; ls", confined=True).verdict == "allow"


@pytest.mark.parametrize("command", ["$CMD x", 'eval "$X"', "((", '"$(cat x)" y'])
def test_no_list_allows_what_cannot_be_analysed_or_is_made_up_while_it_runs(command: str) -> None:
    keys = CommandPolicy().review(command).keys
    assert keys and CommandPolicy(allow=["*", "$CMD*", "eval*", *keys]).review(command, confined=True).verdict == "ask"


@pytest.mark.parametrize(
    "command", ["$CMD x", 'eval "$X"', "eval ls", "((", "$(cat x) y", ". ./x", "echo cm0gLXI= | base64 -d | sh"]
)
def test_an_answer_covers_one_call_where_the_text_does_not_tell_what_runs(command: str) -> None:
    assert CommandPolicy().review(command).once
    assert not CommandPolicy().review("rm -r x").once


def test_a_command_about_the_agents_home_is_found_by_the_homes_real_path_and_by_the_directory(tmp_path: Path) -> None:
    home = tmp_path / "state"
    policy = CommandPolicy(home=home, allow=["*", "change the agent's own settings, permissions or state"])
    for command in (f"touch {home}/config.yaml", f"cd {home} && rm -r cron", 'sed -i s/a/b/ "$HERMES_HOME"/.env'):
        review = policy.review(command, confined=True)
        assert (review.verdict, review.mandatory) == ("ask", True), command
    assert policy.review("touch config.yaml", cwd=str(home)).mandatory
    assert policy.review("touch x", cwd=str(tmp_path), confined=True).verdict == "allow"


@pytest.mark.parametrize("command", ["make all", "make  'all'", ' "make" all '])
def test_a_command_leaves_the_sandbox_when_its_arguments_are_those_of_an_entry(command: str) -> None:
    assert CommandPolicy(unconfined=["make all"]).may_leave_sandbox(command)


@pytest.mark.parametrize(
    "command",
    [
        *("make", "make all x", "./make all", "make all; ls", "make all &", "A=1 make all", "make al*", "make $X"),
        *("make all > x", "make all #", "make 'all '", "! make all", "make\nall", "make a\\ll", "time make all", ""),
    ],
)
def test_no_other_command_leaves_the_sandbox(command: str) -> None:
    assert not CommandPolicy(unconfined=["make all", "make *", "make $X", "make all; ls"]).may_leave_sandbox(command)
