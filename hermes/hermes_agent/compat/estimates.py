"""Upstream's estimates of tokens and context windows, and its short forms of counts.

The agent estimates its own messages in the same way. A context window is what the provider or the table of the release
says of a model; no request is made for it. Source: plugin contract §11.1, §11.2.
"""

from __future__ import annotations

import ipaddress
import json
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import urlsplit

from hermes_agent.agent.compressor import rough_tokens
from hermes_agent.compat.agent import host
from hermes_agent.compat.models import get_pricing_entry
from hermes_agent.core.errors import UserError
from hermes_agent.core.text import BYTES_PER_TOKEN
from hermes_agent.models.providers import ModelEndpoint
from hermes_agent.system.safe_http import is_public

DEFAULT_FALLBACK_CONTEXT = 256_000
"""Context window of an unknown model, in tokens, as in upstream."""
MINIMUM_CONTEXT_LENGTH = 64_000
"""Smallest context window that upstream calls usable, in tokens."""
CONTEXT_PROBE_TIERS = [256_000, 128_000, 64_000, 32_000, 16_000, 8_000]
"""Context windows that upstream tries for an unknown model, largest first."""
MINUTE_S, HOUR_S, DAY_S = 60, 3_600, 86_400


def estimate_tokens_rough(text: str) -> int:
    """Return a rough estimate of the tokens of a text, rounded up."""
    return -(-len(text) // BYTES_PER_TOKEN) if text else 0


def estimate_messages_tokens_rough(messages: Iterable[Mapping[str, Any]]) -> int:
    """Return a rough estimate of the tokens of messages; a picture counts as a fixed number."""
    return rough_tokens(messages)


def estimate_request_tokens_rough(
    messages: Iterable[Mapping[str, Any]], *, system_prompt: str = "", tools: list[dict[str, Any]] | None = None
) -> int:
    """Return a rough estimate of the tokens of a request: system prompt, messages and tool definitions."""
    definitions = json.dumps(tools, ensure_ascii=False) if tools else ""
    return estimate_tokens_rough(system_prompt) + rough_tokens(messages) + estimate_tokens_rough(definitions)


def get_model_context_length(
    model: str,
    base_url: str = "",
    api_key: str = "",
    config_context_length: int | None = None,
    provider: str = "",
    custom_providers: list[Any] | None = None,
) -> int:
    """Return the context window of a model in tokens, without a request.

    Args:
        base_url: names the provider if `provider` is missing.
        api_key: accepted and ignored, like `custom_providers`: `providers` of the config has both.
        config_context_length: the result, if it is a positive number.
    """
    if isinstance(config_context_length, int) and config_context_length > 0:
        return config_context_length
    return get_cached_context_length(model, base_url, provider) or DEFAULT_FALLBACK_CONTEXT


def get_cached_context_length(model: str, base_url: str, provider: str = "") -> int | None:
    """Return the known context window of a model in tokens, or None."""
    here = host()
    catalog = here.model_providers
    known = catalog.get(provider) if provider else catalog.find_by_url(base_url) if base_url else None
    if known is None:
        try:
            known = here.select_model().endpoint.provider
        except UserError:  # no model is configured
            return None
    return here.model_infos.known_info(ModelEndpoint(known, base_url or known.base_url), model).context_length


def is_local_endpoint(base_url: str) -> bool:
    """Return whether a URL leads to this machine, one of its containers, or a private network."""
    name = (urlsplit(base_url if "//" in base_url else f"//{base_url}").hostname or "").lower()
    if not name:
        return False
    if "." not in name and ":" not in name:  # `localhost`, or the name of a machine or a container
        return True
    if name.endswith((".localhost", ".docker.internal", ".containers.internal")):
        return True
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return not is_public(name)


def has_known_pricing(
    model_name: str, provider: str | None = None, base_url: str | None = None, api_key: str | None = None
) -> bool:
    """Return whether the price of a model is known."""
    return get_pricing_entry(model_name, provider, base_url, api_key) is not None


def format_token_count_compact(value: int) -> str:
    """Return a count with three significant digits: `950`, `1.5K`, `12.3K`, `3.46M`."""
    for size, letter in ((1_000_000_000, "B"), (1_000_000, "M"), (1_000, "K")):
        if abs(value) >= size:
            count = abs(value) / size
            text = f"{count:.{2 if count < 10 else 1 if count < 100 else 0}f}"
            text = text.rstrip("0").rstrip(".") if "." in text else text
            return f"{'-' if value < 0 else ''}{text}{letter}"
    return str(int(value))


def format_duration_compact(seconds: float) -> str:
    """Return a duration in its two largest units: `45s`, `3m`, `2h 5m`, `1.5d`."""
    if seconds < MINUTE_S:
        return f"{seconds:.0f}s"
    if seconds < HOUR_S:
        return f"{seconds / MINUTE_S:.0f}m"
    if seconds < DAY_S:
        hours, minutes = divmod(int(seconds // MINUTE_S), MINUTE_S)
        return f"{hours}h {minutes}m" if minutes else f"{hours}h"
    return f"{seconds / DAY_S:.1f}d"
