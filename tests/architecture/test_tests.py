"""Rules of the tests: async tests, no bare sleeps, one builder of approvers and dispatchers."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

TESTS = Path(__file__).parents[1]
FILES = [path for path in sorted(TESTS.rglob("*.py")) if not {"data", "plugins"} & set(path.relative_to(TESTS).parts)]
MOST_RUNS = 72
"""Calls of `asyncio.run`: helpers of sync tests, and tests that need a thread without a loop. The number may fall."""
SLEEPS = {
    "platforms/test_irc.py": "an adapter must not ask again during some ticks of its clock",
    "unit/delivery/test_service.py": "nothing tells that a statement waits for another process's lock",
    "unit/agent/test_interrupt.py": "the awaited work itself",
}
"""Files with a sleep outside of a loop that waits for a condition, with the reason."""
BUILDERS = {
    "House": {"people.py", "unit/agent/test_subagents.py"},
    "Person": {"people.py", "attack/test_people.py", "peers/irc.py", "peers/xmpp.py"},
}
"""Where classes of these names are: the people of chat services have a connection of their own."""


def is_sleep(node: ast.AST) -> bool:
    """Say whether a node is `time.sleep(…)` or `asyncio.sleep(…)`; a sleep of 0 only lets others run."""
    match node:
        case ast.Call(func=ast.Attribute(value=ast.Name(id="time" | "asyncio"), attr="sleep"), args=[duration]):
            return not (isinstance(duration, ast.Constant) and duration.value == 0)
    return False


def sleeps(node: ast.AST, *, is_test: bool = False) -> Iterator[int]:
    """Yield the lines of sleeps of test functions, outside of loops and nested functions."""
    for child in ast.iter_child_nodes(node):
        match child:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield from sleeps(child, is_test=not is_test and name.startswith("test_"))
            case ast.Lambda() | ast.While() | ast.For() | ast.AsyncFor():
                pass
            case _:
                if is_test and is_sleep(child):
                    yield child.lineno  # type: ignore[attr-defined]
                yield from sleeps(child, is_test=is_test)


def test_a_test_waits_for_a_condition_and_does_not_sleep() -> None:
    found = {str(path.relative_to(TESTS)) for path in FILES if list(sleeps(ast.parse(path.read_text())))}
    assert found <= set(SLEEPS), "`waiting.until` waits for a condition"


def test_a_bare_sleep_is_found() -> None:
    bare = "def test_x():\n    with a:\n        time.sleep(0.1)"
    assert list(sleeps(ast.parse(bare))) == [3]
    waits = "def test_x():\n    while not a():\n        time.sleep(0.1)\n    def slow():\n        time.sleep(9)"
    assert list(sleeps(ast.parse(waits))) == []


def test_async_tests_are_async_functions() -> None:
    runs = sum(
        isinstance(node, ast.Attribute) and ast.unparse(node) == "asyncio.run"
        for path in FILES
        for node in ast.walk(ast.parse(path.read_text()))
    )
    assert runs <= MOST_RUNS, "write `async def test_…`; `tests/conftest.py` runs it in a loop of its own"


def test_approvers_and_dispatchers_have_one_builder() -> None:
    places: dict[str, set[str]] = {name: set() for name in BUILDERS}
    for path in FILES:
        for node in ast.parse(path.read_text()).body:  # a test may have a class of its own for one special answer
            if isinstance(node, ast.ClassDef) and node.name in places:
                places[node.name].add(str(path.relative_to(TESTS)))
    assert places == BUILDERS, "`tests/people.py` has `Person` and `House`"
