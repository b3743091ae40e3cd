"""What one owner has in a store can be taken away, or replaced in one step."""

from __future__ import annotations

from hermes_agent.core.registry import BUILTIN, Registry


def registry(**owners: str) -> Registry[str]:
    made: Registry[str] = Registry("thing")
    for name, owner in owners.items():
        made.add(name, f"{name} of {owner}", owner=owner)
    return made


def test_what_one_owner_registered_goes_and_the_rest_stays() -> None:
    things = registry(a="one", b="two", c="one")

    assert things.remove_owner("one") == ["a", "c"]
    assert things.items() == [("b", "b of two")]
    assert things.remove_owner("one") == []


def test_what_an_owner_had_replaced_comes_back_when_it_leaves() -> None:
    things = registry(shell=BUILTIN)
    things.add("shell", "first", owner="one", replace=True)
    things.add("shell", "second", owner="two", replace=True)

    things.remove_owner("one")
    assert (things.get("shell"), things.owner("shell")) == ("second", "two")
    things.remove_owner("two")
    assert (things.get("shell"), things.owner("shell")) == ("shell of builtin", BUILTIN)


def test_a_fork_is_seen_when_it_is_adopted_and_not_before() -> None:
    things = registry(a="one", b="two", c="one")
    fork = things.fork(without="one")
    assert fork.names() == ["b"]

    fork.add("d", "new d", owner="one")
    fork.add("a", "new a", owner="one")
    assert things.items() == [("a", "a of one"), ("b", "b of two"), ("c", "c of one")]

    things.adopt("one", fork)
    assert things.items() == [("d", "new d"), ("a", "new a"), ("b", "b of two")]


def test_a_name_that_somebody_took_meanwhile_stays_theirs() -> None:
    things = registry(a="one")
    fork = things.fork(without="one")
    fork.add("late", "of one", owner="one")
    things.add("late", "of two", owner="two")

    things.adopt("one", fork)

    assert things.items() == [("late", "of two")]


def test_an_override_in_a_fork_takes_the_name_and_gives_it_back() -> None:
    things = registry(shell=BUILTIN)
    fork = things.fork(without="one")
    fork.add("shell", "mine", owner="one", replace=True)

    things.adopt("one", fork)
    assert things.owner("shell") == "one"
    things.remove_owner("one")
    assert things.owner("shell") == BUILTIN
