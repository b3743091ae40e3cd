"""Body and headers of a model request, with the hooks and the signature of the provider's profile.

A profile signs requests where there is no key: AWS, Google's application-default credentials.
"""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing
from dataclasses import replace
from typing import Any

from hermes_agent.contracts.model_client import ModelDelta, ModelRequest
from hermes_agent.contracts.model_provider import OMIT_TEMPERATURE, NotSignedIn, ProviderProfile, UnsignedRequest
from hermes_agent.core.errors import ModelError
from hermes_agent.core.lazy_types import LazyNamedTuple
from hermes_agent.core.redaction import redactor
from hermes_agent.core.secrecy import name_kind
from hermes_agent.models import errors
from hermes_agent.models.chat_completions import chat_message
from hermes_agent.models.openai_format import from_dicts
from hermes_agent.models.providers import CHAT_COMPLETIONS, ModelEndpoint
from hermes_agent.models.wire_protocol import WireProtocol

logger = logging.getLogger(__name__)

HOOKS = ("prepare_messages", "build_extra_body", "build_api_kwargs_extras", "get_max_tokens")
"""Methods of a profile that are called for each request."""


class PreparedRequest(LazyNamedTuple):
    """Body and additional headers of a request."""

    body: dict[str, Any]
    headers: Mapping[str, str]
    """In addition to those of every request of the provider."""


def has_hooks(profile: ProviderProfile) -> bool:
    """Return whether the profile has hooks of its own, which may be slow."""
    return any(getattr(type(profile), name) is not getattr(ProviderProfile, name) for name in HOOKS)


def prepare_request(request: ModelRequest, endpoint: ModelEndpoint, wire: WireProtocol) -> PreparedRequest:
    """Return body and headers of a request. Raise ModelError if a hook of the profile fails."""
    profile = endpoint.provider.profile
    try:
        dressed, fields, headers = _apply_profile(profile, request, endpoint, wire)
        return PreparedRequest(wire.body(dressed, endpoint, fields), headers)
    except Exception as exc:
        raise profile_hook_error(endpoint, request.model, exc) from exc


def profile_hook_error(endpoint: ModelEndpoint, model: str, exc: Exception) -> ModelError:
    """Log the error of a hook of the profile, and return the error of the request."""
    logger.warning("model provider: hook of the profile failed: `%s`", endpoint.provider.name, exc_info=exc)
    return errors.rejected_request(
        endpoint,
        model,
        f"was not asked: its profile failed with {type(exc).__name__}: {endpoint.quote(str(exc))}",
        hint="Look for the traceback with `hermes logs`; the profile is a plugin's.",
    )


def _apply_profile(
    profile: ProviderProfile, request: ModelRequest, endpoint: ModelEndpoint, wire: WireProtocol
) -> tuple[ModelRequest, dict[str, Any], dict[str, str]]:
    """Return the request with the profile's messages, temperature and limit; its fields; and its headers."""
    effort = request.extra.get("reasoning_effort")
    fields, headers = _fields(profile, request, endpoint, effort)
    json.dumps(fields)
    changes: dict[str, Any] = {}
    if effort and fields != _fields(profile, request, endpoint, None)[0]:  # the profile sends it in its own fields
        changes["extra"] = {name: value for name, value in request.extra.items() if name != "reasoning_effort"}
    if type(profile).prepare_messages is not ProviderProfile.prepare_messages:
        given = profile.prepare_messages([chat_message(m, profile.name) for m in request.messages])
        if wire.name == CHAT_COMPLETIONS:
            fields["messages"] = given  # with the fields that the hook adds
        else:
            changes["messages"] = from_dicts(given, request.messages)
    if request.max_tokens is None and (limit := profile.get_max_tokens(request.model)) is not None:
        changes["max_tokens"] = limit
    if profile.fixed_temperature is OMIT_TEMPERATURE:
        changes["temperature"] = None
    elif profile.fixed_temperature is not None:
        changes["temperature"] = profile.fixed_temperature
    return replace(request, **changes) if changes else request, fields, headers


def _fields(
    profile: ProviderProfile, request: ModelRequest, endpoint: ModelEndpoint, effort: str | None
) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the fields and the headers that the profile adds (§8.1)."""
    where = {"model": request.model, "base_url": endpoint.base_url, "session_id": request.session_id or None}
    reasoning = {"enabled": effort != "none", "effort": effort} if effort else None
    extra = profile.build_extra_body(
        provider_preferences=None, reasoning_config=reasoning, openrouter_min_coding_score=None, **where
    )
    body, top_level = profile.build_api_kwargs_extras(
        reasoning_config=reasoning,
        supports_reasoning=reasoning is not None,
        qwen_session_metadata=None,
        ollama_num_ctx=None,
        **where,
    )
    top = dict(top_level or {})
    headers = {str(name): str(value) for name, value in (top.pop("extra_headers", None) or {}).items()}
    nested = top.pop("extra_body", None) or {}
    return {**top, **nested, **(body or {}), **(extra or {})}, headers


def find_excluded_option(profile: ProviderProfile, model: str, values: Mapping[str, Any]) -> tuple[str, str] | None:
    """Return the first option that the provider's documentation excludes, or its value, and why; or None."""
    if lacking := next((name for name in profile.lacks_options if name in values), ""):
        return lacking, "the provider does not have it"
    if (form := (values.get("response_format") or {}).get("type")) in profile.unsupported_response_formats:
        return "response_format", f"the provider does not have {form}"
    for name, words in _words_of(profile, model).items():
        given = values.get(name)
        if given is not None and (word := given if isinstance(given, str) else "function") not in words:
            known = " or ".join(filter(None, (", ".join(words[:-1]), *words[-1:])))
            return name, f"it takes {known}, and not {word}"
    for name, (low, high) in profile.option_ranges.items():
        given = values.get(name)
        if given is None:
            continue
        if name == "stop":
            if not isinstance(given, str) and len(given) > high:
                return name, f"it takes {high:g} at most, and not {len(given)}"
        elif not low <= given <= high:
            return name, f"it takes {low:g} to {high:g}, and not {given:g}"
    return None


def _words_of(profile: ProviderProfile, model: str) -> Mapping[str, tuple[str, ...]]:
    own = max((name for name in profile.model_option_values if model.startswith(name)), key=len, default="")
    return {**profile.option_values, **profile.model_option_values[own]} if own else profile.option_values


LIMIT_S = 15.0
"""Longest wait for a signature in seconds: a token may have to be fetched."""
BEARER = "Bearer "


class Signer:
    """Signer of the requests to one endpoint.

    Args:
        run: runs a function in a worker (`Bridge.run`); None calls it on the loop.
    """

    def __init__(self, endpoint: ModelEndpoint, run: Callable[..., Awaitable[Any]] | None) -> None:
        self._endpoint = endpoint
        self._run = run

    async def headers(self, model: str, request: UnsignedRequest, *, again: bool = False) -> Mapping[str, str]:
        """Return the headers of a signature.

        Args:
            again: whether the provider rejected the previous signature of the same request.

        Raises:
            ModelError: there are no credentials, or the profile failed.
        """
        sign, request = self._endpoint.provider.profile.sign, request._replace(again=again)
        try:
            added = sign(request) if self._run is None else await self._run(sign, request, deadline_s=LIMIT_S)
        except NotSignedIn as exc:
            raise errors.not_signed_in(self._endpoint, model, exc) from exc
        except TimeoutError:
            slow = NotSignedIn(f"its profile needed more than {LIMIT_S:g} seconds to sign the request", "Ask again.")
            raise errors.not_signed_in(self._endpoint, model, slow) from None
        except Exception as exc:
            raise profile_hook_error(self._endpoint, model, exc) from exc
        found = {str(name): str(value) for name, value in added.items()}
        redactor.learn(v.removeprefix(BEARER) for v in found.values() if v.startswith(BEARER))
        redactor.learn(v for name, v in found.items() if name_kind(name) == "secret")  # AWS repeats them in errors
        return found

    async def request_with_retry(
        self, ask: Callable[[bool], AsyncGenerator[ModelDelta, None]]
    ) -> AsyncGenerator[ModelDelta, None]:
        """Send a request, and once more if its signature is rejected; `ask` gets whether it was."""
        for again in (False, True):
            try:
                async with aclosing(ask(again)) as items:
                    async for item in items:
                        yield item
                return
            except ModelError as exc:
                if again or exc.kind != "auth":
                    raise
