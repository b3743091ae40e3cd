"""Where requests go and with which key; texts about it never show the key."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from hermes_agent.core.redact import MASK, redactor
from hermes_agent.models.providers import Provider

__all__ = ["LONGEST_QUOTE", "Endpoint"]

LONGEST_QUOTE = 300
"""Characters of somebody else's text that a message of ours may bear."""

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\s]+")


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One provider as this process uses it."""

    provider: Provider
    base_url: str
    """Absolute, `http` or `https`, without the final slash."""
    key: str = field(default="", repr=False)
    """Empty when there is none."""
    key_name: str = ""
    """Which credential the key is from; empty when there is none."""
    login: str = ""
    """The login whose token stands for the key; it is asked for with each request, since it ends."""

    @property
    def host(self) -> str:
        """Host and port of `base_url`: what may stand in a message."""
        parts = urlsplit(self.base_url)
        host = parts.hostname or self.base_url
        return f"{host}:{parts.port}" if parts.port else host

    @property
    def place(self) -> str:
        """The provider in words: `OpenAI (api.openai.com)`."""
        return f"{self.provider.display_name} ({self.host})"

    @property
    def opening(self) -> str:
        """`place` at the beginning of a sentence; a name keeps its case (`xAI`, `vLLM`)."""
        return f"T{self.place[1:]}" if self.place.startswith("the ") else self.place

    @property
    def public_url(self) -> str:
        """`base_url` without what could be secret: user, password, query."""
        parts = urlsplit(self.base_url)
        return f"{parts.scheme}://{self.host}{parts.path}"

    def quote(self, text: str, limit: int = LONGEST_QUOTE) -> str:
        """Return somebody else's text on one line, without secrets, of at most `limit` characters."""
        if self.key:
            text = text.replace(self.key, MASK)
        text = _CONTROL.sub(" ", redactor(text)).strip()
        return text if len(text) <= limit else text[: limit - 1] + "…"
