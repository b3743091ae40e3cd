"""The wire protocols by the values of `api_mode`. Source: plugin contract §8.1."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hermes_agent.models.wire_protocol import WireProtocol


API_MODES = ("chat_completions", "anthropic_messages", "codex_responses")
API_MODE_ALIASES = {
    "anthropic": "anthropic_messages",
    "openai": "chat_completions",
    "openai_chat": "chat_completions",
    "responses": "codex_responses",
}
"""Other names in configs of users and of upstream."""


@functools.cache
def load_wire_protocol(name: str) -> WireProtocol:
    """Return the protocol of a name in `API_MODES`. Most processes use one of them."""
    if name == "anthropic_messages":
        from hermes_agent.models.anthropic_messages import AnthropicMessagesProtocol

        return AnthropicMessagesProtocol()
    if name == "codex_responses":
        from hermes_agent.models.openai_responses import ResponsesProtocol

        return ResponsesProtocol()
    from hermes_agent.models.chat_completions import ChatCompletionsProtocol

    return ChatCompletionsProtocol()
