"""The ASGI application: its routes, and errors outside of routes.

A dozen routes need no framework: docs/decisions/0004.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from hermes_agent.core.lazy_types import LazyNamedTuple
from hermes_agent.server.authentication import RequestGuard
from hermes_agent.server.conversations import (
    AgentProtocol,
    CommandRouterProtocol,
    IdempotentRequests,
    NoPlugins,
    PluginStatusProtocol,
)
from hermes_agent.server.http_types import ClientDisconnected, HttpError, HttpReply
from hermes_agent.server.model_service import HostModelsProtocol, ModelEndpoints
from hermes_agent.server.settings import HttpSettings
from hermes_agent.server.status_endpoints import Counts, MetricsEndpoint, PluginEndpoints, StatusEndpoints
from hermes_agent.server.turn_slots import TurnSlots

if TYPE_CHECKING:
    from hermes_agent.server.http_types import App, Message, Receive, Scope, Send


class Application:
    """The ASGI application.

    Args:
        turns: grants the slots of turns.
    """

    def __init__(self, routes: Sequence[HttpRoute], settings: HttpSettings, turns: TurnSlots) -> None:
        self.routes = tuple(routes)
        self.turns = turns
        self._guarded = RequestGuard(RouteTable(self.routes), settings)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request. If a route fails before its answer starts, send a 500; uvicorn logs the error."""
        begun = False

        async def record_start(message: Message) -> None:
            nonlocal begun
            begun = True
            await send(message)

        try:
            await self._guarded(scope, receive, record_start)
        except Exception:
            if not begun:
                refusal = HttpError(500, "internal error; see the log of the agent", code="internal_error")
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
    service: HostModelsProtocol | None = None,
    pages: Sequence[HttpRoute] = (),
) -> Application:
    """Return the application.

    Args:
        settings: with a key (`authentication.with_key`).
        models: names of the configured model; `hermes-agent` is always added.
        counts: numbers that `/health` shows with the key.
        plugins: the plugins for `/v1/plugins` and `/metrics`; None: there are none.
        slash: resolves slash commands in sessions.
        on_change: called after a change of the number of running turns.
        webhooks: receives webhooks; None: there are none.
        once: makes requests with an `Idempotency-Key` idempotent; None: the header is ignored.
        service: the models that can be chosen, embeddings and side tasks; None: only the configured model is known.
        pages: routes of pages for browsers, which check their users themselves.
    """
    turns = TurnSlots(settings, on_change)
    plugins = plugins or NoPlugins()
    extensions = PluginEndpoints(plugins)
    status, listed = StatusEndpoints(turns, counts), ModelEndpoints(models, service, settings)
    turning = (agent, settings, turns, models, slash, once, listed, service)

    def chat_endpoint(wire: Literal["CHAT", "RESPONSES"]) -> App:
        from hermes_agent.server import chat_endpoint as module  # a daemon that waits answers no turn

        return module.ChatEndpoint(*turning, getattr(module, wire))

    routes = [
        HttpRoute("/v1/chat/completions", load_late(partial(chat_endpoint, "CHAT")), "POST"),
        HttpRoute("/v1/responses", load_late(partial(chat_endpoint, "RESPONSES")), "POST"),
        HttpRoute("/openapi.json", make_application(openapi)),
        HttpRoute("/v1/models", make_application(listed.list)),
        HttpRoute("/v1/models/", make_application(listed.get)),
        HttpRoute("/v1/embeddings", make_application(listed.embed), "POST"),
        HttpRoute("/health", make_application(status.health)),
        HttpRoute("/ready", make_application(status.ready)),
        HttpRoute("/v1/plugins", make_application(extensions.list)),
        HttpRoute("/v1/plugins/reload", make_application(extensions.reload), "POST"),
        HttpRoute("/metrics", make_application(MetricsEndpoint(turns, counts, plugins.metrics).get)),
        *([HttpRoute("/webhooks/", webhooks, "POST")] if webhooks else []),
        *pages,
    ]
    return Application(routes, settings, turns)


async def openapi(scope: Scope, receive: Receive) -> HttpReply:
    """Return the description of these routes (`openapi.json`)."""
    text = (Path(__file__).parent / "openapi.json").read_bytes()
    return HttpReply(200, text, ((b"content-type", b"application/json"),))


RouteHandler = Callable[["Scope", "Receive"], Awaitable[HttpReply]]
"""Returns the whole answer of a request."""


class HttpRoute(LazyNamedTuple):
    """A route. A path that ends with `/` takes all names after it; the name is in `scope["name"]`."""

    path: str
    app: App
    method: str = "GET"

    def name(self, path: str) -> str | None:
        """Return the name in `path`, "" for a route without names, or None if the path is of another route."""
        if not self.path.endswith("/"):
            return "" if path == self.path else None
        return path[len(self.path) :] or None if path.startswith(self.path) else None

    def takes(self, method: str) -> bool:
        """Return whether the route takes the method. HEAD counts as GET: the server omits the body."""
        return method == self.method or (method == "HEAD" and self.method == "GET")


class RouteTable:
    """ASGI application of several routes."""

    def __init__(self, routes: Sequence[HttpRoute]) -> None:
        self.all = tuple(routes)
        self._named: dict[str, list[tuple[HttpRoute, str]]] = {}
        """Routes without a name in their path, by path."""
        for route in self.all:
            if not route.path.endswith("/"):
                self._named.setdefault(route.path, []).append((route, ""))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer with the route of the path and method, or with 404 or 405."""
        path, method = scope["path"], scope["method"]
        found = self._named.get(path) or self._with_name(path)
        for route, name in found:
            if route.takes(method):
                scope["name"] = name
                await route.app(scope, receive, send)
                return
        if found:
            allowed = ", ".join(dict.fromkeys(route.method for route, _ in found))
            refusal = HttpError(
                405,
                f"{path[:200]} does not take {method}",
                code="method_not_allowed",
                headers=((b"allow", allowed.replace("GET", "GET, HEAD").encode()),),
            )
        else:
            refusal = HttpError(404, f"there is no {path[:200]}; the API is below /v1", code="not_found")
        await refusal.reply()(scope, receive, send)

    def _with_name(self, path: str) -> list[tuple[HttpRoute, str]]:
        return [(route, name) for route in self.all if (name := route.name(path)) is not None]


def make_application(answer: RouteHandler) -> App:
    """Return the ASGI application that sends the reply of `answer`, unless the client has disconnected."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        try:
            reply = await answer(scope, receive)
        except ClientDisconnected:
            return
        await reply(scope, receive, send)

    return app


def load_late(load: Callable[[], App]) -> App:
    """Return the ASGI application that `load` returns; the first request calls it."""
    loaded = cache(load)

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await loaded()(scope, receive, send)

    return app
