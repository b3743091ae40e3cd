"""The wire protocols by the values of `api_mode`. Source: plugin contract §8.1."""

from __future__ import annotations

from collections.abc import Mapping

from hermes_agent.models.anthropic_messages import AnthropicMessages
from hermes_agent.models.chat_completions import ChatCompletions
from hermes_agent.models.responses import Responses
from hermes_agent.models.wire import Wire

__all__ = ["OTHER_NAMES", "WIRES"]

WIRES: Mapping[str, Wire] = {wire.name: wire for wire in (ChatCompletions(), AnthropicMessages(), Responses())}
OTHER_NAMES = {
    "anthropic": "anthropic_messages",
    "openai": "chat_completions",
    "openai_chat": "chat_completions",
    "responses": "codex_responses",
}
"""What configs of upstream and people write for them."""
