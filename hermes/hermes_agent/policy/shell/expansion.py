"""Expansion of words, and the output of commands where their text shows it.

`Expander` expands quotes, variables, substitutions, braces and the home directory. `output_of` returns what a command
prints, such as `echo rm`, `… | base64 -d` or `… | rev`.
"""

from __future__ import annotations

import base64
import codecs
import itertools
import posixpath
import re
from collections.abc import Callable
from typing import TYPE_CHECKING

from hermes_agent.policy.shell.script import (
    UNKNOWN,
    ShellCommand,
    ShellWord,
    apply_expansion,
    decode_ansi_c,
    expand_braces,
    shift_quoted,
    unescape,
    unshift_quoted,
)
from hermes_agent.policy.shell.syntax import node_text

if TYPE_CHECKING:
    from tree_sitter import Node


DISK = f"/dev/{UNKNOWN}"
"""Placeholder for the disks that a program lists."""
EVERY_PROCESS = "[0-9]*"
"""Placeholder for the ids of all processes."""
LONGEST = 100_000
"""Most characters of an output that repeats its arguments."""


def output_of(command: ShellCommand) -> str | None:
    """Return the standard output of a command, or None when it is not known."""
    maker = _MAKERS.get(command.name)
    return None if maker is None else maker(command)


def _echo(command: ShellCommand) -> str | None:
    args = list(command.args)
    options = ""
    while args and args[0].startswith("-") and set(args[0][1:]) <= set("neE") and len(args[0]) > 1:
        options += args.pop(0)
    text = " ".join(args)
    return (decode_ansi_c(text) if "e" in options else text) + ("" if "n" in options else "\n")


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
                text += head + (values.pop(0) if values else "")
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


def _found(command: ShellCommand) -> str | None:
    """Return the roots of a `find` without tests: they stand for all files below them."""
    whole = ("-print", "-print0", "-type", "-xdev", "-mount", "-depth")  # with all files gone, the tree is gone
    tests = [a for a in command.args if a.startswith("-") and a not in whole]
    roots = [o for before, o in itertools.pairwise(("", *command.args)) if before != "-type" and o[:1] != "-"]
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
    if command.has_flag("d") and len(sets) == 1:
        return "".join(c for c in command.stdin if c not in sets[0])
    if len(sets) != 2 or not sets[1]:
        return None
    first, second = sets[0], sets[1].ljust(len(sets[0]), sets[1][-1])
    return command.stdin.translate(str.maketrans(first, second[: len(first)]))


def _set(text: str) -> str:
    """Return a set of `tr` with ranges (`a-z`) and classes expanded."""
    lower, upper = "abcdefghijklmnopqrstuvwxyz", "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
    text = decode_ansi_c(text).replace("[:lower:]", lower).replace("[:upper:]", upper).replace("[:space:]", " \t\n")
    found, index = "", 0
    while index < len(text):
        if index + 2 < len(text) and text[index + 1] == "-" and text[index] <= text[index + 2]:
            found += "".join(map(chr, range(ord(text[index]), ord(text[index + 2]) + 1)))
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
    return "\n".join(command.operands) if command.operands and all("*" in o for o in command.operands) else None


def _passed(command: ShellCommand) -> str | None:
    """Return the output of a filter on a list of disks or processes: the same, if it keeps them."""
    given, args = (command.stdin or "").strip(), " ".join(command.args)
    if command.name == "awk" and (printed := re.fullmatch(r"BEGIN\s*\{\s*print\s+(.+?)\s*;?\s*\}", args)):
        texts = re.findall(r'"((?:\\.|[^"\\])*)"', printed[1])
        return " ".join(texts) if re.fullmatch(r'(?:"(?:\\.|[^"\\])*"[\s,]*)+', printed[1]) else None
    if given == DISK and (command.name != "awk" or re.findall(r"\$(\d)", args) == ["1"]):
        return given if command.name != "cut" or re.search(r"-f\s*1(?!\d)|-c\s*1-", args) else None
    if given != EVERY_PROCESS:
        return None
    if command.name == "awk":
        return given if re.search(r"(?:^|\s|NR\s*[>!]=?\s*1)\s*\{\s*print\s*\$[12]\s*;?\s*\}$", args) else None
    if command.name in ("grep", "egrep"):
        return given if all(re.fullmatch(r"[\^$()*+\\\d\[:\]d-]+", o) for o in command.operands) else None
    return given if command.name != "tail" or re.search(r"\+\d", args) else None


_MAKERS: dict[str, Callable[[ShellCommand], str | None]] = {
    "echo": _echo,
    "printf": _printf,
    "cat": _cat,
    "tee": lambda command: command.stdin,
    "find": _found,
    "dirname": _dirname,
    "pwd": _pwd,
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
    **dict.fromkeys(("awk", "cut", "grep", "egrep", "tail", "sort", "uniq", "xargs"), _passed),
    "rot13": _rot13,
    "which": _named,
    "type": _named,
    "command": lambda command: _named(command) if command.has_flag("vV") else None,
}


Substitute = Callable[["Node"], tuple[str, tuple[ShellCommand, ...]]]

MOST_EXPANDED = 1_000_000
"""Most characters of all expanded variables of a script; `a=$a$a` doubles."""


class Expander:
    """Expansion of words with the variables that the script itself sets.

    Args:
        substitute: returns the output of a substitution, as far as known, and its commands.
    """

    def __init__(self, substitute: Substitute) -> None:
        self.variables: dict[str, str] = {"HOME": "~", "HERMES_HOME": "~/.hermes", "IFS": " "}
        self.positional: list[str] | None = []
        """`$1`, `$2`, …; None when they are not known."""
        self.arrays: dict[str, list[ShellWord]] = {}
        self.references: dict[str, str] = {}
        """Names that refer to another variable (`declare -n`)."""
        self.room = MOST_EXPANDED
        """Characters left of `MOST_EXPANDED`; below zero nothing is expanded."""
        self._in_quotes = False
        self._substitute = substitute
        self._sources: list[ShellCommand] = []
        self._substituted: list[ShellCommand] = []

    def words(self, node: Node) -> list[ShellWord]:
        """Return the words to which a node expands; an empty expansion has none."""
        if node_text(node) in ('"$@"', "$@", "$*") and self.positional:
            return self._taken([ShellWord(value) for value in self.positional])
        whole = re.fullmatch(r'"?\$\{(\w+)\[[@*]\]\}"?', node_text(node))
        if whole is not None and (array := self._referred(whole[1])) in self.arrays:
            return self._taken(self.arrays[array])
        outer = self._sources, self._substituted
        self._sources, self._substituted = [], []
        try:
            raw = self._raw(node)
            sources, substituted = tuple(self._sources), tuple(self._substituted)
        finally:
            self._sources, self._substituted = outer
        pieces = [raw] if _is_quoted(node) else raw.split()
        found = [word for piece in pieces for word in expand_braces(piece)]
        return [ShellWord(unshift_quoted(text), sources, substituted) for text in found]

    def document(self, node: Node) -> str:
        """Return the text of a here-document."""
        position, text = node.start_byte, node.text or b""
        parts: list[bytes] = []
        for child in node.named_children:
            if child.type != "heredoc_content":
                parts += [text[position - node.start_byte : child.start_byte - node.start_byte]]
                parts += [unshift_quoted(self._raw(child)).encode()]
                position = child.end_byte
        return b"".join([*parts, text[position - node.start_byte :]]).decode("utf-8", "replace")

    def assign(self, node: Node) -> None:
        """Set a variable from `name=value`."""
        self.variables |= self.assignment(node)

    def assignment(self, node: Node) -> dict[str, str]:
        """Return the variable of `name=value` with its value; `+=` appends."""
        name = self._referred(node_text(node.child_by_field_name("name")))
        value = node.child_by_field_name("value")
        if value is not None and value.type == "array":
            self.arrays[name] = [word for child in value.named_children for word in self.words(child)]
        words = self.words(value) if value is not None else []
        text = " ".join(word.text for word in words)
        if any(c.type == "+=" for c in node.children):
            text = self.variables.get(name, "") + text
        return {name: text}

    def _raw(self, node: Node) -> str:
        """Return the expanded text of a node with quoted characters shifted (`shift_quoted`)."""
        text = node_text(node)
        match node.type:
            case "word" | "extglob_pattern" | "regex":
                return unescape(text)
            case "string":
                return self._string(node)
            case "raw_string":
                return shift_quoted(text[1:-1])
            case "ansi_c_string":
                return shift_quoted(decode_ansi_c(text[2:-1]))
            case "simple_expansion":
                return self._variable(text[1:])
            case "expansion":
                return self._expansion(node)
            case "command_substitution":
                known, commands = self._substitute(node)
                self._substituted += commands
                return known
            case "process_substitution":
                self._sources += self._substitute(node)[1]
                return "/dev/fd/63"
            case "arithmetic_expansion":
                return UNKNOWN
        return text if node.child_count == 0 or node.type == "brace_expression" else self._joined(node)

    def _taken(self, words: list[ShellWord]) -> list[ShellWord]:
        self.room -= sum(len(word.text) + 32 for word in words)
        return words if self.room >= 0 else [ShellWord(UNKNOWN)]

    def _joined(self, node: Node) -> str:
        return (" " if node.type == "array" else "").join(self._raw(child) for child in node.named_children)

    def _string(self, node: Node) -> str:
        """Return the text of `"…"`; no node of the tree has the white space between its parts."""
        raw, start = node.text or b"", node.start_byte
        position, parts = start + 1, list[str]()
        outer, self._in_quotes = self._in_quotes, True
        for child in node.named_children:
            parts.append(
                shift_quoted(_in_quotes(raw[position - start : child.start_byte - start].decode("utf-8", "replace")))
            )
            inner = _in_quotes(node_text(child)) if child.type == "string_content" else self._raw(child)
            parts.append(shift_quoted(inner))
            position = child.end_byte
        self._in_quotes = outer
        parts.append(
            shift_quoted(
                _in_quotes(raw[position - start : max(position - start, len(raw) - 1)].decode("utf-8", "replace"))
            )
        )
        return "".join(parts)

    def _variable(self, name: str) -> str:
        """Return the value of a variable; outside quotes, characters of `IFS` become spaces."""
        value = self._value(name)
        self.room -= len(value)
        if self.room < 0:
            return UNKNOWN
        return value if self._in_quotes else value.translate(dict.fromkeys(map(ord, self.variables["IFS"]), " "))

    def _referred(self, name: str) -> str:
        """Return the variable to which a name refers."""
        for _ in self.references:
            name = self.references.get(name, name)
        return name

    def _value(self, name: str) -> str:
        name = self._referred(name)
        if name in self.variables:
            return self.variables[name]
        if name.isdigit() and 0 < int(name) <= len(self.positional or ()):
            return (self.positional or [])[int(name) - 1]
        if name in ("@", "*") and self.positional is not None:
            return " ".join(self.positional)
        return UNKNOWN

    def _expansion(self, node: Node) -> str:
        """Return the value of `${…}` as far as known."""
        body = node_text(node)[2:-1]
        cut = re.fullmatch(r"(!?\w+)(%%?|##?|:(?=[ \d(])|//?|\^\^?|,,?|@|$)(.*)", body, re.DOTALL)
        if cut is not None and (cut[2] or cut[1][0] == "!"):
            for child in node.named_children:
                self._raw(child)  # for the commands in it
            name = self._value(cut[1][1:]) if cut[1][0] == "!" else cut[1]
            value = self._variable(name)
            outputs = UNKNOWN if UNKNOWN in value else apply_expansion(value, cut[2], cut[3])
            self.room -= len(outputs)
            return outputs if self.room >= 0 else UNKNOWN
        match = re.fullmatch(r"([A-Za-z_]\w*|[0-9@*])(?::?([-=+?])(.*))?", body, re.DOTALL)
        for child in node.named_children:
            self._raw(child)  # for the commands in it
        if match is None:
            return UNKNOWN
        name, operator, other = match.groups()
        known = self._referred(name) in self.variables or self._variable(name) != UNKNOWN
        if operator is None or (known and operator != "+"):
            return self._variable(name)
        return other if operator in "-=+" and other else UNKNOWN


def _in_quotes(text: str) -> str:
    """Return a text without the backslashes that have a meaning within double quotes."""
    return re.sub(r'\\([$`"\\\n])', lambda m: "" if m[1] == "\n" else m[1], text)


def _is_quoted(node: Node) -> bool:
    while node.type == "command_name" and node.named_child_count == 1:
        node = node.named_children[0]
    return node.type in ("string", "raw_string", "ansi_c_string", "translated_string")
