"""The output of a turn is one stream: conversations produce its events, `fold` alone reads them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "hermes" / "hermes_agent"
STREAM = "core/messages.py"
PRODUCERS = ("agent/conversation.py", "agent/turn.py", "agent/tool_step.py")
EVENTS = frozenset(
    {"TextDelta", "ReasoningDelta", "StopSentence", "ToolStarted", "ToolOutput", "ToolFinished", "Notice"}
)
"""Events before the end; `TurnFinished` is also the value that ends what is no turn, such as a command over HTTP."""
EXCEPT = ("testing/host.py",)
"""The test kit looks for tool calls among the events of an `Answer`."""
STREAMS = frozenset({"turn", "turn_once", "resume_turn"})
"""Methods of a conversation that return the stream."""


NAMING = re.compile(rf"\b(?:{'|'.join(EVENTS)})\b|\.(?:{'|'.join(STREAMS)})\(")
"""In each file that makes, reads or asks for events; the others need no parsing."""


def files() -> Iterator[tuple[str, ast.Module]]:
    bundled = ROOT / "plugins"
    for base in (SOURCE, bundled):
        for path in sorted(base.rglob("*.py")):
            if "_bundled" not in path.relative_to(base).parts and NAMING.search(text := path.read_text("utf-8")):
                yield str(path.relative_to(base)), ast.parse(text)


def readers(tree: ast.Module) -> Iterator[str]:
    """Yield the places where a module reads the stream itself, or asks an event for its kind."""
    for node in ast.walk(tree):
        match node:
            case ast.AsyncFor(iter=loop) | ast.comprehension(iter=loop, is_async=1):
                for call in ast.walk(loop):
                    if isinstance(call, ast.Call) and getattr(call.func, "attr", "") in STREAMS:
                        yield f"line {call.lineno}: reads the stream"
            case ast.Call(func=ast.Attribute(attr="aclosing"), args=[ast.Call(func=ast.Attribute(attr=name))]):
                if name in STREAMS:
                    yield f"line {node.lineno}: reads the stream"
            case ast.Call(func=ast.Name(id="isinstance"), args=[_, kinds]):
                if named := EVENTS & {name.id for name in ast.walk(kinds) if isinstance(name, ast.Name)}:
                    yield f"line {node.lineno}: asks for {', '.join(sorted(named))}"
            case ast.MatchClass(cls=ast.Name(id=name)):
                if name in EVENTS:
                    yield f"line {node.lineno}: asks for {name}"


def producers(tree: ast.Module) -> Iterator[str]:
    """Yield the places where a module makes an event."""
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Name(id=name)) if name in EVENTS:
                yield f"line {node.lineno}: makes a {name}"


def test_only_fold_reads_the_events_of_a_turn() -> None:
    allowed = {STREAM, *PRODUCERS, *EXCEPT}
    found = {name: places for name, tree in files() if name not in allowed and (places := list(readers(tree)))}
    assert found == {}


def test_only_conversations_produce_events() -> None:
    allowed = {STREAM, *PRODUCERS}
    found = {name: places for name, tree in files() if name not in allowed and (places := list(producers(tree)))}
    assert found == {}


@pytest.mark.parametrize(
    ("source", "place"),
    [
        ("async def f(c):\n    async for e in c.turn('x'): pass", "line 2: reads the stream"),
        ("async def f(c):\n    async with contextlib.aclosing(c.turn('x')) as s: pass", "line 2: reads the stream"),
        ("async def f(c):\n    return [e async for e in c.resume_turn()]", "line 2: reads the stream"),
        ("def f(e):\n    return isinstance(e, TextDelta | Notice)", "line 2: asks for Notice, TextDelta"),
        ("def f(e):\n    match e:\n        case ToolStarted(): pass", "line 3: asks for ToolStarted"),
    ],
)
def test_another_reader_is_found(source: str, place: str) -> None:
    assert list(readers(ast.parse(source))) == [place]


def test_another_producer_is_found() -> None:
    assert list(producers(ast.parse("def f():\n    yield TextDelta('x')"))) == ["line 2: makes a TextDelta"]
