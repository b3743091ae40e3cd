"""Check of an answer after a tool call: numbers, names and paths have to come from the conversation or a result."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

_NUMBER = re.compile(r"(?<![\w.])-?\d[\d,\u202f]*(?:\.\d+)?(?:[eE][+-]?\d+)?")
_PATH = re.compile(
    r"(?<![\w/:.@-])(?:~|\.{1,2})?/?(?:[\w.-]+/)+[\w.-]*\w|(?<![\w/:.@-])[\w-]+\.[a-z][a-z0-9]{1,4}\b(?!\()"
)
_NAME = re.compile(r"(?<=[a-z,;:)\d] )(?:[A-Z][a-z]{2,}\w*)(?: [A-Z][a-z]{2,}\w*)*")
"""Words with a capital in the middle of a sentence."""
_ORDINAL = re.compile(r"^\s*\d+[.)]\s", re.MULTILINE)
_WORD = re.compile(r"\w+")
_GENERAL_NAMES = frozenset(
    """
    april august bash celsius debian december english fahrenheit february friday hello hermes january json july june
    kelvin linux march may monday november october python saturday september shell sunday the thursday tuesday ubuntu
    unix wednesday world yes
    """.split()  # noqa: SIM905 - four lines instead of thirty
)
"""Names that are common knowledge; a weekday or month is checked by its number."""


def find_unfounded(text: str, sources: Sequence[str]) -> list[str]:
    """Return the numbers, paths and names of `text` that no source has.

    A number may be rounded, and may count the lines or items of a source.
    """
    joined = "\n".join(sources)
    known = [value for _, value, _ in read_numbers(joined)]
    counts = {float(count) for source in sources for count in _counts(source)}
    out = [
        written
        for written, value, tolerance in read_numbers(_ORDINAL.sub("", text))
        if value not in counts and not any(abs(abs(value) - abs(each)) <= tolerance for each in known)
    ]
    lower = joined.lower()
    for path in _PATH.findall(text):
        if path.lower().removeprefix("./") not in lower and path.rstrip("/").rpartition("/")[2].lower() not in lower:
            out.append(path)
    words = set(_WORD.findall(lower)) | _GENERAL_NAMES
    for name in _NAME.findall(text):
        out += [word for word in name.split() if word.lower() not in words and word.lower().rstrip("s") not in words]
    return out


def read_numbers(text: str) -> Iterator[tuple[str, float, float]]:
    """Yield each number as written, its value, and how far the exact one may be away when this one is rounded."""
    for match in _NUMBER.finditer(text):
        written = re.sub("[,\u202f]", "", match[0])
        try:
            value = float(written)
        except (ValueError, OverflowError):
            continue
        if "e" in written.lower():
            tolerance = abs(value) * 1e-2
        else:
            tolerance = 0.5 * 10.0 ** -len(written.partition(".")[2]) + 1e-9
            tolerance = tolerance if "." in written or abs(value) >= 10 else 1e-9
        yield match[0], value, tolerance


def _counts(source: str) -> Iterator[int]:
    """Yield how many lines and how many items the source has."""
    try:
        value = json.loads(source)
    except (ValueError, RecursionError):
        yield _count_lines(source)
        return
    yield from _count_items(value, 0)


def _count_items(value: Any, depth: int) -> Iterator[int]:
    if depth > 4:
        return
    if isinstance(value, str):
        yield _count_lines(value)
    elif isinstance(value, list | dict):
        yield len(value)
        for each in value if isinstance(value, list) else value.values():
            yield from _count_items(each, depth + 1)


def _count_lines(text: str) -> int:
    return sum(1 for line in text.splitlines() if line.strip())


def plain_result(name: str, result: str, limit: int = 1500) -> str:
    """Return an answer that only states the result of a tool."""
    text = result.strip()
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        value = text
    if isinstance(value, dict):
        shown = next((value[key] for key in _MAIN_KEYS if value.get(key) not in (None, "", [], {})), None)
        value = shown if shown is not None else value
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    text = text.strip()
    return f"The result of {name}: {text if len(text) <= limit else text[: limit - 1] + '…'}"


_MAIN_KEYS = ("result", "output", "content", "value", "answer", "text", "stdout", "matches", "files")
"""Keys under which tools give what they found."""
