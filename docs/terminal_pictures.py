"""Draw docs/pictures/ from the recorded conversation (`make pictures` records and draws)."""

from __future__ import annotations

import io
import itertools
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pyte
from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console
from rich.style import Style
from rich.terminal_theme import DEFAULT_TERMINAL_THEME, SVG_EXPORT_THEME
from rich.text import Text

PICTURES = Path(__file__).parent / "pictures"
SVG_THEMES = {"dark": SVG_EXPORT_THEME, "light": DEFAULT_TERMINAL_THEME}


def screens(recording: str) -> Iterator[tuple[str, list[Text]]]:
    """Yield the name of each marker of a recording, and the rows of the screen there.

    A marker is `NAME|TEXT`: the rows begin with the last one that has the text.
    """
    head, *events = map(json.loads, recording.splitlines())
    screen = pyte.Screen(head["width"], head["height"])
    stream = pyte.Stream(screen)
    for _, kind, text in events:
        if kind == "o":
            stream.feed(text)
            continue
        name, _, first = text.partition("|")
        rows = [_row(screen, number) for number in range(screen.lines)]
        begin = max((number for number, row in enumerate(rows) if first in row.plain), default=0)
        while rows and not rows[-1].plain.strip():
            rows.pop()
        yield name, rows[begin:]


def _row(screen: pyte.Screen, number: int) -> Text:
    row = Text()
    cells = [screen.buffer[number][column] for column in range(screen.columns)]
    for look, part in itertools.groupby(cells, key=lambda cell: cell._replace(data="")):
        row.append("".join(cell.data for cell in part), _style(look))
    row.rstrip()
    return row


def _style(cell: pyte.screens.Char) -> Style:
    return Style(
        color=_colour(cell.fg),
        bgcolor=_colour(cell.bg),
        bold=cell.bold or None,
        italic=cell.italics or None,
        underline=cell.underscore or None,
        strike=cell.strikethrough or None,
        reverse=cell.reverse or None,
    )


def _colour(name: str) -> str | None:
    """Return rich's name of a colour of pyte."""
    if name == "default":
        return None
    if re.fullmatch("[0-9a-f]{6}", name):
        return f"#{name}"
    name = name.replace("brown", "yellow")
    return name.replace("bright", "bright_")


def svg_format() -> str:
    """Return rich's form of a picture without its fonts, which it would fetch."""
    return re.sub(r"@font-face \{\{.*?\}\}\s*", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL)


def draw() -> dict[str, str]:
    """Return the pictures as SVG by file name."""
    found = {}
    for mode, svg_theme in SVG_THEMES.items():
        recording = (PICTURES / f"conversation-{mode}.cast").read_text(encoding="utf-8")
        for name, rows in screens(recording):
            console = Console(record=True, width=80, file=io.StringIO(), color_system="truecolor", legacy_windows=False)
            for row in rows:
                console.print(row, soft_wrap=True)
            svg = console.export_svg(
                title="hermes", theme=svg_theme, code_format=svg_format(), unique_id=f"hermes-{name}-{mode}"
            )
            found[f"{name}-{mode}.svg"] = "\n".join(line.rstrip() for line in svg.splitlines()) + "\n"
    return found


if __name__ == "__main__":
    for name, svg in draw().items():
        (PICTURES / name).write_text(svg, encoding="utf-8")
