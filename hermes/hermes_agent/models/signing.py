"""Requests that a provider's profile signs, where there is no key: AWS, Google's application-default credentials."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing
from typing import Any

from hermes_agent.contracts.model_provider import NotSignedIn, UnsignedRequest
from hermes_agent.core.errors import ModelError
from hermes_agent.core.redact import redactor
from hermes_agent.core.secrecy import name_kind
from hermes_agent.models import failures
from hermes_agent.models.providers import ModelEndpoint
from hermes_agent.models.request import ModelDelta
from hermes_agent.models.request_body import profile_hook_error

__all__ = ["Signer"]

LIMIT_S = 15.0
"""Longest wait for a signature: a token may have to be fetched."""
BEARER = "Bearer "


class Signer:
    """Signs the requests to one endpoint.

    Args:
        run: runs a function in a worker (`Bridge.run`); None calls it at once.
    """

    def __init__(self, endpoint: ModelEndpoint, run: Callable[..., Awaitable[Any]] | None) -> None:
        self._endpoint = endpoint
        self._run = run

    async def headers(self, model: str, request: UnsignedRequest, *, again: bool = False) -> Mapping[str, str]:
        """Return the headers that say who asks.

        Args:
            again: the provider refused what the same request was signed with.

        Raises:
            ModelError: there is nothing to sign with, or the profile failed.
        """
        sign, request = self._endpoint.provider.profile.sign, request._replace(again=again)
        try:
            added = sign(request) if self._run is None else await self._run(sign, request, deadline_s=LIMIT_S)
        except NotSignedIn as exc:
            raise failures.not_signed_in(self._endpoint, model, exc) from exc
        except TimeoutError:
            slow = NotSignedIn(f"its profile needed more than {LIMIT_S:g} seconds to sign the request", "Ask again.")
            raise failures.not_signed_in(self._endpoint, model, slow) from None
        except Exception as exc:
            raise profile_hook_error(self._endpoint, model, exc) from exc
        found = {str(name): str(value) for name, value in added.items()}
        redactor.learn(v.removeprefix(BEARER) for v in found.values() if v.startswith(BEARER))
        redactor.learn(v for name, v in found.items() if name_kind(name) == "secret")  # errors of AWS repeat them
        return found

    async def request_with_retry(
        self, ask: Callable[[bool], AsyncGenerator[ModelDelta, None]]
    ) -> AsyncGenerator[ModelDelta, None]:
        """Ask, and once more when the signature is refused. `ask` is given whether it was."""
        for again in (False, True):
            try:
                async with aclosing(ask(again)) as items:
                    async for item in items:
                        yield item
                return
            except ModelError as exc:
                if again or exc.kind != "auth":
                    raise
