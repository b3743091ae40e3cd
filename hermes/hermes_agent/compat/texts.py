"""Upstream's pure functions over messages. Source: plugin contract §11.2."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["flatten_message_text"]


def flatten_message_text(content: Any, *, sep: str = "\n") -> str:
    """Return the text of a message's content: a string, or the text parts of a list."""
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if isinstance(content, Mapping):
        return str(content.get("text") or content.get("content") or "")
    if isinstance(content, list):
        parts = (flatten_message_text(part, sep=sep) for part in content if isinstance(part, str | Mapping))
        return sep.join(part for part in parts if part)
    return str(content)
