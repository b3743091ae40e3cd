"""A provider that is asked with the token of a login (`hermes auth login`), renewed when it ends or is refused."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

from hermes_agent.core.errors import ModelError, UserError
from hermes_agent.credentials.logins import Login, LoginExpired, LoginStore
from hermes_agent.models.client import HttpModelClient
from hermes_agent.models.providers import ModelEndpoint
from hermes_agent.models.request import ModelDelta, ModelRequest

__all__ = ["LoginModelClient"]


class LoginModelClient:
    """A `ModelClient` whose key changes.

    Args:
        client: asks with the key that it is given.
        endpoint: where, and which login (`ModelEndpoint.login`).
        run: runs a function in a worker (`Bridge.run`); None calls it at once.
    """

    fits_within = 0

    def __init__(self, client: HttpModelClient, endpoint: ModelEndpoint, logins: LoginStore, run: Any = None) -> None:
        self._client = client
        self._endpoint = endpoint
        self._logins = logins
        self._run = run
        self.provider, self.base_url = client.provider, client.base_url
        self.api_mode, self.url = client.api_mode, client.url
        self.is_priced, self.warm_up, self.aclose = client.is_priced, client.warm_up, client.aclose
        self.unsupported = client.unsupported

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelDelta, None]:
        """Ask, and once more with a new token when this one is refused (see `ModelClient.stream`)."""
        stale = ""
        while True:
            token = await self._valid_token(stale)
            try:
                async with aclosing(self._client.with_key(token).stream(request)) as items:
                    async for item in items:
                        yield item
                return
            except ModelError as exc:
                if exc.kind != "auth" or stale:
                    raise
                stale = token

    async def _valid_token(self, stale: str) -> str:
        provider, label = self._endpoint.provider.name, self._endpoint.login
        try:
            login = self._logins.get(provider, label)
            if login is None:
                raise LoginExpired(
                    f"The login {label!r} of {provider} is gone.", hint=f"`hermes auth login {provider}`."
                )
            if login.access_token == stale or login.is_stale:
                login = await self._refresh(login, stale)
        except LoginExpired as exc:
            raise ModelError("auth", exc.message, hint=exc.hint) from exc
        except UserError as exc:
            raise ModelError("unreachable", exc.message, hint=exc.hint) from exc
        return login.access_token

    async def _refresh(self, login: Login, stale: str) -> Login:
        from hermes_agent.credentials.oauth import refresh  # http.server, which few processes need

        if self._run is None:
            return self._logins.refreshed(login, stale, refresh)
        renewed = await self._run(self._logins.refreshed, login, stale, refresh)
        assert isinstance(renewed, Login)
        return renewed
