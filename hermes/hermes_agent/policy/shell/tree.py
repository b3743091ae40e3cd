"""The syntax tree of a shell script, as tree-sitter makes it."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tree_sitter import Node, Parser

__all__ = ["descendants", "descend", "is_descriptor", "parse_tree", "node_text"]


@functools.cache
def _parser() -> Parser:
    import tree_sitter_bash  # 30 ms, and most processes never judge a command
    from tree_sitter import Language, Parser

    return Parser(Language(tree_sitter_bash.language()))


def parse_tree(text: str) -> Node:
    """Return the root of the syntax tree of a text."""
    return _parser().parse(text.encode("utf-8", "replace")).root_node


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
    """Return the text of a node; empty without one."""
    return node.text.decode("utf-8", "replace") if node is not None and node.text is not None else ""


def is_descriptor(node: Node) -> bool:
    """Say whether a number is the `2` of `2>&1`, which the grammar takes for an argument in some places."""
    after = (node.parent and node.parent.next_sibling) or None
    following = node.next_sibling or after
    beside = following is not None and following.start_byte == node.end_byte and following.type == "file_redirect"
    return node.type in ("number", "word") and node_text(node).isdigit() and beside
