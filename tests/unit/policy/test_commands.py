"""What the operator's lists say of a command."""

from __future__ import annotations

import pytest

from hermes_agent.policy.commands import CommandPolicy


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
    assert CommandPolicy().review("ls") == ("ask", "", ())
    assert CommandPolicy().review("rm -r x").keys == ("recursive delete",)
