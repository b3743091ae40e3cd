"""What the words of a script stand for: quotes, variables, substitutions, braces, the home directory."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

from hermes_agent.policy.shell.script import UNKNOWN, ShellCommand, ShellWord
from hermes_agent.policy.shell.words import (
    apply_expansion,
    decode_ansi_c,
    expand_braces,
    shift_quoted,
    unescape,
    unshift_quoted,
)

if TYPE_CHECKING:
    from tree_sitter import Node

__all__ = ["Expander"]

Substitute = Callable[["Node"], tuple[str, tuple[ShellCommand, ...]]]

MOST_EXPANDED = 1_000_000
"""Characters that all variables of a script may become: `a=$a$a` doubles."""


class Expander:
    """Expands words with the variables that the script itself set.

    Args:
        substitute: returns the output of a substitution, as far as known, and its commands.
    """

    def __init__(self, substitute: Substitute) -> None:
        self.variables: dict[str, str] = {"HOME": "~", "HERMES_HOME": "~/.hermes", "IFS": " "}
        self.positional: list[str] | None = []
        """`$1`, `$2`, …; None where they are not known."""
        self.arrays: dict[str, list[ShellWord]] = {}
        self.references: dict[str, str] = {}
        """Names that stand for another variable (`declare -n`)."""
        self.room = MOST_EXPANDED
        """What is left of that; below zero nothing is expanded any more."""
        self._in_quotes = False
        self._substitute = substitute
        self._sources: list[ShellCommand] = []
        self._substituted: list[ShellCommand] = []

    def words(self, node: Node) -> list[ShellWord]:
        """Return the words that a node of the tree becomes; often one, none when it expands to nothing."""
        if _text(node) in ('"$@"', "$@", "$*") and self.positional:
            return self._taken([ShellWord(value) for value in self.positional])
        whole = re.fullmatch(r'"?\$\{(\w+)\[[@*]\]\}"?', _text(node))
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
        position, text = node.start_byte, _bytes(node)
        parts: list[bytes] = []
        for child in node.named_children:
            if child.type != "heredoc_content":
                parts += [text[position - node.start_byte : child.start_byte - node.start_byte]]
                parts += [unshift_quoted(self._raw(child)).encode()]
                position = child.end_byte
        return b"".join([*parts, text[position - node.start_byte :]]).decode("utf-8", "replace")

    def assign(self, node: Node) -> None:
        """Take up `name=value`."""
        self.variables |= self.assignment(node)

    def assignment(self, node: Node) -> dict[str, str]:
        """Return what `name=value` sets; `+=` appends."""
        name = self._referred(_text(node.child_by_field_name("name")))
        value = node.child_by_field_name("value")
        if value is not None and value.type == "array":
            self.arrays[name] = [word for child in value.named_children for word in self.words(child)]
        words = self.words(value) if value is not None else []
        text = " ".join(word.text for word in words)
        if any(c.type == "+=" for c in node.children):
            text = self.variables.get(name, "") + text
        return {name: text}

    def _raw(self, node: Node) -> str:
        """Return the node's text expanded, with what was quoted shifted (see `words`)."""
        text = _text(node)
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
        """Return the text of `"…"`; white space between its parts is in no node of the tree."""
        raw, start = _bytes(node), node.start_byte
        position, parts = start + 1, list[str]()
        outer, self._in_quotes = self._in_quotes, True
        for child in node.named_children:
            parts.append(
                shift_quoted(_in_quotes(raw[position - start : child.start_byte - start].decode("utf-8", "replace")))
            )
            inner = _in_quotes(_text(child)) if child.type == "string_content" else self._raw(child)
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
        """Return a variable's value; outside of quotes it falls apart at what `IFS` has."""
        value = self._value(name)
        self.room -= len(value)
        if self.room < 0:
            return UNKNOWN
        return value if self._in_quotes else value.translate(dict.fromkeys(map(ord, self.variables["IFS"]), " "))

    def _referred(self, name: str) -> str:
        """Return the variable that a name stands for."""
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
        """Return `${name}` and its forms as far as they can be told."""
        body = _text(node)[2:-1]
        cut = re.fullmatch(r"(!?\w+)(%%?|##?|:(?=[ \d(])|//?|\^\^?|,,?|@|$)(.*)", body, re.DOTALL)
        if cut is not None and (cut[2] or cut[1][0] == "!"):
            for child in node.named_children:
                self._raw(child)  # for the commands in it
            name = self._value(cut[1][1:]) if cut[1][0] == "!" else cut[1]
            value = self._variable(name)
            made = UNKNOWN if UNKNOWN in value else apply_expansion(value, cut[2], cut[3])
            self.room -= len(made)
            return made if self.room >= 0 else UNKNOWN
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
    """Take out the backslashes that mean something within double quotes."""
    return re.sub(r'\\([$`"\\\n])', lambda m: "" if m[1] == "\n" else m[1], text)


def _is_quoted(node: Node) -> bool:
    while node.type == "command_name" and node.named_child_count == 1:
        node = node.named_children[0]
    return node.type in ("string", "raw_string", "ansi_c_string", "translated_string")


def _bytes(node: Node) -> bytes:
    return node.text or b""


def _text(node: Node | None) -> str:
    return _bytes(node).decode("utf-8", "replace") if node is not None else ""
