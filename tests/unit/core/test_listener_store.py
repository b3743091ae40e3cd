"""The store of listeners: any number of items for each name, each with its owner."""

from __future__ import annotations

import threading
from dataclasses import dataclass

import pytest

from hermes_agent.core.registry import ListenerStore, StoreGroup


@dataclass(frozen=True)
class Item:
    """An item; two with the same text are equal, and not the same."""

    owner: str
    text: str = ""


Store = ListenerStore[Item]


def store(*items: tuple[str, str]) -> Store:
    """Return a store with an item of the text `name-owner-N` for each name and owner."""
    made = Store()
    for n, (name, owner) in enumerate(items):
        made.add(name, Item(owner, f"{name}-{owner}-{n}"))
    return made


def texts(of: Store, name: str) -> list[str]:
    return [item.text for item in of.listeners_for(name)]


def test_items_of_a_name_keep_the_order_of_registration_and_may_come_twice() -> None:
    listeners, item = Store(), Item("p", "a")
    for each in (item, Item("q", "b"), item):
        listeners.add("hook", each)

    assert texts(listeners, "hook") == ["a", "b", "a"]
    assert listeners.listeners_for("another") == ()
    assert (listeners.names(), len(listeners), "hook" in listeners) == (["hook"], 1, True)


def test_an_object_is_removed_and_its_equal_stays() -> None:
    listeners, first, equal = Store(), Item("p", "a"), Item("p", "a")
    listeners.add("hook", first)
    listeners.add("hook", equal)

    listeners.remove("hook", first)

    [left] = listeners.listeners_for("hook")
    assert left is equal
    listeners.remove("hook", Item("p", "a"))
    assert listeners.listeners_for("hook") == (equal,)


@pytest.mark.parametrize("emptied", ["removed", "put"])
def test_a_name_without_items_is_gone(emptied: str) -> None:
    listeners, item = Store(), Item("p")
    listeners.add("hook", item)
    if emptied == "removed":
        listeners.remove("hook", item)
    else:
        listeners.put("hook", ())
    assert (listeners.names(), listeners.items()) == ([], [])
    listeners.remove("hook", item)  # nothing is there, and nothing fails
    assert listeners.names() == []


def test_a_name_belongs_to_each_owner_of_an_item() -> None:
    listeners = store(("x", "p"), ("x", "q"), ("y", "q"))
    assert (listeners.owned_by("p"), listeners.owned_by("q"), listeners.owned_by("r")) == (["x"], ["x", "y"], [])


def test_an_owner_that_is_removed_takes_its_items_alone() -> None:
    listeners = store(("x", "p"), ("x", "q"), ("y", "p"))

    assert listeners.remove_owner("p") == ["x", "y"]

    assert listeners.names() == ["x"]
    assert texts(listeners, "x") == ["x-q-1"]


def test_a_fork_is_independent_and_lacks_one_owner() -> None:
    listeners = store(("x", "p"), ("x", "q"), ("y", "p"))

    fork = listeners.fork("p")
    fork.add("x", Item("p", "new"))
    listeners.add("x", Item("q", "later"))

    assert texts(fork, "x") == ["x-q-1", "new"]
    assert "y" not in fork
    assert texts(listeners, "x") == ["x-p-0", "x-q-1", "later"]


def test_an_owner_adopts_its_new_items_at_the_place_of_the_old_ones() -> None:
    listeners = store(("x", "a"), ("x", "p"), ("x", "z"), ("x", "p"), ("gone", "p"), ("y", "z"))
    fork = listeners.fork("p")
    for name in ("x", "x", "fresh", "y"):
        fork.add(name, Item("p", f"new {len(fork.items())}"))
    listeners.add("x", Item("z", "meanwhile"))

    listeners.adopt("p", fork)

    assert texts(listeners, "x") == ["x-a-0", "new 3", "new 4", "x-z-2", "meanwhile"]
    assert listeners.names() == ["x", "y", "fresh"]
    assert texts(listeners, "y") == ["y-z-5", "new 6"]
    assert texts(listeners, "fresh") == ["new 5"]


def test_what_the_fork_has_of_other_owners_is_not_adopted() -> None:
    listeners = store(("x", "z"))
    fork = listeners.fork("p")
    fork.add("x", Item("z", "not asked for"))
    fork.add("other", Item("z", "neither"))

    listeners.adopt("p", fork)

    assert {name: texts(listeners, name) for name in listeners} == {"x": ["x-z-0"]}


def test_a_snapshot_brings_everything_back() -> None:
    listeners = store(("x", "p"), ("y", "q"))
    before = listeners.snapshot()
    listeners.add("x", Item("q", "later"))
    listeners.remove_owner("q")

    listeners.restore(before)

    assert {name: texts(listeners, name) for name in listeners} == {"x": ["x-p-0"], "y": ["y-q-1"]}
    listeners.add("x", Item("q", "again"))
    assert [item.text for item in before["x"]] == ["x-p-0"]


def test_each_change_raises_the_generation() -> None:
    listeners, item = Store(), Item("p")
    seen = [listeners.generation]
    for change in (
        lambda: listeners.add("x", item),
        lambda: listeners.put("x", (item, item)),
        lambda: listeners.remove("x", item),
        lambda: listeners.adopt("p", listeners.fork("p")),
        lambda: listeners.remove_owner("p"),
        lambda: listeners.restore({}),
    ):
        change()
        seen.append(listeners.generation)
    assert seen == sorted(set(seen))


def test_what_is_read_does_not_change_afterwards() -> None:
    listeners = store(("x", "p"))
    read, everything = listeners.listeners_for("x"), listeners.items()
    listeners.add("x", Item("q"))
    listeners.remove_owner("p")
    assert [item.text for item in read] == ["x-p-0"]
    assert len(everything) == 1


def test_threads_that_add_and_remove_at_once_lose_nothing() -> None:
    listeners, start = Store(), threading.Barrier(8)

    def work(owner: str) -> None:
        start.wait()
        for n in range(200):
            listeners.add(f"hook {n % 3}", item := Item(owner, str(n)))
            if n % 2:
                listeners.remove(f"hook {n % 3}", item)

    threads = [threading.Thread(target=work, args=(f"p{n}",)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for owner in (f"p{n}" for n in range(8)):
        mine = [item.text for item in listeners.items() if item.owner == owner]
        assert sorted(map(int, mine)) == list(range(0, 200, 2))


def test_a_group_of_stores_changes_together() -> None:
    class Group(StoreGroup):
        _parts = ("first", "second")

        def __init__(self) -> None:
            self.first, self.second = store(("x", "p"), ("x", "q")), store(("y", "p"))

    group = Group()
    before, fork = group.snapshot(), group.fork("p")
    fork.second.add("y", Item("p", "new"))

    group.adopt("p", fork)

    assert (texts(group.first, "x"), texts(group.second, "y")) == (["x-q-1"], ["new"])
    assert group.remove_owner("p") == ["y"]
    group.restore(before)
    assert group.owned_by("p") == ["x", "y"]
