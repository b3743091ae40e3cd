"""What the embedded model said, as it comes: the final text piece by piece, or a call at the end.

Models of the user's own, whose server has no grammar and no tool template, write a call as bare JSON, in a code fence
or in `<tool_call>` tags, under one of several key names (`calls_in`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any

from hermes_agent.models.embedded.menu import STRING_MAX

__all__ = ["Call", "FinalText", "at_its_limit", "calls_in", "read_reply"]

_OPENING = re.compile(r'\s*\{\s*"action"\s*:\s*"final"\s*,\s*"text"\s*:\s*"')
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f"}


@dataclass(frozen=True, slots=True)
class Call:
    """A tool that the model wants to use."""

    name: str
    arguments: dict[str, Any]


def read_reply(text: str) -> Call | str | None:
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
        return Call(action, arguments)
    return None


def at_its_limit(value: Any) -> bool:
    """Say whether a string in `value` is as long as the grammar allows: it was probably cut there."""
    if isinstance(value, str):
        return len(value) >= STRING_MAX
    if isinstance(value, dict):
        return any(at_its_limit(v) for v in value.values())
    return isinstance(value, list) and any(at_its_limit(v) for v in value)


class FinalText:
    """Decodes the text of `{"action": "final", "text": "…"}` while it is being written."""

    def __init__(self) -> None:
        self._pending = ""
        self._inside = False
        self._ended = False
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
        out = self._decode()
        self.text += out
        return out

    def _decode(self) -> str:
        out: list[str] = []
        rest = self._pending
        at = 0
        while at < len(rest) and not self._ended:
            char = rest[at]
            if char == '"':
                self._ended = True
            elif char != "\\":
                out.append(char)
                at += 1
            else:
                decoded, used = _escape(rest[at:])
                if not used:
                    break
                out.append(decoded)
                at += used
        self._pending = rest[at:]
        return "".join(out)


def _escape(text: str) -> tuple[str, int]:
    """Decode the escape at the start of `text`; return it and its length, 0 when it is not complete yet."""
    if len(text) < 2:
        return "", 0
    if text[1] != "u":
        return _ESCAPES.get(text[1], text[1]), 2
    if len(text) < 6:
        return "", 0
    unit = int(text[2:6], 16)
    if not 0xD800 <= unit < 0xDC00:
        return ("\ufffd" if 0xDC00 <= unit < 0xE000 else chr(unit)), 6
    if len(text) < 12 and text[6:8] in ("", "\\", "\\u"):
        return "", 0
    low = int(text[8:12], 16) if text[6:8] == "\\u" and len(text) >= 12 else 0
    if not 0xDC00 <= low < 0xE000:
        return "\ufffd", 6
    return chr(0x10000 + ((unit - 0xD800) << 10) + (low - 0xDC00)), 12


_DECODER = json.JSONDecoder()
_START = re.compile(r"[{\[]")
_NAME_KEYS = ("name", "action", "tool", "function")
_ARGUMENT_KEYS = ("arguments", "parameters", "args", "input")


def calls_in(text: str, names: Collection[str]) -> list[Call]:
    """Return the calls of the tools `names` that `text` has in it, in order; everything else is prose.

    Arguments may be an object or a JSON text of one; a call without them has an empty object.
    """
    return [call for value in _json_values(text) for call in _calls(value, names)]


def _json_values(text: str) -> Iterator[Any]:
    at = 0
    while (start := _START.search(text, at)) is not None:
        try:
            value, at = _DECODER.raw_decode(text, start.start())
        except (ValueError, RecursionError):  # the latter: thousands of brackets
            at = start.end()
        else:
            yield value


def _calls(value: Any, names: Collection[str]) -> Iterator[Call]:
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
        yield Call(name, arguments)


def _arguments(value: Any) -> dict[str, Any] | None:
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            return None
    return value if isinstance(value, dict) else None
