"""The conversation of the pictures in docs/pictures, recorded in a terminal (`make pictures`)."""

from __future__ import annotations

import json
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from peers.scripted import scripted_model
from terminal_screen import PROMPT, TerminalScreen
from worlds import ROOT, make_home, run

COLUMNS, ROWS = 80, 48
QUESTION = "What's 2 to the power of 16? And move the backup to half past two."
SITE = "Is the site up?"
ANSWER = """\
2 to the power of 16 is **65536**.

## The backup

It runs **every night at 02:30** now, to the disk `vault`:

- copy the home
- prune copies that are older than a month

```python
def is_old(copy: Path) -> bool:
    return age_days(copy) > 30  # a month
```
"""
NOTES = "Backup: every night at 02:00\nDisk: vault\n"
ADDRESS = re.compile(r"(?<=http://127\.0\.0\.1:)\d{5}")


def _call(name: str, **arguments: Any) -> dict[str, Any]:
    return {"id": f"call_{name}", "name": name, "arguments": json.dumps(arguments)}


def _script() -> list[dict[str, Any]]:
    calculate = _call("calculate", expression="2**16")
    patch = _call("patch", path="notes.txt", old_string="02:00", new_string="02:30")
    site = _call("terminal", command="curl -sI https://example.org | head -n 1")
    thought = "Two things: a power of two, and a line of the notes."
    first = {"match": {"userMessage": QUESTION, "hasToolResult": False}}
    return [
        {**first, "response": {"toolCalls": [calculate, patch], "reasoning": thought}},
        {"match": {"toolCallId": "call_patch"}, "response": {"content": ANSWER}, "chunkSize": 12},
        {"match": {"toolCallId": "call_terminal"}, "response": {"content": "I did not look."}},
        {"match": {"userMessage": SITE}, "response": {"toolCalls": [site]}},
    ]


def record(folder: Path, theme: str) -> str:
    """Return the recording of the conversation in the format asciicast v2; its markers name the pictures.

    A marker is `NAME|TEXT`: the picture begins with the last row that has the text. The name of `folder` is short, so
    that its place in the text can be taken by another one.
    """
    home = folder / "home"
    with scripted_model(_script()) as model:
        make_home(folder, model)
        run(home, "config", "set", "display.skin", theme)
        run(home, "config", "set", "model.context_length", "200000")
        work = folder / "project"
        work.mkdir()
        (work / "notes.txt").write_text(NOTES)
        terminal = TerminalScreen(home, columns=COLUMNS, rows=ROWS, directory=work)
        terminal.wait("Ctrl-D leaves")
        terminal.say(QUESTION)
        terminal.wait("# a month")
        terminal.idle()
        terminal.until(lambda: terminal.input() == "" and " · context " in terminal.visible_rows()[-1], "the status")
        terminal.mark("chat|hermes-agent")
        terminal.say(SITE)
        terminal.wait("Esc cancel")
        terminal.mark(f"approval|{PROMPT} {SITE}")
        terminal.type("d")
        terminal.wait("I did not look.")
        terminal.idle()
        terminal.say("/context")
        terminal.wait("The conversation is compacted at")
        terminal.until(lambda: terminal.input() == "", "the end of the command")
        terminal.idle()
        terminal.mark(f"context|{PROMPT} /context")
        terminal.leave()
    return ADDRESS.sub("11434", terminal.asciicast()).replace(str(folder), "/home/you") + "\n"


def write_recordings(pictures: Path) -> None:
    """Record the conversation in the light and the dark theme."""
    for name in ("dark", "light"):
        with tempfile.TemporaryDirectory() as folder:
            (pictures / f"conversation-{name}.cast").write_text(record(Path(folder), name), encoding="utf-8")


if __name__ == "__main__":
    write_recordings(ROOT / "docs" / "pictures")
