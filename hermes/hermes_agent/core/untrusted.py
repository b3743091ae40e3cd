"""Marks around untrusted text, and phrases that look like prompt injection.

The phrases catch known attacks only; the guarantee is the sandbox and the approval of tool calls.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from hermes_agent.core.lazy_types import LazyNamedTuple

TAG = "foreign-text"
"""The name of the tag in each mark."""
_LETTERS = TAG.replace("-", "")
_BRACKET = re.compile(r"[<＜﹤‹〈⟨〈《«˂≺❮❰⧼](?=(.{0,80}))", re.DOTALL)
_MARK = re.compile(rf'<{TAG} from="([^"]*)">\n?|\n?</{TAG}>')


class TextPiece(LazyNamedTuple):
    """A part of a text."""

    text: str
    source: str | None
    """Source of untrusted text; None outside of marks, empty for text of no known source."""


def mark_untrusted(text: str, source: str) -> str:
    """Return `text` between marks that it cannot close.

    Brackets that could begin a mark, also for a tolerant reader, are replaced.

    Args:
        source: where the text comes from, in a few characters; quotes and line ends are removed. Empty for text that is
            neither the user's nor from a known source, such as a report of the agent itself.
    """
    safe = _BRACKET.sub(" ", re.sub(r'[\s"<>]+', " ", source))
    return f'<{TAG} from="{safe}">\n{_BRACKET.sub(_escape_bracket, text)}\n</{TAG}>'


def _escape_bracket(match: re.Match[str]) -> str:
    """Return the bracket, or a harmless character if the text after it resembles the tag."""
    import unicodedata  # few texts need it

    after = unicodedata.normalize("NFKC", match[1]).casefold()
    letters = [c for c in after if c.isalpha()][: len(_LETTERS)]
    alike = sum(a == b for a, b in zip(letters, _LETTERS, strict=False))
    return "·" if alike >= len(_LETTERS) - 4 else match[0]


def split_marked(text: str) -> list[TextPiece]:
    """Split a text at the marks; each text in a JSON document is split on its own.

    An unpaired mark extends to the end or from the beginning: a truncated text stays untrusted.
    """
    found: list[TextPiece] = []
    for part in _texts(text) if TAG in text else [text]:
        found += _split(part)
    return found


def _split(text: str) -> Iterator[TextPiece]:
    source, begin = None, 0
    for mark in _MARK.finditer(text):
        closes = mark[1] is None
        yield TextPiece(text[begin : mark.start()], ("cut off" if source is None else source) if closes else source)
        source, begin = None if closes else mark[1], mark.end()
    yield TextPiece(text[begin:], source)


def _texts(text: str) -> Iterator[str]:
    if text.lstrip()[:1] in ("{", "["):
        try:
            yield from _leaves(json.loads(text))
            return
        except (ValueError, RecursionError):  # truncated, or followed by a notice: undo the escapes of JSON
            text = text.replace('\\"', '"').replace("\\n", "\n")
    yield text


def _leaves(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield from _texts(value) if TAG in value else [value]
    elif isinstance(value, dict):
        for key, item in value.items():
            yield str(key)
            yield from _leaves(item)
    elif isinstance(value, list):
        for item in value:
            yield from _leaves(item)


_THREATS = tuple(
    (what, re.compile(pattern, re.IGNORECASE | re.DOTALL))
    for what, pattern in (
        (
            "it wants earlier instructions to be ignored",
            r"\b(?:ignore|disregard|forget)\s+(?:(?:all|any|every|the|your|of|these|those|my|our)\s+){0,3}"
            r"(?:previous|prior|above|earlier|preceding)\s+(?:\w+\s+){0,2}?"
            r"(?:instructions?|rules?|prompts?|directives?|guidelines?)",
        ),
        (
            "it wants rules to be ignored",
            r"\b(?:ignore|disregard|forget|bypass)\s+(?:(?:all|any|every)\s+)?(?:of\s+)?(?:your|the\s+system'?s?)\s+"
            r"(?:instructions?|rules?|guidelines?|restrictions?)",
        ),
        (
            "it wants something hidden from the user",
            r"\b(?:do\s+not|don'?t|never)\s+(?:tell|inform|mention\s+(?:this|it)\s+to|reveal\s+(?:this|it)\s+to)\s+"
            r"the\s+(?:user|human|operator)",
        ),
        (
            "it gives the agent another role without limits",
            r"\byou\s+are\s+now\s+(?:in\s+|an?\s+|the\s+)?(?:developer\s+mode|dan\b|jailb|unrestricted|unfiltered)|"
            r"\b(?:act|behave)\s+as\s+(?:if|though)\s+you\s+(?:have|had)\s+no\s+(?:restrictions|limits|rules|guidelines)",
        ),
        (
            "it speaks as the system prompt",
            r"\bsystem\s+prompt\s+override\b|\bnew\s+system\s+prompt\s*:|<\s*/?\s*system\s*>",
        ),
        (
            "it hides instructions in markup",
            r"<[^>]{0,200}style\s*=\s*[\"'][^\"']{0,200}display\s*:\s*none",
        ),
        (
            "it sends secrets away",
            r"\b(?:curl|wget|nc|Invoke-WebRequest)\b[^\n]{0,300}\$\{?\w*(?:KEY|TOKEN|SECRET|PASSWORD|CREDENTIAL)\w*",
        ),
        ("it reads secrets", r"\bcat\s+\S{0,100}(?:\.env\b|\.netrc\b|credentials\b|id_(?:rsa|ed25519)\b|auth\.json\b)"),
    )
)

_IN_COMMENTS = re.compile(r"\b(?:ignore|override|system\s+prompt|do\s+not\s+tell|secretly)\b", re.IGNORECASE)

# An England flag consists of a black flag and such tags; otherwise they only hide text.
_INVISIBLE = re.compile(
    "[\u200b\u2060-\u2064\u202a-\u202e\u2066-\u2069]|(?<![\U0001f3f4\U000e0000-\U000e007f])[\U000e0000-\U000e007f]"
)


def find_injection(text: str) -> str:
    """Return why `text` looks like prompt injection, with the phrase; empty if it does not."""
    for what, pattern in _THREATS:
        if found := pattern.search(text):
            return f"{what} ({' '.join(found[0].split())[:80]!r})"
    if comment := _find_comment(text):
        return f"it hides instructions in markup ({' '.join(comment.split())[:80]!r})"
    if found := _INVISIBLE.search(text):
        return f"it has an invisible character (U+{ord(found[0]):04X})"
    return ""


def _find_comment(text: str) -> str:
    """Return the first comment with words for a model; one pattern for it would take cubic time."""
    begin = text.find("<!--")
    while begin >= 0 and (end := text.find("-->", begin)) >= 0:
        if _IN_COMMENTS.search(text, begin, end):
            return text[begin : end + 3]
        begin = text.find("<!--", end)
    return ""
