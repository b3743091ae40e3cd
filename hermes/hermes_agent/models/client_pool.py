"""A model that was chosen, those that stand in for it (`fallback_providers`, `auxiliary.<task>.fallback_chain`), and
the clients of a process: one per endpoint."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from hermes_agent.contracts.model_client import ModelClient
from hermes_agent.core.errors import UserError
from hermes_agent.models.providers import ModelEndpoint

if TYPE_CHECKING:
    from hermes_agent.models.selection import ModelSelection


logger = logging.getLogger(__name__)


class EndpointHealth:
    """Whether an endpoint with its key is worth asking; one object per endpoint for the life of the process."""

    def __init__(self) -> None:
        self._until = 0.0
        self.why = ""
        """What it failed with the last time."""

    @property
    def is_paused(self) -> bool:
        """Others are asked first for now."""
        return time.monotonic() < self._until

    @property
    def left_s(self) -> float:
        """For how many seconds more."""
        return max(0.0, self._until - time.monotonic())

    def pause(self, seconds: float, why: str = "") -> None:
        """Ask others first for that long. `why`: a sentence."""
        self.why = why
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
    credential: str = ""
    """Name of the key that it is asked with: a variable, or a login; empty where there is none."""
    health: EndpointHealth = field(default_factory=EndpointHealth, compare=False)
    fallbacks: Callable[[], Sequence[ChosenModel]] = field(default=tuple, compare=False)
    """Returns who is asked when it does not answer: the same model with further keys, then `fallback_providers`."""


class ClientPool:
    """One client per endpoint for the life of the process, so that a change of model keeps the connections."""

    def __init__(self) -> None:
        self._clients: dict[ModelEndpoint, ModelClient] = {}
        self._health: dict[tuple[ModelEndpoint, str], EndpointHealth] = {}

    def client(self, selection: ModelSelection) -> ModelClient:
        """Return the client of the selection's endpoint."""
        known = self._clients.get(selection.endpoint)
        if known is None:
            known = self._clients[selection.endpoint] = selection.new_client()
        return known

    def make_chosen(
        self,
        selection: ModelSelection,
        fallbacks: Callable[[], Sequence[ModelSelection]] = tuple,
        context_length: Callable[[ModelSelection], int] = lambda _: 0,
    ) -> ChosenModel:
        """Return the selection with its client and who stands in for it.

        Args:
            fallbacks: called when nothing of the selection answered.
            context_length: returns the tokens that a model can see.
        """

        def others() -> list[ChosenModel]:
            asked = (selection.endpoint, selection.model)
            found = (*selection.with_other_keys, *fallbacks())
            return [one(each) for each in found if (each.endpoint, each.model) != asked]

        def one(each: ModelSelection, others: Callable[[], Sequence[ChosenModel]] = tuple) -> ChosenModel:
            health = self._health.setdefault((each.endpoint, each.model), EndpointHealth())
            client = self.client(each)
            length, credential = context_length(each), each.endpoint.key_name
            return ChosenModel(
                client, each.model, each.max_tokens, length, each.reasoning_effort, credential, health, others
            )

        return one(selection, others)

    async def aclose(self) -> None:
        """Close every client."""
        while self._clients:
            _, client = self._clients.popitem()
            await client.aclose()


def fallback_selections(chain: Any, select: Callable[[Mapping[str, Any]], ModelSelection]) -> list[ModelSelection]:
    """Return who stands in, in order; an entry that cannot be used is left out, with a warning.

    Args:
        chain: names of providers, or mappings with `provider`, `model`, `base_url`, `api_key`, `key_env`.
        select: chooses by a block like the config's `model`.
    """
    found: list[ModelSelection] = []
    for entry in chain if isinstance(chain, Iterable) and not isinstance(chain, str | Mapping) else ():
        given: Mapping[str, Any] = entry if isinstance(entry, Mapping) else {"provider": entry}
        block = {**given, "default": given.get("model") or given.get("default") or ""}
        try:
            found.append(select(block))
        except UserError as exc:
            logger.warning("the fallback %s cannot be used: %s", given.get("provider") or "without a provider", exc)
    return found
