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
_EVERY = re.compile(r'"?\$(?:[@*]|\{(\w+)\[[@*]\]\})"?')
"""All positional parameters, or all elements of an array."""
_POSITIONAL = frozenset("0123456789@*")
_OF_THE_SHELL = {"IFS": " \t\n", "PS2": "> ", "PS4": "+ "}
"""Variables that the shell itself sets; white space in them may separate words."""


class Expander:
    """Expansion of words with the variables that the script itself sets.

    Args:
        substitute: returns the output of a substitution, as far as known, and its commands.
        unset: in `${name+text}`, unknown variables have no value.
    """

    def __init__(self, substitute: Substitute, *, unset: bool = False) -> None:
        self.variables: dict[str, str] = {"HOME": "~", "HERMES_HOME": "~/.hermes", **_OF_THE_SHELL}
        self.positional: list[str] | None = []
        """`$1`, `$2`, …; None when they are not known. With an unknown one, their number is not known either."""
        self.arrays: dict[str, list[ShellWord]] = {}
        self.fed: dict[str, str | None] = {}
        """The outputs of process substitutions by the variables that name them; None where unknown."""
        self.references: dict[str, str] = {}
        """Names that refer to another variable (`declare -n`)."""
        self.room = MOST_EXPANDED
        """Characters left of `MOST_EXPANDED`; below zero nothing is expanded."""
        self._in_quotes = False
        self._unset = unset
        self._substitute = substitute
        self._sources: list[ShellCommand] = []
        self._substituted: list[ShellCommand] = []

    def words(self, node: Node) -> list[ShellWord]:
        """Return the words to which a node expands; an empty expansion has none."""
        if node_text(node) in ('"$@"', "$@", "$*") and self.positional:
            loose = '"' not in node_text(node)
            return self._taken([ShellWord(value, splits=loose and UNKNOWN in value) for value in self.positional])
        alone = re.fullmatch(r'"?\$(?:(\d)|\{(\d+)\})"?', node_text(node))
        if alone is not None and not self._value(alone[1] or alone[2]):  # the text may be meant for a script
            return [ShellWord(UNKNOWN, splits='"' not in alone[0])]
        whole = re.fullmatch(r'"?\$\{(\w+)\[[@*]\]\}"?', node_text(node))
        if whole is not None and (array := self._referred(whole[1])) in self.arrays:
            return self._taken(self.arrays[array])
        raw, sources, substituted = self._expanded(node, in_quotes=False)
        pieces = [raw] if _is_quoted(node) else raw.split()
        found = [word for piece in pieces for word in expand_braces(piece)]
        parted = len(pieces) > 1 and UNKNOWN in unshift_quoted(raw)
        return [ShellWord(unshift_quoted(text), sources, substituted, UNKNOWN in text, parted) for text in found]

    def _expanded(
        self, node: Node, *, in_quotes: bool
    ) -> tuple[str, tuple[ShellCommand, ...], tuple[ShellCommand, ...]]:
        """Return the text of a node with quoted characters shifted, and the commands that are part of it."""
        outer = self._sources, self._substituted, self._in_quotes
        self._sources, self._substituted, self._in_quotes = [], [], in_quotes
        try:
            return self._raw(node), tuple(self._sources), tuple(self._substituted)
        finally:
            self._sources, self._substituted, self._in_quotes = outer

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
        raw = node.text or b""
        stdin: str | None = None
        rest: list[Node] = []
        for child in node.named_children:
            if child.type == "file_redirect":
                operator = next((c.type for c in child.children if not c.is_named), ">")
                at = child.start_byte - node.start_byte
                numbered = raw[max(at - 1, 0) : at].isdigit() or raw[max(at - 1, 0) : at] == b"}"
                own = not numbered and child.child_by_field_name("descriptor") is None
                for target in child.children_by_field_name("destination"):
                    redirects += [ShellRedirect(operator, word, own) for word in self.words(target)]
                    if operator == "<" and redirects and redirects[-1].target.sources:
                        stdin = output_of(redirects[-1].target.sources[-1])
            elif child.type == "herestring_redirect":
                stdin = " ".join(w.text for c in child.named_children for w in self.words(c))
            elif child.type == "heredoc_redirect":
                bodies = [c for c in child.named_children if c.type == "heredoc_body"]
                start = "".join(node_text(c) for c in child.named_children if c.type == "heredoc_start")
                stdin = "".join(self.document(c) for c in bodies)
                stdin = stdin if set(start) & set("'\"\\") else _in_quotes(stdin)
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
        if value is None or value.type == "array" or _EVERY.fullmatch(node_text(value)):
            text = " ".join(word.text for word in self.words(value)) if value is not None else ""
        else:
            raw, sources, _ = self._expanded(value, in_quotes=True)  # a value is not split
            text = unshift_quoted(raw)
            if sources:
                self.fed[name] = output_of(sources[-1])
        if any(c.type == "+=" for c in node.children):
            text = self.variables.get(name, "") + text
        return {name: text}

    def assigned(self, command: ShellCommand, text: str | None) -> str:
        """Set the variables that a builtin sets; return the value that it reads, for its subscripts.

        Args:
            command: the command, a builtin or not.
            text: its input, as far as known.
        """
        match command.name, command.args:
            case "set", args if "--" in args:
                self.positional = list(args[args.index("--") + 1 :])
            case "set", args if args and args[0][:1] not in ("-", "+"):
                self.positional = list(args)
            case "shift", _ if self.positional:
                self.positional = [*self.positional, UNKNOWN]  # a branch may not shift
            case "printf", ("-v", name, *_):
                self.variables[name] = output_of(command) or UNKNOWN
            case "read" | "mapfile" | "readarray", _:
                read = (text or "").strip() if command.name == "read" else (text or "").partition("\n")[0]
                value = read if read and len(command.operands) == 1 else UNKNOWN
                self.variables |= dict.fromkeys(command.operands, value)
                if text and (command.name != "read" or command.has_flag("a")):
                    words = text.split() if command.name == "read" else text.splitlines()
                    self.arrays |= {operand: [*map(ShellWord, words)] for operand in command.operands[-1:]}
                return value
        return ""

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
                return shift_quoted(decode_ansi_c(text[2:-1]).partition("\0")[0])
            case "simple_expansion":
                name = re.match(r"[A-Za-z_]\w*|.?", text[1:])[0]  # type: ignore[index]  # `$10` is `$1` and a zero
                return self._variable(name) + text[1 + len(name) :]
            case "expansion":
                return self._expansion(node)
            case "command_substitution" | "process_substitution":
                outer, self._in_quotes = self._in_quotes, False
                known, commands = self._substitute(node)
                self._in_quotes = outer
                if node.type == "command_substitution":
                    self._substituted += commands
                    return known
                self._sources += commands
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
        if self.positional is None:
            return UNKNOWN
        if name in ("@", "*"):
            return " ".join(self.positional)
        if not (name.isdecimal() and int(name[:9]) > 0):
            return UNKNOWN
        given = self.positional[int(name[:9]) - 1 : int(name[:9])]
        return given[0] if given else UNKNOWN if any(UNKNOWN in value for value in self.positional) else ""

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
        inner = [(child, self._raw(child)) for child in node.named_children]
        cut = re.fullmatch(r"(!?\w+)(%%?|##?|:(?=[ \d(])|//?|\^\^?|,,?|@|$)(.*)", body, re.DOTALL)
        if cut is not None and (cut[2] or cut[1][0] == "!"):
            name = self._value(cut[1][1:]) if cut[1][0] == "!" else cut[1]
            value = self._variable(name)
            absolute = f"/{UNKNOWN}" if value == UNKNOWN and name in _ABSOLUTE else value
            pattern, slash, _ = cut[3].partition("/" if "/" in cut[2] else "\0")
            given = pattern + slash + (_behind(node, slash, inner) if slash else "")
            outputs = apply_expansion(absolute, cut[2], given)
            outputs = outputs if UNKNOWN not in absolute or (absolute != value and UNKNOWN not in outputs) else UNKNOWN
            self.room -= len(outputs)
            return outputs if self.room >= 0 else UNKNOWN
        match = re.fullmatch(r"([A-Za-z_]\w*|\d+|[@*])(?:(:?[-=+?])(.*))?", body, re.DOTALL)
        if match is None:
            return UNKNOWN
        name, operator, other = match.groups()
        value = self._variable(name)
        known = self._referred(name) in self.variables or value != UNKNOWN
        if not operator or operator[-1] == "?":
            return value
        if not known and self._unset and operator[-1] == "+":
            return ""
        missing = not value and (operator[0] == ":" or name[0] in _POSITIONAL)
        if known and missing != (operator[-1] in "-="):
            return "" if operator[-1] == "+" else value
        default = _behind(node, operator, inner) if other else ""
        return default or ("" if known or operator[-1] == "+" else UNKNOWN)


def _behind(node: Node, operator: str, inner: list[tuple[Node, str]]) -> str:
    """Return the expanded text behind the last sign of an operator in `${…}`.

    Args:
        node: the expansion.
        operator: the sign.
        inner: the nodes in it with their expanded texts.
    """
    start = max((child.end_byte for child in node.children if child.type == operator), default=node.end_byte - 1)
    raw, position, parts = node.text or b"", start, list[str]()
    for child, text in inner:
        if child.start_byte >= position:
            between = raw[position - node.start_byte : child.start_byte - node.start_byte].decode("utf-8", "replace")
            parts += [unescape(between), text]
            position = child.end_byte
    return "".join((*parts, unescape(raw[position - node.start_byte : -1].decode("utf-8", "replace"))))


def _in_quotes(text: str) -> str:
    """Return a text without the backslashes that have a meaning within double quotes."""
    return re.sub(r'\\([$`"\\\n])', lambda m: "" if m[1] == "\n" else m[1], text)


def _is_quoted(node: Node) -> bool:
    while node.type == "command_name" and node.named_child_count == 1:
        node = node.named_children[0]
    return node.type in ("string", "raw_string", "ansi_c_string", "translated_string")
