"""Questions to the person at the terminal. Where nobody is there, nothing is asked and the answer is no."""

from __future__ import annotations

import sys

__all__ = ["confirmed", "confirm", "is_interactive", "ask_text"]


def is_interactive() -> bool:
    """Say whether a person can be asked: input and output are a terminal."""
    return sys.stdin.isatty() and sys.stdout.isatty()


def confirm(question: str, *, default: bool = False) -> bool:
    """Ask for yes or no; `default` is what an empty line means. Without a person: no."""
    if not is_interactive():
        return False
    choices = "[Y/n]" if default else "[y/N]"
    while True:
        try:
            answer = input(f"{question} {choices} ").strip().lower()
        except EOFError:
            return False
        if answer in ("", "y", "yes", "n", "no"):
            return default if not answer else answer.startswith("y")


def confirmed(question: str, done: str, unasked: str, *, yes: bool, default: bool = False) -> bool:
    """Ask whether to go on, unless `yes` is set; of a no, say that it was not `done` (`granted`).

    Args:
        unasked: what does it where nobody can be asked, for example "`… --yes` grants it".
    """
    if yes or confirm(question, default=default):
        return True
    if is_interactive():
        print(f"Not {done}.")
    else:
        print(f"hermes: not {done}: nobody can be asked here; {unasked}", file=sys.stderr)
    return False


def ask_text(prompt: str, *, hidden: bool) -> str:
    """Ask for a line of text; empty when there is none. A hidden one is not shown while it is typed."""
    try:
        if hidden:
            import getpass  # only for secrets

            return getpass.getpass(f"{prompt}: ").strip()
        return input(f"{prompt}: ").strip()
    except EOFError:
        return ""
