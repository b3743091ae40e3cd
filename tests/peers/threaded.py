"""What the stand-ins have in common: an aiohttp application in a thread and loop of its own."""

from __future__ import annotations

import asyncio
import ssl
import threading
from collections.abc import Coroutine
from typing import Any, Self

from aiohttp import web

__all__ = ["Threaded"]

WAIT_S = 60.0


class Threaded:
    """Listens while a `with` block lasts.

    Args:
        host, port: 0 means any port.
        tls: with this context.
    """

    def __init__(self, host: str = "127.0.0.1", port: int = 0, tls: ssl.SSLContext | None = None) -> None:
        self._host, self._port, self._tls = host, port, tls
        self._loop = asyncio.new_event_loop()

    @property
    def address(self) -> str:
        """`host:port`."""
        return f"{self._host}:{self._port}"

    def add_routes(self, app: web.Application) -> None:
        """Say what it answers."""
        raise NotImplementedError

    def on_loop(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Run something on its loop, and return what comes of it."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(WAIT_S)

    def __enter__(self) -> Self:
        ready = threading.Event()

        async def start() -> None:
            app = web.Application(client_max_size=2**24)
            self.add_routes(app)
            self._runner = web.AppRunner(app, shutdown_timeout=0.1)
            await self._runner.setup()
            await web.TCPSite(self._runner, self._host, self._port, ssl_context=self._tls).start()
            self._port = self._runner.addresses[0][1]
            ready.set()

        def run() -> None:
            self._loop.run_until_complete(start())
            self._loop.run_forever()

        self._thread = threading.Thread(target=run, daemon=True)
        self._thread.start()
        assert ready.wait(WAIT_S)
        return self

    def __exit__(self, *error: object) -> None:
        self.on_loop(self._runner.cleanup())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(WAIT_S)
        self._loop.close()
