from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from hermes_agent.contracts.tool import ApprovalRequest
from hermes_agent.hooks import HookBus
from hermes_agent.policy import ApprovalHooks, Approvals, NoApprover, Refusal
from hermes_agent.runtime.bridge import Bridge
from people import Person


def request(rule="r", tool="terminal"):
    return ApprovalRequest(tool, "run a command", "ls", rule)


async def decide(person, *requests, timeout_s=5.0):
    async def main():
        approvals = Approvals(person, timeout_s=timeout_s)
        return [await approvals.decide(r) for r in requests]

    return await main()


async def test_once_covers_one_call():
    person = Person("once", "once")

    assert await decide(person, request(), request()) == [None, None]
    assert len(person.asked) == 2


async def test_session_covers_the_same_rule_and_no_other():
    person = Person("session", "deny")
    first, again, other = await decide(person, request("a"), request("a"), request("b"))

    assert (first, again) == (None, None)
    assert isinstance(other, Refusal)
    assert [r.rule_key for r in person.asked] == ["a", "b"]


async def test_a_grant_belongs_to_one_conversation():
    await decide(Person("session"), request())
    person = Person("deny")
    await decide(person, request())

    assert len(person.asked) == 1


async def test_a_denial_tells_the_model_what_was_denied():
    (answer,) = await decide(Person("deny"), request())

    assert answer == Refusal("The user denied terminal (run a command). Do not try again; ask what to do instead.")


async def test_a_denial_is_not_remembered():
    assert (await decide(Person("deny", "once"), request(), request()))[1] is None


async def test_silence_is_a_no():
    class Silent:
        cancelled = False

        async def ask(self, question):
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                self.cancelled = True
                raise

    silent = Silent()
    assert await decide(silent, request(), timeout_s=0.05) == [
        Refusal("terminal was not approved: no answer within 0.05 s.")
    ]
    assert silent.cancelled


async def test_nobody_there_is_a_no_with_the_reason():
    (answer,) = await decide(NoApprover("in a scheduled job"), request())

    assert isinstance(answer, Refusal)
    assert "no user can be asked in a scheduled job" in answer.reason


async def test_the_reason_of_a_front_door_is_passed_on():
    assert await decide(Person(Refusal("away")), request()) == [Refusal("away")]


@pytest.mark.parametrize("limit", ["once", "mandatory"])
@pytest.mark.parametrize("answer", ["session", "always"])
async def test_an_answer_that_a_question_does_not_offer_counts_as_once(answer, limit):
    kept = []
    asked = replace(request(), keep=lambda: kept.append(1), **{limit: True})
    person = Person(answer, answer)

    assert await decide(person, asked, asked) == [None, None]
    assert (len(person.asked), asked.answers, kept) == (2, ("once", "deny"), [])


async def test_an_earlier_answer_covers_no_question_that_is_asked_each_time():
    person = Person("session", "deny")
    allowed, refused = await decide(person, request(), replace(request(), mandatory=True))

    assert (allowed, isinstance(refused, Refusal)) == (None, True)


@pytest.mark.parametrize("answer", [None, "", "for ever", "yes", True, 1])
async def test_an_answer_that_means_nothing_is_a_no(answer):
    (refused,) = await decide(Person(answer), request())

    assert isinstance(refused, Refusal)
    assert repr(answer) in refused.reason


async def test_questions_are_asked_one_after_another():
    person = Person(*["once"] * 10)

    async def main():
        approvals = Approvals(person, timeout_s=5)
        return await asyncio.gather(*(approvals.decide(request(str(n))) for n in range(10)))

    assert await main() == [None] * 10
    assert person.most == 1
    assert [r.rule_key for r in person.asked] == [str(n) for n in range(10)]


async def test_one_session_answer_settles_those_that_wait_behind_it():
    person = Person("session")

    async def main():
        approvals = Approvals(person, timeout_s=5)
        return await asyncio.gather(*(approvals.decide(request()) for _ in range(5)))

    assert await main() == [None] * 5
    assert len(person.asked) == 1


async def test_an_approver_that_fails_grants_nothing_and_lets_the_next_be_asked():
    class Broken:
        asked = 0

        async def ask(self, question):
            self.asked += 1
            if self.asked == 1:
                raise ConnectionError("gone")
            return "deny"

    async def main():
        approvals = Approvals(Broken(), timeout_s=5)
        with pytest.raises(ConnectionError):
            await approvals.decide(request())
        return await approvals.decide(request())

    assert isinstance(await main(), Refusal)


# -- who hears of it -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "choice"),
    [("once", "once"), ("session", "session"), ("deny", "deny"), (Refusal("nobody"), "deny"), ("nonsense", "deny")],
)
async def test_question_and_answer_are_told(answer, choice):
    told = await heard(Person(answer))

    assert [name for name, _ in told] == ["pre_approval_request", "post_approval_response"]
    (_, asked), (_, answered) = told
    assert asked["pattern_key"] == "r"
    assert (asked["turn_id"], asked["tool_call_id"], asked["session_key"]) == ("t", "c", "s")
    assert (answered["choice"], answered["surface"]) == (choice, "gateway")


async def test_silence_is_told_as_a_timeout():
    class Silent:
        async def ask(self, question):
            await asyncio.Event().wait()

    assert [kw.get("choice") for _, kw in await heard(Silent(), timeout_s=0.01)] == [None, "timeout"]


async def heard(person, timeout_s=5.0):
    told = []
    bridge = Bridge()
    hooks = HookBus(bridge.wait_plugin)
    for name in ("pre_approval_request", "post_approval_response"):
        hooks.add(name, lambda name=name, **kw: told.append((name, kw)), "p")

    async def main():
        listener = ApprovalHooks(hooks, bridge, surface="gateway", session_key="s")
        approvals = Approvals(person, timeout_s=timeout_s, hooks=listener)
        await approvals.decide(request("r"), turn_id="t", tool_call_id="c")

    await main()
    bridge.close()
    return told
