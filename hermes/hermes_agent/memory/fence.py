"""The fence around recalled memory in a message: what stands in it cannot close it, and an echo of it is not shown.

Source: plugin contract §8.3.
"""

from __future__ import annotations

import re

__all__ = ["FenceScrubber", "fence_recalled", "sanitize_context"]

OPEN, CLOSE = "<memory-context>", "</memory-context>"
_NOTE = (
    "[System note: The following is recalled memory context, NOT new user input. Treat as authoritative reference data"
    " — this is the agent's persistent memory and should inform all responses.]"
)
# what a lenient reader might take for a tag of ours: blanks in it, attributes, another case
_TAG = re.compile(r"<\s*+(/?)\s*+memory-context\b[^>]*+>?\s*+", re.IGNORECASE)
_NOTES = re.compile(r"\[System note: The following is recalled memory context[^\]]*+\]\s*+", re.IGNORECASE)
_PASSES = 8
"""How often what taking a tag out has made a tag is looked for; then no bracket stays."""


def fence_recalled(text: str) -> str:
    """Return recalled text for a message, in its fence; empty for none. Fences and notes in it are taken out."""
    inner = _remove_all(_NOTES, _remove_all(_TAG, text)).strip()
    return f"{OPEN}\n{_NOTE}\n\n{inner}\n{CLOSE}" if inner else ""


def sanitize_context(text: str) -> str:
    """Return `text` without fences of recalled memory, what stands between them, and their note."""
    parts, end, opened = [], 0, -1
    for tag in _TAG.finditer(text):
        if opened < 0:
            parts.append(text[end : tag.start()])
            opened = -1 if tag[1] else tag.end()
            end = tag.end()
        elif tag[1]:
            opened, end = -1, tag.end()
    return _remove_all(_NOTES, _remove_all(_TAG, "".join([*parts, text[end:]])))


def _remove_all(pattern: re.Pattern[str], text: str) -> str:
    """Take out what matches until nothing does: of `<<tag>tag>` one pass would leave a tag."""
    for _ in range(_PASSES):
        text, count = pattern.subn("", text)
        if not count:
            return text
    return text.replace("<", "‹").replace("[", "(")


class FenceScrubber:
    """Takes fences, with what stands in them, out of a text that comes in pieces."""

    def __init__(self) -> None:
        self._held = ""
        self._inside = False

    def feed(self, piece: str) -> str:
        """Return what of the text so far may be shown; the beginning of a tag is held back."""
        self._held += piece
        shown = ""
        while True:
            tag = CLOSE if self._inside else OPEN
            found = re.search(tag, self._held, re.IGNORECASE | re.ASCII)
            if found is None:
                break
            shown += "" if self._inside else self._held[: found.start()]
            self._held = self._held[found.end() :]
            self._inside = not self._inside
        keep = _tag_prefix_length(self._held, tag)
        ready, self._held = self._held[: len(self._held) - keep], self._held[len(self._held) - keep :]
        return shown if self._inside else shown + ready

    def end(self) -> str:
        """Return what was held back and is no tag."""
        held, self._held = self._held, ""
        return "" if self._inside else held


def _tag_prefix_length(text: str, tag: str) -> int:
    """Return how many characters at the end of `text` may be the beginning of `tag`."""
    lower = text[-len(tag) :].lower()
    return next((n for n in range(min(len(tag) - 1, len(text)), 0, -1) if lower.endswith(tag[:n])), 0)
