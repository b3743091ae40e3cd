"""Subagents: conversations that work on delegated tasks.

A subagent has a session and a budget of its own, the parent's principal, approver and working directory, and no tool
that sends messages. It stops with its parent's turn. In the background it stops with its parent's conversation, and
resumes with it, also in another process. Source: plugin contract §3.6.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hermes_agent.agent.settings import SubagentPolicy
from hermes_agent.builtin_tools.delegate_task import DelegatedTask, SubagentReport
from hermes_agent.contracts.tool import ApprovalRequest
from hermes_agent.core.errors import ToolFailed, UserError
from hermes_agent.core.lazy_types import lazy_dataclass
from hermes_agent.core.messages import ToolFinished, ToolStarted, TurnSink, fold, new_id, new_session_id
from hermes_agent.core.untrusted import mark_untrusted
from hermes_agent.cron.current_run import no_cron_execution
from hermes_agent.hooks.observers import redact_payload
from hermes_agent.policy import Approvals, Approver, Choice, NoApprover, Refusal
from hermes_agent.sessions import LOCAL, Delegation
from hermes_agent.tools import CallScope

if TYPE_CHECKING:
    from hermes_agent.agent.conversation import Conversation
    from hermes_agent.agent.services import ConversationServices

logger = logging.getLogger(__name__)

WITHHELD_TOOLS = frozenset({"clarify", "memory", "send_message", "cronjob"})
"""Tools that send messages, act later, or ask the user."""

MAX_ATTEMPTS = 3
"""Processes in which background work may be interrupted before it is abandoned."""
MAX_RECOVERED = 4096
LOST_REPORT = (
    "They did not come to an end: the agent was restarted {count} times while they worked. What they did stands."
)

INSTRUCTIONS = (
    "You are a sub-agent: another agent handed you the task below, and nobody can answer questions. Do it with your"
    " tools. End with a summary for that agent: what you did, what you found, which files changed, what is left to do."
)


@lazy_dataclass(frozen=True, slots=True)
class DelegationSettings:
    """The block `delegation` of the config."""

    max_iterations: int = 50
    max_concurrent_children: int = 3
    max_spawn_depth: int = 1
    max_summary_chars: int = 24_000


class Subagents:
    """Runs subagents. Used on the core loop.

    Args:
        open_conversation: opens the conversation of a subagent (`Agent.open`).
        find_open: returns the open conversation of a session, or None.
    """

    def __init__(
        self,
        services: ConversationServices,
        settings: DelegationSettings,
        open_conversation: Callable[..., Awaitable[Conversation]],
        find_open: Callable[[str], Conversation | None],
    ) -> None:
        self._services = services
        self._settings = settings
        self._open = open_conversation
        self._find_open = find_open
        self._background: dict[asyncio.Task[None], Delegation] = {}
        self._began: dict[str, float] = {}
        """When this process began each delegation that runs."""
        self._attempts: set[str] = set()
        """Ids of the delegations that run in this process, or were reported in it."""
        self._recovered: set[str] = set()
        """Sessions for which nothing is left from other processes."""
        self._notifications = asyncio.Lock()
        self._watched: set[asyncio.Future[Any]] = set()
        """Subagents of plugins (`run_watched`)."""

    async def run(
        self, tasks: Sequence[DelegatedTask], parent_session: str, scope: CallScope | None
    ) -> list[SubagentReport]:
        """Run tasks in parallel, and return their reports in the same order.

        Raises:
            ToolFailed: subagents may not nest so deep, or a toolset does not exist.
        """
        origin = await self._origin(parent_session, scope)
        for task in tasks:
            self._check(task, origin)
        return await self._run(tasks, [new_session_id() for _ in tasks], origin)

    async def _run(
        self, tasks: Sequence[DelegatedTask], sessions: Sequence[str], origin: _ParentContext
    ) -> list[SubagentReport]:
        slots = asyncio.Semaphore(self._settings.max_concurrent_children)

        async def one(task: DelegatedTask, session_id: str) -> SubagentReport:
            async with slots:
                return await self._open_subagent(task, session_id, origin)

        return list(await asyncio.gather(*map(one, tasks, sessions)))

    async def run_watched(
        self, task: DelegatedTask, parent_session: str, model: str | None, opened: Callable[[Conversation], None]
    ) -> SubagentReport:
        """Run a task of a plugin for an open session; it does not end with the turn.

        Args:
            model: None takes the parent's.
            opened: called with the subagent's conversation before its turn begins.

        Raises:
            ToolFailed: subagents may not nest so deep, a toolset does not exist, or the parent does not have it.
            UserError: the model is not available.
        """
        origin = await self._origin(parent_session, None)
        self._check(task, origin)
        if origin.toolsets is not None and (extra := sorted(set(task.toolsets) - set(origin.toolsets))):
            raise ToolFailed(f"the parent does not have the toolset {', '.join(extra)}")
        return await self._open_subagent(task, new_session_id(), replace(origin, model=model or origin.model), opened)

    def keep(self, work: asyncio.Future[Any]) -> None:
        """Keep the task of `run_watched` until it ends; `aclose` cancels it."""
        self._watched.add(work)
        work.add_done_callback(self._watched.discard)

    async def start(self, tasks: Sequence[DelegatedTask], parent_session: str, scope: CallScope | None) -> str:
        """Run tasks in the background; their reports are injected into the parent's session."""
        origin = await self._origin(parent_session, None)  # no turn: it continues when this one ends
        for task in tasks:
            self._check(task, origin)
        plan = {
            "tasks": [[*task] for task in tasks],
            "sessions": [new_session_id() for _ in tasks],
            "platform": origin.platform,
            "cwd": str(origin.cwd or ""),
            "model": origin.model,
            "toolsets": None if origin.toolsets is None else [*origin.toolsets],
        }
        work = Delegation(new_id("delegation"), parent_session, plan)
        if not origin.depth:
            await self._services.call_transcript("delegation_begins", work)
        self._begin(work, origin)
        return work.id

    async def recover(self, session_id: str = "") -> None:
        """Resume what another process left in the background, or report its end.

        Args:
            session_id: a session that is opened; "" for all but those of the console.
        """
        if session_id in self._recovered:
            return
        if session_id:
            if len(self._recovered) >= MAX_RECOVERED:
                self._recovered.clear()
            self._recovered.add(session_id)
        await asyncio.gather(*(r for r in self._background if r.cancelling()), return_exceptions=True)
        try:
            left = await self._services.call_transcript("delegations_left", session_id)
        except BaseException:
            self._recovered.discard(session_id)  # the next one that opens it tries again
            raise
        for work in left:
            if work.id in self._attempts:
                continue
            # before the first await: the start of the daemon and the opening of the session both get here
            self._attempts.add(work.id)
            self._services.injected.open(work.session_id)
            if work.text:
                self._notify_parent(work)
            elif work.attempt > MAX_ATTEMPTS:
                await self._end(work, LOST_REPORT.format(count=MAX_ATTEMPTS))
            else:
                self._begin(work, await self._origin(work.session_id, None, work.plan))

    def _begin(self, work: Delegation, origin: _ParentContext) -> None:
        tasks = [DelegatedTask(goal, context, role, tuple(sets)) for goal, context, role, sets in work.plan["tasks"]]

        async def run() -> None:
            reports = await self._run(tasks, work.plan["sessions"], origin)
            texts = (
                f"Task {i}: {task.goal}\nStatus: {report.status}\n{report.summary}"
                for i, (task, report) in enumerate(zip(tasks, reports, strict=True), 1)
            )
            await self._end(work, "\n\n".join(texts))

        running = asyncio.ensure_future(run())
        self._background[running] = work
        self._began[work.id] = time.time()
        self._attempts.add(work.id)
        running.add_done_callback(self._ended)

    async def _end(self, work: Delegation, report: str) -> None:
        text = (
            f"[Sub-agents that you started in the background ({work.id}) have ended.]\n\n{mark_untrusted(report, '')}"
        )
        await self._services.call_transcript("delegation_ends", work.id, text)
        self._notify_parent(work._replace(text=text))

    def _notify_parent(self, work: Delegation) -> None:
        self._attempts.add(work.id)
        if self._services.injected.push(work.text, work.session_id) != "taken":
            self._attempts.discard(work.id)
            logger.warning("%s: its reports are not delivered now: the conversation is closed", work.id)

    def count_background(self, session_id: str) -> int:
        """Return the number of delegations of a session that run in the background."""
        return sum(work.session_id == session_id for work in list(self._background.values()))

    def list_background(self, session_id: str) -> list[tuple[str, float]]:
        """Return the first goal and the start of each delegation of a session that runs in the background."""
        works = [work for work in list(self._background.values()) if work.session_id == session_id]
        return [(str(work.plan["tasks"][0][0]), self._began.get(work.id, 0.0)) for work in works]

    def cancel_background(self, session_id: str) -> None:
        """Cancel the background work of a conversation that is closed."""
        self._recovered.discard(session_id)
        for running, work in list(self._background.items()):
            if work.session_id == session_id:
                running.cancel()

    async def aclose(self) -> None:
        """Cancel everything."""
        left = [*self._background, *self._watched]
        for running in left:
            running.cancel()
        await asyncio.gather(*left, return_exceptions=True)

    def _ended(self, running: asyncio.Task[None]) -> None:
        work = self._background.pop(running)
        self._began.pop(work.id, None)
        if running.cancelled() or running.exception() is not None:
            self._attempts.discard(work.id)
        if not running.cancelled() and (error := running.exception()) is not None:
            logger.error("background subagents: failed: %s", error)

    async def _origin(
        self, session_id: str, scope: CallScope | None, plan: Mapping[str, Any] | None = None
    ) -> _ParentContext:
        conversation = self._find_open(session_id)
        if conversation is not None:
            return _ParentContext(
                conversation,
                session_id,
                conversation.principal,
                scope,
                conversation.platform,
                conversation.cwd,
                conversation.model_state.requested,
                conversation.toolsets,
            )
        owner = await self._services.call_transcript("principal", session_id)
        given = plan or {"platform": "cli" if scope is None else scope.platform}
        cwd = Path(given["cwd"]) if given.get("cwd") else None
        return _ParentContext(
            None, session_id, owner or LOCAL, scope, given["platform"], cwd, given.get("model"), given.get("toolsets")
        )

    def _check(self, task: DelegatedTask, origin: _ParentContext) -> None:
        if origin.depth >= self._settings.max_spawn_depth:
            raise ToolFailed(f"sub-agents nest at most {self._settings.max_spawn_depth} deep: do it yourself")
        known = {entry.toolset for _, entry in self._services.tools.items()}
        if unknown := sorted(set(task.toolsets) - known):
            raise ToolFailed(f"there is no toolset {', '.join(unknown)}; there are {', '.join(sorted(known))}")

    async def _open_subagent(
        self,
        task: DelegatedTask,
        session_id: str,
        origin: _ParentContext,
        opened: Callable[[Conversation], None] = lambda child: None,
    ) -> SubagentReport:
        parent = origin.conversation
        depth = origin.depth + 1
        may_hand_on = task.role == "orchestrator" and depth < self._settings.max_spawn_depth
        policy = SubagentPolicy(
            new_id("subagent"),
            depth,
            self._settings.max_iterations,
            WITHHELD_TOOLS if may_hand_on else WITHHELD_TOOLS | {"delegate_task"},
            origin.account,
        )
        child = await self._open(
            session_id,
            platform=origin.platform,
            approver=origin.approver(),
            instructions=INSTRUCTIONS,
            model=origin.model,
            cwd=origin.cwd,
            principal=origin.principal,
            parent=origin.session_id,
            toolsets=task.toolsets or origin.toolsets,
            subagent_policy=policy,
        )
        opened(child)
        began = time.monotonic()
        await self._notify("subagent_start", origin, child, task, child_goal=task.goal, child_subagent_id=policy.id)
        children = set() if parent is None or origin.scope is None else parent.subagents
        children.add(child)
        status, summary, end = "failed", "", None
        history = _CallHistory()
        try:
            if origin.scope is not None and origin.scope.cancelled.is_set():
                status, summary = "interrupted", "The turn was interrupted before it began."
            else:
                message = task.goal if not task.context else f"{task.goal}\n\nContext:\n{task.context}"
                with no_cron_execution():
                    end = await fold(child.turn_once(message, since=0), history)
                status = "interrupted" if end is not None and end.reason == "interrupted" else "completed"
                summary = "" if end is None else end.text
        except UserError as exc:
            summary = str(exc)
        finally:
            children.discard(child)
            await child.close("agent_close")
        if len(summary) > self._settings.max_summary_chars:
            summary = summary[: self._settings.max_summary_chars] + "\n[cut: the whole is in the session]"
        seconds = time.monotonic() - began
        outcome = {"child_summary": summary, "child_status": status, "duration_ms": round(seconds * 1000)}
        outcome |= {"tool_call_history": history.calls}
        await self._notify("subagent_stop", origin, child, task, **outcome)
        if self._services.memory is not None:
            self._services.memory.on_delegation(origin.session_id, task.goal, summary, child.session_id)
        return SubagentReport(
            status,
            summary,
            child.session_id,
            seconds,
            child.model_state.calls,
            0 if end is None else end.usage.total_tokens,
        )

    async def _notify(
        self, hook: str, origin: _ParentContext, child: Conversation, task: DelegatedTask, **more: Any
    ) -> None:
        """Call a hook; hooks run one after another, as the contract requires."""
        if not self._services.hooks.has(hook):
            return
        keywords = {
            "parent_session_id": origin.session_id,
            "parent_turn_id": "" if origin.scope is None else origin.scope.turn_id,
            "child_session_id": child.session_id,
            "child_role": task.role,
            **more,
        }
        if hook == "subagent_start":
            keywords["parent_subagent_id"] = "" if origin.policy is None else origin.policy.id
        async with self._notifications:
            await child.call_hook(hook, **keywords)


class _CallHistory(TurnSink):
    """The tool calls of a turn: arguments, sizes and status; no results."""

    def __init__(self) -> None:
        self.calls: list[dict[str, Any]] = []
        self._arguments: dict[str, dict[str, Any]] = {}

    def tool_started(self, event: ToolStarted) -> None:
        self._arguments[event.call_id] = event.arguments

    def tool_finished(self, event: ToolFinished) -> None:
        arguments = self._arguments.pop(event.call_id, {})
        self.calls.append(
            {
                "tool_name": event.name,
                "tool_input": redact_payload(arguments),
                "input_bytes": len(json.dumps(arguments, ensure_ascii=False, default=str).encode()),
                "output_bytes": len(event.result.encode()),
                "status": event.status,
            }
        )


@lazy_dataclass(frozen=True, slots=True)
class _ParentContext:
    """The conversation that delegates a task, or what is known of it."""

    conversation: Conversation | None
    """None if the session is not open."""
    session_id: str
    principal: str
    scope: CallScope | None
    """Scope of the tool call; None in the background."""
    platform: str
    cwd: Path | None
    model: str | None
    toolsets: Collection[str] | None

    @property
    def policy(self) -> SubagentPolicy | None:
        return None if self.conversation is None else self.conversation.subagent_policy

    @property
    def depth(self) -> int:
        return 0 if self.policy is None else self.policy.depth

    @property
    def account(self) -> str:
        return self.session_id if self.policy is None else self.policy.account

    def approver(self) -> Approver:
        """Return the approver: that of the parent, in the same queue."""
        if self.scope is not None:
            return ParentApprover(self.scope.approvals, self.scope.turn_id)
        if self.conversation is not None:
            return ParentApprover(self.conversation.approvals, "")
        return NoApprover("in a sub-agent outside a conversation")


class ParentApprover:
    """Requests approvals through those of the parent's conversation."""

    asks_user = False

    def __init__(self, approvals: Approvals, turn_id: str) -> None:
        self._approvals, self._turn_id = approvals, turn_id

    async def ask(self, request: ApprovalRequest) -> Choice | Refusal:
        refused = await self._approvals.decide(request, turn_id=self._turn_id)
        return "once" if refused is None else refused
