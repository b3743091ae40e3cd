"""Which of the providers that plugins bring does a thing here: as the configuration says now."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hermes_agent.agent.contexts import SelectedEngine
from hermes_agent.contracts.context_engine import CONTEXT_ENGINE, DEFAULT_ENGINE
from hermes_agent.contracts.memory import MEMORY
from hermes_agent.contracts.provider import SelectedProvider
from hermes_agent.contracts.web_search import WebSearchProvider, choose_web_search
from hermes_agent.memory.manager import SelectedMemory

if TYPE_CHECKING:
    from hermes_agent.host.graph import Host

__all__ = ["select_context_engine", "select_memory", "select_web_provider"]


def select_context_engine(host: Host) -> SelectedEngine:
    """Return who makes conversations fit, or why it is the agent's own compressor."""
    engines = host.providers[CONTEXT_ENGINE.name]
    engine, why = host.providers.choose(CONTEXT_ENGINE.name, host.config.values)
    if engine is not None:
        return SelectedEngine(engine, engines.owner(engine.name) or "")
    own = host.config.get("context.engine") in (DEFAULT_ENGINE, "", None)
    return SelectedEngine(notice="" if own else f"{why}.")


def select_memory(host: Host) -> SelectedMemory:
    """Return the memory beside the agent's own, or why there is none."""
    providers = host.providers[MEMORY.name]
    provider, why = host.providers.choose(MEMORY.name, host.config.values)
    if provider is None:
        return SelectedMemory(why=why if host.config.get("memory.provider") else "")
    others = tuple(name for name in providers.names() if providers.get(name) is not provider)
    return SelectedMemory(provider, providers.owner(provider.name) or "", others=others)


def select_web_provider(host: Host, extract: bool) -> SelectedProvider[WebSearchProvider]:
    """Return who searches the web, or, with `extract`, who reads its pages."""
    return choose_web_search(dict(host.providers["web_search"].items()), host.config.values, extract=extract)
