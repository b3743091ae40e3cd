"""The providers that come with the agent (`providers.toml`), with what their models cost there."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hermes_agent.contracts.model_provider import OMIT_TEMPERATURE, ProviderProfile, fetch_model_ids

__all__ = ["Anthropic", "bundled_prices", "bundled_profiles"]


class Anthropic(ProviderProfile):
    """Anthropic's own: its key has a header of its own, and an answer's longest length depends on the model."""

    def get_max_tokens(self, model: str) -> int | None:
        if "claude-3-5" in model:
            return 8192
        return 4096 if "claude-3-" in model else 32_000

    def fetch_models(
        self, *, api_key: str | None = None, base_url: str | None = None, timeout: float = 8.0
    ) -> list[str] | None:
        headers = {"anthropic-version": "2023-06-01", **({"x-api-key": api_key} if api_key else {})}
        return fetch_model_ids((base_url or self.base_url).rstrip("/") + "/models?limit=1000", headers, timeout)


@functools.cache
def bundled_profiles() -> Mapping[str, ProviderProfile]:
    """Return them by name, in their order."""
    return {name: _profile(name, fields) for name, fields in _table().items()}


def bundled_prices(provider: str) -> Mapping[str, Sequence[float]]:
    """Return what a provider's models cost: dollars a million tokens read, written and, where known, cached."""
    prices: Mapping[str, Sequence[float]] = _table().get(provider, {}).get("prices", {})
    return prices


@functools.cache
def _table() -> dict[str, dict[str, Any]]:
    import tomllib  # a start that asks no provider does without

    return tomllib.loads(Path(__file__).with_name("providers.toml").read_text(encoding="utf-8"))


def _profile(name: str, fields: Mapping[str, Any]) -> ProviderProfile:
    given: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in fields.items() if k != "prices"}
    if given.get("fixed_temperature") == "omit":
        given["fixed_temperature"] = OMIT_TEMPERATURE
    return (Anthropic if name == "anthropic" else ProviderProfile)(name, **given)
