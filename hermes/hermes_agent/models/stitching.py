"""An answer that broke off, and its continuation: the reader sees each word once.

What a reader has seen cannot be taken back, so the model is shown what it said and asked to go on. Some begin anew, or
repeat the last words; that is left out.
"""

from __future__ import annotations

from collections.abc import Sequence

from hermes_agent.core.messages import Message

__all__ = ["Stitch", "continuing"]

GO_ON = (
    "[The connection broke in the middle of your answer. The person has read all of it up to here. Go on exactly"
    " where it ends; repeat nothing and do not mention this.]"
)
LOOK = 160
"""Characters that are held back until it is known whether they repeat what was said."""
SHORTEST_OVERLAP = 8


def continuing(messages: Sequence[Message], said: str) -> list[Message]:
    """Return the messages of a request that goes on after `said`."""
    return [*messages, Message("assistant", said), Message("user", GO_ON)] if said.strip() else list(messages)


class Stitch:
    """Takes a continuation piece by piece.

    Args:
        said: what the reader has; empty lets everything through.
    """

    def __init__(self, said: str) -> None:
        self._said = said
        self._held = ""
        self._open = not said.strip()

    def feed(self, text: str) -> str:
        """Return what of `text`, and of what was held back, the reader has not seen."""
        if self._open:
            return text
        self._held += text
        if len(self._held) < LOOK or self._said.startswith(self._held):
            return ""
        return self.rest()

    def rest(self) -> str:
        """Return what is held back, at the end."""
        held, self._held, self._open = self._held, "", True
        return _fresh(self._said, held)


def _fresh(said: str, text: str) -> str:
    if text.startswith(said):
        return text[len(said) :]
    if said.startswith(text):
        return ""
    for length in range(min(len(said), len(text)), SHORTEST_OVERLAP - 1, -1):
        if said.endswith(text[:length]):
            return text[length:]
    return text
