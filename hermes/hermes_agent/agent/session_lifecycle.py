"""Sessions that are left, or taken up again: `on_session_finalize` and `on_session_reset`. Source: contract §3.5.

A title for a session, written by the auxiliary model after its first turn; nobody waits for it.
"""

from __future__ import annotations

import logging
import re
from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from hermes_agent.core.errors import HermesError
from hermes_agent.hooks import HookBus
from hermes_agent.runtime.bridge import Bridge

if TYPE_CHECKING:
    from hermes_agent.agent.conversation import Conversation


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


logger = logging.getLogger(__name__)

TITLE_TASK = "title_generation"
MAX_TITLE_CHARS = 60
"""Characters of a title."""
EXCERPT_CHARS = 500
"""Characters of what either said that the model is shown."""
TITLE_PROMPT = (
    "Write a title for this conversation: at most six words, in its language, without quotation marks and without a"
    " full stop. Answer with the title alone.\n\nUser: {said}\n\nAssistant: {answer}"
)


class TitleWriter:
    """Writes titles.

    Args:
        answer: asks the model of a side task: its name, a prompt, the longest answer in tokens.
        wanted: says whether titles are written (`auxiliary.title_generation.enabled`).
    """

    def __init__(self, bridge: Bridge, answer: Callable[[str, str, int], str], wanted: Callable[[], bool]) -> None:
        self._bridge = bridge
        self._answer = answer
        self._is_enabled = wanted

    def after_turn(self, talk: Conversation, said: str, answer: str) -> None:
        """Let a title be written when this was the session's first turn."""
        if talk.parent or not (self._is_enabled() and talk.is_stored and answer and said):  # nobody lists a sub-agent's
            return
        if sum(message.role == "user" for message in talk.history) == 1:
            with talk.use_context():
                self._bridge.spawn(lambda: self._write(talk, said, answer))

    def _write(self, talk: Conversation, said: str, answer: str) -> None:
        if self._bridge.wait_core(talk.agent.call_transcript("count_said", talk.session_id)) > 1:
            return  # the history holds one message since it was shortened
        prompt = TITLE_PROMPT.format(said=said[:EXCERPT_CHARS], answer=answer[:EXCERPT_CHARS])
        try:
            title = _clean_title(self._answer(TITLE_TASK, prompt, 200))
        except HermesError as exc:
            logger.info("the session %s keeps its first line as title: %s", talk.session_id, exc)
            return
        if title:
            self._bridge.wait_core(talk.agent.call_transcript("set_title", talk.session_id, title))


def _clean_title(text: str) -> str:
    line = next((line for line in text.splitlines() if line.strip()), "")
    bare = re.sub(r"^(title|titel)\s*:\s*", "", line.strip(), flags=re.IGNORECASE).strip(" \"'`*#.")
    return bare if len(bare) <= MAX_TITLE_CHARS else bare[: MAX_TITLE_CHARS - 1].rstrip() + "…"
