"""The tool `delegate_task`: subagents work on one task, or on several in parallel.

The agent, above this package, runs them (`SubagentRunner`). Source: plugin contract §3.6, §4.12 (parameters).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from hermes_agent.core.errors import ToolFailed
from hermes_agent.core.lazy_types import LazyNamedTuple, lazy_dataclass
from hermes_agent.runtime.bridge import Bridge
from hermes_agent.tools import CallScope, current_scope, tool_result, tool_schema

ROLES = ("leaf", "orchestrator")
MAX_TASKS = 32

SCHEMA = tool_schema(
    "delegate_task",
    "Hand a task to a sub-agent that sees nothing of this conversation, and get its summary; several with `tasks`"
    " run side by side. For work that would fill this conversation.",
    {
        "goal": {"type": "string"},
        "context": {"type": "string", "description": "What it must know: facts, paths, errors"},
        "role": {"type": "string", "enum": list(ROLES), "description": "`orchestrator` may hand on tasks itself"},
        "toolsets": {"type": "array", "items": {"type": "string"}, "description": "Only tools of these"},
        "tasks": {
            "type": "array",
            "items": {"type": "object"},
            "description": "In place of `goal`: objects with goal, context, role, toolsets",
        },
        "background": {"type": "boolean", "description": "Return at once; the summaries are said here later"},
    },
)


class DelegatedTask(LazyNamedTuple):
    """One task for a subagent."""

    goal: str
    context: str = ""
    role: str = "leaf"
    toolsets: tuple[str, ...] = ()
    """Toolsets that it may use; empty for all of the caller."""


class SubagentReport(LazyNamedTuple):
    """The result of one task."""

    status: str
    """`completed`, `interrupted` or `failed`."""
    summary: str
    session_id: str
    seconds: float
    model_calls: int
    tokens: int


class SubagentRunner(Protocol):
    """Runs subagents. Used on the core loop."""

    async def run(
        self, tasks: Sequence[DelegatedTask], parent_session: str, scope: CallScope | None
    ) -> list[SubagentReport]:
        """Run tasks in parallel, and return their reports in the same order.

        Args:
            parent_session: the session that delegates them, or "".
            scope: scope of the tool call.

        Raises:
            ToolFailed: subagents may not nest so deep.
        """
        ...

    async def start(self, tasks: Sequence[DelegatedTask], parent_session: str, scope: CallScope | None) -> str:
        """Run tasks in the background and return an id; the reports are injected into the parent's session."""
        ...


@lazy_dataclass(slots=True, eq=False, repr=False)
class DelegateTask:
    """The handler of `delegate_task`."""

    bridge: Bridge
    subagents: SubagentRunner

    def __call__(self, args: dict[str, Any], **kwargs: Any) -> str:
        """Run the tasks and return their reports; with `background` return only their id."""
        tasks = _tasks(args)
        scope = current_scope.get()
        # a plugin may name the agent that it acts for (§2.3)
        named = getattr(kwargs.get("parent_agent"), "session_id", None)
        parent = str(named or ("" if scope is None else scope.session_id))
        if args.get("background"):
            delegation = self.bridge.wait_core(self.subagents.start(tasks, parent, scope))
            return tool_result(status="dispatched", delegation_id=delegation, tasks=len(tasks))
        reports = self.bridge.wait_core(self.subagents.run(tasks, parent, scope))
        return tool_result(
            results=[
                {
                    "task_index": number,
                    "status": report.status,
                    "summary": report.summary,
                    "session_id": report.session_id,
                    "api_calls": report.model_calls,
                    "tokens": report.tokens,
                    "duration_seconds": round(report.seconds, 2),
                }
                for number, report in enumerate(reports)
            ]
        )


def _tasks(args: dict[str, Any]) -> list[DelegatedTask]:
    tasks = args.get("tasks")
    if tasks and args.get("goal"):
        raise ToolFailed("give `goal` or `tasks`, not both")
    found = [_task({**{k: v for k, v in args.items() if k != "tasks"}, **_mapping(t)}) for t in tasks or [args]]
    if len(found) > MAX_TASKS:
        raise ToolFailed(f"{len(found)} tasks at once; {MAX_TASKS} is the most")
    return found


def _mapping(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ToolFailed(f"{value!r} is no task: expected a mapping with `goal`")
    return value


def _task(args: dict[str, Any]) -> DelegatedTask:
    goal = str(args.get("goal") or "").strip()
    if not goal:
        raise ToolFailed("a task needs a `goal`")
    role = args.get("role") or "leaf"
    if role not in ROLES:
        raise ToolFailed(f"role is {role!r}: expected {' or '.join(ROLES)}")
    return DelegatedTask(
        goal, str(args.get("context") or "").strip(), role, tuple(map(str, args.get("toolsets") or ()))
    )
