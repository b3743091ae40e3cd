"""Screens of the chat at several widths, compared with expected ones that a person can read (`screens/`)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyte
import pytest

from terminal_screen import PROMPT, TerminalScreen, check_screen
from worlds import PROMPTS, make_home, script

MARKDOWN = """\
# Backup plan

The *first* backup runs **every night** at `02:30`, see [the manual](https://example.org/manual):

- copy the home
- prune old copies
  1. weekly
  2. monthly

```python
def backup(path: str) -> int:
    # copies all files
    return len(path)
```

| disk | size | state |
|:-----|-----:|:------|
| vault | 2 TB | mounted and checked every week |
| attic | 500 GB | offline |

> Nothing is lost.

バックアップは毎晩実行されます。
"""


def tool_call(name: str, **arguments: Any) -> dict[str, Any]:
    return {"id": f"call_{name}", "name": name, "arguments": json.dumps(arguments)}


def steps(question: str, *calls: dict[str, Any], content: str) -> list[dict[str, Any]]:
    """Return fixtures: a call for each step, then the answer."""
    fixtures: list[dict[str, Any]] = []
    for number, call in enumerate(calls):
        match: dict[str, Any] = {"userMessage": question}
        match |= {"toolCallId": calls[number - 1]["id"]} if number else {"hasToolResult": False}
        fixtures.append({"match": match, "response": {"toolCalls": [call]}})
    last = {"userMessage": question, "toolCallId": calls[-1]["id"]} if calls else {"userMessage": question}
    return [*fixtures, {"match": last, "response": {"content": content}, "chunkSize": 7, "latency": 3}]


@pytest.mark.parametrize("columns", [40, 80, 200])
def test_a_conversation_looks_as_expected(tmp_path: Path, scripted, columns: int) -> None:
    edit = tool_call("patch", path="plan.txt", old_string="02:00", new_string="02:30")
    fixtures = [
        *script(PROMPTS[0]),
        *steps("change the plan", edit, tool_call("calculate", expression="1/0"), content=MARKDOWN),
    ]
    work = tmp_path / "work"
    work.mkdir()
    (work / "plan.txt").write_text("backup\nruns at 02:00\nevery night\n")
    with scripted(fixtures) as model:
        terminal = TerminalScreen(make_home(tmp_path, model), columns=columns, rows=30, directory=work)
        terminal.wait(PROMPT)
        terminal.say(PROMPTS[0].question)
        terminal.wait("calculate.")
        terminal.say("change the plan")
        terminal.wait("バ")
        terminal.idle()
        terminal.type("/theme ")
        terminal.wait("high-contrast")
        shown = terminal.normal(WORK="~/work")
        terminal.type("\x03")
        assert terminal.leave() == 0
    check_screen(f"conversation-{columns}", shown)


class CountedScreen(pyte.Screen):
    """A screen that counts the rows that are written, by their number since the beginning."""

    def __init__(self, columns: int, lines: int) -> None:
        super().__init__(columns, lines)
        self.scrolled = 0
        self.rows: set[int] = set()

    def draw(self, data: str) -> None:
        """Write text in a row."""
        self.rows.add(self.scrolled + self.cursor.y)
        super().draw(data)

    def index(self) -> None:
        """Move down a row, or scroll."""
        self.scrolled += self.cursor.y == self.lines - 1
        super().index()


def test_an_answer_of_100_kb_rewrites_few_rows_a_frame(tmp_path: Path, scripted) -> None:
    text = (MARKDOWN + "\n") * (100_000 // len(MARKDOWN)) + "\nThe end of it."
    fixture = {"match": {"userMessage": "everything"}, "response": {"content": text}, "chunkSize": 200, "latency": 5}
    with scripted([fixture]) as model:
        terminal = TerminalScreen(make_home(tmp_path, model), columns=80, rows=40)
        terminal.wait(PROMPT)
        terminal.say("everything")
        terminal.wait("# copies all files")
        terminal.type("typed during the answer")
        terminal.until(lambda: "The end of it." in terminal.raw, "the end of the answer", timeout_s=90)
        terminal.idle()
        assert terminal.raw.index("typed during the answer") < terminal.raw.index("The end of it.")
        terminal.type("\x03")
        assert terminal.leave() == 0
    screen = CountedScreen(80, 40)
    stream = pyte.Stream(screen)
    again, written = [], -1
    for frame in terminal.raw.split("\x1b[?2026l"):
        screen.rows.clear()
        stream.feed(frame)
        again.append(sum(row <= written for row in screen.rows))  # rows that were written before
        written = max([written, *screen.rows])
    assert len(again) > 50
    assert max(again) <= 14  # an unfinished table, the spinner, the input and the status bar
    assert sorted(again)[len(again) // 2] <= 6
    assert "\x1b[2J" not in terminal.raw  # nothing is cleared
