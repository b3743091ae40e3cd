"""Menus: a choice by arrow keys, by a letter, or by typing a part of a name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field

from hermes_agent.console.styled import Line, Piece, crop, fit, line, width_of, wrap
from hermes_agent.core.lazy_types import LazyNamedTuple, lazy_dataclass

VISIBLE_OPTIONS = 10


class MenuOption(LazyNamedTuple):
    """One row of a menu."""

    label: str
    value: str
    key: str = ""
    """A letter that chooses it at once; only in menus without a search."""
    details: str = ""
    """Shown behind the label."""
    asks: str = ""
    """A prompt for a text that belongs to this answer: a reason."""


class MenuAnswer(LazyNamedTuple):
    """What the user chose."""

    value: str
    text: str = ""
    """What was typed for an option that asks for a text."""


@lazy_dataclass
class Menu:
    """An open menu.

    Attributes:
        title: lines above the options.
        has_search: whether typed characters filter the options.
        cursor: number of the selected row among the rows that match.
    """

    title: Sequence[Line]
    options: Sequence[MenuOption]
    has_search: bool = False
    search: str = ""
    cursor: int = 0
    asking: MenuOption | None = field(default=None, init=False)
    """The option for which a text is typed."""

    @property
    def matching(self) -> list[MenuOption]:
        """The options that match the search, best first."""
        if not self.search:
            return list(self.options)
        ranked = [
            (rank, i) for i, o in enumerate(self.options) if (rank := match_rank(self.search, o.label)) is not None
        ]
        return [self.options[i] for _, i in sorted(ranked)]

    @property
    def selected(self) -> MenuOption | None:
        """The option under the cursor."""
        found = self.matching
        return found[min(self.cursor, len(found) - 1)] if found else None

    def move(self, rows: int) -> None:
        """Move the cursor; it wraps around."""
        count = len(self.matching)
        self.cursor = (self.cursor + rows) % count if count else 0

    def type(self, text: str) -> None:
        """Add to the search."""
        self.search += text
        self.cursor = 0

    def erase(self) -> None:
        """Remove the last character of the search."""
        self.search = self.search[:-1]
        self.cursor = 0

    def find(self, key: str) -> MenuOption | None:
        """Return the option of a letter or number, or None."""
        if self.has_search:
            return None
        if key.isdecimal() and 0 < int(key) <= len(self.options):
            return self.options[int(key) - 1]
        return next((option for option in self.options if option.key == key.lower()), None)

    def lines(self, width: int) -> list[Line]:
        """Return the menu as it is shown."""
        found = self.matching
        lines = [crop(each, width) for each in self.title]
        if self.has_search:
            hint = "type to search" if not self.search else ""
            lines.append((Piece("prompt", "search: "), Piece("", self.search), Piece("dim", hint)))
        if not found:
            lines.append(line("  nothing matches", "dim"))
        first = max(0, min(self.cursor - VISIBLE_OPTIONS // 2, len(found) - VISIBLE_OPTIONS))
        shown = found[first : first + VISIBLE_OPTIONS]
        labels = max((width_of(option.label) for option in shown), default=0)
        is_stacked = not self.has_search and any(labels + width_of(o.details) + 8 > width for o in shown if o.details)
        for number, option in enumerate(shown, first):
            row = option._replace(details="") if is_stacked else option
            lines.append(self._row(row, number, min(labels, max(width // 2, 12)), width))
            if is_stacked and option.details:  # below the label, rather than cut
                lines += wrap([Piece("dim", option.details)], width, line(" " * 6))
        chosen = self.selected if self.has_search else None
        if chosen is not None and chosen.details and labels + width_of(chosen.details) + 4 > width:
            lines += wrap([Piece("strong", chosen.label), Piece("dim", f"  {chosen.details}")], width)
        if len(found) > VISIBLE_OPTIONS:
            lines.append(line(f"  {self.cursor + 1} of {len(found)}", "dim"))
        keys = "↑↓ move · Enter choose · Esc cancel"
        lines.append(line(fit(keys, width), "dim"))
        return lines

    def _row(self, option: MenuOption, number: int, labels: int, width: int) -> Line:
        is_selected = number == self.cursor
        style = "selected" if is_selected else ""
        key = f"[{option.key}] " if option.key else ("" if self.has_search else f"{number + 1}. ")
        label = fit(option.label, labels) if option.details else option.label
        space = " " * max(labels - width_of(label), 0) if option.details else ""
        pieces = [Piece("prompt" if is_selected else "", "› " if is_selected else "  "), Piece("marker", key)]
        pieces += [Piece(style, label), Piece("", space), Piece("dim", f"  {option.details}" if option.details else "")]
        return crop([piece for piece in pieces if piece.text], width)


def match_rank(search: str, name: str) -> tuple[int, int] | None:
    """Return how well a name matches a search, less is better; None where it does not.

    The name contains the search, or all its characters in their order.
    """
    search, name = search.lower(), name.lower()
    place = name.find(search)
    if place >= 0:
        return (0 if place == 0 or not name[place - 1].isalnum() else 1, len(name))
    start = at = -1
    for character in search:
        at = name.find(character, at + 1)
        if at < 0:
            return None
        start = at if start < 0 else start
    return (2 + at - start, len(name))
