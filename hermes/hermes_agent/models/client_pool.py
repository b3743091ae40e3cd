"""Chosen models with their fallbacks, and the clients of a process, one for each endpoint.

Fallbacks come from `fallback_providers` and `auxiliary.<task>.fallback_chain`.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from hermes_agent.contracts.model_client import NO_OPTIONS, ModelClient, RequestOptions
from hermes_agent.core.errors import UserError
from hermes_agent.models.providers import ModelEndpoint

if TYPE_CHECKING:
    from hermes_agent.models.selection import ModelSelection


logger = logging.getLogger(__name__)


class EndpointHealth:
    """Whether an endpoint with its key is paused after a failure; one object for the life of the process."""

    def __init__(self) -> None:
        self._until = 0.0
        self.refused: dict[str, str] = {}
        """Options of requests that the provider refused, with half a sentence on why."""
        self.why = ""
        """Its last error, as a sentence."""

    @property
    def is_paused(self) -> bool:
        """Whether fallbacks are asked first."""
        return time.monotonic() < self._until

    @property
    def left_s(self) -> float:
        """Remaining seconds of the pause."""
        return max(0.0, self._until - time.monotonic())

    def pause(self, seconds: float, why: str = "") -> None:
        """Pause for a number of seconds; `why` is a sentence."""
        self.why = why
        self._until = max(self._until, time.monotonic() + seconds)


@dataclass(frozen=True, slots=True)
class ChosenModel:
    """A model with its client and its fallbacks."""

    client: ModelClient
    name: str
    max_tokens: int | None = None
    """Longest answer; None leaves it to the provider."""
    context_length: int = 0
    """Context window in tokens; 0 if it is unknown, or if the client shortens a conversation by itself."""
    reasoning_effort: str = ""
    """Reasoning effort in a turn, in the provider's words; "" leaves it to the provider."""
    options: RequestOptions = NO_OPTIONS
    """Options of the session (`/model NAME key=value`)."""
    credential: str = ""
    """Name of its key: a variable or a login; "" if there is none."""
    health: EndpointHealth = field(default_factory=EndpointHealth, compare=False)
    fallbacks: Callable[[], Sequence[ChosenModel]] = field(default=tuple, compare=False)
    """Returns the fallbacks: the same model with further keys, then `fallback_providers`."""


class ClientPool:
    """One client for each endpoint, for the life of the process: a change of model keeps connections."""

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
        """Return the selection with its client and its fallbacks.

        Args:
            fallbacks: called when no key of the selection works.
            context_length: returns the context window of a model in tokens.
        """

        def others() -> list[ChosenModel]:
            asked = (selection.endpoint, selection.model)
            found = (*selection.with_other_keys, *fallbacks())
            return [make(each) for each in found if (each.endpoint, each.model) != asked]

        def make(each: ModelSelection, others: Callable[[], Sequence[ChosenModel]] = tuple) -> ChosenModel:
            health = self._health.setdefault((each.endpoint, each.model), EndpointHealth())
            client = self.client(each)
            length, credential = context_length(each), each.endpoint.key_name
            return ChosenModel(
                client,
                each.model,
                each.max_tokens,
                length,
                each.reasoning_effort,
                credential=credential,
                health=health,
                fallbacks=others,
            )

        return make(selection, others)

    async def aclose(self) -> None:
        """Close every client."""
        while self._clients:
            _, client = self._clients.popitem()
            await client.aclose()


def fallback_selections(chain: Any, select: Callable[[Mapping[str, Any]], ModelSelection]) -> list[ModelSelection]:
    """Return the fallbacks in order; an entry that cannot be used is skipped with a warning.

    Args:
        chain: names of providers, or mappings with `provider`, `model`, `base_url`, `api_key`, `key_env`.
        select: selects by a block in the form of `model` in the config.
    """
    found: list[ModelSelection] = []
    for entry in chain if isinstance(chain, Iterable) and not isinstance(chain, str | Mapping) else ():
        given: Mapping[str, Any] = entry if isinstance(entry, Mapping) else {"provider": entry}
        block = {**given, "default": given.get("model") or given.get("default") or ""}
        try:
            found.append(select(block))
        except UserError as exc:
            logger.warning("fallback skipped: %s: %s", given.get("provider") or "without a provider", exc)
    return found
