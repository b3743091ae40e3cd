"""Known secrets in a text that comes in pieces: what may be the beginning of one is held back until it is certain."""

from __future__ import annotations

from hermes_agent.core.redact import Redactor, redactor

__all__ = ["LONGEST_HELD", "StreamMask"]

LONGEST_HELD = 8_192
"""Characters that are held back at most; the rest of a longer secret is masked by itself."""


class StreamMask:
    """The text of one answer, on its way to who reads along."""

    def __init__(self, by: Redactor = redactor) -> None:
        self._by = by
        self._held = ""

    def feed(self, piece: str) -> str:
        """Return what may be shown now that `piece` has come; often a few characters less or more than it."""
        text = self._held + piece
        cut = self._by.find_certain_end(text)
        if len(text) - cut > LONGEST_HELD:
            cut = len(text)
        self._held = text[cut:]
        return self._by.mask_known(text[:cut])

    def end(self) -> str:
        """Return what is left when nothing follows."""
        rest, self._held = self._held, ""
        return self._by.mask_known(rest)
