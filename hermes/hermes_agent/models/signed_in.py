"""A provider that is asked with the token of a login (`hermes auth login`), renewed when it ends or is refused."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import replace
from typing import Any

from hermes_agent.core.errors import ModelError, UserError
from hermes_agent.credentials.logins import Login, Logins, NotRenewed
from hermes_agent.models.client import WireClient
from hermes_agent.models.providers import Endpoint
from hermes_agent.models.request import ModelDelta, ModelRequest

__all__ = ["SignedInClient"]


class SignedInClient:
    """A `ModelClient` whose key changes.

    Args:
        endpoint: where, and which login (`Endpoint.login`).
        new_client: makes a client for the endpoint with a token as its key.
        run: runs a function in a worker (`Bridge.run`); None calls it at once.
    """

    def __init__(
        self, endpoint: Endpoint, logins: Logins, new_client: Callable[[Endpoint], WireClient], run: Any = None
    ) -> None:
        self._endpoint = endpoint
        self._logins = logins
        self._new_client = new_client
        self._run = run
        self._client = new_client(endpoint)
        self._token = ""
        self._streams: Counter[WireClient] = Counter()
        self.provider = self._client.provider
        self.base_url = self._client.base_url
        self.api_mode = self._client.api_mode
        self.url = self._client.url

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelDelta, None]:
        """Ask, and once more with a new token when this one is refused (see `ModelClient.stream`)."""
        stale = ""
        while True:
            client, token = await self._signed_in(stale)
            self._streams[client] += 1
            try:
                async with aclosing(client.stream(request)) as items:
                    async for item in items:
                        yield item
                return
            except ModelError as exc:
                if exc.kind != "auth" or stale:
                    raise
                stale = token
            finally:
                self._streams[client] -= 1
                if client is not self._client and not self._streams[client]:
                    del self._streams[client]
                    await client.aclose()

    def warm_up(self) -> None:
        """Import the HTTP library (see `ModelClient.warm_up`)."""
        self._client.warm_up()

    async def aclose(self) -> None:
        """Close the connections."""
        for client in {self._client, *self._streams}:
            await client.aclose()

    async def _signed_in(self, stale: str) -> tuple[WireClient, str]:
        """Return the client and its token, one other than `stale`."""
        token = await self._valid(stale)
        if token != self._token:
            old, self._token = self._client, token
            self._client = self._new_client(replace(self._endpoint, key=token))
            if not self._streams[old]:
                del self._streams[old]
                await old.aclose()
        return self._client, token

    async def _valid(self, stale: str) -> str:
        provider, label = self._endpoint.provider.name, self._endpoint.login
        try:
            login = self._logins.get(provider, label)
            if login is None:
                raise NotRenewed(f"The login {label!r} of {provider} is gone.", hint=f"`hermes auth login {provider}`.")
            if login.access_token == stale or login.is_stale:
                login = await self._renewed(login, stale)
        except NotRenewed as exc:
            raise ModelError("auth", exc.message, hint=exc.hint) from exc
        except UserError as exc:
            raise ModelError("unreachable", exc.message, hint=exc.hint) from exc
        return login.access_token

    async def _renewed(self, login: Login, stale: str) -> Login:
        from hermes_agent.credentials.oauth import renew  # http.server, which few processes need

        if self._run is None:
            return self._logins.renewed(login, stale, renew)
        renewed = await self._run(self._logins.renewed, login, stale, renew)
        assert isinstance(renewed, Login)
        return renewed
