"""What a call of a tool does that does not say so: a plugin's, by its name."""

from __future__ import annotations

import functools

from hermes_agent.contracts.tool import Effect

__all__ = ["GUESSED_SENDING", "OWN", "guess_effect"]

READING_VERBS = frozenset(
    [
        "check",
        "count",
        "describe",
        "fetch",
        "find",
        "get",
        "info",
        "inspect",
        "list",
        "lookup",
        "preview",
        "query",
        "read",
        "recall",
        "search",
        "show",
        "status",
        "view",
    ]
)

OWN = Effect("reads")
"""Of the agent's own tools, which say what they do."""


@functools.lru_cache(maxsize=1024)
def guess_effect(name: str) -> Effect:
    """Return the effect of a plugin's tool that declares none: names that read, read what others wrote; others send."""
    if READING_VERBS.intersection(name.lower().replace("-", "_").split("_")):
        return GUESSED_READING
    return GUESSED_SENDING


GUESSED_READING = Effect("reads", returns="others")
GUESSED_SENDING = Effect("sends")
