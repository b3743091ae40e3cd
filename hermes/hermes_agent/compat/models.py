"""Upstream's functions for model providers, auxiliary model calls, media, token counts and costs.

Auxiliary calls run outside the conversation: text, speech, images. Prices are those of `ctx.llm` (`model_infos` of the
host): the price that the provider reports with an answer, the provider's price list, or the table of the release. For
other models the cost is `unknown`, never a guess. Source: plugin contract §8.1, §8.7, §11.1, §11.2.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import field
from decimal import Decimal
from pathlib import Path
from typing import Any

from hermes_agent.compat import CONTRACT_LEVEL
from hermes_agent.compat.agent import host, of_host
from hermes_agent.compat.config import get_env_value
from hermes_agent.config.settings import plain
from hermes_agent.contracts.model_provider import ProviderProfile, check_profile
from hermes_agent.contracts.speech import StreamingTTSProvider
from hermes_agent.core.lazy_types import lazy_dataclass
from hermes_agent.core.messages import Usage
from hermes_agent.core.registry import Conflict, current_owner, staged_store
from hermes_agent.media.service import MediaService
from hermes_agent.media.speech import streaming_provider
from hermes_agent.models.model_catalog import ModelInfo, is_free_of_charge, reported_cost_usd
from hermes_agent.models.openai_format import Response
from hermes_agent.models.providers import ModelEndpoint, ProviderCatalog
from hermes_agent.plugins.llm_client import AuxiliaryCall, call_auxiliary, call_auxiliary_async
from hermes_agent.tools import tool_error

logger = logging.getLogger(__name__)

_tables: dict[int, dict[str, list[str]]] = {}
_fetched: dict[str, list[str]] = {}


def register_provider(profile: ProviderProfile) -> None:
    """Register a profile for the plugin that is being loaded; a duplicate name is rejected with a warning.

    Raises:
        TypeError: `profile` is no valid profile.
        ValueError: it has no name.
    """
    reason = check_profile(profile)
    if reason:
        raise TypeError(f"register_provider({type(profile).__name__}): it {reason}")
    catalogue = staged_store(host().model_providers)
    try:
        catalogue.register(profile, current_owner().key)
    except Conflict as exc:
        catalogue.refusals.append(exc)
        logger.warning("%s", exc)


get_provider_profile = of_host(lambda host: host.model_providers, ProviderCatalog.profile)
list_providers = of_host(lambda host: host.model_providers, ProviderCatalog.profiles)


def get_label(provider_id: str) -> str:
    """Return the display name of a provider, or the id if the provider is unknown."""
    found = get_provider_profile(provider_id)
    return found.display_name or found.name if found is not None else provider_id


def provider_models() -> dict[str, list[str]]:
    """Return the models of each provider's profile by provider; a plugin may add to the result."""
    key = id(host())
    if key not in _tables:
        _tables.clear()
        _tables[key] = {}
    for profile in list_providers():  # includes profiles registered since the last call
        _tables[key].setdefault(profile.name, list(profile.fallback_models))
    return _tables[key]


def provider_model_ids(provider: str, *, force_refresh: bool = False, **options: Any) -> list[str]:
    """Return the model ids that a provider's service lists, else those of its profile.

    Args:
        force_refresh: request the list even if it is cached.
        options: accepted and ignored.
    """
    if force_refresh:
        _fetched.pop(provider, None)
    if provider not in _fetched:
        found = _fetch_models(provider)
        if found is None:
            return list(provider_models().get(provider, ()))
        _fetched[provider] = found
    return list(_fetched[provider])


def cached_provider_model_ids(provider: str, **options: Any) -> list[str]:
    """Return the model ids of a provider without a request.

    Args:
        options: accepted and ignored.
    """
    return list(_fetched.get(provider) or provider_models().get(provider) or [])


def clear_provider_models_cache(provider: str | None = None) -> None:
    """Drop the cached list of a provider, or of all providers."""
    if provider is None:
        _fetched.clear()
    else:
        _fetched.pop(provider, None)


def get_default_model_for_provider(provider: str) -> str:
    """Return the first model of a provider, or "" if none is known."""
    known = cached_provider_model_ids(provider)
    return known[0] if known else ""


def get_provider_env(name: str) -> str:
    """Return a variable or secret without surrounding white space, or "" if it does not exist."""
    return (get_env_value(name) or "").strip()


def sign_in_providers() -> list[Any]:
    """Return the registered sign-in providers of the dashboard in order of registration."""
    return [provider for _, provider in host().providers["dashboard_auth"].items()]


def nous_portal_tags(session_id: str | None = None) -> list[str]:
    """Return `tags` for a request to upstream's model service; they name the program that sends it.

    Args:
        session_id: accepted and ignored.
    """
    return ["product=hermes-agent", f"client=hermes-client-v{CONTRACT_LEVEL}"]


def _fetch_models(provider: str) -> list[str] | None:
    profile = get_provider_profile(provider)
    key = next((v for name in profile.env_vars if (v := get_env_value(name))), None) if profile is not None else None
    if profile is None or key is None:
        return None
    try:
        found = profile.fetch_models(api_key=key)
    except Exception as exc:  # noqa: BLE001 - plugin code; the profile's own list is used
        logger.warning("the models of provider %s cannot be listed: %s", provider, exc)
        return None
    return [str(model) for model in found] if found else None


def _auxiliary_call(
    task: str | None = None,
    *,
    provider: str | None = None,
    model: str | None = None,
    base_url: str | None = None,
    api_key: str | None = None,
    main_runtime: Mapping[str, Any] | None = None,
    messages: Sequence[Mapping[str, Any]],
    temperature: float | None = None,
    max_tokens: int | None = None,
    tools: Sequence[dict[str, Any]] | None = None,
    timeout: float | None = None,
    extra_body: Mapping[str, Any] | None = None,
    **fields: Any,
) -> AuxiliaryCall:
    """Convert the arguments of `call_llm` and `async_call_llm`.

    Args:
        task: key of `auxiliary` in the config; None selects the conversation's model.
        provider, model, base_url, api_key: override the settings of the task.
        main_runtime: the conversation's model in the same keys; used for `auto`.
        timeout: seconds; None selects that of the task, or 30.
        fields: additional fields of the request, as in `extra_body`.
    """
    given = {"provider": provider, "model": model, "base_url": base_url, "api_key": api_key}
    extra = {**fields, **(extra_body or {})}
    return AuxiliaryCall(task, messages, given, main_runtime, temperature, max_tokens, tools, timeout, extra)


def call_llm(*args: Any, **kwargs: Any) -> Response:
    """Call the model of an auxiliary task and wait for the answer; not allowed on the core loop.

    Raises:
        UserError: no model is available.
        ModelError: the model request failed.
        ValueError: `messages` is invalid.
    """
    return call_auxiliary(host(), _auxiliary_call(*args, **kwargs))


async def async_call_llm(*args: Any, **kwargs: Any) -> Response:
    """Call the model of an auxiliary task from any event loop; see `call_llm`."""
    return await call_auxiliary_async(host(), _auxiliary_call(*args, **kwargs))


call_llm.__signature__ = inspect.signature(_auxiliary_call)  # type: ignore[attr-defined]
async_call_llm.__signature__ = inspect.signature(_auxiliary_call)  # type: ignore[attr-defined]


def flatten_message_text(content: Any, *, sep: str = "\n") -> str:
    """Return the text of a message's content: a string, or the text parts of a list."""
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if isinstance(content, Mapping):
        return str(content.get("text") or content.get("content") or "")
    if isinstance(content, list):
        parts = (flatten_message_text(part, sep=sep) for part in content if isinstance(part, str | Mapping))
        return sep.join(part for part in parts if part)
    return str(content)


def transcribe_audio(file_path: str, model: str | None = None) -> dict[str, Any]:
    """Transcribe a recording; return `transcript` and `provider`, or `error`."""
    return host().service(MediaService).transcribe(file_path, model)


def text_to_speech_tool(text: str, output_path: str | None = None) -> str:
    """Synthesize `text` into a file and return a tool result: `success`, `file_path`, `provider`."""
    return _tool_result(
        host().service(MediaService).synthesize(text, str(Path(output_path).resolve()) if output_path else None)
    )


def resolve_streaming_provider(tts_config: Mapping[str, Any] | None = None) -> StreamingTTSProvider | None:
    """Return the speaker that `tts.provider` names while its `streaming` is true, or None."""
    return streaming_provider(plain(host().config.settings.tts) if tts_config is None else tts_config)


async def vision_analyze_tool(
    image_url: str, user_prompt: str, model: str | None = None, task_id: str | None = None
) -> str:
    """Describe an image with a model and return a tool result: `success`, `analysis`.

    Args:
        image_url: a URL or the path of a file.
        model: accepted and ignored; `auxiliary.vision` selects the model.
    """
    current = host()
    media = current.service(MediaService)
    look = current.bridge.off_loop(lambda: media.describe_image(image_url, user_prompt))
    return _tool_result(await asyncio.ensure_future(look))


def _tool_result(found: dict[str, Any]) -> str:
    if found["success"]:
        return json.dumps(found, ensure_ascii=False)
    return tool_error(**{"message": found.pop("error"), **found})


ZERO = Decimal(0)
MILLION = Decimal(1_000_000)


@lazy_dataclass(frozen=True)
class CanonicalUsage:
    """Token counts of one or more requests; fields are disjoint, but output includes reasoning tokens."""

    input_tokens: int = 0
    """Input that was neither read from the provider's cache nor written to it."""
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    reasoning_tokens: int = 0
    request_count: int = 1
    raw_usage: Mapping[str, Any] | None = field(default=None, compare=False, repr=False)
    """The provider's `usage` object."""

    @property
    def prompt_tokens(self) -> int:
        """All input tokens."""
        return self.input_tokens + self.cache_read_tokens + self.cache_write_tokens

    @property
    def total_tokens(self) -> int:
        """Input and output tokens."""
        return self.prompt_tokens + self.output_tokens


@lazy_dataclass(frozen=True)
class PricingEntry:
    """Prices in US dollars per million tokens; None where unknown."""

    input_cost_per_million: Decimal | None = None
    output_cost_per_million: Decimal | None = None
    cache_read_cost_per_million: Decimal | None = None
    cache_write_cost_per_million: Decimal | None = None
    request_cost: Decimal | None = None
    source: str = "none"
    source_url: str | None = None
    pricing_version: str | None = None
    fetched_at: Any = None


@lazy_dataclass(frozen=True)
class CostResult:
    """Cost of a usage."""

    amount_usd: Decimal | None
    """US dollars, or None if unknown."""
    status: str
    """`actual` (reported by the provider), `estimated` (from list prices), `included` (free), `unknown`."""
    source: str
    label: str
    """The amount as displayed to users."""
    fetched_at: Any = None
    pricing_version: str | None = None
    notes: tuple[str, ...] = ()


def normalize_usage(response_usage: Any, *, provider: str | None = None, api_mode: str | None = None) -> CanonicalUsage:
    """Return a provider's `usage` (a mapping, or an object with attributes) as comparable counts.

    Chat completions and the Responses API count cached tokens as input; Anthropic's messages API does not.

    Args:
        api_mode: `anthropic_messages` if the input excludes cached tokens; otherwise the fields decide.
    """
    raw = _mapping(response_usage)
    details = _mapping(raw.get("prompt_tokens_details") or raw.get("input_tokens_details"))
    spent = _mapping(raw.get("completion_tokens_details") or raw.get("output_tokens_details"))
    read = _first(details.get("cached_tokens"), raw.get("cache_read_input_tokens"), raw.get("prompt_cache_hit_tokens"))
    written = _first(details.get("cache_write_tokens"), raw.get("cache_creation_input_tokens"))
    sent = _first(raw.get("prompt_tokens"), raw.get("input_tokens"))
    counts_cached = api_mode != "anthropic_messages" and ("prompt_tokens" in raw or bool(details))
    return CanonicalUsage(
        input_tokens=max(0, sent - read - written) if counts_cached else sent,
        output_tokens=_first(raw.get("completion_tokens"), raw.get("output_tokens")),
        cache_read_tokens=read,
        cache_write_tokens=written,
        reasoning_tokens=_first(spent.get("reasoning_tokens")),
        raw_usage=raw or None,
    )


def get_pricing_entry(
    model_name: str, provider: str | None = None, base_url: str | None = None, api_key: str | None = None
) -> PricingEntry | None:
    """Return a model's prices from its provider's list, or None if unknown.

    `hermes model list PROVIDER` fetches the list.
    """
    name = _provider(provider, base_url)
    if is_free_of_charge(name):
        return PricingEntry(ZERO, ZERO, ZERO, ZERO, ZERO, source="local")
    info = _info(model_name, name, base_url)
    if info is None or info.input_price is None:
        return None
    return PricingEntry(
        _million(info.input_price),
        _million(info.output_price),
        _million(info.cache_read_price),
        _million(info.cache_write_price),
        source="provider_models_api",
    )


def estimate_usage_cost(
    model_name: str,
    usage: CanonicalUsage,
    *,
    provider: str | None = None,
    base_url: str | None = None,
    api_key: str | None = None,
) -> CostResult:
    """Return the cost of a usage from the provider's report or the model's prices.

    It is zero for a free provider, such as the local model, and unknown if there is no price.
    """
    name = _provider(provider, base_url)
    amount = reported_cost_usd(name, usage.raw_usage or {})
    info = _info(model_name, name, base_url) if amount is None else None
    written = {"cache_creation_input_tokens": usage.cache_write_tokens}
    spent = Usage(usage.prompt_tokens, usage.output_tokens, usage.cache_read_tokens, written)
    if info is not None and (listed := info.cost_usd(spent)) is not None:
        return CostResult(Decimal(str(listed)), "estimated", "provider_models_api", f"~${listed:.4f}")
    if amount is None:
        note = f"no price is known for {model_name or 'the model'}"
        return CostResult(None, "unknown", "none", "n/a", notes=(note,))
    if is_free_of_charge(name):
        return CostResult(ZERO, "included", "local", "included")
    return CostResult(Decimal(str(amount)), "actual", "provider_cost_api", f"${amount:.4f}")


def _million(price: float | None) -> Decimal | None:
    return None if price is None else Decimal(str(price)) * MILLION


def _info(model: str, provider: str, base_url: str | None) -> ModelInfo | None:
    known = host().model_providers.get(provider)
    address = (base_url or (known.base_url if known is not None else "")).rstrip("/")
    return None if known is None else host().model_infos.known_info(ModelEndpoint(known, address), model)


def _provider(provider: str | None, base_url: str | None) -> str:
    """Return the provider's own name for a name, an alias, or the host of a URL."""
    known = host().model_providers
    wanted = (provider or "").strip().lower()
    if wanted:
        found = known.get(wanted)
        return found.name if found is not None else wanted
    serving = known.find_by_url(base_url) if base_url else None
    return serving.name if serving is not None else ""


def _mapping(value: Any) -> Mapping[str, Any]:
    """Return the fields of a mapping, or of an object of a provider's SDK."""
    if isinstance(value, Mapping):
        return value
    dump = getattr(value, "model_dump", None)
    fields = dump() if callable(dump) else getattr(value, "__dict__", None)
    return fields if isinstance(fields, Mapping) else {}


def _first(*counts: Any) -> int:
    """Return the first value that is a count."""
    return next((n for n in counts if isinstance(n, int) and not isinstance(n, bool) and n >= 0), 0)
