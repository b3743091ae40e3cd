"""Expansion of `@prefix:value` in messages of the user, by the providers of plugins.

At most 16 references of a message are expanded. What a provider returns is untrusted text for the taint tracker.
Source: plugin contract of 0.23 §9.4.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from typing import Any

from hermes_agent.core.lazy_types import LazyNamedTuple
from hermes_agent.core.messages import Content
from hermes_agent.core.registry import Registry
from hermes_agent.runtime.bridge import Bridge

logger = logging.getLogger(__name__)

MAX_REFERENCES = 16
"""References of one message that are expanded; the others stay as they are."""
LIMIT_S = 30.0
"""Longest expansion of one reference."""
_REFERENCE = re.compile(
    r"(?<![\w@/])@(?P<prefix>[A-Za-z][\w-]*):(?P<value>`[^`\n]+`|\"[^\"\n]+\"|[^\s`\"]*[^\s`\".,;!?)\]}])"
)


class ExpandedReference(LazyNamedTuple):
    """One reference and its text."""

    name: str
    """`@prefix:value` as the user wrote it."""
    text: str


class ContextReferences:
    """Expands references in messages.

    Args:
        providers: the registered providers by prefix.
    """

    def __init__(self, providers: Registry[Any], bridge: Bridge) -> None:
        self.providers, self._bridge = providers, bridge

    async def expand(self, content: Content) -> tuple[Content, list[ExpandedReference]]:
        """Return a message with its references expanded, and what they were replaced by."""
        providers = dict(self.providers.items())
        done: list[ExpandedReference] = []
        if isinstance(content, str):
            return await self._expand_text(content, providers, done), done
        parts: list[Any] = []
        for part in content:
            text = part.get("text") if part.get("type") == "text" else None
            is_text = isinstance(text, str)
            parts.append({**part, "text": await self._expand_text(str(text), providers, done)} if is_text else part)
        return parts, done

    async def _expand_text(self, text: str, providers: Mapping[str, Any], done: list[ExpandedReference]) -> str:
        pieces, at = [], 0
        for found in _REFERENCE.finditer(text):
            provider = providers.get(found["prefix"].lower())
            if provider is None:
                continue
            if len(done) >= MAX_REFERENCES:
                logger.warning("context references: more than %d in one message; the others stay", MAX_REFERENCES)
                break
            replaced = await self._call(provider, found["value"].strip('`"'), found[0])
            if replaced is None:
                continue
            done.append(ExpandedReference(found[0], replaced))
            pieces += [text[at : found.start()], replaced]
            at = found.end()
        return "".join((*pieces, text[at:]))

    async def _call(self, provider: Any, value: str, name: str) -> str | None:
        async def expand() -> Any:
            return await provider.expand(value)

        try:
            text = await self._bridge.on_plugin(expand(), deadline_s=LIMIT_S)
        except Exception as exc:  # noqa: BLE001 - plugin code; the message keeps the reference
            logger.warning("context reference %s: not expanded: %s: %s", name, type(exc).__name__, exc)
            return None
        if text is not None and not isinstance(text, str):
            logger.warning("context reference %s: not expanded: it is %s, not text", name, type(text).__name__)
            return None
        return text
