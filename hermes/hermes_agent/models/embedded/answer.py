"""What the embedded model said, as it comes: the final text piece by piece, or a call at the end.

Models of the user's own, whose server has no grammar and no tool template, write a call as bare JSON, in a code fence
or in `<tool_call>` tags, under one of several key names (`find_calls`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any

from hermes_agent.models.embedded.menu import STRING_MAX

__all__ = ["ParsedToolCall", "FinalTextDecoder", "is_probably_cut", "find_calls", "read_reply"]

_OPENING = re.compile(r'\s*\{\s*"action"\s*:\s*"final"\s*,\s*"text"\s*:\s*"')
_WRITTEN = re.compile(r'(?:[^"\\]|\\[^u]|\\u[0-9a-fA-F]{4})*')
"""Characters and whole escapes of a JSON string."""
_HALF = re.compile(r"(?<!\\)(?:\\\\)*(\\u[dD][89abAB][0-9a-fA-F]{2})$")
"""The first escape of two that are one character; a backslash that is written as two begins none."""
_UNKNOWN_ESCAPE = re.compile(r'\\(?:(["\\/bfnrtu])|(.))', re.DOTALL)
_NO_CHARACTER = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class ParsedToolCall:
    """A tool that the model wants to use."""

    name: str
    arguments: dict[str, Any]


def read_reply(text: str) -> ParsedToolCall | str | None:
    """Read one whole reply: a call, the final text, or None when it has neither form."""
    try:
        value = json.loads(text)
    except ValueError:
        return None
    if not isinstance(value, dict):
        return None
    action, arguments, final = value.get("action"), value.get("arguments"), value.get("text")
    if action == "final" and isinstance(final, str):
        return final
    if isinstance(action, str) and action != "final" and isinstance(arguments, dict):
        return ParsedToolCall(action, arguments)
    return None


def is_probably_cut(value: Any) -> bool:
    """Say whether a string in `value` is as long as the grammar allows: it was probably cut there."""
    if isinstance(value, str):
        return len(value) >= STRING_MAX
    if isinstance(value, dict):
        return any(is_probably_cut(v) for v in value.values())
    return isinstance(value, list) and any(is_probably_cut(v) for v in value)


class FinalTextDecoder:
    """Decodes the text of `{"action": "final", "text": "…"}` while it is being written."""

    def __init__(self) -> None:
        self._pending = ""
        self._inside = False
        self.text = ""
        """Everything decoded so far."""

    def feed(self, chunk: str) -> str:
        """Take the next characters of the reply; return the text that they complete, possibly empty."""
        self._pending += chunk
        if not self._inside:
            opening = _OPENING.match(self._pending)
            if opening is None:
                return ""
            self._inside = True
            self._pending = self._pending[opening.end() :]
        found = _WRITTEN.match(self._pending)
        written = found[0] if found is not None else ""
        rest = self._pending[len(written) :]
        if not rest.startswith('"') and (half := _HALF.search(written)) is not None:
            written, rest = written[: half.start(1)], half[1] + rest
        self._pending = rest
        sound = _UNKNOWN_ESCAPE.sub(lambda escape: escape[0] if escape[1] else escape[2], written)
        out = _NO_CHARACTER.sub("\ufffd", json.loads(f'"{sound}"', strict=False))
        self.text += out
        return out


_DECODER = json.JSONDecoder()
_START = re.compile(r"[{\[]")
_BRACKETS = re.compile(r"[{\[\s]+")
_NAME_KEYS = ("name", "action", "tool", "function")
_ARGUMENT_KEYS = ("arguments", "parameters", "args", "input")


def find_calls(text: str, names: Collection[str]) -> list[ParsedToolCall]:
    """Return the calls of the tools `names` that `text` has in it, in order; everything else is prose.

    Arguments may be an object or a JSON text of one; a call without them has an empty object.
    """
    return [call for value in _json_values(text) for call in _calls(value, names)]


def _json_values(text: str) -> Iterator[Any]:
    at = 0
    while (start := _START.search(text, at)) is not None:
        try:
            value, at = _DECODER.raw_decode(text, start.start())
        except ValueError:
            at = start.end()
        except RecursionError:  # thousands of brackets: those behind the first are as deep
            nested = _BRACKETS.match(text, start.start())
            at = start.end() if nested is None else nested.end()
        else:
            yield value


def _calls(value: Any, names: Collection[str]) -> Iterator[ParsedToolCall]:
    if isinstance(value, list):
        for item in value:
            yield from _calls(item, names)
    if not isinstance(value, dict):
        return
    inner = value.get("function")
    if isinstance(inner, dict):
        value = inner
    if isinstance(several := value.get("tool_calls"), list):
        yield from _calls(several, names)
    name = next((value[k] for k in _NAME_KEYS if isinstance(value.get(k), str)), None)
    if name not in names or name is None:
        return
    arguments = _arguments(next((value[k] for k in _ARGUMENT_KEYS if k in value), {}))
    if arguments is not None:
        yield ParsedToolCall(name, arguments)


def _arguments(value: Any) -> dict[str, Any] | None:
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            return None
    return value if isinstance(value, dict) else None
