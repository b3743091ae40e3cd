"""For whom a tool runs: the ids of the turn, where it works, and whether it was told to stop."""

from __future__ import annotations

import threading
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from hermes_agent.policy import Approvals
from hermes_agent.tools.budget import StepBudget

__all__ = ["CallScope", "ReachedHost", "current_scope"]


class ReachedHost(NamedTuple):
    """A host that a command reached."""

    at: float
    host: str
    asked: bool
    """Whether the user allowed it."""


@dataclass(slots=True, eq=False)  # frozen, each call of a plugin's would pay for it
class CallScope:
    """The circumstances of one or more tool calls; never changed, but replaced."""

    session_id: str
    task_id: str
    turn_id: str
    cwd: Path
    """Working directory of relative paths and commands, absolute and resolved once, where the session was opened."""
    approvals: Approvals
    user_task: str = ""
    """The user's message of this turn."""
    platform: str = "cli"
    api_request_id: str = ""
    cancelled: threading.Event = field(default_factory=threading.Event)
    """Set when the turn is interrupted; long tools poll it."""
    extra: dict[str, Any] = field(default_factory=dict)
    """Further keywords for the handler (`dispatch_tool(**kwargs)`)."""
    shown: frozenset[str] | None = None
    """The tools that the model is shown; None where there is no model."""
    budget: StepBudget | None = None
    """What the running turn may still spend; None outside a turn."""
    principal: str = "local"
    """Who speaks there (`sessions.people`)."""
    reached: list[ReachedHost] = field(default_factory=list)
    """The hosts that commands of these calls reached; the one thing that is added to."""
    tool_socket: str = ""
    """Path of the socket at which a command of these calls asks for tools; a sandbox lets it through. Empty: none."""
    account: str = ""
    """The session on whose account models are asked; empty: this one."""

    def handler_keywords(self) -> dict[str, Any]:
        """Return what a handler is given beside the arguments (plugin contract §4.1)."""
        return {
            "task_id": self.task_id,
            "session_id": self.session_id,
            "user_task": self.user_task,
            **self.extra,
        }


current_scope: ContextVar[CallScope | None] = ContextVar("hermes_call_scope", default=None)
"""The scope of the tool call that runs in this context; None outside one."""
