from __future__ import annotations

from hermes_agent.core.caches import CheckCache


class Probe:
    """A check whose answers are given one after another; a clock beside it."""

    def __init__(self, *answers):
        self.answers, self.calls, self.now = list(answers), 0, 1000.0

    def check(self):
        self.calls += 1
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def clock(self):
        return self.now


def ask_at(probe, *times):
    cache, check, answers = CheckCache(probe.clock), probe.check, []
    for time in times:
        probe.now = 1000.0 + time
        answers.append(cache.ask(check))
    return answers


def test_no_check_means_yes():
    assert CheckCache().ask(None) is True


def test_an_answer_holds_for_thirty_seconds():
    probe = Probe(True, False, False)

    assert ask_at(probe, 0, 29.9, 95) == [True, True, False]
    assert probe.calls == 2


def test_a_no_holds_for_thirty_seconds_too():
    probe = Probe(False, True)

    assert ask_at(probe, 0, 29.9, 30) == [False, False, True]


def test_a_check_that_said_yes_within_a_minute_may_fail():
    probe = Probe(True, False, ValueError("x"))

    assert ask_at(probe, 0, 59.9) == [True, True]
    assert ask_at(Probe(True, ValueError("x"), False), 0, 40, 70.1) == [True, True, False]


def test_after_a_minute_a_failure_counts():
    assert ask_at(Probe(True, False), 0, 60) == [True, False]


def test_an_exception_counts_as_no():
    assert ask_at(Probe(ValueError("x")), 0) == [False]


def test_any_truthy_answer_is_a_yes():
    assert ask_at(Probe("yes"), 0) == [True]
    assert ask_at(Probe(None), 0) == [False]


def test_each_function_has_an_answer_of_its_own():
    cache = CheckCache(lambda: 0.0)

    assert (cache.ask(lambda: True), cache.ask(lambda: False)) == (True, False)


def test_forgetting_asks_again_without_grace():
    probe = Probe(True, False)
    cache, check = CheckCache(probe.clock), probe.check
    assert cache.ask(check)
    cache.forget()

    assert not cache.ask(check)
