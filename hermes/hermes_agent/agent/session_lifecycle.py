"""Hooks at the end of sessions, and the titles that sessions get after their first turn.

Source: plugin contract §3.5.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from hermes_agent.core.errors import HermesError
from hermes_agent.core.messages import Message
from hermes_agent.core.text import shorten
from hermes_agent.hooks import HookBus
from hermes_agent.runtime.bridge import Bridge

BOUNDARY = "session_boundary"
"""Reason to close a conversation after which its session may continue, as after an HTTP request."""

MAX_LEFT_SESSIONS = 512
"""Sessions over HTTP that are remembered between two requests; the least recent one expires."""

_REASONS = {
    "cli_close": "shutdown",
    "idle": "session_expired",
    "daily": "session_expired",
    "resumed_other": BOUNDARY,
}
"""Reasons of the transcript, with the contract's names where they differ."""


class SessionLifecycle:
    """Calls the hooks once for each session that ends. Used on the core loop."""

    def __init__(self, hooks: HookBus, bridge: Bridge) -> None:
        self._hooks = hooks
        self._bridge = bridge
        self._left: dict[str, str] = {}
        """Platforms of the sessions that may continue, by session; the most recent one is the last."""

    def was_left(self, session_id: str) -> bool:
        """Return whether the session was left in this process, and not finalized."""
        return session_id in self._left

    async def leave(self, session_id: str, platform: str) -> None:
        """Remember a session that may continue; the oldest beyond `MAX_LEFT_SESSIONS` is finalized."""
        self._left.pop(session_id, None)
        self._left[session_id] = platform
        while len(self._left) > MAX_LEFT_SESSIONS:
            oldest = next(iter(self._left))
            await self.finalize(oldest, self._left[oldest], "session_expired")

    async def finalize(self, session_id: str, platform: str, reason: str, successor: str = "") -> None:
        """Call `on_session_finalize`."""
        self._left.pop(session_id, None)
        reason = _REASONS.get(reason, reason)
        await self._call("on_session_finalize", session_id, platform, reason, session_id, successor)

    async def reset(self, session_id: str, platform: str, old: str) -> None:
        """Call `on_session_reset`."""
        await self._call("on_session_reset", session_id, platform, "new_session", old, session_id)

    async def finalize_all(self, reason: str = "shutdown") -> None:
        """Finalize the sessions that were left; a caller that comes back later starts again."""
        for session_id, platform in list(self._left.items()):
            await self.finalize(session_id, platform, reason)

    async def _call(self, hook: str, session_id: str, platform: str, reason: str, old: str, new: str) -> None:
        if not self._hooks.has(hook):
            return
        keywords: dict[str, Any] = {
            "session_id": session_id,
            "platform": platform,
            "reason": reason,
            "old_session_id": old,
            "new_session_id": new,
        }
        await self._bridge.run_steps(self._hooks.steps(hook, keywords), shortest_s=self._hooks.shortest_s(hook))


logger = logging.getLogger(__name__)

TITLE_TASK = "title_generation"
MAX_TITLE_CHARS = 60
"""Characters of a title."""
EXCERPT_CHARS = 500
"""Characters of each message that the model gets."""
TITLE_PROMPT = (
    "Write a title for this conversation: at most six words, in its language, without quotation marks and without a"
    " full stop. Answer with the title alone.\n\nUser: {message}\n\nAssistant: {answer}"
)


class TitleWriter:
    """Writes titles with the auxiliary model; no turn waits for it.

    Args:
        ask_auxiliary: sends a request to the model of an auxiliary task: its name, a prompt, tokens of the answer.
        is_enabled: returns whether titles are written (`auxiliary.title_generation.enabled`).
    """

    def __init__(
        self, bridge: Bridge, ask_auxiliary: Callable[[str, str, int], str], is_enabled: Callable[[], bool]
    ) -> None:
        self._bridge = bridge
        self._ask_auxiliary = ask_auxiliary
        self._is_enabled = is_enabled

    def is_due(self, history: Sequence[Message]) -> bool:
        """Return whether the session gets its title after the turn that ends."""
        return self._is_enabled() and sum(m.role == "user" for m in history) == 1

    def start(
        self, session_id: str, message: str, answer: str, call_transcript: Callable[..., Coroutine[Any, Any, Any]]
    ) -> None:
        """Start writing the title of a session, in the present call scope."""
        self._bridge.spawn(lambda: self._write(session_id, message, answer, call_transcript))

    def _write(
        self, session_id: str, message: str, answer: str, call_transcript: Callable[..., Coroutine[Any, Any, Any]]
    ) -> None:
        if self._bridge.wait_core(call_transcript("count_user_messages", session_id)) > 1:
            return  # after a compaction the history has one user message again
        prompt = TITLE_PROMPT.format(message=message[:EXCERPT_CHARS], answer=answer[:EXCERPT_CHARS])
        try:
            title = _clean_title(self._ask_auxiliary(TITLE_TASK, prompt, 200))
        except HermesError as exc:
            logger.info("session %s: keeps its first line as title: %s", session_id, exc)
            return
        if title:
            self._bridge.wait_core(call_transcript("set_title", session_id, title))


def _clean_title(text: str) -> str:
    line = next((line for line in text.splitlines() if line.strip()), "")
    bare = re.sub(r"^(title|titel)\s*:\s*", "", line.strip(), flags=re.IGNORECASE).strip(" \"'`*#.")
    return shorten(bare, MAX_TITLE_CHARS)
