"""A web server with one page of plain text."""

from __future__ import annotations

from aiohttp import web

from peers.threaded import Threaded

__all__ = ["TextPage"]


class TextPage(Threaded):
    """Answers each GET request with its text, which a test may replace."""

    def __init__(self, text: str = "") -> None:
        super().__init__()
        self.text = text

    @property
    def url(self) -> str:
        """The address of the page."""
        return f"http://{self.address}/"

    def add_routes(self, app: web.Application) -> None:
        """Answer at every path."""

        async def answer(request: web.Request) -> web.Response:
            return web.Response(text=self.text)

        app.router.add_get("/{path:.*}", answer)
