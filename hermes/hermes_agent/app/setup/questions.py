"""Questions of `hermes setup` at the terminal; flags answer them where there is none."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence

from hermes_agent.app.plugins.terminal_io import ask_text, confirm, is_interactive, printable
from hermes_agent.core.errors import EXIT_USAGE, UserError
from hermes_agent.core.lazy_types import LazyNamedTuple

SHOWN = 20
"""Largest number of rows shown at once; the user narrows a longer list by typing a part of a name."""


class Choice(LazyNamedTuple):
    """One row of a list that the user chooses from."""

    value: str
    text: str


class Questions:
    """Ask questions at the terminal.

    Without a terminal, `require` raises an error that names the flag for the missing answer.
    """

    def __init__(self, *, is_allowed: bool) -> None:
        self.can_ask = is_allowed and is_interactive()

    def require(self, flag: str, what: str) -> None:
        """Check that a question can be asked.

        Args:
            flag: hint that names the flag for the answer.
            what: what is missing, for the message.

        Raises:
            UserError: there is no terminal, or questions are not allowed.
        """
        if not self.can_ask:
            raise UserError(
                f"{what} is not given, and there is no terminal to ask at", hint=flag, exit_status=EXIT_USAGE
            )

    def text(self, prompt: str, *, hidden: bool = False) -> str:
        """Ask for a line of text and return it; with `hidden` the text is not shown."""
        return ask_text(prompt, hidden=hidden)

    def confirm(self, question: str, *, default: bool) -> bool:
        """Return the answer to a yes-or-no question, or `default` without a terminal."""
        return confirm(question, default=default) if self.can_ask else default

    def choose(self, title: str, rows: Sequence[Choice], *, own: str = "") -> str:
        """Let the user choose a row by number, value, or a part that only one row has; return its value.

        Args:
            own: meaning of a line that matches no row, such as "the name of another model"; "" accepts rows only.
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
    """Print the current activity on standard error, and return a function that appends its result."""
    print(f"{text} … ", end="", flush=True, file=sys.stderr)
    return lambda result: print(result, file=sys.stderr)
