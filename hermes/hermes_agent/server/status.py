"""`GET /health`, `/ready` and `/v1/models`: is it there, does it take turns, what is it called."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from hermes_agent import __version__
from hermes_agent.server.chat_request import AGENT_MODEL
from hermes_agent.server.guard import BEARS_KEY
from hermes_agent.server.reply import HttpError, HttpReply, json_reply
from hermes_agent.server.turns import TurnSlots
from hermes_agent.service.shutdown import RETRY_AFTER_S

if TYPE_CHECKING:
    from hermes_agent.server.asgi import Receive, Scope

__all__ = ["Counts", "StatusEndpoints"]

Counts = Callable[[], Mapping[str, int]]
"""Numbers for `/health`, by name (`plugins`, `tools`, `sessions`); called for each request that bears the key."""

NO_STORE = ((b"cache-control", b"no-store"),)


class StatusEndpoints:
    """The routes that run no turn.

    Args:
        models: names that the agent's model answers to, the default first.
    """

    def __init__(self, turns: TurnSlots, models: Sequence[str], counts: Counts) -> None:
        self._turns = turns
        self._models = tuple(dict.fromkeys((*models, AGENT_MODEL)))
        self._counts = counts
        self._started = int(time.time())

    async def health(self, scope: Scope, receive: Receive) -> HttpReply:
        """200 as long as it answers; the numbers only for who has the key."""
        body: dict[str, Any] = {"status": "draining" if self._turns.is_closed else "ok", "version": __version__}
        if scope.get(BEARS_KEY):
            body |= self._counts()
            body |= {"turns_running": self._turns.running, "turns_waiting": self._turns.waiting}
        return json_reply(body, headers=NO_STORE)

    async def ready(self, scope: Scope, receive: Receive) -> HttpReply:
        """200 while new turns are taken, else 503."""
        if self._turns.is_closed:
            retry = (b"retry-after", b"%d" % RETRY_AFTER_S)
            return json_reply({"status": "draining"}, 503, (*NO_STORE, retry))
        return json_reply({"status": "ready"}, headers=NO_STORE)

    async def models(self, scope: Scope, receive: Receive) -> HttpReply:
        """The names in OpenAI's list."""
        return json_reply({"object": "list", "data": [self._model(name) for name in self._models]})

    async def model(self, scope: Scope, receive: Receive) -> HttpReply:
        """One name."""
        name = scope["name"]
        if name not in self._models:
            return HttpError(
                404, f"The model {name[:200]!r} does not exist", code="model_not_found", param="model"
            ).reply()
        return json_reply(self._model(name))

    def _model(self, name: str) -> dict[str, Any]:
        return {"id": name, "object": "model", "created": self._started, "owned_by": "hermes-agent"}
