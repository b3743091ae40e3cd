"""A memory provider in one session: every call of it is bounded, and a failure costs no more than what it recalls.

Source: plugin contract §8.3.
"""

from __future__ import annotations

import inspect
import logging
import time
from collections.abc import Callable
from typing import Any

from hermes_agent.contracts.memory import MemoryProvider
from hermes_agent.io.bridge import Bridge
from hermes_agent.memory.background import Background
from hermes_agent.memory.fence import fenced, sanitize_context

__all__ = ["BUDGET_S", "ProviderSession"]

logger = logging.getLogger(__name__)

BUDGET_S = 8.0
"""Of the contract, in seconds."""

Messages = list[dict[str, Any]]


class ProviderSession:
    """On the core loop, but for `call_tool` and `before_compaction`.

    Args:
        lane: where writes go, one after another.
        budget_s: how long a turn waits for what is recalled, and a start for `initialize`.
    """

    def __init__(
        self,
        provider: MemoryProvider,
        plugin: str,
        session_id: str,
        bridge: Bridge,
        lane: Background,
        budget_s: float = BUDGET_S,
    ) -> None:
        self.provider = provider
        self.plugin = plugin
        self.session_id = session_id
        self.block = ""
        """What it has in the system prompt."""
        self.schemas: list[dict[str, Any]] = []
        self._bridge = bridge
        self._lane = lane
        self._budget_s = budget_s
        self._turns = 0

    async def start(self, facts: dict[str, Any]) -> str:
        """Initialize it; return why it cannot be used, empty when it can."""
        self._lane.bind()
        try:
            return await self._bridge.run(self._start, facts, deadline_s=self._budget_s)
        except TimeoutError:
            return f"it was not ready after {self._budget_s:g} seconds"
        except Exception as exc:
            logger.warning("memory provider of plugin `%s` failed to start", self.plugin, exc_info=True)
            return f"{type(exc).__name__}: {exc}"

    def _start(self, facts: dict[str, Any]) -> str:
        if not self.provider.is_available():
            return "it says that it is not available; `hermes memory status` shows what it needs"
        self.provider.initialize(self.session_id, **facts)
        self.block = str(self._asked("system_prompt_block") or "").strip()
        self.schemas = [_function(s) for s in self._asked("get_tool_schemas") or () if isinstance(s, dict)]
        return ""

    async def recall(self, query: str, **facts: Any) -> str:
        """Return what is recalled for a message of the user, in its fence; empty when nothing is, or it takes too long.

        Args:
            facts: `remaining_tokens`, `model`, `platform`, `tool_count`, for `on_turn_start`.
        """
        self._turns += 1
        began = time.monotonic()
        try:
            text = await self._bridge.run(self._recall, self._turns, query, facts, deadline_s=self._budget_s)
        except TimeoutError:
            logger.warning(
                "memory provider of plugin `%s` recalled nothing within %g seconds; the turn goes on",
                self.plugin,
                self._budget_s,
            )
            return ""
        logger.debug("memory recalled %d characters in %.1f s", len(text), time.monotonic() - began)
        return fenced(text)

    def _recall(self, number: int, query: str, facts: dict[str, Any]) -> str:
        self._asked("on_turn_start", number, query, **facts)
        return str(self._asked("prefetch", query, session_id=self.session_id) or "")

    def after_turn(self, user: str, assistant: str, messages: Messages) -> None:
        """Hand over a turn, and let it get ready for the next; nobody waits for it."""
        user, assistant = sanitize_context(user), sanitize_context(assistant)

        def work() -> None:
            more = {"messages": messages} if _names(self.provider.sync_turn, "messages") else {}
            self._asked("sync_turn", user, assistant, session_id=self.session_id, **more)
            self._asked("queue_prefetch", user, session_id=self.session_id)

        self._lane.post(work)

    def written(self, action: str, target: str, content: str, metadata: dict[str, Any]) -> None:
        """Tell of a change of the agent's own notes; nobody waits for it. From any thread."""

        def work() -> None:
            function = getattr(self.provider, "on_memory_write", None)
            more = {"metadata": metadata} if function is not None and _names(function, "metadata") else {}
            self._asked("on_memory_write", action, target, content, **more)

        self._lane.post_from_thread(work)

    def delegated(self, task: str, result: str, child: str) -> None:
        """Tell of a sub-agent that has ended; nobody waits for it."""
        self._lane.post(lambda: self._asked("on_delegation", task, result, child_session_id=child))

    def before_compaction(self, messages: Messages) -> str:
        """Return what must not be lost when the conversation is made shorter; in a worker."""
        return sanitize_context(str(self._asked("on_pre_compress", messages) or ""))

    def call_tool(self, name: str, args: dict[str, Any], **keywords: Any) -> str:
        """Answer a call of one of its tools; in a worker."""
        return self.provider.handle_tool_call(name, args, **keywords)

    def moved(self, session_id: str, messages: Messages) -> None:
        """The person went on under another id; what was said before is over."""
        old, self.session_id, self._turns = self.session_id, session_id, 0
        self._lane.post(lambda: self._asked("on_session_end", messages))
        self._lane.post(lambda: self._asked("on_session_switch", session_id, parent_session_id=old, reset=True))

    def end(self, messages: Messages) -> None:
        """The session is over; nobody waits for it."""
        self._lane.post(lambda: self._asked("on_session_end", messages))
        self._lane.post(lambda: self._asked("shutdown"))

    def _asked(self, method: str, *args: Any, **keywords: Any) -> Any:
        """Call a method, where there is one; a failure is logged."""
        function = getattr(self.provider, method, None)
        if function is None:  # it need not inherit from the contract's class
            return None
        try:
            return function(*args, **keywords)
        except Exception as exc:
            logger.warning("memory provider of plugin `%s`: %s() failed: %r", self.plugin, method, exc)
            logger.debug("traceback", exc_info=True)
            return None


def _function(schema: dict[str, Any]) -> dict[str, Any]:
    inner = schema.get("function")
    return inner if isinstance(inner, dict) else schema


def _names(function: Callable[..., Any], parameter: str) -> bool:
    """Say whether a function takes an argument of that name, or any."""
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):
        return False
    return parameter in parameters or any(p.kind is p.VAR_KEYWORD for p in parameters.values())
