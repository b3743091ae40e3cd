"""Tool calls in plain text, for models of the user's own whose server has no grammar and no tool template.

Such models write a call as bare JSON, in a code fence or in `<tool_call>` tags, under one of several key names.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator
from typing import Any

from hermes_agent.models.embedded.answer import Call

__all__ = ["calls_in"]

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
