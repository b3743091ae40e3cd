"""Fork bombs by their shape: what starts itself again and again, and loops without an end that wait for nothing."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

from hermes_agent.policy.shell.script import ShellCommand
from hermes_agent.policy.shell.tree import descend, descendants, node_text

if TYPE_CHECKING:
    from tree_sitter import Node

__all__ = ["endless_input", "floods", "forks_itself", "leaves_running", "loops_for_ever", "restarts"]

_ITSELF = re.compile(r"\"?\$(?:0|\{0\}|BASH_SOURCE|\{BASH_SOURCE(?:\[0\])?\})\"?$")
_STARTERS = frozenset(
    {"bash", "sh", "dash", "zsh", "ksh", "exec", "nohup", "setsid", "sudo", "env", "source", ".", "command", "time"}
)
_ENDS = re.compile(r"\$\{?[1-9#@*]|\b(?:case|getopts|break|return)\b")
"""What makes it depend on an argument, or on something else, whether a script goes on."""
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
    """Say whether a function starts itself more than once, or in the background: it doubles for ever."""

    def calls(node: Node) -> int:
        return sum(node_text(n) == name for n in descendants(node, ("command_name",)))

    return any(calls(p) > 1 for p in descendants(body, ("pipeline",))) or (calls(body) > 0 and _backgrounds(body))


def _backgrounds(node: Node) -> bool:
    return any(not n.is_named and n.type == "&" for n in descend(node))


def restarts(root: Node, path: str) -> bool:
    """Say whether the script in a file starts that file in the background, in a loop, or more than once."""
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
    """Say whether nothing ends a loop, nor holds up its turns."""
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
    """Say whether a command of a loop waits for something, or ends the loop."""
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
    """Say whether a piece of script leaves processes in the background."""
    waits = any(node_text(n) == "wait" for n in descendants(node, ("command_name",)))
    return not waits and (_backgrounds(node) or _DETACHES.search(node_text(node)) is not None)


def endless_input(stage: Node, made: Iterable[ShellCommand]) -> bool:
    """Say whether a stage of a pipeline writes for ever."""
    for command in made:
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


def floods(made: Iterable[ShellCommand]) -> bool | None:
    """Say whether a stage starts a process for all that it reads at once; None where it lets only a part through."""
    commands = list(made)
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
