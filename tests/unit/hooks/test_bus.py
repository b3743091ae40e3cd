from __future__ import annotations

import threading

import pytest

from hermes_agent.hooks import OWN_HOOKS, VALID_HOOKS, HookBus
from hermes_agent.hooks.catalog import FIRED
from hermes_agent.hooks.listeners import Listener
from hermes_agent.runtime.bridge import Bridge


@pytest.fixture
def bus():
    bridge = Bridge()
    yield HookBus(bridge.wait_plugin)
    bridge.close()


def test_the_names_are_the_contracts_23():
    assert len(VALID_HOOKS) == len(set(VALID_HOOKS)) == 23
    assert {*VALID_HOOKS, *OWN_HOOKS} >= FIRED
    assert not set(VALID_HOOKS) & set(OWN_HOOKS)


def test_callbacks_are_called_in_their_order_in_the_calling_thread(bus):
    seen = []
    for name in "abc":
        bus.add("h", lambda name=name, **kw: seen.append((name, threading.get_ident())), name)
    bus.fire("h")

    assert seen == [(name, threading.get_ident()) for name in "abc"]


def test_every_call_bears_the_schema_version(bus):
    bus.add("h", lambda **kw: kw, "p")

    assert bus.fire("h", a=1)[0].value == {"a": 1, "telemetry_schema_version": "hermes.observer.v1"}


def test_answers_come_in_order_and_none_is_left_out(bus):
    for value in (None, 0, "", False, "x"):
        bus.add("h", lambda value=value, **kw: value, f"p{value!r}")

    assert [(r.plugin, r.value) for r in bus.fire("h")] == [("p0", 0), ("p''", ""), ("pFalse", False), ("p'x'", "x")]


def test_the_same_callback_twice_is_called_twice(bus):
    calls = []

    def callback(**kwargs):
        calls.append(1)

    bus.add("h", callback, "p")
    bus.add("h", callback, "p")
    bus.fire("h")
    assert len(calls) == 2


@pytest.mark.parametrize("error", [ValueError("x"), SystemExit(1)])
def test_a_callback_that_raises_is_logged_and_the_others_are_called(bus, caplog, error):
    def broken(**kwargs):
        raise error

    bus.add("h", broken, "bad")
    bus.add("h", lambda **kw: "good", "good")
    first, second = bus.fire("h")

    assert (first.plugin, first.error, second.value) == ("bad", error, "good")
    assert caplog.records[0].levelname == "WARNING"
    assert caplog.records[0].getMessage() == f"Hook 'h' callback broken raised: {error}"


def test_an_interrupt_from_the_keyboard_goes_through(bus):
    def stop(**kwargs):
        raise KeyboardInterrupt

    bus.add("h", stop, "p")
    with pytest.raises(KeyboardInterrupt):
        bus.fire("h")


def test_a_coroutine_function_is_awaited(bus):
    async def callback(a, **kwargs):
        return a

    class Callable:
        async def __call__(self, **kwargs):
            return "object"

    bus.add("h", callback, "p")
    bus.add("h", Callable(), "p")
    assert [r.value for r in bus.fire("h", a=1)] == [1, "object"]


def test_an_async_callback_that_raises_is_an_error_like_another(bus):
    async def broken(**kwargs):
        raise ValueError("x")

    bus.add("h", broken, "p")
    assert isinstance(bus.fire("h")[0].error, ValueError)


def test_a_callback_gets_the_keywords_that_it_names(bus):
    bus.add("h", lambda a: a, "positional")
    bus.add("h", lambda *, b=0: b, "keyword")
    bus.add("h", lambda: "nothing", "none")
    bus.add("h", lambda a, **kw: sorted(kw), "rest")

    assert [r.value for r in bus.fire("h", a=1, b=2)] == [1, 2, "nothing", ["b", "telemetry_schema_version"]]


def test_a_callback_that_wants_what_there_is_not_is_an_error(bus):
    bus.add("h", lambda missing: missing, "p")

    assert isinstance(bus.fire("h", a=1)[0].error, TypeError)


def test_what_cannot_be_called_is_refused(bus):
    with pytest.raises(TypeError, match="expected something that can be called"):
        bus.add("h", "text", "p")


def test_nobody_listening_costs_nothing_and_is_known(bus):
    assert not bus.has("h")
    assert bus.fire("h", a=1) == []
    bus.add("h", lambda **kw: None, "p")
    assert bus.has("h")


def test_a_snapshot_forgets_what_came_after(bus):
    bus.add("h", lambda **kw: 1, "p")
    state = bus.snapshot()
    bus.add("h", lambda **kw: 2, "p")
    bus.add("g", lambda **kw: 3, "p")
    bus.restore(state)

    assert [r.value for r in bus.fire("h")] == [1]
    assert not bus.has("g")


def test_a_callback_that_registers_another_does_not_disturb_the_round(bus):
    bus.add("h", lambda **kw: bus.add("h", lambda **kw: "new", "p") and None, "p")

    assert bus.fire("h") == []
    assert [r.value for r in bus.fire("h")] == ["new"]


@pytest.mark.parametrize("callback", [lambda **kw: None, lambda args: None])
def test_a_call_that_begins_late_is_given_what_there_was_and_not_the_copies_that_took_its_place(callback):
    before, payload = {}, {}
    payload["args"] = before
    given = Listener.of(callback, "p", "hook", "pre_tool_call").keywords_for(payload)
    payload["args"] = dict(before)
    assert given["args"] is before
