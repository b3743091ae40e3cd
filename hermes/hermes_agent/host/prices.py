"""Caps in dollars that cannot be kept since the price of a configured model is unknown: said at the start, and by
`hermes doctor`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from hermes_agent.agent.settings import PRICE_REMEDY, read_limits, unpriced_sentence
from hermes_agent.core.errors import UserError
from hermes_agent.models.selection import ModelSelection

if TYPE_CHECKING:
    from hermes_agent.host.graph import Host

__all__ = ["unpriced_model_warnings"]


def unpriced_model_warnings(host: Host) -> list[str]:
    """Return a sentence for each configured model without a known price that a cap in dollars would have to count."""
    limits = read_limits(host.config.get("limits"))
    key = next((f"limits.{name}" for name in ("session_usd", "job_usd", "day_usd") if getattr(limits, name)), "")
    if not key or not isinstance(limits.unknown_price, str):
        return []
    follows = "it is not asked" if limits.refuses_unpriced else "its calls are not counted"
    found: dict[tuple[str, str], str] = {}
    for use, selection in _selections(host):
        if not host.model_infos.is_priced(selection.endpoint, selection.model):
            why = unpriced_sentence(selection.model, selection.provider, key)
            found.setdefault((selection.provider, selection.model), f"{use}: {why}; {follows}. {PRICE_REMEDY}")
    return list(found.values())


def _selections(host: Host) -> Iterator[tuple[str, ModelSelection]]:
    """Yield the models that the config names, with the key that does; one that cannot be had is left out."""
    from hermes_agent.plugins.llm.asking import task_selection  # 20 ms that a start does not need
    from hermes_agent.plugins.llm.auxiliary import task_settings

    try:
        yield "model", host.select_model()
    except UserError:
        return  # no model is configured; each model request says so
    for selection in host.fallbacks():
        yield "fallback_providers", selection
    for task, block in (host.config.get("auxiliary") or {}).items():
        if isinstance(block, dict) and any(block.get(name) for name in ("model", "base_url")):
            try:
                yield f"auxiliary.{task}", task_selection(host, task_settings(host, task))
            except UserError:
                continue
