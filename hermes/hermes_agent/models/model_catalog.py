"""Facts about models: context window, abilities, prices; and the cost of an answer.

The list of the provider comes first, as it was fetched last (`cache/models/`, fetched again after a day). Then comes
the tables of this release: `model_facts.json` for families of models, `models/prices/` for prices
(`models.price_tables`). Prices hold for the vendor's own API.

A server of the user on this machine (`ModelEndpoint.is_own_server`) that lists no price is free, and so is a provider
that says so (`ClientProfile.is_free`). Some providers report the cost with an answer.
"""

from __future__ import annotations

import functools
import hashlib
import json
import logging
import re
import time
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from hermes_agent.contracts.model_client import ModelAnswer
from hermes_agent.contracts.model_provider import ProviderProfile, ask_profile, fetch_model_entries
from hermes_agent.core.calls import overrides
from hermes_agent.core.lazy_types import LazyNamedTuple
from hermes_agent.core.messages import Usage
from hermes_agent.models.bundled import bundled_client_profiles
from hermes_agent.models.price_tables import ModelPrices, PriceTables, TokenRates
from hermes_agent.models.providers import ModelEndpoint
from hermes_agent.system.files import write_atomic

logger = logging.getLogger(__name__)


class _Family(LazyNamedTuple):
    """Abilities of a family of models."""

    begins: str
    """Beginning of the names, after the vendor."""
    context_length: int
    vision: bool = False
    tools: bool = True


@functools.cache
def _facts() -> tuple[_Family, ...]:
    """Return the families, the more special before the more general."""
    facts = json.loads((Path(__file__).parent / "model_facts.json").read_text(encoding="utf-8"))
    return tuple(_Family(**family) for family in facts["families"])


_VENDOR = re.compile(r"^(?:models/)?(?:[\w.-]+/)*(?:(?:us|eu|apac|global)\.)?(?:anthropic\.|openai\.|meta\.)?")


@functools.lru_cache(maxsize=64)
def _family(model: str) -> _Family | None:
    """Return the family of a model of any provider, or None."""
    name = _VENDOR.sub("", model.lower())
    return next((family for family in _facts() if name.startswith(family.begins)), None)


USUAL_CONTEXT = 128_000
"""Context window in tokens of a model of which nothing is known."""
TTL_S = 24 * 3600.0
FILE_CHECK_S = 1.0
"""Seconds between two checks for a list that another process fetched: each answer asks for its price."""
TIMEOUT_S = 8.0


class ModelsUnavailable(Exception):
    """A provider does not list its models; the message names it."""


class ModelInfo(LazyNamedTuple):
    """Facts about one model; None if unknown. Prices are in dollars per token."""

    id: str
    context_length: int | None = None
    max_output: int | None = None
    vision: bool | None = None
    tools: bool | None = None
    input_price: float | None = None
    output_price: float | None = None
    cache_read_price: float | None = None
    cache_write_price: float | None = None
    reasoning_price: float | None = None
    """Price of tokens of reasoning where it differs from the output's."""
    tiers: tuple[tuple[int, TokenRates], ...] = ()
    """Dollars per million tokens for requests with more input tokens than the number."""

    def cost_usd(self, usage: Usage) -> float | None:
        """Return the cost of a usage in dollars, or None if the price is unknown."""
        if self.input_price is None or self.output_price is None:
            return None
        if self.tiers and (reached := [rates for start, rates in self.tiers if usage.input_tokens > start]):
            return self._replace(tiers=(), **_price_fields(reached[-1])).cost_usd(usage)
        written = usage.details.get("cache_creation_input_tokens")
        written = written if isinstance(written, int) else 0
        read_price = self.input_price if self.cache_read_price is None else self.cache_read_price
        write_price = self.input_price if self.cache_write_price is None else self.cache_write_price
        return (
            max(0, usage.input_tokens - usage.cached_tokens - written) * self.input_price
            + usage.cached_tokens * read_price
            + written * write_price
            + usage.output_tokens * self.output_price
            + _reasoning_tokens(usage) * ((self.reasoning_price or self.output_price) - self.output_price)
        )


def _price_fields(rates: TokenRates) -> dict[str, Any]:
    """Return the prices of a `ModelInfo`, in dollars per token."""
    return {f"{name}_price": None if rate is None else rate * 1e-6 for name, rate in rates._asdict().items()}


def _reasoning_tokens(usage: Usage) -> int:
    """Return the tokens of reasoning among the output tokens."""
    for name in ("completion_tokens_details", "output_tokens_details"):
        details = usage.details.get(name)
        count = details.get("reasoning_tokens") if isinstance(details, Mapping) else None
        if isinstance(count, int):
            return min(count, usage.output_tokens)
    return 0


class ModelCatalog:
    """Model lists of providers, kept on disk in `folder`, which is made with the first list."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.prices = PriceTables(folder.parent / "prices")
        self._read: dict[Path, _CachedList] = {}
        self._files: dict[tuple[str, str], Path] = {}
        self._silent: set[tuple[str, str]] = set()
        """Providers and models that did not report the cost of an answer, although the provider does."""

    def known_info(self, endpoint: ModelEndpoint, model: str) -> ModelInfo:
        """Return what is known of a model, without a request."""
        _, listed = self._list(self._file(endpoint))
        found = listed.get(model)
        usual = _released_info(endpoint, model, self.prices)
        if found is None:
            return usual
        # a listed price is not mixed with those of the table
        left = usual._asdict() if found.input_price is None else usual._replace(**_NO_PRICES)._asdict()
        return found._replace(**{k: v for k, v in left.items() if not getattr(found, k) and v is not None})

    def is_priced(self, endpoint: ModelEndpoint, model: str) -> bool:
        """Return whether the cost of an answer is known, or will be known with the answer."""
        name = endpoint.provider.name
        tells = name == REPORTS_COST and (name, model) not in self._silent
        own = endpoint.client_profile
        is_free = (
            own.is_free if own is not None else overrides(endpoint.provider.profile, ProviderProfile, "get_usage_cost")
        )
        return is_free or tells or self.known_info(endpoint, model).cost_usd(Usage()) is not None

    def listed_cost_usd(self, endpoint: ModelEndpoint, model: str, usage: Usage) -> float | None:
        """Return the cost of an answer by known prices, or None."""
        own = None
        if overrides(endpoint.provider.profile, ProviderProfile, "get_usage_cost"):
            tokens = {"input_tokens": usage.input_tokens - usage.cached_tokens, "output_tokens": usage.output_tokens}
            tokens |= {"cache_read_tokens": usage.cached_tokens, "cache_write_tokens": 0, "reasoning_tokens": 0}
            given = SimpleNamespace(**tokens, prompt_tokens=usage.input_tokens, total_tokens=usage.total_tokens)
            own = ask_profile(endpoint.provider.profile, "get_usage_cost", model, given)
        if isinstance(own, (int, float, Decimal)) and not isinstance(own, bool) and own >= 0:
            return float(own)
        cost = self.known_info(endpoint, model).cost_usd(usage)
        if cost is None and reported_cost_usd(endpoint.provider.name, usage.details) is None:
            self._silent.add((endpoint.provider.name, model))
        return cost

    def context_length(self, endpoint: ModelEndpoint, model: str, block: Any) -> int:
        """Return the context window in tokens; 0 for a client that shortens a conversation by itself.

        Args:
            block: `model` of the config; its `context_length` belongs to the model that it names.
        """
        if endpoint.client_profile is not None and endpoint.client_profile.fits_conversations:
            return 0
        own = isinstance(block, Mapping) and model in (block.get("default") or model)
        given = block.get("context_length") if own else None
        given = given or ask_profile(endpoint.provider.profile, "get_model_context_length", model)
        return int(given or self.known_info(endpoint, model).context_length or USUAL_CONTEXT)

    def kept_names(self, endpoint: ModelEndpoint) -> list[str]:
        """Return the names of the provider's models, as its list was fetched last; sends no request."""
        return list(self._list(self._file(endpoint))[1])

    def list_models(self, endpoint: ModelEndpoint, *, fresh: bool = False) -> list[ModelInfo]:
        """Return the models of a provider; requests its list if the kept list is older than a day.

        Blocks for up to 8 seconds.

        Args:
            fresh: request the list in any case.

        Raises:
            ModelsUnavailable: the provider does not list its models, and no list is kept.
        """
        file = self._file(endpoint)
        fetched_at, kept = self._list(file, look=True)
        if fresh or time.time() - fetched_at > TTL_S:
            entries = _fetch_entries(endpoint)
            if entries is not None:
                write_atomic(_modified_at(file), json.dumps({"fetched_at": time.time(), "models": entries}))
                _, kept = self._list(file, look=True)
        if not kept:
            named = endpoint.provider.profile.fallback_models
            if not named:
                raise ModelsUnavailable(f"{endpoint.display_name} does not say which models it has")
            return [self.known_info(endpoint, name) for name in named]
        return [self.known_info(endpoint, name) for name in kept]

    def _file(self, endpoint: ModelEndpoint) -> Path:
        key = endpoint.provider.name, endpoint.base_url
        if key not in self._files:
            mark = hashlib.sha256(endpoint.base_url.encode()).hexdigest()[:8]
            self._files[key] = self._folder / f"{re.sub(r'[^A-Za-z0-9._-]', '_', endpoint.provider.name)}-{mark}.json"
        return self._files[key]

    def _list(self, file: Path, *, look: bool = False) -> tuple[float, dict[str, ModelInfo]]:
        """Return when a list was fetched and what it says; read again only when the file is another one.

        Args:
            look: also when it was looked a moment ago.
        """
        known, now = self._read.get(file), time.monotonic()
        if known is not None and not look and now - known.checked_at < FILE_CHECK_S:
            return known.fetched_at, known.models
        try:
            fetched_at = file.stat().st_mtime
            if known is None or known.fetched_at != fetched_at:
                value = json.loads(file.read_bytes())
                models = {e["id"]: _parse_info(e) for e in value["models"] if isinstance(e, dict) and e.get("id")}
                known = _CachedList(fetched_at, models)
        except FileNotFoundError:
            known = _CachedList(0.0, {})
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as exc:
            logger.warning("the list of models in %s cannot be read, and is fetched again: %s", file, exc)
            known = _CachedList(0.0, {})
        self._read[file] = known._replace(checked_at=now)
        return known.fetched_at, known.models


class _CachedList(LazyNamedTuple):
    """What a file said."""

    fetched_at: float
    """0.0: there is none."""
    models: dict[str, ModelInfo]
    checked_at: float = 0.0


_NO_PRICES: dict[str, Any] = {**_price_fields(TokenRates(0, 0)), "input_price": None, "output_price": None, "tiers": ()}


def _released_info(endpoint: ModelEndpoint, model: str, tables: PriceTables) -> ModelInfo:
    """Return what the release, the tables of prices and the provider's profile know."""
    family, provider = _family(model), endpoint.provider
    prices = tables.find(provider.name, model) if _is_vendor(endpoint) else None
    if endpoint.is_own_server:
        prices = ModelPrices(TokenRates(0, 0, 0))
    fields: dict[str, Any] = {} if prices is None else {**_price_fields(prices.base), "tiers": prices.tiers}
    listed = None if prices is None else prices.context_length
    if family is None:
        vision = True if provider.profile.supports_vision else None
        return ModelInfo(model, listed, vision=vision, **fields)
    return ModelInfo(model, family.context_length, None, family.vision, family.tools, **fields)


def _is_vendor(endpoint: ModelEndpoint) -> bool:
    """Return whether the address is the provider's own, or that of the user's resource at the provider."""
    own = endpoint.provider.base_url
    return endpoint.base_url == own or not own or "${" in own


def _modified_at(file: Path) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    return file


def fetch_model_ids(endpoint: ModelEndpoint) -> list[str] | None:
    """Return the models that a provider lists now, or None. Blocks for up to 8 seconds; keeps nothing."""
    entries = _fetch_entries(endpoint)
    return None if entries is None else [entry["id"] for entry in entries]


def _fetch_entries(endpoint: ModelEndpoint) -> list[dict[str, Any]] | None:
    """Return the entries of a provider's list, or only the ids if the profile fetches them itself."""
    profile = endpoint.provider.profile
    key = endpoint.key or None
    if not profile.supports_model_listing:
        return None
    if found := ask_profile(profile, "discover_models", api_key=key, base_url=endpoint.base_url, timeout=TIMEOUT_S):
        return [entry if isinstance(entry, dict) else {"id": str(entry)} for entry in found]
    if type(profile).fetch_models is not ProviderProfile.fetch_models:
        try:
            ids = profile.fetch_models(api_key=key, base_url=endpoint.base_url, timeout=TIMEOUT_S)
        except Exception as exc:  # noqa: BLE001 - a plugin's profile
            logger.warning("the models of provider %s cannot be listed: %s", profile.name, exc)
            return None
        return [{"id": str(name)} for name in ids] if ids else None
    url = profile.models_url or f"{endpoint.base_url}/models"
    authorization = {"Authorization": f"Bearer {key}"} if key else {}
    return fetch_model_entries(url, {**dict(endpoint.provider.default_headers), **authorization}, TIMEOUT_S)


def _parse_info(entry: Mapping[str, Any]) -> ModelInfo:
    """Read an entry of a list, in the words of OpenRouter, vLLM, llama.cpp, Mistral, Groq and Together."""
    top, meta = _mapping(entry.get("top_provider")), _mapping(entry.get("meta"))
    can, price = _mapping(entry.get("capabilities")), _mapping(entry.get("pricing"))
    sees = _mapping(entry.get("architecture")).get("input_modalities")
    parameters = entry.get("supported_parameters")
    unit = 1.0 if "prompt" in price else 1e-6  # Together: dollars a million
    return ModelInfo(
        id=str(entry["id"]),
        context_length=_count(
            entry.get("context_length"),
            entry.get("max_model_len"),
            entry.get("max_context_length"),
            entry.get("context_window"),
            meta.get("n_ctx"),
            meta.get("n_ctx_train"),
        ),
        max_output=_count(top.get("max_completion_tokens"), entry.get("max_completion_tokens")),
        vision="image" in sees if isinstance(sees, list) else can.get("vision"),
        tools="tools" in parameters if isinstance(parameters, list) else can.get("function_calling"),
        input_price=_price(price.get("prompt", price.get("input")), unit),
        output_price=_price(price.get("completion", price.get("output")), unit),
        cache_read_price=_price(price.get("input_cache_read"), unit),
        cache_write_price=_price(price.get("input_cache_write"), unit),
    )


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _count(*values: Any) -> int | None:
    return next((v for v in values if isinstance(v, int) and not isinstance(v, bool) and v > 0), None)


def _price(value: Any, unit: float) -> float | None:
    try:
        price = float(value) * unit
    except (TypeError, ValueError):
        return None
    return price if price >= 0 else None  # OpenRouter: -1 for one that varies


REPORTS_COST = "openrouter"
"""The provider that reports `cost`, in credits, which are dollars.

https://openrouter.ai/docs/use-cases/usage-accounting
"""


@functools.cache
def is_free_of_charge(provider: str) -> bool:
    """Return whether the answers of a bundled provider cost nothing."""
    return any(profile.is_free for profile in bundled_client_profiles() if profile.name == provider)


def cost_usd(answer: ModelAnswer, provider: str) -> float | None:
    """Return the cost of an answer in dollars, or None if it is unknown.

    Args:
        provider: the requested provider, if the answer does not name the one that answered.
    """
    reported = reported_cost_usd(answer.provider or provider, answer.usage.details)
    return answer.listed_cost_usd if reported is None else reported


def reported_cost_usd(provider: str, details: Mapping[str, Any]) -> float | None:
    """Return the cost in dollars that the provider reports in its `usage` object (`details`), or None."""
    if is_free_of_charge(provider):
        return 0.0
    cost = details.get("cost") if provider == REPORTS_COST else None
    return float(cost) if isinstance(cost, int | float) and not isinstance(cost, bool) else None
