"""What observers of model requests are shown of a payload: without secrets, and not without end. Source: §3.3."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from typing import Any

from hermes_agent.core.redact import MASK, redactor

__all__ = ["MAX_CHARS", "VARIABLE", "redact_payload"]

VARIABLE = "HERMES_PLUGIN_PAYLOAD_MAX_CHARS"
"""Environment variable with the longest payload in characters of JSON; read at each call."""
MAX_CHARS = 50_000
MAX_DEPTH = 8
MAX_STRING = 8_000
MAX_ITEMS = 200

_SECRET = re.compile(r"(?:.*_)?api_key|authorization|proxy_authorization|cookie|set_cookie", re.IGNORECASE)


def redact_payload(payload: Any) -> Any:
    """Return a copy of plain values: at most 8 deep, strings of 8,000 characters, sequences of 200 items.

    Values under the names of secrets, and secrets that the agent knows, are masked. A payload whose JSON is longer
    than `HERMES_PLUGIN_PAYLOAD_MAX_CHARS` (50,000) becomes `{"truncated": True, "chars": N, "preview": text}`.
    """
    clean = _clean(payload, MAX_DEPTH)
    text = json.dumps(clean, ensure_ascii=False, default=str)
    limit = _limit()
    if len(text) <= limit:
        return clean
    return {"truncated": True, "chars": len(text), "preview": text[:limit]}


def _limit() -> int:
    try:
        wanted = int(os.environ.get(VARIABLE, ""))
    except ValueError:
        return MAX_CHARS
    return wanted if wanted > 0 else MAX_CHARS


def _clean(value: Any, depth: int) -> Any:
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, str):
        # cut before and after: the masks are found in what is shown, and a text without end is not searched
        text = redactor(value[: 2 * MAX_STRING])
        return text if len(text) <= MAX_STRING else text[:MAX_STRING] + f"… ({len(value)} characters)"
    if depth == 0:
        return "…"
    if isinstance(value, Mapping):
        return {
            str(k): MASK if _SECRET.fullmatch(str(k).replace("-", "_")) else _clean(v, depth - 1)
            for k, v in list(value.items())[:MAX_ITEMS]
        }
    if isinstance(value, list | tuple | set | frozenset):
        items = list(value)
        shown = [_clean(item, depth - 1) for item in items[:MAX_ITEMS]]
        return shown if len(items) <= MAX_ITEMS else [*shown, f"… ({len(items)} items)"]
    return _clean(str(value), depth)
