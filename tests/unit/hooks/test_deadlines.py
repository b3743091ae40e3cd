"""Deadlines of hooks that are fired from a thread that waits."""

from __future__ import annotations

import asyncio
import threading

import pytest

from hermes_agent.core.errors import PluginError
from hermes_agent.hooks import HookBus, HookDeadlines
from hermes_agent.hooks.listeners import MAX_OVERRUNS
from hermes_agent.runtime.bridge import Bridge

LIMIT_S = 20.0
SHORT_S = 0.2


@pytest.fixture
def bridge():
    it = Bridge()
    yield it
    it.close()


@pytest.fixture
def release():
    """Ends what hangs."""
    it = threading.Event()
    yield it
    it.set()


def bus_of(bridge, default_s=SHORT_S, **by_plugin):
    return HookBus(bridge.wait_plugin, run_steps=bridge.run_steps_inline, deadlines=HookDeadlines(default_s, by_plugin))


def test_the_deadline_is_ten_seconds_unless_set_and_a_plugins_own_wins():
    assert (HookDeadlines().limit_of("p"), HookDeadlines().shortest_s) == (10.0, 10.0)
    deadlines = HookDeadlines(10.0, {"fast": 0.5, "slow": 60.0})
    assert [deadlines.limit_of(p) for p in ("fast", "slow", "other")] == [0.5, 60.0, 10.0]
    assert deadlines.shortest_s == 0.5
    assert HookDeadlines(1.0, {"slow": 60.0}).shortest_s == 1.0


def test_a_callback_that_hangs_is_an_error_and_the_others_are_called_once(bridge, release):
    called = []
    bus = bus_of(bridge)
    bus.add("h", lambda **kw: called.append("before"), "a")
    bus.add("h", lambda **kw: release.wait(LIMIT_S), "hangs")
    bus.add("h", lambda **kw: called.append("after") or "answer", "b")
    failed, answered = bus.fire("h", a=1)

    assert (failed.plugin, failed.value, repr(failed.error)) == (
        "hangs",
        None,
        "TimeoutError('h gave no answer within 0.2 s')",
    )
    assert (answered.plugin, answered.value) == ("b", "answer")
    assert called == ["before", "after"]


def test_a_plugins_own_deadline_counts(bridge, release):
    bus = bus_of(bridge, LIMIT_S, short=SHORT_S)
    bus.add("h", lambda **kw: release.wait(LIMIT_S), "short")
    bus.add("h", lambda **kw: release.wait(2 * SHORT_S) or "took its time", "long")
    short, long = bus.fire("h")

    assert isinstance(short.error, TimeoutError)
    assert long.value == "took its time"


def test_an_async_callback_that_waits_on_nothing_is_an_overrun(bridge):
    async def hang(**kwargs):
        await asyncio.get_running_loop().create_future()

    bus = bus_of(bridge)
    bus.add("h", hang, "p")
    assert [type(r.error) for r in bus.fire("h")] == [TimeoutError]


def test_an_error_that_a_callback_raises_too_late_is_dropped(bridge, release, caplog):
    ended = threading.Event()

    def broken(**kwargs):
        release.wait(LIMIT_S)
        ended.set()
        raise ValueError("late")

    bus = bus_of(bridge)
    bus.add("h", broken, "p")
    bus.fire("h")
    release.set()

    assert ended.wait(LIMIT_S)
    assert "raised" not in caplog.text
    assert caplog.text.count("gave no answer within 0.2 s") == 1


def test_errors_and_answers_in_time_suspend_nobody(bridge):
    def broken(**kwargs):
        raise ValueError("x")

    bus = bus_of(bridge, LIMIT_S)
    bus.add("h", broken, "p")
    for _ in range(2 * MAX_OVERRUNS):
        assert isinstance(bus.fire("h")[0].error, ValueError)
    assert bus.suspended() == {}


def test_one_plugins_suspension_is_not_anothers(bridge, release):
    called = []
    bus = bus_of(bridge, 0.05)
    bus.add("h", lambda **kw: release.wait(LIMIT_S), "bad")
    bus.add("h", lambda **kw: called.append(1), "good")
    for _ in range(MAX_OVERRUNS + 2):
        (failed,) = bus.fire("h")

    assert isinstance(failed.error, PluginError)
    assert failed.error.plugin == "bad"
    assert list(bus.suspended()) == ["bad"]
    assert len(called) == MAX_OVERRUNS + 2


def test_what_a_callback_that_overran_holds_is_its_own(bridge, release):
    seen, changed = [], threading.Event()

    def slow(items, **kwargs):
        release.wait(LIMIT_S)
        items.append("late")
        changed.set()

    def next_one(items, **kwargs):
        release.set()
        assert changed.wait(LIMIT_S)
        seen.extend(items)

    bus = bus_of(bridge, LIMIT_S, slow=SHORT_S)
    bus.add("h", slow, "slow")
    bus.add("h", next_one, "next")
    bus.fire("h", items=["early"])

    assert seen == ["early"]


def test_without_anybody_to_enforce_it_the_clock_still_decides():
    bus = HookBus(lambda value, deadline_s: None, deadlines=HookDeadlines(0.01))
    never = threading.Event()
    bus.add("h", lambda **kw: never.wait(0.05) or "late", "p")

    assert isinstance(bus.fire("h")[0].error, TimeoutError)
