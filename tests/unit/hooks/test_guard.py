from __future__ import annotations

import pytest

from hermes_agent.hooks import GuardAllow, GuardAsk, GuardBlock, HookResult, decide_verdict


def decide(*values, relaxed=()):
    results = [HookResult("p", v) if not isinstance(v, HookResult) else v for v in values]
    return decide_verdict(results, "calc", fails_open=set(relaxed).__contains__)


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
    assert decide(value) == GuardAllow()


def test_no_answer_lets_the_call_through():
    assert decide() == GuardAllow()


def test_a_block_needs_a_message_and_without_one_blocks_all_the_same():
    assert decide({"action": "block", "message": "no"}) == GuardBlock("p", "no")
    for message in (None, "", "  ", 3):
        found = decide({"action": "block", "message": message})
        assert found == GuardBlock("p", "BLOCKED: plugin `p` blocks calc and gives no message")
        assert decide({"action": "block", "message": message}, relaxed="p") == GuardAllow()


def test_an_approve_has_a_message_and_a_rule_of_its_own():
    default = decide({"action": "approve"})
    assert default == GuardAsk("p", "Plugin requires approval for calc", default.rule_key)
    assert default.rule_key.startswith("p:calc:")
    assert decide({"action": "approve", "message": "m", "rule_key": "k"}) == GuardAsk("p", "m", "k")
    assert decide({"action": "approve", "message": " ", "rule_key": 5}) == default


def test_a_rule_without_a_key_covers_the_tool_for_the_same_reason_alone():
    one, same, other = (decide({"action": "approve", "message": m}).rule_key for m in ("a", "a", "b"))

    assert one == same != other


def test_a_block_goes_before_an_approve_in_any_order():
    block, approve = {"action": "block", "message": "no"}, {"action": "approve"}

    assert isinstance(decide("x", approve, block), GuardBlock)
    assert isinstance(decide("x", approve, {"action": "approve", "message": "later"}), GuardAsk)
    assert isinstance(decide({}, block, approve), GuardBlock)


def test_a_guard_that_failed_blocks_and_is_named():
    broken = HookResult("guard", error=ValueError("x"))

    assert decide(broken) == GuardBlock(
        "guard",
        "BLOCKED: the guard of plugin `guard` failed for calc: pre_tool_call plugin callback  raised ValueError: x",
    )
    assert decide(broken, {"action": "block", "message": "no"}, relaxed=["guard"]) == GuardBlock("p", "no")
    assert decide(broken, relaxed=["guard"]) == GuardAllow()
    assert isinstance(decide(broken, relaxed=["other"]), GuardBlock)
