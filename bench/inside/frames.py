"""Frames of an answer of 100 kB on the live screen of a pseudo-terminal: CPU time of each, as JSON."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from functools import partial
from pathlib import Path

from hermes_agent.console.line_editor import CompletionSource, input_buffer
from hermes_agent.console.live_screen import LiveScreen
from hermes_agent.console.markdown_view import load_renderer
from hermes_agent.console.styled import Theme
from hermes_agent.console.transcript_view import FRAME_S, TranscriptView

SIZE = 100_000
PIECE = 200
"""Characters that the model sends at once."""
PIECES_A_FRAME = 4
PART = """\
## A heading

A paragraph with **bold**, *italic* and `code`, long enough that it is broken into several rows of the terminal, and a
[link](https://example.org/manual).

- an item
- another item
  1. a numbered one

```python
def backup(path: str) -> int:
    # copies all files
    return len(path)
```

| disk | size | state |
|:-----|-----:|:------|
| vault | 2 TB | mounted and checked every week |

"""


async def measure() -> list[float]:
    """Return the CPU milliseconds of each frame."""
    source = CompletionSource(list, lambda name: [], list, Path.cwd)
    screen = LiveScreen(
        Theme(), partial(input_buffer, Path("history"), lambda action: action(), source), lambda text: ""
    )
    view = TranscriptView(screen, Path.cwd(), has_local_files=False)
    load_renderer()
    reading = asyncio.ensure_future(screen.run(_Nothing()))
    await asyncio.sleep(FRAME_S)
    text = PART * (SIZE // len(PART))
    pieces = [text[at : at + PIECE] for at in range(0, len(text), PIECE)]
    spent = []
    screen.set_busy(True)
    while pieces:
        began = time.thread_time()
        for piece in pieces[:PIECES_A_FRAME]:
            view.text(piece)
        del pieces[:PIECES_A_FRAME]
        screen.show(*view.frame())
        spent.append((time.thread_time() - began) * 1000)
        await asyncio.sleep(0)
    screen.stop()
    await reading
    return spent


class _Nothing:
    """Takes no input."""

    def __getattr__(self, name: str) -> object:
        return lambda *arguments: None


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(json.dumps(asyncio.run(measure())))
