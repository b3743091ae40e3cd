"""What is known of models without asking anybody: how much they see, whether they see pictures and call tools, prices.

Prices are the vendors' own, in dollars a million tokens, as published in November 2025. They count for the vendor's own
API and for the very model, with or without a date behind its name: its successor may cost something else.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

__all__ = ["Known", "Price", "known", "price"]


class Known(NamedTuple):
    """What a family of models can do."""

    begins: str
    """How their names begin, behind the vendor."""
    context_length: int
    vision: bool = False
    tools: bool = True


class Price(NamedTuple):
    """Dollars a million tokens."""

    input: float
    output: float
    cache_read: float
    cache_write: float | None = None


_FAMILIES: Sequence[Known] = (
    Known("claude-", 200_000, vision=True),
    Known("gpt-4.1", 1_047_576, vision=True),
    Known("gpt-4o", 128_000, vision=True),
    Known("gpt-5", 400_000, vision=True),
    Known("o1", 200_000, vision=True),
    Known("o3", 200_000, vision=True),
    Known("o4", 200_000, vision=True),
    Known("gpt-oss", 131_072),
    Known("gemini-", 1_048_576, vision=True),
    Known("gemma-3", 131_072, vision=True, tools=False),
    Known("deepseek-", 128_000),
    Known("grok-4", 256_000, vision=True),
    Known("grok-", 131_072),
    Known("mistral-large", 128_000),
    Known("mistral-medium", 128_000, vision=True),
    Known("magistral", 128_000),
    Known("devstral", 128_000),
    Known("codestral", 256_000),
    Known("llama-4", 1_000_000, vision=True),
    Known("llama-3", 131_072),
    Known("kimi-k2", 256_000),
    Known("glm-4.6", 200_000),
    Known("glm-4.5", 128_000),
    Known("minimax-m", 200_000),
    Known("qwen3-coder", 262_144),
    Known("qwen3", 131_072),
    Known("qwen", 131_072),
    Known("hermes-4", 131_072),
)
_PRICES: dict[str, dict[str, Price]] = {
    "anthropic": {
        "claude-opus-4-5": Price(5, 25, 0.5, 6.25),
        "claude-opus-4-1": Price(15, 75, 1.5, 18.75),
        "claude-opus-4": Price(15, 75, 1.5, 18.75),
        "claude-sonnet-4-5": Price(3, 15, 0.3, 3.75),
        "claude-sonnet-4": Price(3, 15, 0.3, 3.75),
        "claude-haiku-4-5": Price(1, 5, 0.1, 1.25),
        "claude-3-5-haiku": Price(0.8, 4, 0.08, 1),
    },
    "openai": {
        "gpt-5.1": Price(1.25, 10, 0.125),
        "gpt-5": Price(1.25, 10, 0.125),
        "gpt-5-mini": Price(0.25, 2, 0.025),
        "gpt-5-nano": Price(0.05, 0.4, 0.005),
        "gpt-4.1": Price(2, 8, 0.5),
        "gpt-4.1-mini": Price(0.4, 1.6, 0.1),
        "gpt-4.1-nano": Price(0.1, 0.4, 0.025),
        "gpt-4o": Price(2.5, 10, 1.25),
        "gpt-4o-mini": Price(0.15, 0.6, 0.075),
        "o3": Price(2, 8, 0.5),
        "o4-mini": Price(1.1, 4.4, 0.275),
    },
    "gemini": {
        "gemini-2.5-pro": Price(1.25, 10, 0.125),
        "gemini-2.5-flash": Price(0.3, 2.5, 0.03),
        "gemini-2.5-flash-lite": Price(0.1, 0.4, 0.01),
    },
    "deepseek": {
        "deepseek-chat": Price(0.28, 0.42, 0.028),
        "deepseek-reasoner": Price(0.28, 0.42, 0.028),
    },
    "xai": {
        "grok-4": Price(3, 15, 0.75),
        "grok-4-fast-reasoning": Price(0.2, 0.5, 0.05),
        "grok-4-fast-non-reasoning": Price(0.2, 0.5, 0.05),
        "grok-code-fast-1": Price(0.2, 1.5, 0.02),
    },
}
_VENDOR = re.compile(r"^(?:models/)?(?:[\w.-]+/)*(?:(?:us|eu|apac|global)\.)?(?:anthropic\.|openai\.|meta\.)?")
_DATE = re.compile(r"-(?:latest|\d{8}|\d{4}-\d{2}-\d{2}|\d{4})$")


def known(model: str) -> Known | None:
    """Return what is known of a model of any provider."""
    name = _VENDOR.sub("", model.lower())
    return next((family for family in _FAMILIES if name.startswith(family.begins)), None)


def price(provider: str, model: str) -> Price | None:
    """Return what a model costs at its vendor; None elsewhere, and for one that is not in the table."""
    name = model.lower().removeprefix("models/")
    prices = _PRICES.get(provider, {})
    return prices.get(name) or prices.get(_DATE.sub("", name))
