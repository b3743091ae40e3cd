"""The approver and the dispatcher of unit tests."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hermes_agent.contracts.tool import ApprovalRequest, Effect
from hermes_agent.core.registry import BUILTIN, Owner
from hermes_agent.hooks import HookBus
from hermes_agent.policy import Approvals, Approver, Choice, NoApprover, Refusal
from hermes_agent.runtime.bridge import Bridge
from hermes_agent.tools import CallScope, Dispatcher, ToolRegistry
from hermes_agent.tools.results import ResultStore

LIMIT_S = 30.0


class Person:
    """A user who answers approval requests and clarifications, and keeps them in `asked`.

    Args:
        answers: one for each approval request; a further request is an error.
        always: the answer to every approval request, when `answers` is empty.
        clarifies: the answers to clarifications.
    """

    def __init__(self, *answers: Any, always: Choice | Refusal = "deny", clarifies: Sequence[str] = ()) -> None:
        self.answers, self.answer, self.clarifies = list(answers), always, list(clarifies)
        self._is_listed = bool(answers)
        self.asked: list[Any] = []
        self.open = self.most = 0
        """Requests that are open now, and at most at one time."""

    async def ask(self, request: ApprovalRequest) -> Any:
        """Answer an approval request."""
        self.asked.append(request)
        self.open += 1
        self.most = max(self.most, self.open)
        await asyncio.sleep(0)
        self.open -= 1
        return self.answers.pop(0) if self._is_listed else self.answer

    async def clarify(self, question: str, choices: Sequence[str] = ()) -> Any:
        """Answer a clarification."""
        self.asked.append(question)
        return self.clarifies.pop(0)


class House:
    """A tool registry, a hook bus and a dispatcher over one bridge; calls run in `path`.

    Args:
        bridge: None makes one with its default number of workers.
        fails_open: whether calls use `relaxed`, the plugins whose guards do not block when they fail.
        tables: network tables of the dispatcher, `provenance`: its taint tracker.
        hooks: arguments of the hook bus.
    """

    def __init__(
        self, path: Path, *, bridge: Bridge | None = None, person: Approver | None = None, **more: Any
    ) -> None:
        self.path = self.cwd = path
        self.bridge = Bridge() if bridge is None else bridge
        self.person = person or NoApprover("here")
        dispatcher = {name: more.pop(name) for name in ("provenance", "tables") if name in more}
        self.hooks = HookBus(self.bridge.wait_plugin, **more)
        self.middleware = self.hooks.middleware
        self.tools = ToolRegistry()
        self.relaxed: set[str] = set()
        self.dispatcher = Dispatcher(
            self.tools,
            self.hooks,
            self.bridge,
            ResultStore(path / "r"),
            fails_open=self.relaxed.__contains__,
            **dispatcher,
        )
        self.cancelled = threading.Event()
        self.release, self.hanging = threading.Event(), threading.Event()

    def add(
        self,
        name: str,
        handler: Any,
        effect: Effect | None = None,
        *,
        properties: Mapping[str, Any] | None = None,
        owner: str = BUILTIN,
        **more: Any,
    ) -> None:
        """Register a tool."""
        schema = {"name": name, "description": "d", "parameters": {"type": "object", "properties": properties or {}}}
        self.tools.register(name, "t", schema, handler, effect=effect, owner=Owner(owner), **more)

    def hang(self, **kwargs: Any) -> None:
        """A callback that returns when the test is over."""
        self.hanging.set()
        self.release.wait(LIMIT_S)

    def scope(self, approver: Approver | None = None, **more: Any) -> CallScope:
        """Return the scope of a call."""
        approvals = Approvals(approver or self.person, timeout_s=5)
        return CallScope("s", "t", "u", self.path, approvals, "task", "cli", "r", self.cancelled, more)

    async def run(
        self, args: dict[str, Any] | None = None, name: str = "calc", approver: Approver | None = None, **more: Any
    ) -> Any:
        """Call a tool."""
        work = self.dispatcher.run("c1", name, {} if args is None else args, self.scope(approver, **more))
        return await asyncio.wait_for(work, LIMIT_S)

    async def error(self, *args: Any, **more: Any) -> str:
        """Call a tool and return the error of its result."""
        return str(json.loads((await self.run(*args, **more)).result)["error"])

    def close(self) -> None:
        """Let what hangs end, and stop the threads."""
        self.release.set()
        self.bridge.close()
