"""Context of a memory plugin: only `register_*`, and an error there does not stop the provider.

Upstream's memory loader passes a collector to a provider, not a full context, and plugins tell the two apart. Source:
plugin contract of 0.23 §3.2.
"""

from __future__ import annotations

import inspect
import logging
import re
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from hermes_agent.contracts.memory import MemoryProvider
from hermes_agent.core.lazy_types import LazyNamedTuple
from hermes_agent.plugins.activation import PluginSettings
from hermes_agent.plugins.context_registrations import PluginRegistrations
from hermes_agent.plugins.manifest import PluginManifest

logger = logging.getLogger(__name__)

_PROBE = re.compile(r"(?:hasattr|getattr)\(\s*\w+\s*,\s*[\"']register_memory_provider[\"']")
MAX_SOURCE_BYTES = 2**20


class MemoryCollector:
    """Argument of a memory plugin's `register(ctx)`, with the methods `register_*` only.

    Args:
        ctx: the context that receives the registrations.
    """

    def __init__(self, ctx: PluginRegistrations) -> None:
        self._ctx = ctx
        self._provider: Any = None

    def register_memory_provider(self, provider: Any) -> None:
        """Register the provider; the last one counts."""
        type(self._ctx).register_memory_provider(self._ctx, provider)  # a probed context hides its method
        self._provider = provider

    def __getattr__(self, name: str) -> Any:
        if name.startswith("register_") and hasattr(PluginRegistrations, name):
            return partial(self._forward, getattr(self._ctx, name))
        raise AttributeError(f"the context of a memory plugin has no {name!r}: it has register_* alone")

    def _forward(self, method: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        try:
            return method(*args, **kwargs)
        except Exception as exc:
            logger.warning(
                "memory plugin %s: %s() raised %s: %s",
                *(self._ctx.plugin_id, method.__name__, type(exc).__name__, exc),
                exc_info=True,
                extra={"plugin": self._ctx.plugin_id},
            )
            return None


class MemoryOnly(MemoryCollector):
    """A collector that takes the memory alone, for a plugin that has registered everything else."""

    def _forward(self, method: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        return None


class TwoContexts(LazyNamedTuple):
    """The contexts of a plugin that registers for each of upstream's two loaders what that one takes."""

    general: PluginRegistrations
    memory: MemoryOnly


def contexts_of(
    ctx: PluginRegistrations, settings: PluginSettings
) -> PluginRegistrations | MemoryCollector | TwoContexts:
    """Return what `register` is called with: the context, that of a memory, or both in turn."""
    manifest = ctx.manifest
    if manifest.kind == "exclusive":
        return MemoryCollector(ctx)
    if not settings.selects_memory(manifest):
        return ctx
    if not settings.enables(manifest):
        return MemoryCollector(ctx)
    return TwoContexts(ctx, MemoryOnly(ctx)) if probes_memory(manifest) else ctx


def register_memory_plugin(register: Callable[[Any], Any], loaded: Any, collector: MemoryCollector) -> None:
    """Call `register`; if that registers no provider, register the first provider class.

    Raises:
        Exception: `register` raised, and the plugin has neither.
    """
    try:
        register(collector)
    except Exception as exc:
        if not _ensure_provider(collector, loaded):
            raise
        logger.warning(
            "memory plugin %s: register() raised %s: %s; its provider is used all the same",
            *(collector._ctx.plugin_id, type(exc).__name__, exc),
            exc_info=True,
            extra={"plugin": collector._ctx.plugin_id},
        )
    else:
        _ensure_provider(collector, loaded)


def _ensure_provider(collector: MemoryCollector, loaded: Any) -> bool:
    """Register the first provider class if the plugin registered none; return whether it has one."""
    if collector._provider is None and (first := first_memory_provider(loaded)) is not None:
        collector.register_memory_provider(first)
    return collector._provider is not None


def first_memory_provider(loaded: Any) -> MemoryProvider | None:
    """Return an instance of the first provider class of a module or namespace, or None.

    Classes that cannot be instantiated are skipped.
    """
    for value in vars(loaded).values() if hasattr(loaded, "__dict__") else ():
        if inspect.isclass(value) and issubclass(value, MemoryProvider) and not inspect.isabstract(value):
            try:
                return value()
            except Exception as exc:  # noqa: BLE001 - a plugin's class; another one may work
                logger.debug("memory provider class %s cannot be instantiated: %r", value.__name__, exc)
    return None


def probes_memory(manifest: PluginManifest) -> bool:
    """Return whether the source checks for `register_memory_provider` to tell two loaders apart."""
    if manifest.source == "entrypoint":
        module = sys.modules.get(manifest.path.partition(":")[0].strip())
        file = getattr(module, "__file__", None)
        folder = Path(file).parent if file else None
        only = Path(file) if file and Path(file).name != "__init__.py" else None
    else:
        folder, only = Path(manifest.path), None
    if folder is None:
        return False
    for path in [only] if only is not None else sorted(folder.glob("*.py")):
        try:
            if path.stat().st_size <= MAX_SOURCE_BYTES and _PROBE.search(path.read_text("utf-8", "replace")):
                return True
        except OSError as exc:
            logger.debug("%s cannot be read: %s", path, exc)
    return False


class HiddenFromProbes:
    """Method of the general context that is hidden from plugins that use it to tell two loaders apart.

    In 0.19.0 the general context had no `register_memory_provider`, and such a plugin registers its tools only if the
    method is missing.
    """

    def __init__(self, method: Callable[..., Any]) -> None:
        self._method = method

    def __get__(self, instance: PluginRegistrations | None, owner: type | None = None) -> Any:
        """Return the method.

        Raises:
            AttributeError: the plugin of this context checks for the method.
        """
        if instance is None:
            return self._method
        if instance.manifest.kind != "exclusive" and probes_memory(instance.manifest):
            raise AttributeError("register_memory_provider")
        return self._method.__get__(instance)
