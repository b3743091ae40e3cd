"""Upstream's functions of its mixture of agents: several models are asked at once for advice.

The agent itself mixes no models; a plugin that asks them does it with the providers of the config. Source: plugin
contract §11.2.
"""

from __future__ import annotations

import contextvars
import logging
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from hermes_agent.compat.agent import host
from hermes_agent.compat.models import CanonicalUsage, call_llm, normalize_usage
from hermes_agent.plugins.llm_client import response_text

logger = logging.getLogger(__name__)

DEFAULT_MOA_PRESET_NAME = "default"
MOST_ADVISORS = 8
"""Models that are asked at once."""


def resolve_moa_preset(config: Any, name: str | None = None) -> dict[str, Any]:
    """Return a preset of upstream's mixture of agents: the models to ask, and how.

    The agent itself mixes no models. Without a preset, the one named `default` asks the conversation's model.

    Args:
        config: the section `moa` of the config.

    Raises:
        ValueError: there is no preset of that name.
    """
    section = config if isinstance(config, Mapping) else {}
    written = section.get("presets")
    presets = dict(written) if isinstance(written, Mapping) else {}
    wanted = str(name or section.get("default_preset") or DEFAULT_MOA_PRESET_NAME).strip()
    found = presets.get(wanted, {} if wanted == DEFAULT_MOA_PRESET_NAME else None)
    if not isinstance(found, Mapping):
        known = ", ".join(sorted({*presets, DEFAULT_MOA_PRESET_NAME}))
        raise ValueError(f"MoA preset '{wanted}' was not found. `moa.presets` of the config has: {known}")
    advisors = [dict(slot) for slot in found.get("reference_models") or () if isinstance(slot, Mapping)]
    own = {"provider": "auto", "model": host().config.settings.model.default}
    defaults = {
        "enabled": True,
        "aggregator": own,
        "reference_temperature": None,
        "aggregator_temperature": None,
        "max_tokens": 4096,
        "reference_max_tokens": None,
        "fanout": "per_iteration",
    }
    return {**defaults, **found, "reference_models": advisors or [own]}


def ask_advisors(
    reference_models: Sequence[Mapping[str, Any]],
    ref_messages: Sequence[Mapping[str, Any]],
    *,
    temperature: float | None = None,
    max_tokens: int | None = None,
) -> list[tuple[str, str, CanonicalUsage]]:
    """Ask several models at once; return the label, answer and usage of each, in their order.

    A label is `provider:model`.

    A model that cannot be asked answers `[failed: …]`.
    """

    def ask(slot: Mapping[str, Any]) -> tuple[str, str, CanonicalUsage]:
        provider, model = str(slot.get("provider") or ""), str(slot.get("model") or "")
        label = f"{provider}:{model}"
        try:
            given = {"provider": provider, "model": model, "temperature": temperature, "max_tokens": max_tokens}
            answer = call_llm(messages=ref_messages, **given)
        except Exception as exc:  # noqa: BLE001 - one model's failure is its answer; the others count
            logger.warning("model %s cannot be asked for advice: %s", label, exc)
            return label, f"[failed: {exc}]", CanonicalUsage(request_count=0)
        return label, response_text(answer), normalize_usage(answer.get("usage"), provider=provider)

    slots = list(reference_models)
    if not slots:
        return []
    with ThreadPoolExecutor(min(MOST_ADVISORS, len(slots))) as pool:
        return list(pool.map(lambda slot: contextvars.copy_context().run(ask, slot), slots))
