"""A request's JSON and headers on the chat-completions wire, with what the provider's profile says about them."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from hermes_agent.contracts.model_provider import OMIT_TEMPERATURE, ProviderProfile
from hermes_agent.core.messages import Message
from hermes_agent.models import failures
from hermes_agent.models.endpoint import Endpoint
from hermes_agent.models.request import ModelRequest

__all__ = ["Prepared", "has_code", "prepare"]

logger = logging.getLogger(__name__)

HOOKS = ("prepare_messages", "build_extra_body", "build_api_kwargs_extras", "get_max_tokens")
"""Methods of a profile that are called for each request."""


class Prepared(NamedTuple):
    """What is sent."""

    body: dict[str, Any]
    headers: Mapping[str, str]
    """Beside those that every request of the provider has."""


def has_code(profile: ProviderProfile | None) -> bool:
    """Say whether the profile has hooks of its own, which may take their time."""
    return profile is not None and any(
        getattr(type(profile), name) is not getattr(ProviderProfile, name) for name in HOOKS
    )


def prepare(request: ModelRequest, endpoint: Endpoint) -> Prepared:
    """Return the request's JSON. Its order is always the same: a provider's prompt cache compares bytes.

    Raises:
        ModelError: a hook of the profile failed.
    """
    profile = endpoint.provider.profile
    messages = [_message(message) for message in request.messages]
    if profile is None:
        return Prepared(_body(request, endpoint, messages, {}), {})
    try:
        dressed, fields, headers = _dressed(profile, request, endpoint)
        return Prepared(_body(dressed, endpoint, profile.prepare_messages(messages), fields), headers)
    except Exception as exc:
        logger.warning("the profile of model provider `%s` failed", profile.name, exc_info=exc)
        raise failures.refused(
            endpoint,
            request.model,
            f"was not asked: its profile failed with {type(exc).__name__}: {endpoint.quote(str(exc))}",
            hint="Look for the traceback with `hermes logs`; the profile is a plugin's.",
        ) from exc


def _dressed(
    profile: ProviderProfile, request: ModelRequest, endpoint: Endpoint
) -> tuple[ModelRequest, dict[str, Any], dict[str, str]]:
    """Return the request with the profile's temperature and limit, the profile's fields, and its headers."""
    where = {"model": request.model, "base_url": endpoint.base_url}
    session = request.session_id or None
    extra = profile.build_extra_body(
        session_id=session, provider_preferences=None, reasoning_config=None, openrouter_min_coding_score=None, **where
    )
    body, top_level = profile.build_api_kwargs_extras(
        reasoning_config=None,
        supports_reasoning=False,
        qwen_session_metadata=None,
        ollama_num_ctx=None,
        session_id=session,
        **where,
    )
    top = dict(top_level or {})
    headers = {str(name): str(value) for name, value in (top.pop("extra_headers", None) or {}).items()}
    nested = top.pop("extra_body", None) or {}
    fields = {**top, **nested, **(body or {}), **(extra or {})}
    json.dumps(fields)
    changes: dict[str, Any] = {}
    if request.max_tokens is None:
        changes["max_tokens"] = profile.get_max_tokens(request.model)
    if profile.fixed_temperature is OMIT_TEMPERATURE:
        changes["temperature"] = None
    elif profile.fixed_temperature is not None:
        changes["temperature"] = profile.fixed_temperature
    return replace(request, **changes), fields, headers


def _body(
    request: ModelRequest, endpoint: Endpoint, messages: list[dict[str, Any]], fields: Mapping[str, Any]
) -> dict[str, Any]:
    body: dict[str, Any] = {"model": request.model}
    if request.tools:
        body["tools"] = list(request.tools)
    body["messages"] = messages
    if request.max_tokens is not None:
        body[endpoint.provider.max_tokens_field] = request.max_tokens
    if request.temperature is not None:
        body["temperature"] = request.temperature
    body |= fields
    body |= request.extra
    body["stream"] = True
    if not endpoint.provider.sends_usage_unasked:
        body["stream_options"] = {"include_usage": True}
    return body


def _message(message: Message) -> dict[str, Any]:
    """The message's JSON, without what is no character: half a surrogate pair, as undecodable file names have."""
    value = message.to_dict()
    try:
        for text in (message.text, *(call.arguments for call in message.tool_calls)):
            text.encode()
    except UnicodeEncodeError:
        value = json.loads(json.dumps(value, ensure_ascii=False).encode("utf-8", "replace"))
    return value
