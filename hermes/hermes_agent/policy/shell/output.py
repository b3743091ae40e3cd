"""What a command prints, where that can be told from its text alone: `echo rm`, `… | base64 -d`, `… | rev`."""

from __future__ import annotations

import base64
import binascii
import codecs
import posixpath
from collections.abc import Callable

from hermes_agent.policy.shell.script import UNKNOWN, Command
from hermes_agent.policy.shell.words import ansi_c

__all__ = ["output_of"]

LONGEST = 100_000
"""Characters of an output that repeats what it is given."""


def output_of(command: Command) -> str | None:
    """Return the standard output, None when it cannot be told."""
    maker = _MAKERS.get(command.name)
    return None if maker is None else maker(command)


def _echo(command: Command) -> str | None:
    args = list(command.args)
    options = ""
    while args and args[0].startswith("-") and set(args[0][1:]) <= set("neE") and len(args[0]) > 1:
        options += args.pop(0)
    text = " ".join(args)
    return (ansi_c(text) if "e" in options else text) + ("" if "n" in options else "\n")


def _printf(command: Command) -> str | None:
    if not command.args:
        return None
    form, values = ansi_c(command.args[0]), list(command.args[1:])
    if form == "-v":  # into a variable
        form, values = ansi_c("".join(values[1:2])), values[2:]
    text, piece = "", form
    while len(text) <= LONGEST:
        before = len(values)
        while "%" in piece:
            head, _, rest = piece.partition("%")
            kind, piece = rest[:1], rest[1:]
            if kind == "%":
                text += head + "%"
            elif kind in "sbdc":
                text += head + (values.pop(0) if values else "")
            else:
                return None
        text, piece = text + piece, form
        if not values or len(values) == before:
            return text
    return None


def _cat(command: Command) -> str | None:
    made = [output_of(word.sources[-1]) for word in command.words[1:] if word.sources]
    if made and len(made) == len(command.operands):
        return None if None in made else "".join(text for text in made if text)
    return command.stdin if not command.operands or command.operands == ("-",) else None


def _found(command: Command) -> str | None:
    """Return the roots of a `find` that leaves nothing out: whoever gets them gets what is below them."""
    tests = [a for a in command.args if a.startswith("-") and a not in ("-print", "-print0")]
    return None if tests else "\n".join(command.operands or (".",))


def _dirname(command: Command) -> str | None:
    return "\n".join(posixpath.dirname(o) or "." for o in command.operands) or None


def _pwd(command: Command) -> str | None:
    return command.cwd or None


def _base64(command: Command) -> str | None:
    if not command.flag("dD", "--decode") or command.stdin is None or UNKNOWN in command.stdin:
        return None
    try:
        return base64.b64decode("".join(command.stdin.split()) + "==").decode("utf-8", "replace")
    except (binascii.Error, ValueError):
        return None


def _base32(command: Command) -> str | None:
    if not command.flag("d", "--decode") or command.stdin is None:
        return None
    try:
        return base64.b32decode("".join(command.stdin.split())).decode("utf-8", "replace")
    except (binascii.Error, ValueError):
        return None


def _xxd(command: Command) -> str | None:
    if not command.flag("r", "-revert") or command.stdin is None:
        return None
    try:
        return bytes.fromhex(command.stdin).decode("utf-8", "replace")
    except ValueError:
        return None


def _rev(command: Command) -> str | None:
    return None if command.stdin is None else "".join(line[::-1] for line in command.stdin.splitlines())


def _tr(command: Command) -> str | None:
    if command.stdin is None or UNKNOWN in command.stdin:
        return None
    sets = [_set(operand) for operand in command.operands]
    if command.flag("d") and len(sets) == 1:
        return "".join(c for c in command.stdin if c not in sets[0])
    if len(sets) != 2 or not sets[1]:
        return None
    first, second = sets[0], sets[1].ljust(len(sets[0]), sets[1][-1])
    return command.stdin.translate(str.maketrans(first, second[: len(first)]))


def _set(text: str) -> str:
    """Expand `a-z` and the classes of tr."""
    lower, upper = "abcdefghijklmnopqrstuvwxyz", "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
    text = ansi_c(text).replace("[:lower:]", lower).replace("[:upper:]", upper).replace("[:space:]", " \t\n")
    found, index = "", 0
    while index < len(text):
        if index + 2 < len(text) and text[index + 1] == "-" and text[index] <= text[index + 2]:
            found += "".join(map(chr, range(ord(text[index]), ord(text[index + 2]) + 1)))
            index += 3
        else:
            found += text[index]
            index += 1
    return found


def _named(command: Command) -> str | None:
    """Return what `which rm` and `command -v rm` print: the name serves."""
    return "\n".join(command.operands)


def _rot13(command: Command) -> str | None:
    return None if command.stdin is None else codecs.encode(command.stdin, "rot13")


_MAKERS: dict[str, Callable[[Command], str | None]] = {
    "echo": _echo,
    "printf": _printf,
    "cat": _cat,
    "tee": lambda command: command.stdin,
    "find": _found,
    "dirname": _dirname,
    "pwd": _pwd,
    "mktemp": lambda command: "/tmp/tmp.made/",
    "realpath": lambda command: "\n".join(command.operands) or None,
    "readlink": lambda command: "\n".join(command.operands) if command.flag("fem") else None,
    "base64": _base64,
    "base32": _base32,
    "xxd": _xxd,
    "rev": _rev,
    "tr": _tr,
    "yes": lambda command: " ".join(command.operands) or "y",
    "openssl": lambda command: _base64(command) if "base64" in command.text else None,
    "ls": lambda command: (
        "\n".join(command.operands) if command.operands and all("*" in o for o in command.operands) else None
    ),
    "rot13": _rot13,
    "which": _named,
    "type": _named,
    "command": lambda command: _named(command) if command.flag("vV") else None,
}
