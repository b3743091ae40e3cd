"""Which of the routes a request is for, and the answers when it is for none.

A dozen routes need no framework: docs/decisions/0004.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from hermes_agent.server.body import ClientDisconnected
from hermes_agent.server.reply import HttpError, HttpReply

if TYPE_CHECKING:
    from hermes_agent.server.asgi import App, Receive, Scope, Send

__all__ = ["RouteHandler", "HttpRoute", "RouteTable", "make_application"]

RouteHandler = Callable[["Scope", "Receive"], Awaitable[HttpReply]]
"""Gives the whole answer to a request."""


class HttpRoute(NamedTuple):
    """What answers a path; one that ends with `/`, every path with a name behind it, which is `scope["name"]`."""

    path: str
    app: App
    method: str = "GET"

    def name(self, path: str) -> str | None:
        """Return the name in `path`, empty when this route has none; None when it is not for this route."""
        if not self.path.endswith("/"):
            return "" if path == self.path else None
        return path[len(self.path) :] or None if path.startswith(self.path) else None

    def takes(self, method: str) -> bool:
        """Whether it is for this method. HEAD is GET: the server leaves out the body."""
        return method == self.method or (method == "HEAD" and self.method == "GET")


class RouteTable:
    """The ASGI application of several routes."""

    def __init__(self, routes: Sequence[HttpRoute]) -> None:
        self.all = tuple(routes)
        self._named: dict[str, list[tuple[HttpRoute, str]]] = {}
        """Those without a name in their path, by it."""
        for route in self.all:
            if not route.path.endswith("/"):
                self._named.setdefault(route.path, []).append((route, ""))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer with the route of the path and method; 404 or 405 when there is none."""
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
    """Return the ASGI application that sends what `answer` gives, or nothing to a caller that has gone."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        try:
            reply = await answer(scope, receive)
        except ClientDisconnected:
            return
        await reply(scope, receive, send)

    return app
