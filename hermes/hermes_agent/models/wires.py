"""The wire protocols by the values of `api_mode`. Source: plugin contract §8.1."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hermes_agent.models.wire import Wire

__all__ = ["OTHER_NAMES", "WIRES", "wire_of"]

WIRES = ("chat_completions", "anthropic_messages", "codex_responses")
OTHER_NAMES = {
    "anthropic": "anthropic_messages",
    "openai": "chat_completions",
    "openai_chat": "chat_completions",
    "responses": "codex_responses",
}
"""What configs of upstream and people write for them."""


@functools.cache
def wire_of(name: str) -> Wire:
    """Return the protocol, one of `WIRES`. Few processes speak more than one of them."""
    if name == "anthropic_messages":
        from hermes_agent.models.anthropic_messages import AnthropicMessages

        return AnthropicMessages()
    if name == "codex_responses":
        from hermes_agent.models.responses import Responses

        return Responses()
    from hermes_agent.models.chat_completions import ChatCompletions

    return ChatCompletions()
