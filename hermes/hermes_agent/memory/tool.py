"""The tool `memory`: the model changes its notes. Source: plugin contract §4.12."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hermes_agent.contracts.owner import Owner
from hermes_agent.contracts.tool import Effect
from hermes_agent.core.errors import ToolFailed
from hermes_agent.core.registry import BUILTIN
from hermes_agent.memory.notes import NoteChange, Notes
from hermes_agent.tools import ToolRegistry, tool_result

__all__ = ["TOOLSET", "MemoryTool", "register_memory"]

TOOLSET = "memory"

ChangeListener = Callable[[str, str, NoteChange], None]
"""Is told of a change: session id, target, what was changed."""

_CHANGE: dict[str, Any] = {
    "action": {"type": "string", "enum": ["add", "replace", "remove"]},
    "content": {"type": "string", "description": "The entry, for add and replace."},
    "old_text": {"type": "string", "description": "A part of the entry that is replaced or removed."},
}

MEMORY_SCHEMA: dict[str, Any] = {
    "name": "memory",
    "description": (
        "Keep what will still matter in later sessions: target `user` for the person (name, wishes, habits), `memory`"
        " for your surroundings (conventions, quirks of tools, lessons). Save what the person corrects or prefers"
        " without being asked. Short facts; no progress of the present task, nothing that is easy to look up, no"
        " secrets. What you save is in the system prompt of the next session, not of this one."
    ),
    "parameters": {
        "type": "object",
        "properties": {
            **_CHANGE,
            "target": {"type": "string", "enum": ["memory", "user"]},
            "operations": {
                "type": "array",
                "description": "Several changes, all or none: objects with action, content, old_text",
                "items": {"type": "object"},
            },
        },
        "required": ["target"],
    },
}


class MemoryTool:
    """The handler of `memory`.

    Args:
        notes_of: returns the notes of the person whose session it is; None for a session that nobody knows.
        written: told of every change.
    """

    def __init__(self, notes_of: Callable[[str], Notes | None], written: ChangeListener) -> None:
        self._notes_of = notes_of
        self._notify_change = written

    def __call__(self, args: dict[str, Any], **kwargs: Any) -> str:
        """Return `success`, `target`, the `entries` and the `usage` as JSON text.

        Raises:
            ToolFailed: nothing was changed.
        """
        session_id, target = str(kwargs.get("session_id") or ""), str(args.get("target") or "")
        notes = self._notes_of(session_id)
        if notes is None:
            raise ToolFailed("it is not known whose session this is, so there are no notes of theirs to change")
        if target not in notes.limits:
            raise ToolFailed(f"target {target!r} is not kept here: expected {' or '.join(notes.limits)}")
        operations = args.get("operations") or [args]
        if not isinstance(operations, list) or not all(isinstance(o, dict) for o in operations):
            raise ToolFailed("operations is no list of mappings with action, content and old_text")
        changes = [NoteChange.from_arguments(operation) for operation in operations]
        entries = notes.change(target, changes)
        for change in changes:
            self._notify_change(session_id, target, change)
        return tool_result(
            success=True,
            target=target,
            entries=entries,
            entry_count=len(entries),
            usage=notes.usage(target, entries),
            message="Saved. The system prompt of this session stays as it is; the next one has it.",
        )


def register_memory(registry: ToolRegistry, tool: MemoryTool) -> None:
    """Register the tool."""
    registry.register(
        "memory", TOOLSET, MEMORY_SCHEMA, tool, emoji="🧠", effect=Effect("remembers"), owner=Owner(BUILTIN)
    )
