"""Expansion of words: quotes, variables, substitutions, braces, redirects and the home directory."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

from hermes_agent.policy.shell.outputs import output_of
from hermes_agent.policy.shell.script import (
    UNKNOWN,
    ShellCommand,
    ShellRedirect,
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


Substitute = Callable[["Node"], tuple[str, tuple[ShellCommand, ...]]]

MOST_EXPANDED = 1_000_000
"""Most characters of all expanded variables of a script; `a=$a$a` doubles."""


_ABSOLUTE = frozenset({"PWD", "OLDPWD", "PATH", "SHELL"})
"""Variables with values that begin with a slash."""


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
        self.fed: dict[str, str | None] = {}
        """The outputs of process substitutions by the variables that name them; None where unknown."""
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

    def redirects(self, node: Node) -> tuple[tuple[ShellRedirect, ...], str | None, list[Node]]:
        """Return the redirects of a node, the input that they give, and other nodes below them."""
        redirects: list[ShellRedirect] = []
        stdin: str | None = None
        rest: list[Node] = []
        for child in node.named_children:
            if child.type == "file_redirect":
                operator = next((c.type for c in child.children if not c.is_named), ">")
                for target in child.children_by_field_name("destination"):
                    redirects += [ShellRedirect(operator, word) for word in self.words(target)]
                    if operator == "<" and redirects and redirects[-1].target.sources:
                        stdin = output_of(redirects[-1].target.sources[-1])
            elif child.type == "herestring_redirect":
                stdin = " ".join(w.text for c in child.named_children for w in self.words(c))
            elif child.type == "heredoc_redirect":
                bodies = [c for c in child.named_children if c.type == "heredoc_body"]
                stdin = "".join(self.document(c) for c in bodies)
                if any(node_text(c).startswith("\n") for c in child.named_children if c.type == "word"):
                    # the grammar parses a first line that begins with a backslash as words of the command
                    stdin = node_text(child).partition("\n")[2].rpartition("\n")[0]
                for part in child.named_children:
                    if part.type == "file_redirect":
                        more, _, _ = self.redirects(child)
                        redirects += more
                    elif part.type not in ("heredoc_start", "heredoc_body", "heredoc_end", "file_descriptor"):
                        rest.append(part)
        return tuple(redirects), stdin, rest

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
        if words and words[0].sources:
            self.fed[name] = output_of(words[0].sources[-1])
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

    def _element(self, array: list[ShellWord], index: str) -> str:
        """Return `${array[index]}`; an associative array has words like `[key]=value`."""
        named = next((word.text for word in array if word.text.startswith(f"[{index}]=")), "")
        if named:
            return named.partition("=")[2]
        number = int(index) if re.fullmatch(r"-?\d{1,6}", index) else len(array)
        return array[number].text if -len(array) <= number < len(array) else UNKNOWN

    def _expansion(self, node: Node) -> str:
        """Return the value of `${…}` as far as known."""
        body = node_text(node)[2:-1]
        element = re.fullmatch(r"(\w+)\[([\w-]+)\]", body)
        if element is not None and (array := self._referred(element[1])) in self.arrays:
            return self._element(self.arrays[array], element[2])
        cut = re.fullmatch(r"(!?\w+)(%%?|##?|:(?=[ \d(])|//?|\^\^?|,,?|@|$)(.*)", body, re.DOTALL)
        if cut is not None and (cut[2] or cut[1][0] == "!"):
            for child in node.named_children:
                self._raw(child)  # for the commands in it
            name = self._value(cut[1][1:]) if cut[1][0] == "!" else cut[1]
            value = self._variable(name)
            absolute = f"/{UNKNOWN}" if value == UNKNOWN and name in _ABSOLUTE else value
            outputs = apply_expansion(absolute, cut[2], cut[3])
            outputs = outputs if UNKNOWN not in absolute or (absolute != value and UNKNOWN not in outputs) else UNKNOWN
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
