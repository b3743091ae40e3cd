"""The output of commands where their text shows it, such as `echo rm`, `… | base64 -d` or `… | rev`.

`output_of` is the entry. A listing of a directory is `*`: what happens to each of its names happens to all.
"""

from __future__ import annotations

import base64
import codecs
import itertools
import posixpath
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from hermes_agent.policy.shell.paths import is_home, is_root, is_system_directory, resolve_place
from hermes_agent.policy.shell.script import UNKNOWN, ShellCommand, ShellRedirect, decode_ansi_c, word_list

DISK = f"/dev/{UNKNOWN}"
"""Placeholder for the disks that a program lists."""
EVERY_PROCESS = "[0-9]*"
"""Placeholder for the ids of all processes."""
LONGEST = 100_000
"""Most characters of an output that repeats its arguments or its input."""


def output_of(command: ShellCommand) -> str | None:
    """Return the standard output of a command, or None when it is not known."""
    maker = _MAKERS.get(command.name)
    return None if maker is None else maker(command)


_SILENT = frozenset({"true", ":", "false", "test", "[", "exit", "return", "sleep", "wait", "cd", "let"})
"""Commands that write nothing to the standard output."""


def printed_by(commands: Sequence[ShellCommand], *, either: bool) -> str:
    """Return what commands print, with `UNKNOWN` where that is not known.

    Args:
        commands: the commands, with the earlier stages of pipelines.
        either: some run only when others fail.
    """
    read = {id(stage) for command in commands for stage in command.before}
    printing = [c for c in commands if id(c) not in read and c.name not in _SILENT and not _is_discarded(c)]
    if either and printing and printing[0].name not in ("echo", "printf"):
        printing = printing[-1:]
    outputs = (None if any(map(_diverts, c.redirects)) else output_of(c) for c in printing)
    text = "".join(f"{UNKNOWN}\n" if output is None else output for output in outputs)
    return text if len(text) <= LONGEST else UNKNOWN


def written_files(command: ShellCommand) -> Iterator[tuple[str, bool]]:
    """Yield the files to which the output of a command goes, and whether it is appended."""
    yield from ((r.target.text, r.operator in (">>", "&>>")) for r in command.redirects if r.writes)
    if command.name == "tee":
        yield from ((operand, command.has_flag("a", "--append")) for operand in command.operands)


def _diverts(redirect: ShellRedirect) -> bool:
    """Return whether a redirect sends the standard output to a file."""
    return redirect.own and redirect.writes and redirect.target.text not in ("1", "/dev/stdout", "/dev/fd/1")


def _is_discarded(command: ShellCommand) -> bool:
    """Return whether nothing of the output of a command arrives."""
    last = next((r for r in reversed(command.redirects) if r.own and r.writes), None)
    return last is not None and (last.target.text == "/dev/null" or (last.operator, last.target.text) == (">&", "2"))


def _echo(command: ShellCommand) -> str | None:
    args = list(command.args)
    options = ""
    while args and args[0].startswith("-") and set(args[0][1:]) <= set("neE") and len(args[0]) > 1:
        options += args.pop(0)
    text = " ".join(args)
    return (_escapes(text) if "e" in options else text) + ("" if "n" in options else "\n")


def _escapes(text: str) -> str:
    r"""Return a text with the escapes of `echo -e` decoded: an octal one may have a leading zero (`\0101`)."""
    return decode_ansi_c(re.sub(r"\\0([0-7]{3})", r"\\\1", text))


def _printf(command: ShellCommand) -> str | None:
    if not command.args:
        return None
    form, values = decode_ansi_c(command.args[0]), list(command.args[1:])
    if form == "-v":  # into a variable
        form, values = decode_ansi_c("".join(values[1:2])), values[2:]
    text, piece = "", form
    while len(text) <= LONGEST:
        before = len(values)
        while "%" in piece:
            head, _, rest = piece.partition("%")
            kind, piece = rest[:1], rest[1:]
            if kind == "%":
                text += head + "%"
            elif kind in "sbdc":
                value = values.pop(0) if values else ""
                text += head + (_escapes(value) if kind == "b" else value)
            else:
                return None
        text, piece = text + piece, form
        if not values or len(values) == before:
            return text
    return None


def _cat(command: ShellCommand) -> str | None:
    outputs = [output_of(word.sources[-1]) for word in command.words[1:] if word.sources]
    if outputs and len(outputs) == len(command.operands):
        return None if None in outputs else "".join(text for text in outputs if text)
    return command.stdin if not command.operands or command.operands == ("-",) else None


_WIDE_TESTS = ("-type", "-maxdepth", "-mindepth")
"""Tests of `find` with a value, which leave out no directory of the first level."""


def _found(command: ShellCommand) -> str | None:
    """Return the roots of a `find` without tests: they stand for all files below them."""
    whole = ("-print", "-print0", "-xdev", "-mount", "-depth")  # with all files gone, the tree is gone
    pairs = list(itertools.pairwise(("", *command.args)))
    tests = [o for _, o in pairs if o[:1] == "-" and o not in whole and o not in _WIDE_TESTS]
    tests += [o for before, o in pairs if before == "-mindepth" and o not in ("0", "1")]
    roots = [o for before, o in pairs if before not in _WIDE_TESTS and o[:1] != "-"]
    return None if tests else "\n".join(roots or (".",))


def _dirname(command: ShellCommand) -> str | None:
    return "\n".join(posixpath.dirname(o) or "." for o in command.operands) or None


def _pwd(command: ShellCommand) -> str | None:
    return command.cwd or None


def _decoder(decode: Callable[[str], bytes], flags: str, option: str) -> Callable[[ShellCommand], str | None]:
    """Return a maker for a program that decodes its input when an option is given."""

    def maker(command: ShellCommand) -> str | None:
        if not command.has_flag(flags, option) or command.stdin is None:
            return None
        try:
            return decode(command.stdin).decode("utf-8", "replace")
        except ValueError:
            return None

    return maker


_base64 = _decoder(lambda text: base64.b64decode("".join(text.split()) + "=="), "dD", "--decode")


def _rev(command: ShellCommand) -> str | None:
    return None if command.stdin is None else "".join(line[::-1] for line in command.stdin.splitlines())


def _tr(command: ShellCommand) -> str | None:
    if command.stdin is None or UNKNOWN in command.stdin:
        return None
    sets = [_set(operand) for operand in command.operands]
    if any(len(each) > LONGEST for each in sets):
        return None
    if command.has_flag("d") and len(sets) == 1:
        return "".join(c for c in command.stdin if c not in sets[0])
    if len(sets) != 2 or not sets[1]:
        return None
    first, second = sets[0], sets[1].ljust(len(sets[0]), sets[1][-1])
    return command.stdin.translate(str.maketrans(first, second[: len(first)]))


def _set(text: str) -> str:
    """Return a set of `tr` with ranges (`a-z`) and classes expanded, as far as it is not too long."""
    lower, upper = "abcdefghijklmnopqrstuvwxyz", "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
    text = decode_ansi_c(text).replace("[:lower:]", lower).replace("[:upper:]", upper).replace("[:space:]", " \t\n")
    found, index = "", 0
    while index < len(text) and len(found) <= LONGEST:
        if index + 2 < len(text) and text[index + 1] == "-" and text[index] <= text[index + 2]:
            start, stop = ord(text[index]), ord(text[index + 2]) + 1
            found += "".join(map(chr, range(start, min(stop, start + LONGEST + 1))))
            index += 3
        else:
            found += text[index]
            index += 1
    return found


def _named(command: ShellCommand) -> str | None:
    """Return the output of `which rm` and `command -v rm`: the name is enough."""
    return "\n".join(command.operands)


def _rot13(command: ShellCommand) -> str | None:
    return None if command.stdin is None else codecs.encode(command.stdin, "rot13")


def matches_all(pattern: str) -> bool:
    """Return whether a regular expression matches every name."""
    return re.fullmatch(r"\^?(?:\.|\[\^ \])?[*+]?\$?", pattern) is not None


def _disks(command: ShellCommand) -> str | None:
    """Return the placeholder for disks when a program lists disks by path."""
    args = " ".join(command.args)
    if command.name == "lsblk":
        return DISK if re.search(r"(?:^|\s)-[a-zA-Z]*p|--paths|\bPATH\b", args) else None
    if command.name in ("findmnt", "df"):
        given = re.search(r"(?i)\bsource\b", args)
        return DISK if given or (command.name == "df" and "--output" not in args) else None
    return DISK if command.name != "blkid" or not re.search(r"-s\s*\w|-o\s*value", args) else None


def _processes(command: ShellCommand) -> str | None:
    """Return the placeholder for process ids when a program lists all processes."""
    if command.name == "ps":
        first = "".join(a for a in command.args[:1] if re.fullmatch(r"-?[A-Za-z]+", a))
        each = re.match(r"-[A-Za-z]*[eA]|-?[a-z]*a[a-z]*x|-?[a-z]*x[a-z]*a", first)
        return EVERY_PROCESS if each and not re.search(r"(?:^|\s)-?(?:-pid|p|-user|[uUC])\s", command.text) else None
    named = [operand for operand in command.operands if not matches_all(operand)]
    return EVERY_PROCESS if command.operands and not named and not command.has_flag("uUPgGst") else None


def _listed(command: ShellCommand) -> str | None:
    if [o.rstrip("/") for o in command.operands] == ["/proc"]:
        return EVERY_PROCESS
    if command.operands and all("*" in o for o in command.operands):
        return "\n".join(command.operands)
    places = [resolve_place(command, operand) for operand in command.operands]
    return "*" if all(is_root(p) or is_home(p) or is_system_directory(p) for p in places) else None


_FIELD = re.compile(r'"([^"]*)"|\$(0|1|NF)')
_PLAIN = re.compile(r"\^?[\w/ .@:-]{0,200}\$?")
"""A short pattern that `sed` and `grep` read as Python does."""


def _lines(command: ShellCommand) -> list[str] | None:
    """Return the lines of the input that a filter passes on, or None when that is not known."""
    text = command.stdin
    if text is None and command.before and command.before[-1].name == "pwd":
        text = f"/{UNKNOWN}"
    if text is None or command.redirects or (UNKNOWN in text and command.name != "cut"):
        return None
    given = text.splitlines()
    if command.name in ("head", "tail"):
        number = re.fullmatch(r"(?:-n ?)?-?(\d{1,3})", " ".join(command.args))
        most = int(number[1]) if number else 0 if command.args else 10
        return None if not most else given[:most] if command.name == "head" else given[-most:]
    if command.name in ("grep", "egrep", "fgrep"):
        plain = len(command.operands) == 1 and _PLAIN.fullmatch(command.operands[0])
        options = [a for a in command.args if a.startswith("-") and a != "--invert-match"]
        if not plain or any(not set(option) <= set("-ivEF") for option in options):
            return None
        drops = command.has_flag("v", "--invert-match")
        return [line for line in given if line == "*" or bool(re.search(command.operands[0], line)) != drops]
    if command.name == "cut":
        return _cut_lines(command, given)
    if command.name == "sed":
        return _replaced(command, given)
    if command.name == "awk":
        return _printed_lines(command, given)
    return given if not command.operands else None


def _is_too_much(text: str, given: list[str]) -> bool:
    """Return whether the output is too long if a text takes the place of each character of the input."""
    return len(text) * (len(given) + sum(map(len, given))) > 10 * LONGEST


def _printed_lines(command: ShellCommand, given: list[str]) -> list[str] | None:
    """Return the lines that a program of `awk` prints that consists of one `print` of texts and fields."""
    program = command.operands[0].strip() if len(command.args) == len(command.operands) == 1 else ""
    printed = re.fullmatch(r"\{\s*print\s(.+)\}", program, re.DOTALL)
    shown = printed[1].strip().removesuffix(";").strip() if printed else ""
    if not shown or _FIELD.sub("", shown).strip() or _is_too_much(shown, given):
        return None
    return [_FIELD.sub(lambda m, line=line: m[1] or line if m[2] is None else line, shown) for line in given]


def _cut_lines(command: ShellCommand, given: list[str]) -> list[str] | None:
    """Return the lines that `cut` prints of one field or of the first characters."""
    args = " ".join(command.args)
    if match := re.fullmatch(r"-c ?(?:1-)?(\d{1,3})", args):
        number = int(match[1])
        cut = [line[:number] if "1-" in args else line[number - 1 : number] for line in given]
    elif match := re.fullmatch(r"-d ?(.) -f ?(\d{1,3})", args):
        cut = [(line.split(match[1]) + [""] * int(match[2]))[int(match[2]) - 1] for line in given]
    else:
        return None
    return None if any(UNKNOWN in line for line in cut) else cut


def _replaced(command: ShellCommand, given: list[str]) -> list[str] | None:
    """Return the lines after a plain `s` command of `sed`."""
    script = command.args[-1] if command.args and command.args[:-1] in ((), ("-e",), ("-E",), ("-r",)) else ""
    match = re.fullmatch(r"s(\W)((?:(?!\1).)*)\1((?:(?!\1)[^\\&])*)\1g?", script)
    if match is None or not _PLAIN.fullmatch(match[2]) or _is_too_much(match[3], given):
        return None
    return [re.sub(match[2], lambda _: match[3], line, count=0 if script[-1] == "g" else 1) for line in given]


def _account(command: ShellCommand) -> str | None:
    """Return the record of a user in `getent passwd`: the home directory is what matters."""
    if command.operands[:1] != ("passwd",) or len(command.operands) != 2:
        return None
    home = "/root" if command.operands[1] in ("root", "0") else "~"
    return f"{command.operands[1]}:x:1000:1000::{home}:/bin/sh"


def _evaluated(command: ShellCommand) -> str | None:
    if command.args[:1] != ("echo",):
        return None
    return _echo(replace(command, words=command.words[1:]))


def _passed(command: ShellCommand) -> str | None:
    """Return the output of a filter on a list of disks or processes: the same, if it keeps them."""
    given, args = (command.stdin or "").strip(), " ".join(command.args)
    if command.name == "awk" and (printed := re.fullmatch(r"BEGIN\s*\{\s*print\s+(.+?)\s*;?\s*\}", args)):
        texts = re.findall(r'"((?:\\.|[^"\\])*)"', printed[1])
        return " ".join(texts) if re.fullmatch(r'(?:"(?:\\.|[^"\\])*"[\s,]*)+', printed[1]) else None
    if given == DISK and (command.name != "awk" or re.findall(r"\$(\d)", args) == ["1"]):
        return given if command.name != "cut" or re.search(r"-f\s*1(?!\d)|-c\s*1-", args) else None
    if given != EVERY_PROCESS:
        passed = _lines(command) if command.name != "xargs" else None
        return None if passed is None else "\n".join(passed)
    if command.name == "awk":
        pids = r"(?:^|\s|NR\s*[>!]=?\s*1)\s*\{\s*print\s*\$[12]\s*;?\s*\}$"
        return given if re.search(pids, " ".join(args.split())) else None
    if command.name in ("grep", "egrep"):
        return given if all(re.fullmatch(r"[\^$()*+\\\d\[:\]d-]+", o) for o in command.operands) else None
    return given if command.name != "tail" or re.search(r"\+\d", args) else None


_FILTERS = word_list("line-filters")
_MAKERS: dict[str, Callable[[ShellCommand], str | None]] = {
    "echo": _echo,
    "printf": _printf,
    "cat": _cat,
    "tee": lambda command: command.stdin,
    "find": _found,
    "dirname": _dirname,
    "pwd": _pwd,
    "getent": _account,
    "eval": _evaluated,
    "mktemp": lambda command: "/tmp/tmp.made/",
    "realpath": lambda command: "\n".join(command.operands) or None,
    "readlink": lambda command: "\n".join(command.operands) if command.has_flag("fem") else None,
    "base64": _base64,
    "base32": _decoder(lambda text: base64.b32decode("".join(text.split())), "d", "--decode"),
    "xxd": _decoder(bytes.fromhex, "r", "-revert"),
    "rev": _rev,
    "tr": _tr,
    "yes": lambda command: " ".join(command.operands) or "y",
    "openssl": lambda command: _base64(command) if "base64" in command.text else None,
    "ls": _listed,
    "basename": lambda command: posixpath.basename(command.operands[0]) if len(command.operands) == 1 else None,
    **dict.fromkeys(("lsblk", "blkid", "findmnt", "df", "fdisk", "sfdisk"), _disks),
    **dict.fromkeys(("ps", "pgrep"), _processes),
    **dict.fromkeys(_FILTERS, _passed),
    "rot13": _rot13,
    "which": _named,
    "type": _named,
    "command": lambda command: _named(command) if command.has_flag("vV") else None,
}
