"""Declaration of subcommands, the home and the host that they use, and their output."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal

from hermes_agent.core.errors import EXIT_FAILED, EXIT_OK
from hermes_agent.core.lazy_types import LazyNamedTuple

if TYPE_CHECKING:
    from pathlib import Path

    from hermes_agent.contracts.command import CliCommand
    from hermes_agent.host import Host


Args = argparse.Namespace
Run = Callable[[Args], int | None]
"""Returns the exit status; None stands for success."""
Argument = Callable[[argparse._ActionsContainer], object]
"""Adds an argument to a parser."""


def argument(*names: str, **settings: Any) -> Argument:
    """Return an argument; the parameters are those of `ArgumentParser.add_argument`."""
    return lambda parser: parser.add_argument(*names, **settings)


def exclusive(*arguments: Argument) -> Argument:
    """Return arguments of which at most one may be given."""

    def add(parser: argparse._ActionsContainer) -> None:
        group = parser.add_mutually_exclusive_group()
        for each in arguments:
            each(group)

    return add


JSON = argument("--json", action="store_true", help="print JSON")


class _AcceptHooks(argparse.Action):
    """Sets the variable that allows the shell hooks of the config in this process."""

    def __call__(self, parser: Any, namespace: argparse.Namespace, values: Any, option: str | None = None) -> None:
        setattr(namespace, self.dest, True)
        os.environ["HERMES_ACCEPT_HOOKS"] = "1"


ACCEPT_HOOKS = argument(
    "--accept-hooks", action=_AcceptHooks, nargs=0, help="run the shell hooks of the config without asking for consent"
)
YES = argument("-y", "--yes", action="store_true", help="do not ask")


class CliSubcommand:
    """A subcommand of `hermes`. Its module decorates the functions that run it.

    Args:
        settings: arguments of the parser (`description`, `epilog`, …).
    """

    def __init__(self, name: str, about: str, **settings: Any) -> None:
        self._name = name
        self._settings = {"help": about, **settings}
        self._default: tuple[Sequence[Argument], dict[str, Any]] | None = None
        self._actions: list[tuple[str, dict[str, Any], Sequence[Argument], Run]] = []

    def default(self, *arguments: Argument, **defaults: Any) -> Callable[[Run], Run]:
        """Declare the function that runs without an action.

        Args:
            defaults: values of arguments that only actions have.
        """

        def declare(run: Run) -> Run:
            self._default = arguments, {**defaults, "run": lambda args: run(args) or EXIT_OK}
            return run

        return declare

    def action(self, name: str, about: str, *arguments: Argument, **settings: Any) -> Callable[[Run], Run]:
        """Declare `hermes COMMAND NAME`."""

        def declare(run: Run) -> Run:
            self._actions.append((name, {"help": about, **settings}, arguments, lambda args: run(args) or EXIT_OK))
            return run

        return declare

    def add_command(self, command: CliCommand) -> None:
        """Add an action that a plugin declares in the form of a command of its own."""
        handler = command.handler_fn

        def setup(parser: argparse._ActionsContainer) -> None:
            assert isinstance(parser, argparse.ArgumentParser)
            command.setup_fn(parser)

        self.action(command.name, command.help, setup)(lambda args: handler(args) if handler is not None else None)

    def add(self, subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
        """Add the subcommand to the command line."""
        parser = subparsers.add_parser(self._name, **self._settings)
        if self._default is not None:
            _set(parser, self._default[0], **self._default[1])
        if self._actions:
            # prog: without it argparse makes a help formatter, which imports shutil
            actions = parser.add_subparsers(prog=parser.prog, metavar="ACTION", required=self._default is None)
            for name, settings, arguments, run in self._actions:
                _set(actions.add_parser(name, **settings), arguments, run=run)


def _set(parser: argparse.ArgumentParser, arguments: Sequence[Argument], **defaults: Any) -> None:
    for each in arguments:
        each(parser)
    parser.set_defaults(**defaults)


def ensure_home() -> Path:
    """Return the home; a missing one is created."""
    from hermes_agent.config import hermes_home, make_home  # imports YAML, which few commands need

    home = hermes_home()
    make_home(home)
    return home


@contextmanager
def activity(text: str) -> Iterator[Callable[[str], None]]:
    """Show on stderr what takes long, and since when, while the block lasts; only at a terminal.

    The block writes nothing. The line is gone at its end. The function that is yielded replaces the text.
    """
    if not sys.stderr.isatty():
        yield lambda text: None
        return
    from hermes_agent.system.activity_line import activity_line  # only at a terminal

    with activity_line(text) as line:
        yield (lambda text: None) if line is None else line.say


@contextmanager
def loaded_host() -> Iterator[Host]:
    """Yield a host with loaded plugins, and close it afterwards."""
    import asyncio  # most commands need neither host nor plugins

    from hermes_agent.app.start import start_host

    with activity("loading the agent and its plugins"):
        host = start_host()
    try:
        yield host
    finally:
        asyncio.run(host.aclose())


def print_json(value: Any) -> int:
    """Print a value as JSON, and return the exit status."""
    text = json.dumps(value, indent=2, ensure_ascii=False, default=str)
    # undecodable file names have lone surrogates, which cannot be printed; JSON escapes them
    print(text.encode("utf-8", "backslashreplace").decode())
    return EXIT_OK


def print_rows(rows: Sequence[Sequence[str]]) -> None:
    """Print rows in columns; the last column is not padded."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        print("  ".join([*map(str.ljust, row[:-1], widths), row[-1]]).rstrip())


Level = Literal["ok", "idle", "note", "wrong"]
SIGNS = {"ok": "✓", "idle": "○", "note": "!", "wrong": "✗"}


class Diagnosis(LazyNamedTuple):
    """One line of the doctor's output."""

    level: Level
    """`ok`: it works; `idle`: it is not meant to work; `note`: for information; `wrong`: to be fixed."""
    subject: str
    """Key of a plugin, path, or name of a setting."""
    text: str
    remedy: str = ""


def printable(text: str) -> str:
    """Return the text in one line, with control characters as `\\xNN`."""
    return "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in " ".join(text.split()))


def print_lines(lines: Iterable[Diagnosis], *, width: int) -> None:
    """Print one finding a line.

    Args:
        width: width of the column of subjects, in characters.
    """
    for line in lines:
        remedy = f" — {line.remedy}" if line.remedy else ""
        print(f"{SIGNS[line.level]} {printable(line.subject):<{width}}  {printable(line.text + remedy)}")


def report_checks(checks: Iterable[Diagnosis], *, as_json: bool) -> int:
    """Print each finding as it comes, or all as JSON; return the exit status, 1 if something is wrong."""
    lines, coming = [], iter(checks)
    while True:
        with activity("checking"):
            line = next(coming, None)
        if line is None:
            break
        lines.append(line)
        if not as_json:
            print_lines([line], width=10)
    if as_json:
        print_json([line._asdict() for line in lines])
    return EXIT_FAILED if any(line.level == "wrong" for line in lines) else EXIT_OK
