from __future__ import annotations

import pytest

from hermes_agent.hooks import Allow, Approve, Block, HookResult, verdict


def decide(*values, relaxed=()):
    results = [HookResult("p", v) if not isinstance(v, HookResult) else v for v in values]
    return verdict(results, "calc", fails_open=set(relaxed).__contains__)


@pytest.mark.parametrize(
    "value",
    [
        "block",
        True,
        1,
        [],
        {},
        {"action": None},
        {"action": "allow"},
        {"action": "BLOCK", "message": "x"},
        {"message": "x"},
    ],
)
def test_answers_that_mean_nothing_let_the_call_through(value):
    assert decide(value) == Allow()


def test_no_answer_lets_the_call_through():
    assert decide() == Allow()


def test_a_block_needs_a_message_and_without_one_blocks_all_the_same():
    assert decide({"action": "block", "message": "no"}) == Block("p", "no")
    for message in (None, "", "  ", 3):
        found = decide({"action": "block", "message": message})
        assert found == Block("p", "BLOCKED: plugin `p` blocks calc and gives no message")
        assert decide({"action": "block", "message": message}, relaxed="p") == Allow()


def test_an_approve_has_a_message_and_a_rule_of_its_own():
    default = decide({"action": "approve"})
    assert default == Approve("p", "Plugin requires approval for calc", default.rule_key)
    assert default.rule_key.startswith("p:calc:")
    assert decide({"action": "approve", "message": "m", "rule_key": "k"}) == Approve("p", "m", "k")
    assert decide({"action": "approve", "message": " ", "rule_key": 5}) == default


def test_a_rule_without_a_key_covers_the_tool_for_the_same_reason_alone():
    one, same, other = (decide({"action": "approve", "message": m}).rule_key for m in ("a", "a", "b"))

    assert one == same != other


def test_the_first_answer_that_counts_wins():
    block, approve = {"action": "block", "message": "no"}, {"action": "approve"}

    assert isinstance(decide("x", approve, block), Approve)
    assert isinstance(decide({}, block, approve), Block)


def test_a_guard_that_failed_blocks_and_is_named():
    broken = HookResult("guard", error=ValueError("x"))

    assert decide(broken) == Block("guard", "BLOCKED: the guard of plugin `guard` failed for calc: ValueError('x')")
    assert decide(broken, {"action": "block", "message": "no"}, relaxed=["guard"]) == Block("p", "no")
    assert decide(broken, relaxed=["guard"]) == Allow()
    assert isinstance(decide(broken, relaxed=["other"]), Block)
