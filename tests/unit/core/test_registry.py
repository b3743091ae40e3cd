from __future__ import annotations

import re
import threading

import pytest

from hermes_agent.core.messages import new_id, new_session_id
from hermes_agent.core.registry import Conflict, Registry


def test_a_name_has_one_owner():
    registry: Registry[int] = Registry("thing")
    registry.add("a", 1, owner="p")
    with pytest.raises(Conflict, match="thing `a` belongs to plugin `p`; plugin `q` wants it too"):
        registry.add("a", 2, owner="q")
    with pytest.raises(Conflict, match="the agent wants it too"):
        registry.add("a", 2)

    assert (registry.get("a"), registry.owner("a")) == (1, "p")


def test_the_owner_replaces_freely_and_others_on_purpose():
    registry: Registry[int] = Registry("thing")
    registry.add("a", 1, owner="p")
    registry.add("a", 2, owner="p")
    assert registry.get("a") == 2
    registry.add("a", 3, owner="q", replace=True)
    assert (registry.get("a"), registry.owner("a")) == (3, "q")


def test_what_is_there_in_its_order():
    registry: Registry[int] = Registry("thing")
    for n, name in enumerate("cab"):
        registry.add(name, n, owner="p" if name != "a" else "q")

    assert registry.names() == list(registry) == ["c", "a", "b"]
    assert registry.items() == [("c", 0), ("a", 1), ("b", 2)]
    assert registry.owned_by("p") == ["c", "b"]
    assert ("a" in registry, "x" in registry, len(registry)) == (True, False, 3)
    assert (registry.get("x"), registry.owner("x")) == (None, None)
    assert (registry.remove("a"), registry.remove("a")) == (True, False)


def test_a_snapshot_is_not_touched_by_what_follows():
    registry: Registry[int] = Registry("thing")
    registry.add("a", 1)
    state = registry.snapshot()
    registry.add("b", 2)
    registry.restore(state)
    registry.add("c", 3)

    assert (registry.names(), list(state)) == (["a", "c"], ["a"])


def test_iteration_survives_changes():
    registry: Registry[int] = Registry("thing")
    for n in range(10):
        registry.add(str(n), n)
    for name in registry:
        registry.remove(name)

    assert len(registry) == 0


def test_of_many_that_want_a_name_at_once_one_gets_it():
    registry: Registry[int] = Registry("thing")
    refused, barrier = [], threading.Barrier(8)

    def claim(n):
        barrier.wait(10)
        try:
            registry.add("a", n, owner=f"p{n}")
        except Conflict:
            refused.append(n)

    threads = [threading.Thread(target=claim, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert len(refused) == 7
    assert registry.owner("a") == f"p{registry.get('a')}"


def test_ids_are_readable_sortable_and_different():
    assert re.fullmatch(r"19700101_000000_[0-9a-f]{6}", new_session_id(0))
    assert new_session_id(1) > new_session_id(0)
    assert re.fullmatch(r"call_[0-9a-f]{16}", new_id("call"))
    assert len({new_id("x") for _ in range(1000)}) == 1000
