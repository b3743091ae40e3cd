"""The ASGI application: routes, and the errors that no route gives."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, cast

from hermes_agent.server.chat import RESPONSES, ChatEndpoint
from hermes_agent.server.commands import SlashDoor
from hermes_agent.server.doors import AgentDoor, NoPlugins, PluginDoor
from hermes_agent.server.guard import Guard
from hermes_agent.server.metrics import MetricsEndpoint
from hermes_agent.server.once import Once
from hermes_agent.server.plugins import PluginEndpoints
from hermes_agent.server.reply import Refusal, Reply
from hermes_agent.server.settings import ServerSettings
from hermes_agent.server.status import Counts, StatusEndpoints
from hermes_agent.server.turns import Turns
from hermes_agent.server.webhooks import WebhookEndpoint

if TYPE_CHECKING:  # starlette is slow to import: 111 ms that only a serving process spends
    from starlette.applications import Starlette
    from starlette.exceptions import HTTPException
    from starlette.requests import Request
    from starlette.responses import Response

__all__ = ["build", "openapi", "turns_of"]


def build(
    agent: AgentDoor,
    settings: ServerSettings,
    *,
    models: Sequence[str] = (),
    counts: Counts = dict,
    plugins: PluginDoor | None = None,
    slash: SlashDoor | None = None,
    on_change: Callable[[], None] | None = None,
    webhooks: WebhookEndpoint | None = None,
    once: Once | None = None,
) -> Starlette:
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
    # slow to import: only a process that serves pays for it
    from starlette.applications import Starlette
    from starlette.exceptions import HTTPException
    from starlette.middleware import Middleware
    from starlette.routing import Route

    turns = Turns(settings, on_change)
    door = plugins or NoPlugins()
    extensions = PluginEndpoints(door)
    status = StatusEndpoints(turns, models, counts)
    turning = (agent, settings, turns, models, slash, once)
    app = Starlette(
        routes=[
            Route("/v1/chat/completions", ChatEndpoint(*turning), methods=["POST"]),
            Route("/v1/responses", ChatEndpoint(*turning, RESPONSES), methods=["POST"]),
            Route("/openapi.json", openapi),
            Route("/v1/models", status.models),
            Route("/v1/models/{name:path}", status.model),
            Route("/health", status.health),
            Route("/ready", status.ready),
            Route("/v1/plugins", extensions.list),
            Route("/v1/plugins/reload", extensions.reload, methods=["POST"]),
            Route("/metrics", MetricsEndpoint(turns, counts, door.metrics).get),
            *([Route("/webhooks/{name}", webhooks, methods=["POST"])] if webhooks else []),
        ],
        middleware=[Middleware(Guard, settings)],
        exception_handlers={HTTPException: _no_route, Exception: _failed},
    )
    app.router.redirect_slashes = False
    app.state.turns = turns
    return app


def turns_of(app: Starlette) -> Turns:
    """Return who grants the turns of an application that `build` made."""
    return cast("Turns", app.state.turns)


async def openapi(request: Request) -> Response:
    """Return the description of these routes (`openapi.json`)."""
    text = (Path(__file__).parent / "openapi.json").read_bytes()
    return cast("Response", Reply(200, text, ((b"content-type", b"application/json"),)))


async def _no_route(request: Request, error: Exception) -> Response:
    http = cast("HTTPException", error)
    method, path = request.method, request.url.path[:200]
    allow = tuple((name.lower().encode(), value.encode()) for name, value in (http.headers or {}).items())
    if http.status_code == 405:
        refusal = Refusal(405, f"{path} does not take {method}", code="method_not_allowed", headers=allow)
    elif http.status_code == 404:
        refusal = Refusal(404, f"there is no {path}; the API is below /v1", code="not_found")
    else:
        refusal = Refusal(http.status_code, http.detail, code="invalid_request", headers=allow)
    return cast("Response", refusal.reply())


async def _failed(request: Request, error: Exception) -> Response:
    """Starlette raises the error again afterwards, and uvicorn logs it."""
    refusal = Refusal(500, "internal error; the log of the agent has it", code="internal_error")
    return cast("Response", refusal.reply())
