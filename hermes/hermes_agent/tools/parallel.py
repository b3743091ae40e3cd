"""Which calls of one answer may run at once, and which may run twice. Source: plugin contract §4.11.

All calls of the answer at once, or one after another: a call may depend on what an earlier one did.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hermes_agent.core.registry import BUILTIN
from hermes_agent.tools.registry import ToolRegistry

__all__ = ["MAX_PARALLEL", "batch_limit_s", "may_repeat", "may_run_in_parallel"]

logger = logging.getLogger(__name__)

MAX_PARALLEL = 8
BATCH_LIMIT_S = 420.0
LIMIT_VARIABLE = "HERMES_CONCURRENT_TOOL_TIMEOUT_S"

READERS = frozenset(
    {
        *("ha_get_state", "ha_list_entities", "ha_list_services", "read_file", "search_files", "session_search"),
        *("skill_view", "skills_list", "vision_analyze", "web_extract", "web_search"),
    }
)
"""The agent's own tools that change nothing."""
WRITERS = frozenset({"write_file", "patch"})
"""Its tools that change the one file that `path` names."""


def may_run_in_parallel(registry: ToolRegistry, calls: Sequence[tuple[str, dict[str, Any] | None]], cwd: Path) -> bool:
    """Say whether these calls, each a tool and its arguments, may run side by side."""
    if len(calls) < 2:
        return False
    changed: set[str] = set()
    for name, arguments in calls:
        file = _changed_file(registry, name, arguments or {})
        if file is None:
            return False
        if file:
            place = os.path.realpath(cwd / Path(file).expanduser())
            if place in changed:
                return False
            changed.add(place)
    return True


def may_repeat(registry: ToolRegistry, name: str) -> bool:
    """Say whether a call of the tool may be run a second time when nobody knows how the first one ended."""
    entry = registry.get(name)
    own = registry.owner(name) == BUILTIN and name in READERS
    return entry is not None and (own or entry.idempotent)


def batch_limit_s() -> float:
    """Return how long calls that run at once may take together."""
    text = os.environ.get(LIMIT_VARIABLE, "")
    try:
        return max(1.0, float(text)) if text else BATCH_LIMIT_S
    except ValueError:
        logger.warning("%s=%r is no number of seconds; %g is used", LIMIT_VARIABLE, text, BATCH_LIMIT_S)
        return BATCH_LIMIT_S


def _changed_file(registry: ToolRegistry, name: str, arguments: dict[str, Any]) -> str | None:
    """Return the file that a call changes, empty when it changes none, None when it must run alone."""
    entry = registry.get(name)
    if entry is None:
        return None
    if registry.owner(name) == BUILTIN and name in READERS:
        return ""
    if registry.owner(name) == BUILTIN and name in WRITERS:
        return str(arguments.get("path") or "") or None
    safe = entry.parallel_safe
    if not callable(safe):
        return "" if safe else None
    try:
        return str(safe(arguments)) or None
    except Exception as exc:  # noqa: BLE001 - a plugin's function; running alone is always right
        logger.warning("parallel_safe of tool %s failed, it runs alone: %r", name, exc)
        return None
