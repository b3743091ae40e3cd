"""A model that was chosen, and those that stand in for it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from hermes_agent.models.request import ModelClient

__all__ = ["ChosenModel", "Health"]


class Health:
    """Whether an endpoint with its key is worth asking; one object per endpoint for the life of the process."""

    def __init__(self) -> None:
        self._until = 0.0

    @property
    def rests(self) -> bool:
        """Others are asked first for now."""
        return time.monotonic() < self._until

    def rest(self, seconds: float) -> None:
        """Ask others first for that long."""
        self._until = max(self._until, time.monotonic() + seconds)


@dataclass(frozen=True, slots=True)
class ChosenModel:
    """A model and who is asked for it."""

    client: ModelClient
    name: str
    max_tokens: int | None = None
    """Longest answer; None leaves it to the provider."""
    context_length: int = 0
    """Tokens that it can see; 0 when nobody knows, or when the client makes a conversation fit by itself."""
    reasoning_effort: str = ""
    """How long it may think in a turn, in the provider's words; empty leaves it to the provider."""
    health: Health = field(default_factory=Health, compare=False)
    others: Callable[[], Sequence[ChosenModel]] = field(default=tuple, compare=False)
    """Returns who is asked when it does not answer: the same model with further keys, then `fallback_providers`."""
