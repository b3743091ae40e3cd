"""Sessions that are left, or taken up again: `on_session_finalize` and `on_session_reset`. Source: contract §3.5."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

from hermes_agent.hooks import HookBus
from hermes_agent.io.bridge import Bridge

__all__ = ["BOUNDARY", "MAX_LEFT_SESSIONS", "SessionLifecycle"]

BOUNDARY = "session_boundary"
"""Reason to close a conversation whose session somebody else keeps: a request over HTTP is done."""

MAX_LEFT_SESSIONS = 512
"""Sessions over HTTP that are remembered between two requests; the one that was not asked for longest expires."""

_REASONS = {
    "cli_close": "shutdown",
    "idle": "session_expired",
    "daily": "session_expired",
    "resumed_other": BOUNDARY,
}
"""What the transcript calls an end, in the words of the contract where they differ."""


class SessionLifecycle:
    """Tells the observers, once for each session that is over. On the core loop."""

    def __init__(self, hooks: HookBus, bridge: Bridge) -> None:
        self._hooks = hooks
        self._bridge = bridge
        self._left: OrderedDict[str, str] = OrderedDict()
        """Sessions whose caller may come back, with their platform; the one that was left last at the end."""

    def was_left(self, session_id: str) -> bool:
        """Say whether the session was left in this process, and not finalized."""
        return session_id in self._left

    async def leave(self, session_id: str, platform: str) -> None:
        """Remember a session whose caller may come back; the oldest beyond `MAX_LEFT_SESSIONS` expires."""
        self._left[session_id] = platform
        self._left.move_to_end(session_id)
        while len(self._left) > MAX_LEFT_SESSIONS:
            oldest, its_platform = self._left.popitem(last=False)
            await self.finalize(oldest, its_platform, "session_expired")

    async def finalize(self, session_id: str, platform: str, reason: str, successor: str = "") -> None:
        """Fire `on_session_finalize`."""
        self._left.pop(session_id, None)
        word = _REASONS.get(reason, reason)
        await self._fire("on_session_finalize", session_id, platform, word, session_id, successor)

    async def reset(self, session_id: str, platform: str, old: str) -> None:
        """Fire `on_session_reset`."""
        await self._fire("on_session_reset", session_id, platform, "new_session", old, session_id)

    async def finalize_all(self, reason: str = "shutdown") -> None:
        """Finalize what was left; a caller that comes back all the same begins a visit anew."""
        for session_id, platform in list(self._left.items()):
            await self.finalize(session_id, platform, reason)

    async def _fire(self, hook: str, session_id: str, platform: str, reason: str, old: str, new: str) -> None:
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
