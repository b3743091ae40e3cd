"""Reasoning in chunks of chat completions: in fields, or between tags at the beginning of the text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

TAGS = {"<think>": "</think>", "<thinking>": "</thinking>", "<thought>": "</thought>"}
"""Tags around the reasoning of models that are served without a parser of it, such as DeepSeek R1, Qwen, MiniMax."""
LONGEST = max(map(len, TAGS))


REASONING_FIELDS = frozenset({"reasoning_content", "reasoning", "reasoning_details"})
"""Fields of a delta with reasoning."""


class TaggedReasoning:
    """Splits a streamed text into the reasoning between tags at its beginning, and the answer.

    Tags later in the text are text: an answer may write about them. A text without a closing tag is reasoning.
    """

    def __init__(self) -> None:
        self.is_over = False
        """Whether all further text belongs to the answer."""
        self._held = ""
        """What may be a part of a tag, or blanks around one."""
        self._end = ""
        """The closing tag; empty before an opening one."""
        self._has_ended = False

    def split(self, text: str, *, is_last: bool = False) -> tuple[str, str]:
        """Return the reasoning and the text of the answer that are known after the next piece of text.

        Args:
            is_last: whether no further text follows, so that nothing is held back.
        """
        if self.is_over or not (text or is_last):
            return "", text
        self._held += text
        reasoning = ""
        if not self._end:
            begun = self._held.lstrip()
            tag = next((tag for tag in TAGS if begun.startswith(tag)), "")
            if not tag:
                if is_last or not any(tag.startswith(begun[:LONGEST]) for tag in TAGS):
                    self.is_over = bool(begun) or is_last
                    return "", self._take()
                return "", ""
            self._end, self._held = TAGS[tag], begun[len(tag) :]
        if not self._has_ended:
            at = self._held.find(self._end)
            if at < 0:
                kept = 0 if is_last else overlap(self._held, self._end)
                reasoning = self._held[: len(self._held) - kept]
                self._held = self._held[len(self._held) - kept :]
                return reasoning, ""
            reasoning, self._held = self._held[:at], self._held[at + len(self._end) :]
            self._has_ended = True
        self._held = self._held.lstrip()
        self.is_over = bool(self._held)
        return reasoning, self._take()

    def _take(self) -> str:
        text, self._held = self._held, ""
        return text


def overlap(text: str, tag: str) -> int:
    """Return how many characters at the end of the text begin the tag."""
    return next((size for size in range(min(len(tag) - 1, len(text)), 0, -1) if text.endswith(tag[:size])), 0)


def delta_reasoning(delta: Mapping[str, Any]) -> str:
    """Return the readable reasoning of a chunk: a field of many servers, or of OpenRouter's details."""
    for name in ("reasoning_content", "reasoning"):
        if isinstance(delta.get(name), str):
            return str(delta[name])
    details = delta.get("reasoning_details")
    if not isinstance(details, list):
        return ""
    return "".join(str(d.get("text") or d.get("summary") or "") for d in details if isinstance(d, dict))


def add_detail(details: list[dict[str, Any]], detail: dict[str, Any]) -> None:
    """Add a piece of reasoning; pieces with the same `index` are joined."""
    index = detail.get("index")
    known = next((d for d in details if index is not None and d.get("index") == index), None)
    if known is None:
        details.append(dict(detail))
        return
    for key, value in detail.items():
        joined = key in ("text", "summary", "data") and isinstance(known.get(key), str) and isinstance(value, str)
        if joined:
            known[key] += value
        elif value is not None:
            known[key] = value
