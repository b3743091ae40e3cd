"""Questions to the person at the terminal. Where nobody is there, nothing is asked and the answer is no.

What a fetching program prints, shown while it runs: on a terminal alone, and without its control sequences.

What a plugin is and may do, in lines for a person. Text of strangers cannot speak to the terminal.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from hermes_agent.plugins.manifest import PluginManifest


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


def progress_printer() -> Callable[[bytes], None] | None:
    """Return what takes a program's output; None where nobody looks on."""
    if not sys.stderr.isatty():
        return None

    def tell(data: bytes) -> None:
        text = data.decode("utf-8", "replace")
        sys.stderr.write("".join(c for c in text if c.isprintable() or c in "\r\n"))
        sys.stderr.flush()

    return tell


WORDS = {"cli_commands": "terminal", "commands": "commands"}
"""Kinds of registrations whose name in the code is not the one for people."""
MARKS = {"fired": "", "never": " (never called)"}
"""What stands behind a hook's name, by its status in the table."""


def printable(text: str) -> str:
    """Return the text in one line, control characters made visible."""
    return "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in " ".join(text.split()))


def title(manifest: PluginManifest) -> str:
    """Return `calculator 1.0.0 by Ada: A calculator`."""
    version = f" {manifest.shown_version}" if manifest.shown_version else ""
    author = f" by {manifest.author}" if manifest.author else ""
    about = f": {manifest.description}" if manifest.description else ""
    return printable(f"{manifest.key}{version}{author}{about}")


def table(rows: Iterable[tuple[str, str]]) -> list[str]:
    """Return the rows as two columns; a row without text is left out."""
    kept = [(name, text) for name, text in rows if text]
    width = max((len(name) for name, _ in kept), default=0)
    return [f"  {name:<{width}}  {printable(text)}" for name, text in kept]


def registers_lines(registers: Mapping[str, Sequence[str]]) -> list[tuple[str, str]]:
    """Return a row for each kind of registration; hooks that this release never calls are marked."""
    rows = []
    for kind, names in registers.items():
        words = [f"{name}{_mark(name)}" if kind == "hooks" else name for name in names]
        rows.append((WORDS.get(kind, kind), ", ".join(words)))
    return rows


def _mark(hook: str) -> str:
    from hermes_agent.hooks.catalog import HOOKS  # with the bus and asyncio: not for who shows no hook

    known = HOOKS.get(hook)
    return MARKS[known.status] if known is not None else " (unknown, never called)"


def capability_changes(before: Mapping[str, Sequence[str]], now: Mapping[str, Sequence[str]]) -> list[str]:
    """Return `+ tool fetch_url` and `- hook pre_llm_call`, a line each."""
    lines = []
    for kind in sorted({*before, *now}):
        old, new = set(before.get(kind, ())), set(now.get(kind, ()))
        lines += [f"  + {kind}: {printable(name)}" for name in sorted(new - old)]
        lines += [f"  - {kind}: {printable(name)}" for name in sorted(old - new)]
    return lines


def link_command(folder: Path, plugins: Path) -> str:
    """Return the shell command that links a plugin's folder into the folder of plugins, which need not exist."""
    return f"mkdir -p {plugins} && ln -s {folder.resolve()} {plugins}/"
