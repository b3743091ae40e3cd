"""How a tool result says that the call failed: a JSON object with a non-empty `error`.

Source: plugin contract §3.2, §4.4.
"""

from __future__ import annotations

import json
from typing import Any

__all__ = ["error_object"]


def error_object(result: str) -> dict[str, Any] | None:
    """Return the object of a result that reports an error, or None for any other result."""
    if not result.lstrip().startswith("{") or '"error"' not in result:
        return None
    try:
        value = json.loads(result)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) and value.get("error") else None
