"""Upstream's counts of tokens and what they cost. Source: plugin contract §11.1.

Prices are those that `ctx.llm` knows (`models.infos`): what the provider says of an answer, or of its models in its
list, or the table of the release. The answer for other models is `unknown`, never a wrong amount.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from hermes_agent.compat.hosting import host
from hermes_agent.core.messages import Usage
from hermes_agent.models.infos import ModelInfo, is_free_of_charge, reported_cost_usd
from hermes_agent.models.providers import ModelEndpoint

__all__ = [
    "CanonicalUsage",
    "CostResult",
    "PricingEntry",
    "estimate_usage_cost",
    "get_pricing_entry",
    "normalize_usage",
]

ZERO = Decimal(0)
MILLION = Decimal(1_000_000)


@dataclass(frozen=True)
class CanonicalUsage:
    """Tokens of one or more requests; no token is counted in two fields but those of reasoning, which are output."""

    input_tokens: int = 0
    """Input that was neither read from the provider's cache nor written to it."""
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    reasoning_tokens: int = 0
    request_count: int = 1
    raw_usage: Mapping[str, Any] | None = field(default=None, compare=False, repr=False)
    """What the provider said."""

    @property
    def prompt_tokens(self) -> int:
        """All of the input."""
        return self.input_tokens + self.cache_read_tokens + self.cache_write_tokens

    @property
    def total_tokens(self) -> int:
        """Input and output."""
        return self.prompt_tokens + self.output_tokens


@dataclass(frozen=True)
class PricingEntry:
    """Prices in dollars per million tokens; None where one is not known."""

    input_cost_per_million: Decimal | None = None
    output_cost_per_million: Decimal | None = None
    cache_read_cost_per_million: Decimal | None = None
    cache_write_cost_per_million: Decimal | None = None
    request_cost: Decimal | None = None
    source: str = "none"
    source_url: str | None = None
    pricing_version: str | None = None
    fetched_at: Any = None


@dataclass(frozen=True)
class CostResult:
    """What a usage cost."""

    amount_usd: Decimal | None
    """Dollars; None when it is not known."""
    status: str
    """`actual` (the provider said it), `estimated` (by its list), `included` (it costs nothing), `unknown`."""
    source: str
    label: str
    """The amount for people."""
    fetched_at: Any = None
    pricing_version: str | None = None
    notes: tuple[str, ...] = ()


def normalize_usage(response_usage: Any, *, provider: str | None = None, api_mode: str | None = None) -> CanonicalUsage:
    """Return a provider's `usage` (a mapping, or an object with attributes) as counts that can be compared.

    Chat completions and the Responses API count what was cached as input, Anthropic's messages do not.

    Args:
        api_mode: `anthropic_messages` says that cached tokens are not part of the input; otherwise the fields say so.
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
    """Return a model's prices, as its provider's list has them (`hermes model list PROVIDER` fetches it); else None."""
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
    """Return what a usage cost: nothing (the embedded model), what the provider said, its prices, or `unknown`."""
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
    """Return the provider's own name: of a name or alias, else of the host that an address is of."""
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
    """Return the first that is a count."""
    return next((n for n in counts if isinstance(n, int) and not isinstance(n, bool) and n >= 0), 0)
