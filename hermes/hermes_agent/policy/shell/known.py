"""Which programs are known (`known.txt`): what no line of it names may do anything, so that somebody is asked."""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from fnmatch import fnmatchcase
from importlib.resources import files

from hermes_agent.policy.shell.paths import is_temporary, resolve_place
from hermes_agent.policy.shell.script import UNKNOWN, ShellCommand
from hermes_agent.policy.shell.table import Program, find_program, parse_arguments, split_subcommand

__all__ = ["is_installed", "is_known", "is_project", "is_undecided", "unknown_label", "is_harmless_use"]

_INSTALLED = re.compile(r"/(?:(?:usr|opt|nix/store|snap|run/current-system)/|s?bin/)|~/\.(?:local|cargo|npm)")
_RUNNERS = frozenset({"poetry", "pdm", "hatch", "rye", "pixi", "pipenv", "uv", "bundle", "bundler", "rbenv", "tox"})
"""Programs that run what belongs to the project."""
_HELP = frozenset({"--help", "--version", "-h", "-V", "-version", "-help"})
_VERSION = re.compile(r"[-.\d]+$")
_TARGET = re.compile(r"^\w+-(?:\w+-)*(?:gnu\w*|eabi\w*|elf|musl\w*|mingw32|none)-")
"""What compilers for another machine have before their name."""


@functools.cache
def _table() -> dict[str, tuple[str, ...]]:
    """Return the known programs with the words that are known of each; none where any is."""
    found: dict[str, tuple[str, ...]] = {}
    for line in (files("hermes_agent.policy.shell") / "known.txt").read_text("utf-8").splitlines():
        if not line.startswith("#"):
            names, _, words = line.partition(" | ")
            found |= dict.fromkeys(names.split(), tuple(words.split()))
    return found


def _words(name: str) -> tuple[str, ...] | None:
    """Return the words that are known of a program; None for an unknown one."""
    table, plain = _table(), name.lower().removesuffix(".exe")
    spellings = (name, plain, _VERSION.sub("", plain), _VERSION.sub("", _TARGET.sub("", plain)))
    return next((table[spelled] for spelled in spellings if spelled in table), None)


def is_installed(path: str) -> bool:
    """Say whether a path lies where programs of the machine or the user are installed."""
    return _INSTALLED.match(path) is not None


def is_project(command: ShellCommand) -> bool:
    """Say whether the program is the project's: it lies below the working directory, or a project's tool runs it."""
    path = command.words[0].text
    if "/" in path:
        return not path.startswith(("/", "~")) or is_temporary(resolve_place(command, path))
    return command.via[-1:] != () and command.via[-1] in _RUNNERS


def is_harmless_use(command: ShellCommand) -> bool:
    """Say whether a program that has power is used in a way that is known to have none."""
    return bool(_words(command.name)) and _allowed(command)


def is_known(command: ShellCommand) -> bool:
    """Say whether the program is known, with what it is told to do."""
    name = command.name
    if not name or UNKNOWN in name or re.search(r"[*?]|\[.+\]", name) or is_project(command):
        return True  # no program, one that other rules ask about, or a project's own
    if command.args[-1:] and command.args[-1] in _HELP and len(command.args) < 4:
        return _words(name) is not None or not any(arg.startswith("-") for arg in command.args[:-1])
    path = resolve_place(command, command.words[0].text)
    if path.startswith(("/", "~")) and "/" in command.words[0].text and not is_installed(path):
        return False
    return _allowed(command) or is_undecided(command)


def is_undecided(command: ShellCommand) -> bool:
    """Say whether what a program that has power is told is only known when it runs: `git "$WHAT"`."""
    if not _words(command.name) or _allowed(command):
        return False
    operands = parse_arguments(command, find_program(command.name) or Program()).operands
    return bool(operands) and UNKNOWN in operands[0][0].text


def unknown_label(command: ShellCommand) -> str:
    """Return what is unknown: the name of a program, or of one that has power with the word that decides."""
    words = _words(command.name)
    if not words:
        return command.name
    if all(word.startswith("-") for word in words):
        said = [arg for arg in command.args if arg.startswith("-") and not _listed(arg, words)]
    else:
        said = [word.text for word in split_subcommand(command)[0]]
    return f"{command.name} {said[0]}" if said and re.fullmatch(r"[\w:.-]{1,40}", said[0]) else command.name


def _allowed(command: ShellCommand) -> bool:
    words = _words(command.name)
    if not words:
        return words is not None
    given = parse_arguments(command, find_program(command.name) or Program())
    operands = [word.text for word, _ in given.operands]
    if not command.args or "--dry-run" in command.args:
        return True
    if operands and operands[0] in split_subcommand(command)[1]:
        return True  # an alias, which stands for what it was set to
    below = _words(f"{command.name}|{operands[0]}") if operands else None
    if below is not None:
        rest = given.words[given.operands[0][1] + 1 :]
        inner = parse_arguments(command, find_program(f"{command.name}|{operands[0]}") or Program(), rest)
        return _fits(below, [word.text for word, _ in inner.operands], [word.text for word in rest])
    return _fits(words, operands, command.args)


def _fits(words: Sequence[str], operands: Sequence[str], args: Sequence[str]) -> bool:
    """Say whether the first operands are known, or each option is."""
    if any(_is_prefix(word.split("/"), operands) for word in words if word[0] != "-"):
        return True
    options = [arg for arg in args if arg.startswith("-") and len(arg) > 1]
    listed = [word for word in words if len(word) > 1 and word.startswith("-")]
    if not options:
        return not operands or "-" in words
    return all(_listed(option, listed) for option in options) if listed else not operands


def _is_prefix(path: Sequence[str], operands: Sequence[str]) -> bool:
    if path[-1] == ".":
        path = path[:-1]
        if len(operands) > len(path):
            return False
    return len(operands) >= len(path) and all(map(fnmatchcase, operands, path))


def _listed(option: str, listed: Sequence[str]) -> bool:
    name = option.partition("=")[0]
    if any(fnmatchcase(option, word) or fnmatchcase(name, word) for word in listed):
        return True
    letters = option[1:].rstrip("0123456789")
    return not option.startswith("--") and all(f"-{letter}" in listed for letter in letters)
