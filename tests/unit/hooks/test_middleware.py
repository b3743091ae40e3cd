"""Going through middleware: what each callback is given, what becomes of its answer and of its errors."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from hermes_agent.hooks import HookBus, HookDeadlines
from hermes_agent.runtime.bridge import Bridge
from hermes_agent.runtime.steps import StepWalk
from people import House

LIMIT_S = 20.0
SCHEMA = {"middleware_schema_version": "hermes.middleware.v1"}


class MiddlewareHouse(House):
    """Middleware over a real bridge; the plugin `slow` has a short deadline."""

    def __init__(self, path: Path) -> None:
        bridge = Bridge()
        super().__init__(
            path,
            bridge=bridge,
            run_steps=bridge.run_steps_inline,
            deadlines=HookDeadlines(LIMIT_S, {"slow": 0.1}),
            off_loop=bridge.off_loop,
        )
        self.runs: list[Any] = []

    def request(self, args: dict[str, Any]) -> Any:
        return self.bridge.run_steps_inline(self.middleware.request_steps("tool_request", args, {"tool_name": "t"}))

    def execute(self, args: Any = None, do: Any = None) -> Any:
        args = {"n": 1} if args is None else args
        return self.middleware.execute("tool_execution", args, {"n": 0}, {"tool_name": "t"}, do or self.do)

    def do(self, args: Any) -> str:
        self.runs.append(args)
        return f"ran {args['n']}"


@pytest.fixture
def house(tmp_path):
    it = MiddlewareHouse(tmp_path)
    yield it
    it.close()


# -- request middleware --------------------------------------------------------------------------------------


def test_each_sees_what_the_one_before_made_of_it_and_what_it_was_first(house):
    seen = []

    def step(args, original_args, **kwargs):
        seen.append((dict(args), dict(original_args)))
        return {"args": {**args, "n": args["n"] + 1}}

    house.middleware.add("tool_request", step, "a")
    house.middleware.add("tool_request", step, "b")

    assert house.request({"n": 1})[0] == {"n": 3}
    assert seen == [({"n": 1}, {"n": 1}), ({"n": 2}, {"n": 1})]


def test_the_keywords_are_those_of_the_contract(house):
    seen = []
    house.middleware.add("tool_request", lambda **kw: seen.append(kw), "p")
    house.request({"n": 1})

    assert seen == [{"tool_name": "t", "args": {"n": 1}, "original_args": {"n": 1}, **SCHEMA}]


def test_a_change_in_place_that_is_not_returned_is_no_change(house):
    seen = []

    def careless(args, original_args, **kwargs):
        args["n"] = original_args["n"] = 9

    house.middleware.add("tool_request", careless, "a")
    house.middleware.add("tool_request", lambda args, original_args, **kw: seen.append((args, original_args)), "b")
    given = {"n": 1}

    assert house.request(given) == ({"n": 1}, [])
    assert (given, seen) == ({"n": 1}, [({"n": 1}, {"n": 1})])


@pytest.mark.parametrize(
    ("said", "entry"),
    [
        ({}, {"source": "plugin"}),
        ({"source": "s", "reason": "r", "name": "n"}, {"source": "s", "reason": "r", "name": "n"}),
        ({"source": 3, "reason": "r", "more": "x"}, {"reason": "r"}),
    ],
)
def test_the_trace_has_an_entry_for_each_change(house, said, entry):
    house.middleware.add("tool_request", lambda args, **kw: {"args": args, **said}, "p")
    house.middleware.add("tool_request", lambda **kw: None, "quiet")

    assert house.request({"n": 1})[1] == [entry]


@pytest.mark.parametrize("answer", [None, "text", {}, {"args": "text"}, {"arguments": {}}])
def test_other_answers_leave_it_as_it_is(house, answer):
    house.middleware.add("tool_request", lambda **kw: answer, "p")
    given = {"n": 1}

    value, trace = house.request(given)
    assert value is given
    assert trace == []


def test_one_that_raises_is_skipped_with_a_warning(house, caplog):
    def broken(**kwargs):
        raise ValueError("no")

    house.middleware.add("tool_request", broken, "bad")
    house.middleware.add("tool_request", lambda args, **kw: {"args": {"n": 2}}, "good")

    assert house.request({"n": 1})[0] == {"n": 2}
    assert [r.getMessage() for r in caplog.records] == ["Middleware 'tool_request' callback broken raised: no"]


def test_one_that_hangs_is_left_behind_counted_and_in_the_end_not_called(house, caplog):
    entered = []

    def hang(args, **kwargs):
        entered.append(1)
        house.release.wait(LIMIT_S)
        args["late"] = True

    house.middleware.add("tool_request", hang, "slow")
    given = {"n": 1}
    for _ in range(5):
        assert house.request(given) == ({"n": 1}, [])
    house.release.set()

    assert len(entered) == 3
    assert "tool_request" in house.hooks.suspended()["slow"]
    assert "Middleware 'tool_request' callback hang of plugin slow gave no answer within 0.1 s" in caplog.text
    assert given == {"n": 1}


def test_an_async_one_is_awaited(house):
    async def later(args, **kwargs):
        await asyncio.sleep(0)
        return {"args": {"n": args["n"] * 10}}

    house.middleware.add("tool_request", later, "p")
    assert house.request({"n": 1})[0] == {"n": 10}


# -- execution middleware ------------------------------------------------------------------------------------


def test_the_first_registered_is_the_outermost(house):
    order = []

    def around(name):
        def callback(next_call, **kwargs):
            order.append(f"{name} in")
            result = next_call()
            order.append(f"{name} out")
            return f"{name}({result})"

        return callback

    for name in "ab":
        house.middleware.add("tool_execution", around(name), name)

    assert house.execute() == "a(b(ran 1))"
    assert order == ["a in", "b in", "b out", "a out"]
    assert house.runs == [{"n": 1}]


@pytest.mark.parametrize("how", ["position", "keyword", "nothing"])
def test_next_call_passes_on_what_it_is_given(house, how):
    seen = []

    def outer(next_call, **kwargs):
        return {"position": lambda: next_call({"n": 5}), "keyword": lambda: next_call(args={"n": 5})}.get(
            how, next_call
        )()

    house.middleware.add("tool_execution", outer, "a")
    house.middleware.add("tool_execution", lambda args, next_call, **kw: seen.append(args) or next_call(), "b")
    house.execute()

    assert seen == house.runs == [{"n": 1 if how == "nothing" else 5}]


def test_the_keywords_of_execution(house):
    seen = []
    house.middleware.add("tool_execution", lambda **kw: seen.append(kw) or kw["next_call"](), "p")
    house.execute()

    (given,) = seen
    assert callable(given.pop("next_call"))
    assert given == {"tool_name": "t", "args": {"n": 1}, "original_args": {"n": 0}, **SCHEMA}


def test_one_that_does_not_call_next_answers_in_its_place(house):
    house.middleware.add("tool_execution", lambda **kw: "mine", "p")
    assert (house.execute(), house.runs) == ("mine", [])


def test_next_call_is_single_use_in_the_words_of_the_contract(house):
    errors = []

    def twice(next_call, **kwargs):
        result = next_call()
        try:
            next_call()
        except RuntimeError as exc:
            errors.append(str(exc))
        return result

    house.middleware.add("tool_execution", twice, "p")

    assert house.execute() == "ran 1"
    assert len(house.runs) == 1
    assert errors == [
        "Middleware 'tool_execution' callback twice called next_call() more than once; "
        "downstream execution is single-use"
    ]


def test_one_that_raises_before_next_is_skipped(house, caplog):
    def broken(**kwargs):
        raise ValueError("no")

    house.middleware.add("tool_execution", broken, "p")

    assert (house.execute(), len(house.runs)) == ("ran 1", 1)
    assert [r.getMessage() for r in caplog.records] == ["Middleware 'tool_execution' callback broken raised: no"]


def test_one_that_raises_after_next_succeeded_leaves_its_result(house, caplog):
    def broken(next_call, **kwargs):
        next_call()
        raise ValueError("too late")

    house.middleware.add("tool_execution", broken, "p")

    assert (house.execute(), len(house.runs)) == ("ran 1", 1)
    assert "callback broken raised: too late" in caplog.text


@pytest.mark.parametrize("wrapped", [False, True])
def test_what_comes_from_below_goes_through_unchanged(house, wrapped, caplog):
    error = LookupError("below")

    def fail(args):
        raise error

    def callback(next_call, **kwargs):
        try:
            return next_call()
        except LookupError as exc:
            if wrapped:
                raise RuntimeError("mine") from exc
            raise

    house.middleware.add("tool_execution", callback, "a")
    house.middleware.add("tool_execution", callback, "b")
    with pytest.raises(LookupError) as caught:
        house.execute(do=fail)

    assert caught.value is error
    assert caplog.records == []


def test_one_may_answer_for_what_failed_below(house):
    def rescue(next_call, **kwargs):
        try:
            return next_call()
        except LookupError:
            return "rescued"

    def fail(args):
        raise LookupError

    house.middleware.add("tool_execution", rescue, "p")
    assert house.execute(do=fail) == "rescued"


@pytest.mark.parametrize("awaits", [True, False])
def test_an_async_one_awaits_next_call_and_blocks_nobody_s_loop(house, awaits):
    threads = []

    async def around(next_call, **kwargs):
        threads.append(threading.current_thread().name)
        return f"async {await next_call()}" if awaits else next_call()

    def do(args):
        house.bridge.wait_plugin(asyncio.sleep(0))  # the plugin loop is free meanwhile
        threads.append(threading.current_thread().name)
        return "ran"

    house.middleware.add("tool_execution", around, "p")

    assert house.execute(do=do) == ("async ran" if awaits else "ran")
    assert threads == ["hermes-plugins", "hermes-beside"]


def test_an_async_one_hears_what_failed_below(house):
    async def around(next_call, **kwargs):
        return await next_call()

    def fail(args):
        raise LookupError("below")

    house.middleware.add("tool_execution", around, "p")
    with pytest.raises(LookupError, match="below"):
        house.execute(do=fail)


def test_one_without_open_keywords_gets_those_that_it_names(house):
    house.middleware.add("tool_execution", lambda next_call: next_call(), "p")
    assert house.execute() == "ran 1"


# -- the store -----------------------------------------------------------------------------------------------


def test_the_bus_takes_its_middleware_back_and_away(house):
    before = house.hooks.snapshot()
    house.middleware.add("tool_request", lambda **kw: None, "p")
    house.middleware.add("llm_request", lambda **kw: None, "q")
    assert house.hooks.owned_by("p") == ["tool_request"]

    assert house.hooks.remove_owner("p") == ["tool_request"]
    assert house.middleware.names() == ["llm_request"]
    house.hooks.restore(before)
    assert house.middleware.names() == []


def test_a_fork_s_middleware_is_called_when_it_is_adopted(house):
    house.middleware.add("tool_execution", lambda next_call, **kw: f"old {next_call()}", "p")
    fork = house.hooks.fork(without="p")
    fork.middleware.add("tool_execution", lambda next_call, **kw: f"new {next_call()}", "p")

    assert house.execute() == "old ran 1"
    house.hooks.adopt("p", fork)
    assert house.execute() == "new ran 1"


def test_what_cannot_be_called_is_refused(house):
    with pytest.raises(TypeError, match="the callback for middleware 'tool_request' is 3"):
        house.middleware.add("tool_request", 3, "p")


def test_without_a_thread_beside_an_async_one_works_too():
    bridge = Bridge()
    middleware = HookBus(bridge.wait_plugin).middleware

    async def around(next_call, **kwargs):
        return await next_call()

    middleware.add("tool_execution", around, "p")
    assert middleware.execute("tool_execution", {}, {}, {}, lambda args: "ran") == "ran"
    assert StepWalk(middleware.request_steps("tool_request", {}, {})).run() == ({}, [])
    bridge.close()
