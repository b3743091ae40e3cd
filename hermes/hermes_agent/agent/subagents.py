"""Sub-agents: conversations that work on a task for another one. Source: plugin contract §3.6; docs/architecture.md.

A sub-agent has a session of its own, the parent's principal, approver and working directory, a budget of its own, and
no tool that speaks to people. It stops with its parent's turn; in the background, with its parent's conversation.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hermes_agent.contracts.tool import ApprovalRequest
from hermes_agent.core.errors import ToolFailed, UserError
from hermes_agent.core.events import TurnFinished
from hermes_agent.core.ids import new_id
from hermes_agent.policy import Approvals, Approver, Choice, NobodyThere, Refused
from hermes_agent.sessions import LOCAL
from hermes_agent.tasks.delegating import Report, Task
from hermes_agent.tools import CallScope

if TYPE_CHECKING:
    from hermes_agent.agent.agent import Agent
    from hermes_agent.agent.conversation import Conversation

__all__ = ["Charter", "DelegationSettings", "SubAgents"]

logger = logging.getLogger(__name__)

WITHHELD = frozenset({"clarify", "memory", "send_message", "cronjob"})
"""Tools that speak to people, or for later."""

INSTRUCTIONS = (
    "You are a sub-agent: another agent handed you the task below, and nobody can answer questions. Do it with your"
    " tools. End with a summary for that agent: what you did, what you found, which files changed, what is left to do."
)


@dataclass(frozen=True, slots=True)
class Charter:
    """What a sub-agent may do."""

    id: str
    depth: int
    """1 for one whose parent is no sub-agent."""
    max_turns: int
    withheld: frozenset[str]
    """Tools that it has not."""
    account: str
    """The session of the person, on whose account it works."""


@dataclass(frozen=True, slots=True)
class DelegationSettings:
    """The block `delegation` of the config."""

    max_iterations: int = 50
    max_concurrent_children: int = 3
    max_spawn_depth: int = 1
    max_summary_chars: int = 24_000


class SubAgents:
    """Runs them. On the core loop."""

    def __init__(self, agent: Agent, settings: DelegationSettings | None = None) -> None:
        self._agent = agent
        self._settings = settings or DelegationSettings()
        self._background: dict[asyncio.Task[None], str] = {}
        """With the session that waits for it."""
        self._telling = asyncio.Lock()

    async def run(self, tasks: Sequence[Task], parent_session: str, scope: CallScope | None) -> list[Report]:
        """Run tasks side by side, and return what came of each, in their order.

        Raises:
            ToolFailed: sub-agents may not nest so deep, or a toolset is none.
        """
        origin = await self._origin(parent_session, scope)
        for task in tasks:
            self._check(task, origin)
        slots = asyncio.Semaphore(self._settings.max_concurrent_children)

        async def one(task: Task) -> Report:
            async with slots:
                return await self._child(task, origin)

        return list(await asyncio.gather(*map(one, tasks)))

    async def start(self, tasks: Sequence[Task], parent_session: str, scope: CallScope | None) -> str:
        """Run them in the background; their reports are said into the parent's session."""
        origin = await self._origin(parent_session, None)  # no turn: it goes on when this one ends
        for task in tasks:
            self._check(task, origin)
        name = new_id("delegation")

        async def work() -> None:
            reports = await self.run(tasks, parent_session, None)
            said = "\n\n".join(
                f"Task {i}: {task.goal}\nStatus: {report.status}\n{report.summary}"
                for i, (task, report) in enumerate(zip(tasks, reports, strict=True), 1)
            )
            text = f"[Sub-agents that you started in the background ({name}) have ended.]\n\n{said}"
            if self._agent.inboxes.push(text, parent_session) != "taken":
                logger.warning("nobody takes the reports of %s: its conversation is over", name)

        running = asyncio.ensure_future(work())
        self._background[running] = parent_session
        running.add_done_callback(self._ended)
        return name

    def leave(self, session_id: str) -> None:
        """Stop what runs in the background for a conversation that is closed."""
        for running, parent in list(self._background.items()):
            if parent == session_id:
                running.cancel()

    async def aclose(self) -> None:
        """Stop everything."""
        for running in list(self._background):
            running.cancel()
        await asyncio.gather(*self._background, return_exceptions=True)

    def _ended(self, running: asyncio.Task[None]) -> None:
        self._background.pop(running, None)
        if not running.cancelled() and (error := running.exception()) is not None:
            logger.error("sub-agents in the background failed: %s", error)

    async def _origin(self, session_id: str, scope: CallScope | None) -> _Origin:
        agent = self._agent
        talk = next((t for t in agent.open_conversations if session_id and t.session_id == session_id), None)
        owner = talk.principal if talk is not None else await agent.transcript("principal", session_id)
        return _Origin(talk, session_id, owner or LOCAL, scope)

    def _check(self, task: Task, origin: _Origin) -> None:
        if origin.depth >= self._settings.max_spawn_depth:
            raise ToolFailed(f"sub-agents nest at most {self._settings.max_spawn_depth} deep: do it yourself")
        known = {entry.toolset for _, entry in self._agent.tools.items()}
        if unknown := sorted(set(task.toolsets) - known):
            raise ToolFailed(f"there is no toolset {', '.join(unknown)}; there are {', '.join(sorted(known))}")

    async def _child(self, task: Task, origin: _Origin) -> Report:
        agent, parent = self._agent, origin.talk
        depth = origin.depth + 1
        may_hand_on = task.role == "orchestrator" and depth < self._settings.max_spawn_depth
        charter = Charter(
            new_id("subagent"),
            depth,
            self._settings.max_iterations,
            WITHHELD if may_hand_on else WITHHELD | {"delegate_task"},
            origin.account,
        )
        child = await agent.open(
            None,
            platform=origin.platform,
            approver=origin.approver(),
            instructions=INSTRUCTIONS,
            model=None if parent is None else parent.wish,
            cwd=None if parent is None else parent.cwd,
            principal=origin.principal,
            parent=origin.session_id,
            toolsets=task.toolsets or (None if parent is None else parent.toolsets),
            charter=charter,
        )
        began = time.monotonic()
        await self._tell("subagent_start", origin, child, task, child_goal=task.goal, child_subagent_id=charter.id)
        children = set() if parent is None or origin.scope is None else parent.children
        children.add(child)
        status, summary, end = "failed", "", None
        try:
            if origin.scope is not None and origin.scope.cancelled.is_set():
                status, summary = "interrupted", "The turn was interrupted before it began."
            else:
                said = task.goal if not task.context else f"{task.goal}\n\nContext:\n{task.context}"
                async with contextlib.aclosing(child.turn(said)) as events:
                    async for event in events:
                        if isinstance(event, TurnFinished):
                            end = event
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
        told = {"child_summary": summary, "child_status": status, "duration_ms": round(seconds * 1000)}
        await self._tell("subagent_stop", origin, child, task, **told)
        if self._agent.memory is not None:
            self._agent.memory.delegated(origin.session_id, task.goal, summary, child.session_id)
        return Report(
            status, summary, child.session_id, seconds, child.model_calls, 0 if end is None else end.usage.total_tokens
        )

    async def _tell(self, hook: str, origin: _Origin, child: Conversation, task: Task, **more: Any) -> None:
        """Fire a hook; one after another, as the contract has it."""
        if not self._agent.hooks.has(hook):
            return
        keywords = {
            "parent_session_id": origin.session_id,
            "parent_turn_id": "" if origin.scope is None else origin.scope.turn_id,
            "child_session_id": child.session_id,
            "child_role": task.role,
            **more,
        }
        if hook == "subagent_start":
            keywords["parent_subagent_id"] = origin.subagent_id
        async with self._telling:
            await child.fire(hook, **keywords)


@dataclass(frozen=True, slots=True)
class _Origin:
    """Who hands a task on."""

    talk: Conversation | None
    """None: nobody is in that session."""
    session_id: str
    principal: str
    scope: CallScope | None
    """Of the call; None in the background."""

    @property
    def depth(self) -> int:
        charter = None if self.talk is None else self.talk.charter
        return 0 if charter is None else charter.depth

    @property
    def subagent_id(self) -> str:
        charter = None if self.talk is None else self.talk.charter
        return "" if charter is None else charter.id

    @property
    def account(self) -> str:
        charter = None if self.talk is None else self.talk.charter
        return self.session_id if charter is None else charter.account

    @property
    def platform(self) -> str:
        if self.talk is not None:
            return self.talk.platform
        return "cli" if self.scope is None else self.scope.platform

    def approver(self) -> Approver:
        """Return who is asked: whoever the caller would ask, in the same queue."""
        if self.scope is not None:
            return _Through(self.scope.approvals, self.scope.turn_id)
        if self.talk is not None:
            return _Through(self.talk.approvals, "")
        return NobodyThere("in a sub-agent outside a conversation")


class _Through:
    """Asks the person of the parent's conversation."""

    def __init__(self, approvals: Approvals, turn_id: str) -> None:
        self._approvals, self._turn_id = approvals, turn_id

    async def ask(self, request: ApprovalRequest) -> Choice | Refused:
        refused = await self._approvals.decide(request, turn_id=self._turn_id)
        return "once" if refused is None else refused
