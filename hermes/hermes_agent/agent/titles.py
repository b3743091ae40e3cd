"""A title for a session, written by the auxiliary model after its first turn; nobody waits for it."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from typing import TYPE_CHECKING

from hermes_agent.core.errors import HermesError
from hermes_agent.io.bridge import Bridge

if TYPE_CHECKING:
    from hermes_agent.agent.conversation import Conversation

__all__ = ["TitleWriter"]

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
