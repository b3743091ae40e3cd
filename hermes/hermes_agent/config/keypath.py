"""Paths of keys: `agent.max_turns`, `mcp_servers."my.server".args[0]`."""

from __future__ import annotations

import re

__all__ = ["KeyPath", "parse_path", "render_path"]

KeyPath = tuple[str | int, ...]
"""Names of mappings' keys and, for lists, indices from 0."""

_PART = re.compile(r'"([^"]*)"|\[(\d{1,6})\]|([^.\[\]"]+)')
_PLAIN = re.compile(r"[^.\[\]\"\s]+")


def parse_path(text: str) -> KeyPath:
    """Return the parts of a dotted path; a name with a dot stands in double quotes.

    Raises:
        ValueError: the text is empty, or a part is.
    """
    parts: list[str | int] = []
    at = 0
    while at < len(text):
        if parts and text[at] == ".":
            at += 1
        elif parts and text[at] != "[":
            break
        match = _PART.match(text, at)
        if match is None:
            break
        quoted, index, plain = match.groups()
        parts.append(int(index) if index is not None else plain if quoted is None else quoted)
        at = match.end()
        if at == len(text):
            return tuple(parts)
    raise ValueError(f"{text!r} is not the path of a key; write it like agent.max_turns")


def render_path(path: KeyPath) -> str:
    """Return the text that `parse` reads back."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            name = part if _PLAIN.fullmatch(part) else f'"{part}"'
            text += f".{name}" if text else name
    return text
