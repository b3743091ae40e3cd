"""Before a turn ends in which files were written: `pre_verify` may send the model back to work (contract §3.3)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from hermes_agent.hooks import HookResult
from hermes_agent.tools import ToolOutcome

__all__ = ["changed_path", "nudge_of"]

WRITERS = frozenset({"write_file", "patch"})
"""Tools that write the file that their argument `path` names."""


def changed_path(outcome: ToolOutcome) -> str:
    """Return the file that a tool call wrote; empty when it wrote none."""
    path = outcome.arguments.get("path") if outcome.name in WRITERS and outcome.status == "ok" else None
    return path if isinstance(path, str) else ""


def nudge_of(answers: Iterable[HookResult]) -> str:
    """Return what the model is told, of the first answer that wants it to go on; empty when none does."""
    return next((text for answer in answers if (text := _nudge(answer.value))), "")


def _nudge(value: Any) -> str:
    if not isinstance(value, dict):
        return ""
    if value.get("action") == "continue":
        said = value.get("message") or value.get("reason")
    elif value.get("decision") == "block":
        said = value.get("reason") or value.get("message")
    else:
        return ""
    return said.strip() if isinstance(said, str) else ""
