"""Screens of the chat at several widths, compared with expected ones that a person can read (`screens/`)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

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
