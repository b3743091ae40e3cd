"""The parser of the command line: help with examples, and errors that name what is near."""

from __future__ import annotations

import argparse
import functools
import os
import sys
from collections.abc import Iterable, Sequence
from typing import Any, NoReturn

from hermes_agent.core.text import nearest_name

MAX_CHOICES = 12
"""Choices that an error lists."""


class Parser(argparse.ArgumentParser):
    """A parser that measures the terminal itself: `argparse` would import `shutil` with every compressor."""

    def __init__(self, *, formatter_class: Any = argparse.HelpFormatter, **options: Any) -> None:
        super().__init__(formatter_class=functools.partial(formatter_class, width=_columns() - 2), **options)

    def format_help(self) -> str:
        """Return the help, with the examples of the command."""
        from hermes_agent.app.cli.examples import examples_of  # only for help

        found = examples_of(self.prog)
        return super().format_help() + "".join(["\nexamples:\n", *(f"  {each}\n" for each in found)] if found else [])

    def parse_args(self, args: Sequence[str] | None = None, namespace: Any = None) -> Any:  # type: ignore[override]
        """Parse arguments; an unknown one ends the program with the nearest option of the command."""
        words = sys.argv[1:] if args is None else list(args)
        parsed, unknown = self.parse_known_args(words, namespace)
        if unknown:
            used = self._used_parser(words)
            used.error(_unknown_sentence(unknown, used._option_string_actions))
        return parsed

    def error(self, message: str) -> NoReturn:
        """Print what is wrong and how to see the help, and exit with status 2."""
        self.print_usage(sys.stderr)
        self.exit(2, f"{self.prog}: error: {message}\n`{self.prog} --help` shows more.\n")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is None or value in action.choices:
            return
        known = [str(choice) for choice in action.choices]
        near = nearest_name(str(value), known)
        hint = f"did you mean `{near}`?" if near else f"there are: {', '.join(known[:MAX_CHOICES])}"
        is_command = isinstance(action, argparse._SubParsersAction)
        what = "there is no command" if is_command else "there is no value"
        raise argparse.ArgumentError(None if is_command else action, f"{what} {str(value)!r} ({hint})")

    def _used_parser(self, words: Sequence[str]) -> Parser:
        """Return the parser of the command that the words name."""
        parser: Parser = self
        for word in words:
            action = next((a for a in parser._actions if isinstance(a, argparse._SubParsersAction)), None)
            if action is not None and isinstance(found := action.choices.get(word), Parser):
                parser = found
        return parser


def _unknown_sentence(unknown: Sequence[str], options: Iterable[str]) -> str:
    """Return the sentence about arguments that a command does not have."""
    for word in unknown:
        if word.startswith("-"):
            name = word.partition("=")[0]
            near = nearest_name(name, [option for option in options if option.startswith("--")])
            return f"there is no option {name}" + (f" (did you mean `{near}`?)" if near else "")
    return f"too many arguments: {' '.join(unknown)}"


def _columns() -> int:
    """Return the width of the terminal in characters, as `shutil.get_terminal_size` does."""
    named = os.environ.get("COLUMNS", "")
    if named.isdecimal() and int(named):
        return int(named)
    try:
        return os.get_terminal_size(sys.__stdout__.fileno()).columns or 80  # type: ignore[union-attr]
    except (AttributeError, ValueError, OSError):  # no stdout, or no terminal
        return 80
