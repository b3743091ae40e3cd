"""Import names of loaded plugins below upstream's package `plugins`: `plugins.<category>.<name>`.

Plugins that were written as bundled ones of upstream import their own modules by that name. It leads to the folder of
the plugin, wherever it lies, and to the modules that its loader made: a class exists once. A plugin that is not loaded
is not imported, nor is a file outside the folders of plugins: the operator granted neither. Upstream's own helpers of a
category are in `served.txt`.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Iterator
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

from hermes_agent.compat.agent import host_or_none
from hermes_agent.plugins.loader import PARENT
from hermes_agent.plugins.manager import PluginManager

CATEGORIES = frozenset(
    {
        *("browser", "context_engine", "cron_providers", "dashboard_auth", "image_gen", "memory", "model_providers"),
        *("observability", "platforms", "video_gen", "web"),
    }
)
"""Upstream's categories of bundled plugins, as import names."""


class _Alias:
    """Loader of a name for a module that exists under another name."""

    def __init__(self, real: str) -> None:
        self._real = real

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """Return the module itself."""
        module = importlib.import_module(self._real)
        self._spec = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Restore the module's own spec, which the import replaced."""
        module.__spec__ = self._spec


def find_plugin_module(fullname: str) -> ModuleSpec | None:
    """Return the spec of a module below `plugins`, or None if no loaded plugin has it."""
    manager = host_or_none(lambda host: host.plugins)
    if manager is None:
        return None
    first, *rest = fullname.split(".")[1:]
    real = _root(manager, first, "")
    if real is None and rest:
        real, rest = _root(manager, rest[0], first), rest[1:]
    if real is not None:
        return _alias(fullname, ".".join([real, *rest]))
    if fullname.count(".") == 1 and first in _categories(manager):
        return ModuleSpec(fullname, None, is_package=True)  # an empty package
    return None


def _alias(fullname: str, real: str) -> ModuleSpec | None:
    try:
        spec = importlib.util.find_spec(real)
    except ModuleNotFoundError:
        spec = None
    module = sys.modules.get(real)
    if spec is None and module is None:
        return None
    return ModuleSpec(fullname, _Alias(real), is_package=hasattr(module, "__path__") or _is_package(spec))  # type: ignore[arg-type]


def _is_package(spec: ModuleSpec | None) -> bool:
    return spec is not None and spec.submodule_search_locations is not None


def _root(manager: PluginManager, name: str, category: str) -> str | None:
    """Return the module of the loaded plugin in a folder of that name; one of the category first.

    An adapter that is installed below its own name, `<service>-platform`, also has that of upstream's folder.
    """
    found = []
    for record in manager.suspects:
        folder = Path(record.manifest.path)
        names = {folder.name.replace("-", "_")}
        if category == "platforms":
            names.add(record.manifest.name.removesuffix("-platform").replace("-", "_"))
        if record.manifest.source == "entrypoint" or name not in names:
            continue
        made = [each for each, module in _plugin_roots() if module.__path__ == [str(folder)]]
        if made:
            found.append((folder.parent.name.replace("-", "_") == category, made[-1]))
    return max(found, key=lambda each: each[0])[1] if found else None


def _plugin_roots() -> Iterator[tuple[str, ModuleType]]:
    """Yield the root module of each version of each plugin, with its name."""
    for name, module in list(sys.modules.items()):
        if name.startswith(f"{PARENT}.") and name.count(".") == 1 and hasattr(module, "__path__"):
            yield name, module


def _categories(manager: PluginManager) -> frozenset[str]:
    """Return the import names of upstream's categories, and of those in which loaded plugins lie."""
    keys = [record.manifest.key for record in manager.suspects if record.manifest.source != "entrypoint"]
    return CATEGORIES | {key.partition("/")[0].replace("-", "_") for key in keys if "/" in key}
