"""Upstream's ways of asking and telling somebody at a terminal. Source: plugin contract §11.2.

Without a terminal every question has its default for an answer.
"""

from __future__ import annotations

import getpass
import os
import sys
from collections.abc import Sequence

from hermes_agent.core.errors import UserError

__all__ = [
    "Colors",
    "color",
    "curses_radiolist",
    "masked_secret_prompt",
    "print_error",
    "print_header",
    "print_info",
    "print_success",
    "print_warning",
    "prompt",
    "prompt_choice",
    "prompt_yes_no",
]


class Colors:
    """Escape sequences of a terminal."""

    RESET = "\033[0m"
    BOLD = "\033[1m"
    DIM = "\033[2m"
    RED = "\033[31m"
    GREEN = "\033[32m"
    YELLOW = "\033[33m"
    BLUE = "\033[34m"
    MAGENTA = "\033[35m"
    CYAN = "\033[36m"


def color(text: str, *codes: str) -> str:
    """Return `text` in the given colours; plain where the output is no terminal, or `NO_COLOR` is set."""
    if not codes or os.environ.get("NO_COLOR") or not sys.stdout.isatty():
        return text
    return f"{''.join(codes)}{text}{Colors.RESET}"


def print_header(text: str) -> None:
    """Print the title of a section."""
    print(f"\n{color(f'◆ {text}', Colors.CYAN, Colors.BOLD)}")


def print_info(text: str) -> None:
    """Print a line of explanation."""
    print(color(f"  {text}", Colors.DIM))


def print_success(text: str) -> None:
    """Print that something was done."""
    print(color(f"✓ {text}", Colors.GREEN))


def print_warning(text: str) -> None:
    """Print what somebody should look at."""
    print(color(f"⚠ {text}", Colors.YELLOW))


def print_error(text: str) -> None:
    """Print what failed."""
    print(color(f"✗ {text}", Colors.RED))


def prompt(question: str, default: str | None = None, password: bool = False) -> str:
    """Ask for a line of text and return it, `default` (or nothing) when it is empty.

    Args:
        password: do not show what is typed.
    """
    shown = f" [{default}]" if default and not password else ""
    line = f"{color(f'{question}{shown}', Colors.YELLOW)}: "
    return (masked_secret_prompt(line) if password else _line(line)) or default or ""


def prompt_yes_no(question: str, default: bool = True) -> bool:
    """Ask a question until the answer is yes or no; an empty one is `default`."""
    while True:
        answer = _line(f"{color(question, Colors.YELLOW)} [{'Y/n' if default else 'y/N'}]: ").lower()
        if not answer:
            return default
        if answer in ("y", "yes"):
            return True
        if answer in ("n", "no"):
            return False
        print_error("Please answer y or n.")


def prompt_choice(question: str, choices: Sequence[str], default: int = 0, description: str | None = None) -> int:
    """Let somebody choose one of `choices` and return its index."""
    return curses_radiolist(question, list(choices), default, description=description)


def curses_radiolist(
    title: str,
    items: list[str],
    selected: int = 0,
    *,
    cancel_returns: int | None = None,
    description: str | None = None,
    searchable: bool = False,
) -> int:
    """Let somebody choose one of a numbered list and return its index.

    Args:
        selected: the answer of an empty line.
        cancel_returns: the answer of `q`, end of input or Ctrl-C; None: `selected`.
        searchable: a part of an item's text, which only one item has, is an answer, too; taken for every list.
    """
    cancelled = selected if cancel_returns is None else cancel_returns
    print(color(title, Colors.BOLD))
    if description:
        print(color(description, Colors.DIM))
    for number, item in enumerate(items, 1):
        print(f"  {'●' if number - 1 == selected else '○'} {number}. {item}")
    while True:
        try:
            answer = _asked(f"Choice [{selected + 1}]: ")
        except (EOFError, KeyboardInterrupt):
            print()
            return cancelled
        if not answer:
            return selected
        if answer.lower() == "q":
            return cancelled
        if answer.isdigit() and 1 <= int(answer) <= len(items):
            return int(answer) - 1
        matches = [i for i, item in enumerate(items) if answer.lower() in item.lower()]
        if len(matches) == 1:
            return matches[0]
        print_error(f"Please answer with a number from 1 to {len(items)}, or q.")


def masked_secret_prompt(prompt: str, *, mask: str = "*") -> str:
    """Ask for a secret; what is typed is not shown.

    Args:
        mask: upstream shows it for each character; nothing is shown here, so that not even the length is told.
    """
    if not sys.stdin.isatty():
        return _line(prompt)
    try:
        return getpass.getpass(prompt).strip()
    except EOFError:
        return ""


def _line(question: str) -> str:
    """Return a line without blanks around it; empty at the end of input.

    Raises:
        UserError: Ctrl-C.
    """
    try:
        return _asked(question)
    except EOFError:
        print()
        return ""
    except KeyboardInterrupt:
        print()
        raise UserError("cancelled") from None


def _asked(question: str) -> str:
    return input(question).strip()
