"""Questions to the user, progress of programs, and tables, for the subcommands of `hermes plugins`.

Without a terminal no question is asked and the answer is no. Text of plugins and programs is printed without control
characters, so that it cannot send escape sequences to the terminal.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from hermes_agent.app.cli.command import printable as printable
from hermes_agent.core.errors import UserError
from hermes_agent.plugins.manifest import PluginManifest

DAEMON_LIMIT_S = 120.0
"""Longest wait for the daemon, in seconds; each plugin also has its own `plugins.load_timeout_s`."""


def apply_in_daemon(home: Path, key: str, later: str) -> None:
    """Let a running daemon load, reload or stop a plugin, and print what it did.

    Args:
        later: printed where no daemon runs; "" prints nothing.
    """
    from hermes_agent.app.daemon_client import ask_daemon  # asyncio, which a command without a daemon does not load
    from hermes_agent.service.daemon_state import lock_holder

    if lock_holder(home) is None:
        if later:
            print(later)
        return
    try:
        answer = ask_daemon(home, {"op": "plugin", "name": key}, timeout_s=DAEMON_LIMIT_S)
    except UserError as error:
        print(f"The running daemon did not take it: {error}. `hermes plugins reload {key}` tries it again.")
        return
    for row in answer["plugins"]:
        if row["key"] == key or row["outcome"] != "unchanged":
            reason = f": {printable(row['reason'])}" if row["reason"] else ""
            print(f"The running daemon: {row['key']} {row['outcome']}{reason}")
    if any(row["outcome"] == "loaded" and row["key"] == key for row in answer["plugins"]):
        print("Its commands answer now; its tools are there in new sessions (`/new` in a chat).")


def is_interactive() -> bool:
    """Return True if the user can be asked: standard input and output are a terminal."""
    return sys.stdin.isatty() and sys.stdout.isatty()


def confirm(question: str, *, default: bool = False) -> bool:
    """Ask a yes-or-no question; an empty line means `default`. Return False without a terminal."""
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
    """Return whether to continue: True if `yes` is set, else the user's answer. Print a note after a no.

    Args:
        done: participle for the note, for example "granted".
        unasked: how to continue without a terminal, for example "`… --yes` grants it".
    """
    if yes or confirm(question, default=default):
        return True
    if is_interactive():
        print(f"Not {done}.")
    else:
        print(f"hermes: not {done}: no user can be asked here; {unasked}", file=sys.stderr)
    return False


def ask_text(prompt: str, *, hidden: bool) -> str:
    """Ask for a line of text; return "" at the end of input. With `hidden` the text is not shown."""
    try:
        if hidden:
            import getpass  # only needed for secrets

            return getpass.getpass(f"{prompt}: ").strip()
        return input(f"{prompt}: ").strip()
    except EOFError:
        return ""


def progress_printer() -> Callable[[bytes], None] | None:
    """Return a function that prints a program's output on standard error, or None without a terminal."""
    if not sys.stderr.isatty():
        return None

    def tell(data: bytes) -> None:
        text = data.decode("utf-8", "replace")
        sys.stderr.write("".join(c for c in text if c.isprintable() or c in "\r\n"))
        sys.stderr.flush()

    return tell


WORDS = {"cli_commands": "terminal", "commands": "commands"}
"""Names shown for kinds of registrations; other kinds are shown by their own name."""
MARKS = {"fired": "", "never": " (never called)"}
"""Suffix of a hook's name, by the status in the catalog of hooks."""


def title(manifest: PluginManifest) -> str:
    """Return `calculator 1.0.0 by Ada: A calculator`."""
    version = f" {manifest.shown_version}" if manifest.shown_version else ""
    author = f" by {manifest.author}" if manifest.author else ""
    about = f": {manifest.description}" if manifest.description else ""
    return printable(f"{manifest.key}{version}{author}{about}")


def table(rows: Iterable[tuple[str, str]]) -> list[str]:
    """Return the rows as lines with two columns; rows without text are omitted."""
    kept = [(name, text) for name, text in rows if text]
    width = max((len(name) for name, _ in kept), default=0)
    return [f"  {name:<{width}}  {printable(text)}" for name, text in kept]


def registers_lines(registers: Mapping[str, Sequence[str]]) -> list[tuple[str, str]]:
    """Return a row for each kind of registration; hooks that this version never calls are marked."""
    rows = []
    for kind, names in registers.items():
        words = [f"{name}{_mark(name)}" if kind == "hooks" else name for name in names]
        rows.append((WORDS.get(kind, kind), ", ".join(words)))
    return rows


def _mark(hook: str) -> str:
    from hermes_agent.hooks.catalog import HOOKS  # imports asyncio: only needed to show hooks

    known = HOOKS.get(hook)
    return MARKS[known.status] if known is not None else " (unknown, never called)"


def capability_changes(before: Mapping[str, Sequence[str]], now: Mapping[str, Sequence[str]]) -> list[str]:
    """Return a line for each name that was added (`+ tools: fetch_url`) or removed (`- hooks: …`)."""
    lines = []
    for kind in sorted({*before, *now}):
        old, new = set(before.get(kind, ())), set(now.get(kind, ()))
        lines += [f"  + {kind}: {printable(name)}" for name in sorted(new - old)]
        lines += [f"  - {kind}: {printable(name)}" for name in sorted(old - new)]
    return lines


def link_command(folder: Path, plugins: Path) -> str:
    """Return the shell command that links a plugin's folder into `plugins`, which it creates if needed."""
    return f"mkdir -p {plugins} && ln -s {folder.resolve()} {plugins}/"
