"""Complete commands as argument lists: texts whose words the shell does not change."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hermes_agent.policy.shell.tree import parse_tree

if TYPE_CHECKING:
    from tree_sitter import Node

__all__ = ["plain_words"]

CHANGING = frozenset("*?[]{}~\\!#^")
"""Characters outside of quotes that may mean something to the shell."""
_QUOTED = frozenset({"$", "`", "\\", "!"})
"""Characters within double quotes that may."""


def plain_words(text: str) -> tuple[str, ...] | None:
    """Return the arguments of a text that is one simple command without expansions; None for any other text."""
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
