"""The ASGI application: routes, and the errors that no route gives."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from hermes_agent.server.chat import RESPONSES, ChatEndpoint
from hermes_agent.server.commands import SlashDoor
from hermes_agent.server.doors import AgentDoor, NoPlugins, PluginDoor
from hermes_agent.server.guard import Guard
from hermes_agent.server.metrics import MetricsEndpoint
from hermes_agent.server.once import Once
from hermes_agent.server.plugins import PluginEndpoints
from hermes_agent.server.reply import Refusal, Reply
from hermes_agent.server.routes import Route, Routes, answering
from hermes_agent.server.settings import ServerSettings
from hermes_agent.server.status import Counts, StatusEndpoints
from hermes_agent.server.turns import Turns

if TYPE_CHECKING:
    from hermes_agent.server.asgi import App, Message, Receive, Scope, Send

__all__ = ["Application", "build", "openapi"]


class Application:
    """The ASGI application.

    Args:
        turns: who grants the turns.
    """

    def __init__(self, routes: Sequence[Route], settings: ServerSettings, turns: Turns) -> None:
        self.routes = tuple(routes)
        self.turns = turns
        self._guarded = Guard(Routes(self.routes), settings)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request; a route that fails before its answer has begun is a 500, and uvicorn logs the error."""
        begun = False

        async def noting(message: Message) -> None:
            nonlocal begun
            begun = True
            await send(message)

        try:
            await self._guarded(scope, receive, noting)
        except Exception:
            if not begun:
                refusal = Refusal(500, "internal error; the log of the agent has it", code="internal_error")
                await refusal.reply()(scope, receive, send)
            raise


def build(
    agent: AgentDoor,
    settings: ServerSettings,
    *,
    models: Sequence[str] = (),
    counts: Counts = dict,
    plugins: PluginDoor | None = None,
    slash: SlashDoor | None = None,
    on_change: Callable[[], None] | None = None,
    webhooks: App | None = None,
    once: Once | None = None,
) -> Application:
    """Return the application.

    Args:
        settings: with a key (`key.with_key`).
        models: names of the configured model; `hermes-agent` is always one more.
        counts: numbers that `/health` adds for who has the key.
        plugins: what `/v1/plugins` and `/metrics` say of them; None means that there are none.
        slash: what lines that begin with `/` mean in a session.
        on_change: called after the number of running turns has changed.
        webhooks: takes what other services tell; None: nothing.
        once: lets a request with an `Idempotency-Key` that is sent again be the same turn; None: each is another.
    """
    turns = Turns(settings, on_change)
    door = plugins or NoPlugins()
    extensions = PluginEndpoints(door)
    status = StatusEndpoints(turns, models, counts)
    turning = (agent, settings, turns, models, slash, once)
    routes = [
        Route("/v1/chat/completions", ChatEndpoint(*turning), "POST"),
        Route("/v1/responses", ChatEndpoint(*turning, RESPONSES), "POST"),
        Route("/openapi.json", answering(openapi)),
        Route("/v1/models", answering(status.models)),
        Route("/v1/models/", answering(status.model)),
        Route("/health", answering(status.health)),
        Route("/ready", answering(status.ready)),
        Route("/v1/plugins", answering(extensions.list)),
        Route("/v1/plugins/reload", answering(extensions.reload), "POST"),
        Route("/metrics", answering(MetricsEndpoint(turns, counts, door.metrics).get)),
        *([Route("/webhooks/", webhooks, "POST")] if webhooks else []),
    ]
    return Application(routes, settings, turns)


async def openapi(scope: Scope, receive: Receive) -> Reply:
    """Return the description of these routes (`openapi.json`)."""
    text = (Path(__file__).parent / "openapi.json").read_bytes()
    return Reply(200, text, ((b"content-type", b"application/json"),))
