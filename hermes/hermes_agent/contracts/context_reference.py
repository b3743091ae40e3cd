"""Context references: `@prefix:value` in a message of the user, which a plugin replaces by text.

Source: plugin contract of 0.23 §9.4.
"""

from __future__ import annotations

import abc

from hermes_agent.core.lazy_types import lazy_dataclass

__all__ = ["ContextCompletionItem", "ContextReferenceProvider"]


@lazy_dataclass(frozen=True)
class ContextCompletionItem:
    """A completion of `@prefix:`."""

    text: str
    """The value, without the prefix."""
    display: str = ""
    description: str = ""


class ContextReferenceProvider(abc.ABC):
    """Replaces `@prefix:value` in messages of the user."""

    prefix: str = ""
    """The word before the colon, in lower case."""
    description: str = ""

    async def autocomplete(self, query: str, *, limit: int = 10) -> list[ContextCompletionItem]:
        """Return completions of the beginning of a value."""
        return []

    @abc.abstractmethod
    async def expand(self, target: str) -> str | None:
        """Return the text for a value; None leaves the reference in the message."""
