"""What `ctx.llm` is given and what it gives back. Source: plugin contract §5.2; `agent.plugin_llm` serves them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

__all__ = [
    "PluginLlmCompleteResult",
    "PluginLlmImageInput",
    "PluginLlmStructuredResult",
    "PluginLlmTextInput",
    "PluginLlmUsage",
]


@dataclass
class PluginLlmTextInput:
    """A piece of text for `complete_structured`."""

    text: str
    type: str = "text"


@dataclass
class PluginLlmImageInput:
    """A picture for `complete_structured`: its bytes, or where it is."""

    data: bytes | None = None
    url: str | None = None
    mime_type: str = "image/png"
    file_name: str = ""
    type: str = "image"


@dataclass
class PluginLlmUsage:
    """Tokens of one call; zeros where the provider did not say."""

    input_tokens: int = 0
    output_tokens: int = 0
    total_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    cost_usd: float | None = None
    """US dollars; 0 for the embedded model, what the provider says where it does, None where it is not known."""


@dataclass
class PluginLlmCompleteResult:
    """An answer."""

    text: str
    provider: str
    model: str
    agent_id: str
    usage: PluginLlmUsage = field(default_factory=PluginLlmUsage)
    audit: dict[str, Any] = field(default_factory=dict)
    """`plugin_id`, `purpose`, `profile`; `schema_name` where one was given."""


@dataclass
class PluginLlmStructuredResult(PluginLlmCompleteResult):
    """An answer that may be JSON."""

    parsed: Any = None
    """The value; None when the answer is no JSON, or none was asked for: `text` has it as it came."""
    content_type: str = "text"
    """`json` when `parsed` is the answer, else `text`."""
