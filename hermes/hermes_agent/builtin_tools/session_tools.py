"""The tools `todo`, the model's list of tasks in a session, and `clarify`, a question to the user.

The list of `todo` is in memory; after a restart the last result in the transcript restores it. Source: plugin contract
§4.12 (parameters).
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from typing import Any

from hermes_agent.core.caches import LruDict
from hermes_agent.core.errors import ToolFailed
from hermes_agent.core.lazy_types import lazy_dataclass
from hermes_agent.policy import Refusal
from hermes_agent.runtime.bridge import Bridge
from hermes_agent.tools import current_scope, tool_error, tool_result, tool_schema

STATES = ("pending", "in_progress", "completed", "cancelled")
MAX_ITEMS = 200
MAX_CHARS = 2_000
MAX_SESSIONS = 256

TODO_SCHEMA = tool_schema(
    "todo",
    "Your list for work of three steps and more: one item in_progress at a time. No `todos`: read it.",
    {
        "todos": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {
                    "id": {"type": "string"},
                    "content": {"type": "string"},
                    "status": {"type": "string", "enum": list(STATES)},
                },
                "required": ["id", "content", "status"],
            },
        },
        "merge": {"type": "boolean", "description": "Change and add items instead of replacing the list"},
    },
)

Item = dict[str, str]


class Todo:
    """The handler of `todo`.

    Args:
        last_result: returns the last result of a tool in a session's transcript, or "".
    """

    def __init__(self, last_result: Callable[[str, str], str]) -> None:
        self._last_result = last_result
        self._lists: LruDict[str, list[Item]] = LruDict(MAX_SESSIONS)
        self._lock = threading.Lock()

    def __call__(self, args: dict[str, Any], **kwargs: Any) -> str:
        """Change the list, or only return it."""
        scope = current_scope.get()
        session_id = str(kwargs.get("session_id") or ("" if scope is None else scope.session_id))
        given = args.get("todos")
        with self._lock:
            items = self._list(session_id)
            if given is not None:
                items = _merge_items(items if args.get("merge") else [], given)
            self._lists[session_id] = items
        counts = {state: sum(item["status"] == state for item in items) for state in STATES}
        return tool_result(todos=items, summary={"total": len(items), **counts})

    def _list(self, session_id: str) -> list[Item]:
        known = self._lists.get(session_id)
        if known is not None or not session_id:
            return known or []
        try:
            return _merge_items([], json.loads(self._last_result(session_id, "todo") or "{}").get("todos", []))
        except (ValueError, AttributeError, ToolFailed):  # an error, or a result that a plugin changed
            return []


def _merge_items(items: list[Item], given: Any) -> list[Item]:
    """Return the list with the given items, or raise ToolFailed if they are invalid."""
    if not isinstance(given, list):
        raise ToolFailed("`todos` is no list: expected items with id, content and status")
    found = {item["id"]: item for item in items}
    for raw in given:
        if not isinstance(raw, dict) or not str(raw.get("id") or "").strip():
            raise ToolFailed(f"{json.dumps(raw, default=str)[:200]} is no item: expected id, content and status")
        name = str(raw["id"]).strip()
        previous = found.get(name, {"content": "", "status": "pending"})
        status = raw.get("status", previous["status"])
        if status not in STATES:
            raise ToolFailed(f"the status of item {name} is {status!r}: expected {', '.join(STATES)}")
        content = str(raw.get("content") or previous["content"]).strip()[:MAX_CHARS]
        if not content:
            raise ToolFailed(f"item {name} is empty: it needs `content`")
        found[name] = {"id": name, "content": content, "status": status}
    if len(found) > MAX_ITEMS:
        raise ToolFailed(f"the list would have {len(found)} items; {MAX_ITEMS} is the most")
    return list(found.values())


MAX_CHOICES = 4

CLARIFY_SCHEMA = tool_schema(
    "clarify",
    "Ask the person what you cannot go on without knowing, or what is theirs to choose, and wait.",
    {
        "question": {"type": "string"},
        "choices": {"type": "array", "items": {"type": "string"}, "maxItems": MAX_CHOICES},
    },
    required=["question"],
)


@lazy_dataclass(slots=True, eq=False, repr=False)
class Clarify:
    """The handler of `clarify`. `timeout_s`: longest wait for the answer (`agent.clarify_timeout`)."""

    bridge: Bridge
    timeout_s: float

    def __call__(self, args: dict[str, Any], **kwargs: Any) -> str:
        """Ask the user in the front end of the session."""
        question = str(args.get("question") or "").strip()
        if not question:
            raise ToolFailed("there is no question")
        choices = [text for c in args.get("choices") or () if (text := str(c).strip())][:MAX_CHOICES]
        scope = current_scope.get()
        if scope is None:
            return tool_error("outside a conversation no user can be asked")
        work = scope.approvals.clarify(
            question, choices, timeout_s=self.timeout_s, turn_id=scope.turn_id, cancelled=scope.cancelled
        )
        answer = self.bridge.wait_core(work)
        if isinstance(answer, Refusal):
            return tool_error(answer.reason)
        return tool_result(question=question, choices_offered=choices or None, user_response=answer)
