"""The syntax tree of a shell script, by tree-sitter, and what is read from the tree itself.

- `plain_words`: the arguments of a text without expansions.
- Fork bombs: functions and scripts that start themselves repeatedly, and endless loops that do not wait.
- `prints_secret`: commands that print a variable which holds a secret.
"""

from __future__ import annotations

import bisect
import functools
import itertools
import posixpath
import re
import time
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from hermes_agent.policy.shell.script import ShellCommand, word_set

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tree_sitter import Node, Parser


LONGEST_PARSE = 0.3
"""Most seconds of CPU time for one tree; valid texts of the longest length take a third of it."""
MOST_STAGES = 4_000
"""Most `|` of a text: the grammar takes too long for an unfinished pipeline, and cannot be stopped in it."""
SHORT = 2_000
"""Most bytes of a text that is parsed at once: no text of this length takes long."""
PIECE = 65_536
"""Bytes that the grammar is given at a time."""
MOST_MOVES = 12
"""Most redirects of a command after which words stand, and most passes over lost expansions."""
_GLUED = re.compile(r"(?<=\S)\$[\w@*#?!$-]")
"""An expansion without braces behind other characters of its word."""
_NAMED = re.compile(rb"[A-Za-z_]\w*|[0-9@*#?!$-]")


@functools.cache
def _parser() -> Parser:
    import tree_sitter_bash  # takes 30 ms, and most processes never judge a command
    from tree_sitter import Language, Parser

    return Parser(Language(tree_sitter_bash.language()))


def _parse(text: bytes) -> Node:
    """Return the tree of a text; for one that takes too long, the tree of an error.

    Some malformed texts take the grammar time that grows with the square of their length, or faster.
    """
    return _parser().parse(text if len(text) <= SHORT or _is_parsed_in_time(text) else b"(").root_node


def _is_parsed_in_time(text: bytes) -> bool:
    """Return whether a trial of the parser ends; only one that is given the text in pieces can be stopped."""
    if text.count(b"|") > MOST_STAGES:
        return False
    parser, start = _parser(), time.thread_time()
    try:
        parser.parse(
            lambda offset, _point: text[offset : offset + PIECE],
            progress_callback=lambda _offset, _error: time.thread_time() - start > LONGEST_PARSE,
        )
    except ValueError:  # stopped
        parser.reset()
        return False
    return True


def parse_tree(text: str) -> Node:
    """Return the root of the syntax tree of a text; words after redirects stand before them in it."""
    written = text.encode("utf-8", "replace")
    root = _parse(written)
    redirects, glued = "<" in text or ">" in text, _GLUED.search(text) is not None
    for _ in range(MOST_MOVES if redirects or glued else 0):
        moved = _braced(written, root) if glued else written
        if moved == written:
            moved = _words_first(written, root) if redirects else written
        if moved == written:
            break
        written, root = moved, _parse(moved)
    return root


def _braced(text: bytes, root: Node) -> bytes:
    """Return the text with braces around names of expansions that the grammar takes for other words.

    Of `rm$IFS-rf$IFS/` it takes the last `$` for a character and `IFS/` for the next word.
    """
    parts, position = list[bytes](), 0
    for node in sorted(descendants(root, ("$",)), key=lambda found: found.start_byte):
        named = _NAMED.match(text, node.end_byte)
        if named is None or node.start_byte < position or (node.parent and node.parent.type == "simple_expansion"):
            continue
        parts += [text[position : node.end_byte], b"{", named[0], b"}"]
        position = named.end()
    return b"".join((*parts, text[position:]))


_BEFORE_STRING = re.compile(
    r"((?:[&\d])?>{1,2}\|?[ \t]*(?:[^\s'\"<>|;&()`$]+|'[^']*'|\"[^\"]*\"))[ \t]*"
    r"(<<<[ \t]*(?:'[^']*'|\"(?:\\.|[^\"\\])*\"|[^\s'\"<>|;&()`]+))"
)
"""A redirect of the output, and a here-string after it."""


def parse_leniently(text: str) -> Node:
    """Return the tree of a text, or of the same commands in a form that the grammar accepts."""
    root = parse_tree(text)
    if root.has_error and "{" in text:  # it accepts no brace list as a command name
        expanded = re.sub(r"(?<![$\w])\{([^{}\s]*,[^{}\s]*)\}", lambda m: m[1].replace(",", " "), text)
        root = parse_tree(expanded)
    if root.has_error and "<" in text:  # nor some redirects
        root = parse_tree(re.sub(r"(?<![<>])<>(?![<>])", ">>", commands_after_documents(text)))
    if root.has_error and "<<<" in text:
        moved = parse_tree(_BEFORE_STRING.sub(r"\2 \1", text))
        root = root if moved.has_error else moved
    return root


_ESCAPED = re.compile(r"\\(.)", re.DOTALL)
_SUBSTRING = re.compile(r"\$\{(\w+):(?![-+=?])[^{}]*\}")


def respell(text: str) -> str:
    """Return the text without what the grammar rejects: `x=\\ ;` and `${x:$y}` in other words.

    Within quotes the meaning may change: the result is read in addition to the text.
    """
    quoted = _ESCAPED.sub(lambda found: f"'{found[1]}'" if found[1] in " \t" else found[0], text)
    return _SUBSTRING.sub(r"${\1}", quoted)


_HEREDOC = re.compile(r"(?<!<)<<-?\s*\\?(['\"]?)(\w+)\1")


def commands_after_documents(text: str) -> str:
    """Return the text with commands after `<<END;` moved below the document, for the grammar."""
    for _ in range(MOST_MOVES):
        moved = _moved_below(text.split("\n"))
        if moved == text:
            break
        text = moved
    return text


def _moved_below(lines: list[str]) -> str:
    ends: dict[str, list[int]] = {}
    for index, line in enumerate(lines):
        ends.setdefault(line.lstrip("\t"), []).append(index)
    below: dict[int, list[str]] = {}
    for index, line in enumerate(lines):
        opened = _HEREDOC.search(line)
        if opened is None or _HEREDOC.search(line, opened.end()):
            continue
        found = ends.get(opened[2], [])
        place = bisect.bisect_right(found, index)
        rest = re.match(r"((?:[^;&'\"`]|&&|>&|&>|'[^']*'|\"[^\"]*\")*)([;&])(.*)", line[opened.end() :], re.DOTALL)
        if rest is not None and rest[3].strip() and place < len(found):
            lines[index] = line[: opened.end()] + rest[1]
            below.setdefault(found[place], []).insert(0, rest[3])
    for index, commands in below.items():
        lines[index] = "\n".join((lines[index], *commands))
    return "\n".join(lines)


def _words_first(text: bytes, root: Node) -> bytes:
    """Return the text with words after a redirect before it: the grammar takes them for targets."""
    kinds = ("file_redirect", "heredoc_redirect")
    for node in sorted(descendants(root, kinds), key=lambda found: found.start_byte, reverse=True):
        if node.type == "file_redirect":
            words = node.children_by_field_name("destination")[1:]
        else:
            given = node.children_by_field_name("argument")
            words = list(itertools.takewhile(lambda child: not node_text(child).startswith("\n"), given))
        if not words:
            continue
        start, end = words[0].start_byte, words[-1].end_byte
        text = b" ".join((text[: node.start_byte], text[start:end], text[node.start_byte : start] + text[end:]))
    return text


def descend(node: Node) -> Iterator[Node]:
    """Yield a node and all below it."""
    waiting = [node]
    while waiting:
        current = waiting.pop()
        yield current
        waiting.extend(current.children)


def descendants(node: Node, kinds: Iterable[str]) -> Iterator[Node]:
    """Yield the nodes of some kinds from a node on."""
    return (n for n in descend(node) if n.type in kinds)


def node_text(node: Node | None) -> str:
    """Return the text of a node; empty for None."""
    return node.text.decode("utf-8", "replace") if node is not None and node.text is not None else ""


def is_descriptor(node: Node) -> bool:
    """Return whether a number is the `2` of `2>&1`; the grammar may parse it as an argument."""
    after = (node.parent and node.parent.next_sibling) or None
    following = node.next_sibling or after
    adjoins = following is not None and following.start_byte == node.end_byte and following.type == "file_redirect"
    return node.type in ("number", "word") and node_text(node).isdigit() and adjoins


CHANGING = frozenset("*?[]{}~\\!#^")
"""Characters that may have a meaning for the shell outside quotes."""
_QUOTED = frozenset({"$", "`", "\\", "!"})
"""Characters that may have a meaning within double quotes."""


def plain_words(text: str) -> tuple[str, ...] | None:
    """Return the arguments of a text that is one simple command without expansions, or None."""
    text = text.strip()
    if not text or not text.isprintable():
        return None
    root = parse_tree(text)
    if root.has_error or len(root.children) != 1 or root.children[0].type != "command":
        return None
    found = [_word(child) for child in root.children[0].children]
    words = tuple(word for word in found if word is not None)
    if len(words) != len(found) or not words or "=" in words[0]:
        return None
    return words


def _word(node: Node) -> str | None:
    """Return the text of one argument, or None when the shell may change it."""
    text = (node.text or b"").decode("utf-8", "replace")
    match node.type:
        case "command_name" | "concatenation":
            parts = [_word(child) for child in node.children]
            known = [part for part in parts if part is not None]
            return "".join(known) if known and len(known) == len(parts) else None
        case "word" | "number":
            return None if CHANGING & set(text) else text
        case "raw_string":
            return text[1:-1]
        case "string":
            return None if _QUOTED & set(text[1:-1]) else text[1:-1]
    return None


_ITSELF = re.compile(r"\"?\$(?:0|\{0\}|BASH_SOURCE|\{BASH_SOURCE(?:\[0\])?\})\"?$")
_STARTERS = word_set("starters")
_ENDS = re.compile(r"\$\{?[1-9#@*]|\b(?:case|getopts|break|return)\b")
"""Code that makes it depend on a condition whether a script continues."""
_TRUE = re.compile(
    r"(?:command |builtin |/(?:usr/)?bin/)?(?:true|:)|\(\(\s*[1-9]\d*\s*\)\)|!\s*(?:/(?:usr/)?bin/)?false|test [\w\"']+"
    r"|sleep 0(?:\.\d+)?"
    r"|\[\[?\s+(?:[\"']?\w+[\"']?|([\w\"']+)\s+(?:=|==|-eq)\s+\1)\s+\]\]?"
)
_FALSE = re.compile(
    r"(?:/(?:usr/)?bin/)?false|!\s*(?:true|:)|\(\(\s*0\s*\)\)|\[\[?\s+(?:[\"']{2}|0 -eq 1|1 -eq 0)?\s*\]\]?"
)
_FOR = re.compile(r"for\s*\(\(\s*[^;]*;\s*(?:1|true)?\s*;")
_WAITS = frozenset({"wait", "break", "exit", "return", "read", "fg", "inotifywait", "exec"})
_DETACHES = re.compile(
    r"\bsetsid\s+(?:-\w*f|--fork)|\bdaemonize\s|\bscreen\s+-\w*dm|\bcoproc\s|\btmux\s+new(?:-session)?\s+-d"
)
_CUTS = frozenset({"head", "timeout", "gtimeout", "pv", "sponge", "wc", "tail"})
_SHORT = frozenset({"", "echo", "printf", "true", ":", "test", "[", "false"})


def forks_itself(name: str, body: Node) -> bool:
    """Return whether a function starts itself more than once, or in the background: a fork bomb."""

    def calls(node: Node) -> int:
        return sum(node_text(n) == name for n in descendants(node, ("command_name",)))

    return any(calls(p) > 1 for p in descendants(body, ("pipeline",))) or (calls(body) > 0 and _backgrounds(body))


def _backgrounds(node: Node) -> bool:
    return any(not n.is_named and n.type == "&" for n in descend(node))


def restarts(root: Node, path: str) -> bool:
    """Return whether a script starts its own file in the background, in a loop, or more than once."""
    starts = [node for node in descendants(root, ("command",)) if _starts(node, path)]
    if not starts or _ENDS.search(node_text(root)):
        return False
    kinds = ("while_statement", "for_statement", "c_style_for_statement", "pipeline")
    inner = any(_within(node, kinds) for node in starts)
    return len(starts) > 1 or inner or _backgrounds(root)


def _starts(node: Node, path: str) -> bool:
    words = [node_text(child) for child in node.named_children if not child.type.endswith("_redirect")]
    while words and words[0].rpartition("/")[2] in _STARTERS:
        words = [word for word in words[1:] if not word.startswith("-")]
        if words and _same(words[0], path, anywhere=True):
            return True
    return bool(words) and _same(words[0], path)


def _same(word: str, path: str, *, anywhere: bool = False) -> bool:
    if _ITSELF.match(word):
        return True
    plain = word.strip("\"'")
    return (anywhere or "/" in plain) and posixpath.basename(plain) == posixpath.basename(path) != ""


def _within(node: Node, kinds: Iterable[str]) -> bool:
    above = node.parent
    while above is not None:
        if above.type in kinds:
            return True
        above = above.parent
    return False


def loops_for_ever(node: Node) -> bool:
    """Return whether a loop neither ends nor waits."""
    body = node.child_by_field_name("body")
    if body is None:
        return False
    if node.type == "c_style_for_statement":
        endless = _FOR.match(node_text(node)) is not None
    else:
        condition = node_text(node.child_by_field_name("condition")).strip().rstrip(";").strip()
        endless = (_FALSE if node_text(node).startswith("until") else _TRUE).fullmatch(condition) is not None
    return endless and not any(map(_holds_up, descendants(body, ("command",))))


def _holds_up(node: Node) -> bool:
    """Return whether a command of a loop waits, or ends the loop."""
    words = node_text(node).split()
    behind = node.next_sibling
    if not words or (behind is not None and behind.type == "&"):
        return False
    if words[0] == "sleep":
        slow = re.fullmatch(r"(\d+(?:\.\d+)?)[smhd]?|.*\$.*", " ".join(words[1:2]))
        inside = _within(node, ("subshell", "compound_statement"))
        return slow is not None and (slow[1] is None or float(slow[1]) >= 1) and not inside
    return words[0] in _WAITS


def leaves_running(node: Node) -> bool:
    """Return whether a piece of script leaves processes in the background."""
    waits = any(node_text(n) == "wait" for n in descendants(node, ("command_name",)))
    return not waits and (_backgrounds(node) or _DETACHES.search(node_text(node)) is not None)


def endless_input(stage: Node, stage_commands: Iterable[ShellCommand]) -> bool:
    """Return whether a stage of a pipeline writes without end."""
    for command in stage_commands:
        zero = any(arg in ("/dev/zero", "/dev/urandom", "/dev/random") for arg in command.args)
        if (
            command.name == "yes"
            or (command.name == "cat" and zero)
            or (command.name == "seq" and "inf" in command.args)
        ):
            return True
    return any(
        loops_for_ever(n) for kind in ("while_statement", "c_style_for_statement") for n in descendants(stage, (kind,))
    )


def floods(stage_commands: Iterable[ShellCommand]) -> bool | None:
    """Return whether a stage starts processes for all its input at once; None when it limits the input."""
    commands = list(stage_commands)
    if any(c.name in _CUTS or (c.name == "sed" and re.search(r"\dq\b", c.text)) for c in commands):
        return None
    inner = {c.name for c in commands if c.via[-1:] and c.via[-1] in ("xargs", "gxargs", "parallel", "env_parallel")}
    for command in commands:
        jobs = "P" if command.name in ("xargs", "gxargs") else "[jP]"
        if command.name in ("xargs", "gxargs", "parallel", "env_parallel"):
            unlimited = re.search(
                rf"(?:^|\s)(?:-{jobs}\s*|--(?:max-procs|jobs)[= ])(?:0+(?!\d)|[1-9]\d\d)", command.text
            )
            lines = command.name.endswith("parallel") and not inner
            if unlimited and (lines or inner - _SHORT):
                return True
    return False


SECRET = re.compile(
    r"(?i)token|secret|passw(?:or)?d|passphrase|api[_-]?key|access[_-]?key|private[_-]?key|credential"
    r"|(?<![a-z])(?:keys?|pass|pw|pwd_?hash|auth)(?![a-z])"
)
"""Names of variables that hold secrets."""
_FILTERS = word_set("filters")
_PRINTERS = frozenset({"echo", "printf", "print"})


def prints_secret(node: Node, known: Mapping[str, str]) -> bool:
    """Return whether a command prints an environment variable that holds a secret.

    Args:
        node: the command.
        known: the variables that the script itself sets.
    """
    if node_text(node.child_by_field_name("name")) not in _PRINTERS or _is_captured(node):
        return False
    kinds = ("simple_expansion", "expansion")
    return any(_reveals(node_text(expansion), known) for expansion in descendants(node, kinds))


def _reveals(text: str, known: Mapping[str, str]) -> bool:
    if indirect := re.match(r"\$\{!(\w+)\}", text):
        named = known.get(indirect[1], "")
        return named not in known and SECRET.search(named) is not None
    match = re.match(r"\$\{?([A-Z_][A-Z0-9_]*)(.*)", text, re.DOTALL)
    if match is None or match[1] in known or match[2].startswith((":+", "+")):
        return False
    return SECRET.search(match[1]) is not None


def _is_captured(node: Node) -> bool:
    """Return whether the output goes into a file, a variable or a program that is not a filter."""
    above: Node | None = node.parent
    inner: Node = node
    while above is not None:
        if above.type == "redirected_statement":
            targets = [c for c in above.named_children if c.type == "file_redirect"]
            if any(not re.search(r">&\s*[12]|/dev/(?:std|tty|fd)", node_text(c)) for c in targets):
                return True
        elif above.type in ("command_substitution", "process_substitution"):
            return True
        elif above.type == "pipeline":
            stages = [c for c in above.named_children if c.start_byte >= inner.end_byte]
            if any(node_text(c).split(None, 1)[0] not in _FILTERS for c in stages if node_text(c).strip()):
                return True
        inner = above
        above = above.parent
    return False
