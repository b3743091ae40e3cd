"""The ASGI application: routes, and the errors that no route gives."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from hermes_agent.server.chat import RESPONSES, ChatEndpoint
from hermes_agent.server.commands import CommandRouterProtocol
from hermes_agent.server.doors import AgentProtocol, NoPlugins, PluginStatusProtocol
from hermes_agent.server.guard import RequestGuard
from hermes_agent.server.metrics import MetricsEndpoint
from hermes_agent.server.once import IdempotentRequests
from hermes_agent.server.plugins import PluginEndpoints
from hermes_agent.server.reply import HttpError, HttpReply
from hermes_agent.server.routes import HttpRoute, RouteTable, make_application
from hermes_agent.server.settings import HttpSettings
from hermes_agent.server.status import Counts, StatusEndpoints
from hermes_agent.server.turns import TurnSlots

if TYPE_CHECKING:
    from hermes_agent.server.asgi import App, Message, Receive, Scope, Send

__all__ = ["Application", "build", "openapi"]


class Application:
    """The ASGI application.

    Args:
        turns: who grants the turns.
    """

    def __init__(self, routes: Sequence[HttpRoute], settings: HttpSettings, turns: TurnSlots) -> None:
        self.routes = tuple(routes)
        self.turns = turns
        self._guarded = RequestGuard(RouteTable(self.routes), settings)

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
                refusal = HttpError(500, "internal error; the log of the agent has it", code="internal_error")
                await refusal.reply()(scope, receive, send)
            raise


def build(
    agent: AgentProtocol,
    settings: HttpSettings,
    *,
    models: Sequence[str] = (),
    counts: Counts = dict,
    plugins: PluginStatusProtocol | None = None,
    slash: CommandRouterProtocol | None = None,
    on_change: Callable[[], None] | None = None,
    webhooks: App | None = None,
    once: IdempotentRequests | None = None,
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
    turns = TurnSlots(settings, on_change)
    door = plugins or NoPlugins()
    extensions = PluginEndpoints(door)
    status = StatusEndpoints(turns, models, counts)
    turning = (agent, settings, turns, models, slash, once)
    routes = [
        HttpRoute("/v1/chat/completions", ChatEndpoint(*turning), "POST"),
        HttpRoute("/v1/responses", ChatEndpoint(*turning, RESPONSES), "POST"),
        HttpRoute("/openapi.json", make_application(openapi)),
        HttpRoute("/v1/models", make_application(status.models)),
        HttpRoute("/v1/models/", make_application(status.model)),
        HttpRoute("/health", make_application(status.health)),
        HttpRoute("/ready", make_application(status.ready)),
        HttpRoute("/v1/plugins", make_application(extensions.list)),
        HttpRoute("/v1/plugins/reload", make_application(extensions.reload), "POST"),
        HttpRoute("/metrics", make_application(MetricsEndpoint(turns, counts, door.metrics).get)),
        *([HttpRoute("/webhooks/", webhooks, "POST")] if webhooks else []),
    ]
    return Application(routes, settings, turns)


async def openapi(scope: Scope, receive: Receive) -> HttpReply:
    """Return the description of these routes (`openapi.json`)."""
    text = (Path(__file__).parent / "openapi.json").read_bytes()
    return HttpReply(200, text, ((b"content-type", b"application/json"),))
