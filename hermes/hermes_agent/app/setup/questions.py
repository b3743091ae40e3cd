"""Questions of `hermes setup`, answered at a terminal, or by flags where there is none."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import NamedTuple

from hermes_agent.app.plugins.terminal_io import ask_text, confirm, is_interactive, printable
from hermes_agent.core.errors import EXIT_USAGE, UserError

SHOWN = 20
"""Rows of a list that are shown at once; typing a part of a name narrows it down."""


class Choice(NamedTuple):
    """One row of a list."""

    value: str
    text: str


class Questions:
    """Asks at the terminal. Without one each question is an error that names the flag which answers it."""

    def __init__(self, *, is_allowed: bool) -> None:
        self.can_ask = is_allowed and is_interactive()

    def require(self, flag: str, what: str) -> None:
        """Raise UserError if questions cannot be asked; `flag` is what answers this one."""
        if not self.can_ask:
            raise UserError(
                f"{what} is not given, and there is no terminal to ask at", hint=flag, exit_status=EXIT_USAGE
            )

    def text(self, prompt: str, *, hidden: bool = False) -> str:
        """Return a line of text; a hidden one does not show while it is typed."""
        return ask_text(prompt, hidden=hidden)

    def confirm(self, question: str, *, default: bool) -> bool:
        """Return a yes or no; `default` without a terminal."""
        return confirm(question, default=default) if self.can_ask else default

    def choose(self, title: str, rows: Sequence[Choice], *, own: str = "") -> str:
        """Return the value of a row, chosen by number, by name, or by a part of a name that only one has.

        Args:
            own: what a line may be that names no row ("another model"); empty accepts rows only.
        """
        shown = list(rows)
        while True:
            self._show(title, shown, own)
            said = self.text("Number or name")
            if not said and shown:
                return shown[0].value
            if said.isdecimal() and 1 <= int(said) <= min(len(shown), SHOWN):
                return shown[int(said) - 1].value
            exact = [row.value for row in rows if said == row.value]
            fits = [row for row in rows if said.lower() in f"{row.value} {row.text}".lower()]
            if exact or len(fits) == 1:
                return exact[0] if exact else fits[0].value
            if fits:
                shown = fits
            elif own and said:
                return said
            else:
                print(f"  {printable(said)!r} is none of them.")
                shown = list(rows)

    @staticmethod
    def _show(title: str, rows: Sequence[Choice], own: str) -> None:
        print(f"{title}")
        for number, row in enumerate(rows[:SHOWN], 1):
            print(f"  {number:>2}. {printable(row.text)}")
        if len(rows) > SHOWN:
            print(f"      … {len(rows) - SHOWN} more; type a part of the name")
        if own:
            print(f"      or {own}")
        if rows:
            print(f"  Enter chooses {printable(rows[0].value)}.")


def show_progress(text: str) -> Callable[[str], None]:
    """Print what happens now on stderr, and return the function that completes the line with its result."""
    print(f"{text} … ", end="", flush=True, file=sys.stderr)
    return lambda result: print(result, file=sys.stderr)
