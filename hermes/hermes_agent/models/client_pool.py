"""The clients of a process: one per endpoint, and who stands in for whom."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hermes_agent.models.chosen import ChosenModel, Health
from hermes_agent.models.endpoint import Endpoint
from hermes_agent.models.request import ModelClient
from hermes_agent.models.selection import Selection

__all__ = ["ClientPool"]


class ClientPool:
    """One client per endpoint for the life of the process, so that a change of model keeps the connections."""

    def __init__(self) -> None:
        self._clients: dict[Endpoint, ModelClient] = {}
        self._health: dict[tuple[Endpoint, str], Health] = {}

    def client(self, selection: Selection) -> ModelClient:
        """Return the client of the selection's endpoint."""
        known = self._clients.get(selection.endpoint)
        if known is None:
            known = self._clients[selection.endpoint] = selection.new_client()
        return known

    def chosen(
        self,
        selection: Selection,
        fallbacks: Callable[[], Sequence[Selection]] = tuple,
        context_length: Callable[[Selection], int] = lambda _: 0,
    ) -> ChosenModel:
        """Return the selection with its client and who stands in for it.

        Args:
            fallbacks: called when nothing of the selection answered.
            context_length: returns the tokens that a model can see.
        """

        def others() -> list[ChosenModel]:
            asked = (selection.endpoint, selection.model)
            found = (*selection.siblings, *fallbacks())
            return [one(each) for each in found if (each.endpoint, each.model) != asked]

        def one(each: Selection, others: Callable[[], Sequence[ChosenModel]] = tuple) -> ChosenModel:
            health = self._health.setdefault((each.endpoint, each.model), Health())
            client = self.client(each)
            return ChosenModel(
                client, each.model, each.max_tokens, context_length(each), each.reasoning_effort, health, others
            )

        return one(selection, others)

    async def aclose(self) -> None:
        """Close every client."""
        while self._clients:
            _, client = self._clients.popitem()
            await client.aclose()
