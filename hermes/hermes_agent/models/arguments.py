"""Arguments of a tool call that are not quite JSON: small models write Python, trailing commas, raw line breaks."""

from __future__ import annotations

import ast
import json
import re

__all__ = ["repaired"]

_FENCE = re.compile(r"^```(?:json)?\s*|\s*```$")
_STRING_OR_COMMA = re.compile(r'"(?:\\.|[^"\\])*"|,(?=\s*[}\]])', re.DOTALL)
_CLOSES = {"{": "}", "[": "]"}


def repaired(text: str) -> str:
    """Return `text` as JSON of an object where only its form is wrong, else `text` as it is.

    A code fence, line breaks inside strings, trailing commas, Python's literals and brackets that are left open are put
    right. A text that ends inside a string is left alone: nobody knows what the rest was.
    """
    if _is_object(text):
        return text
    bare = _FENCE.sub("", text.strip())
    closed = _closed(bare)
    for candidate in (bare, _without_commas(bare), *((closed,) if closed else ())):
        try:
            value = json.loads(candidate, strict=False)
        except ValueError:
            continue
        if isinstance(value, str):  # encoded twice
            return value if _is_object(value) else text
        return json.dumps(value, ensure_ascii=False) if isinstance(value, dict) else text
    try:
        value = ast.literal_eval(bare)
        return json.dumps(value, ensure_ascii=False) if isinstance(value, dict) else text
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return text


def _is_object(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except ValueError:
        return False


def _closed(text: str) -> str:
    """Return `text` with the brackets closed that are open at its end; empty when it ends inside a string."""
    ends: list[str] = []
    inside = escaped = False
    for char in text:
        if inside:
            inside, escaped = escaped or char != '"', char == "\\" and not escaped
        elif char == '"':
            inside = True
        elif char in _CLOSES:
            ends.append(_CLOSES[char])
        elif ends and char == ends[-1]:
            ends.pop()
    if inside or not ends:
        return ""
    return _without_commas(text.rstrip().rstrip(",") + "".join(reversed(ends)))


def _without_commas(text: str) -> str:
    """Return `text` without the commas before a closing bracket; strings stay as they are."""
    return _STRING_OR_COMMA.sub(lambda found: "" if found[0] == "," else found[0], text)
