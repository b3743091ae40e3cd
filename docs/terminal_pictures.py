"""Draw the pictures of the chat in docs/pictures/ (`make pictures`): the console's view of an example turn."""

from __future__ import annotations

import asyncio
import io
import json
import os
import re
from pathlib import Path

from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console
from rich.terminal_theme import DEFAULT_TERMINAL_THEME, SVG_EXPORT_THEME
from rich.text import Text

from hermes_agent.agent.compaction import ContextUsage
from hermes_agent.console.overview import Banner, Status, banner_lines, context_lines, status_line
from hermes_agent.console.screen import PlainScreen
from hermes_agent.console.styled import Theme
from hermes_agent.console.transcript_view import TranscriptView
from hermes_agent.core.messages import TextDelta, ToolFinished, ToolStarted, TurnFinished, Usage
from hermes_agent.sessions import UsageTotals

PICTURES = Path(__file__).parent / "pictures"
COLUMNS = 80
SVG_THEMES = {"dark": SVG_EXPORT_THEME, "light": DEFAULT_TERMINAL_THEME}

ANSWER = """\
## The backup

It runs **every night at 02:30** now, to the disk `vault`:

- copy the home
- prune copies that are older than a month

```python
def is_old(copy: Path) -> bool:
    return age_days(copy) > 30  # a month
```
"""
DIFF = """\
--- notes.txt
+++ notes.txt
@@ -1,2 +1,2 @@
-Backup: every night at 02:00
+Backup: every night at 02:30
 Disk: vault"""


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


async def _chat(theme: Theme) -> str:
    os.environ["COLUMNS"] = str(COLUMNS)
    out = _Terminal()
    view = TranscriptView(PlainScreen(out, theme, reads=False), Path("/home/you"), has_local_files=False)
    banner = Banner(
        "0.20.0",
        plugins=["calculator: calculate, unit_convert"],
        toolsets={"file": ["a"] * 4, "terminal": ["a"] * 2, "web": ["a"] * 2, "memory": ["a"]},
    )
    lines = banner_lines(banner, "claude-sonnet-5", "anthropic", "", Path("/srv/project"), COLUMNS)
    view.lines(lines)
    view.user_message("What's 2 to the power of 16? And move the backup to half past two.")
    view.begin_turn()
    for call, name, arguments, result, time_ms in (
        ("c1", "calculate", {"expression": "2**16"}, json.dumps({"result": 65536}), 2),
        ("c2", "patch", {"path": "notes.txt"}, json.dumps({"files": ["notes.txt"], "diff": DIFF}), 14),
    ):
        view.event(ToolStarted(call, name, arguments))
        view.event(ToolFinished(call, name, result, "ok", time_ms))
    view.event(TextDelta("2 to the power of 16 is **65536**.\n\n" + ANSWER))
    view.event(TurnFinished("", "answered", Usage(), "m"))
    await view.end_turn()
    totals = UsageTotals(3, 9_000, 700, 0, 0.0321, 0, 6.2)
    status = Status("claude-sonnet-5", 24_000, 200_000, totals, "smart")
    view.lines([status_line(status, COLUMNS)])
    return out.getvalue()


async def _context(theme: Theme) -> str:
    usage = ContextUsage(200_000, 61_500, 8_200, 17_300, 36_000, 31, 42, 160_000)
    return "\n".join(theme.ansi(each) for each in context_lines(usage, "claude-sonnet-5", COLUMNS))


VIEWS = {"chat": _chat, "context": _context}


def draw() -> dict[str, str]:
    """Return the pictures as SVG by file name."""
    without_fonts = re.sub(r"@font-face \{\{.*?\}\}\s*", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL)
    found = {}
    for name, view in VIEWS.items():
        for mode, svg_theme in SVG_THEMES.items():
            text = asyncio.run(view(Theme(mode)))
            console = Console(
                record=True, width=COLUMNS, file=io.StringIO(), color_system="truecolor", legacy_windows=False
            )
            console.print(Text.from_ansi(text.rstrip("\n")), soft_wrap=True)
            svg = console.export_svg(
                title="hermes", theme=svg_theme, code_format=without_fonts, unique_id=f"hermes-{name}-{mode}"
            )
            found[f"{name}-{mode}.svg"] = "\n".join(line.rstrip() for line in svg.splitlines()) + "\n"
    return found


if __name__ == "__main__":
    PICTURES.mkdir(exist_ok=True)
    for name, svg in draw().items():
        (PICTURES / name).write_text(svg, encoding="utf-8")
