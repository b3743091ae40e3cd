"""Upstream's pure functions over messages and bytes. Source: plugin contract §11.2."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["flatten_message_text", "image_type"]

_IMAGES = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF8", "image/gif"),
    (b"BM", "image/bmp"),
)


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


def image_type(raw: bytes) -> str | None:
    """Return the content type of a picture by its first bytes, None when it is none that is known."""
    for magic, kind in _IMAGES:
        if raw.startswith(magic):
            return kind
    if raw[:4] == b"RIFF" and raw[8:12] == b"WEBP":
        return "image/webp"
    if raw[4:8] == b"ftyp" and raw[8:12] in (b"heic", b"heix", b"mif1", b"avif"):
        return "image/avif" if raw[8:12] == b"avif" else "image/heic"
    return None
