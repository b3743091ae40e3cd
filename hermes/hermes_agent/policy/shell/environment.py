"""Secrets in the environment: which names have them, and where a script prints one."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from hermes_agent.policy.shell.tree import descendants, node_text

if TYPE_CHECKING:
    from collections.abc import Container

    from tree_sitter import Node

__all__ = ["SECRET", "prints_secret"]

SECRET = re.compile(
    r"(?i)token|secret|passw(?:or)?d|passphrase|api[_-]?key|access[_-]?key|private[_-]?key|credential"
    r"|(?<![a-z])(?:keys?|pass|pw|pwd_?hash|auth)(?![a-z])"
)
"""Names of variables that hold secrets."""
_FILTERS = frozenset(
    "awk base32 base64 basenc cat cut fold grep head hexdump less more od rev sed sort tail tee tr xxd".split()  # noqa: SIM905 - a table
)
_PRINTERS = frozenset({"echo", "printf", "print"})


def prints_secret(node: Node, known: Container[str]) -> bool:
    """Say whether a command prints a variable of the environment that holds a secret.

    Args:
        known: the variables that the script sets itself.
    """
    if node_text(node.child_by_field_name("name")) not in _PRINTERS or _goes_elsewhere(node):
        return False
    kinds = ("simple_expansion", "expansion")
    return any(_reveals(node_text(one), known) for one in descendants(node, kinds))


def _reveals(text: str, known: Container[str]) -> bool:
    match = re.match(r"\$\{?([A-Z_][A-Z0-9_]*)(.*)", text, re.DOTALL)
    if match is None or match[1] in known or match[2].startswith((":+", "+")):
        return False
    return SECRET.search(match[1]) is not None


def _goes_elsewhere(node: Node) -> bool:
    """Say whether what it prints goes into a file, a variable or a program that is no filter."""
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
