"""The way of a message from its platform to its answer leads through few files, and rarely back to one.

One message of a test platform runs through a real gateway with a scripted model over HTTP, without tools, titles and
memory. A profile function sees each call of a function of the package and looks at its arguments. A call counts if an
argument is the text of the message or of the answer, or a text or bytes that contain it. Values that only hold the text
in a field (events, claims, requests) do not count, nor does a coroutine that goes on after a wait. The packages `core`,
`system`, `runtime` and `store`, which serve every package, and the test kit are left out.
"""

from __future__ import annotations

import functools
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import groupby
from pathlib import Path
from types import FrameType
from typing import Any

import hermes_agent
from hermes_agent.testing.chat import chat_host

SOURCE = Path(hermes_agent.__file__).parent
SERVING = frozenset({"core", "system", "runtime", "store", "testing"})
QUESTION, ANSWER = "Is there any Zwetschgenmus left?", "There is Quittengelee."
MOST_FILES, MOST_RETURNS = 15, 10


def has_text(value: object) -> bool:
    if isinstance(value, bytes):
        return QUESTION.encode() in value or ANSWER.encode() in value
    return isinstance(value, str) and (QUESTION in value or ANSWER in value)


@functools.cache
def file_of(filename: str) -> str:
    """Return a source file relative to the package; empty for one that is left out."""
    path = Path(filename)
    if not path.is_relative_to(SOURCE):
        return ""
    relative = path.relative_to(SOURCE)
    return "" if relative.parts[0] in SERVING else str(relative)


@contextmanager
def recorded_calls() -> Iterator[list[tuple[str, str]]]:
    """Yield the calls that get a text, as file and function, in their order; new threads are included."""
    calls: list[tuple[str, str]] = []
    seen: dict[int, FrameType] = {}

    def profile(frame: FrameType, event: str, arg: Any) -> None:
        if event != "call" or id(frame) in seen or not (file := file_of(frame.f_code.co_filename)):
            return
        code = frame.f_code
        count = code.co_argcount + code.co_kwonlyargcount
        if any(has_text(frame.f_locals.get(name)) for name in code.co_varnames[:count]):
            seen[id(frame)] = frame  # a resumed coroutine is the same frame
            calls.append((file, code.co_qualname))

    previous = sys.getprofile(), threading.getprofile()
    sys.setprofile(profile)
    threading.setprofile(profile)
    try:
        yield calls
    finally:
        sys.setprofile(previous[0])
        threading.setprofile(previous[1])  # type: ignore[arg-type]  # None is what was set before


def returns(visits: list[str]) -> int:
    """Return how often a sequence of files comes back to one that it left."""
    return len(visits) - len(set(visits))


def test_a_message_and_its_answer_pass_few_files_and_seldom_come_back_to_one() -> None:
    with recorded_calls() as calls, chat_host(model=[ANSWER]) as chat:
        chat.write(QUESTION)
        assert chat.answers(1) == [ANSWER]

    visits = [file for file, _ in groupby(file for file, _ in calls)]
    way = "\n".join(f"{file}: {function}" for file, function in calls)
    assert {"gateway/intake.py", "agent/conversation.py", "gateway/chat_messages.py"} <= set(visits), way
    assert len(set(visits)) <= MOST_FILES, way
    assert returns(visits) <= MOST_RETURNS, way


def test_returns_are_counted_by_visits() -> None:
    assert returns(["a", "b", "c"]) == 0
    assert returns(["a", "b", "a", "b", "c"]) == 2
