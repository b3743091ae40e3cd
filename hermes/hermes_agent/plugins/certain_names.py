"""Names in the config that are decided without a host: by tables of the agent and by manifests, no plugin being run.

Most configs have no others, and a host costs as much as all the rest of `hermes config check`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hermes_agent.config.findings import ConfigFinding, FindingLevel
from hermes_agent.config.keypath import KeyPath, render_path
from hermes_agent.config.names import PLATFORM, PLUGIN, PROVIDER, TOOL, TOOLSET, ConfigName, find_names
from hermes_agent.config.schema import MISSING
from hermes_agent.config.values import find_value, merge
from hermes_agent.contracts.platform.names import Platform
from hermes_agent.plugins.config_schema import platform_name
from hermes_agent.plugins.discovery import Discovery, is_on
from hermes_agent.plugins.gate import PluginSettings, unknown_names
from hermes_agent.plugins.memory_folder import add_memory_folder

if TYPE_CHECKING:
    from hermes_agent.config.load import Config, Layer

__all__ = [
    "brings_memory",
    "is_loaded_when_named",
    "is_front_end",
    "find_certain_unknown_names",
    "unknown_plugin_findings",
    "locate_finding",
    "merged_layers",
]

BUILTIN_MEMORIES = ("default", "builtin", "built-in", "none")
"""Values of `memory.provider` for the agent's own memory alone."""
FRONT_ENDS = ("cli", "cron", "tui", "acp", "subagent", *(member.value for member in Platform))
"""Names that stand for a platform where tools and hints are concerned, without being one that is connected."""
BUILT_BY_HOST = (("network",), ("security", "website_blocklist"))
"""Settings whose entries only a host reads: what is wrong with them is to be found, too."""


def find_certain_unknown_names(
    config: Config, found: Discovery, values: Mapping[str, Any] | None = None
) -> list[ConfigFinding] | None:
    """Return what `config_names.misnamed` returns of a host with this config; None: only a host can tell.

    Args:
        found: the plugins of the home, with the memory that the config names.
        values: what is checked in place of what the files say; the findings then name no file.
    """
    if is_on(os.environ.get("HERMES_SAFE_MODE")):
        return []  # no plugin is looked for
    every = merged_layers(config.layers)
    whole = every if values is None else merge(every, dict(values))
    if config.places.declared is not None or any(find_value(whole, path) is not MISSING for path in BUILT_BY_HOST):
        return None
    names = list(find_names(every if values is None else values))
    if not all(each.kind == PLUGIN or _is_certain(each, whole, found, config.path.parent) for each in names):
        return None
    faults = [
        (path, ConfigFinding("", None, None, render_path(path), f"{render_path(path)}: {text}", level))
        for path, level, text in unknown_plugin_findings(names, found)
    ]
    return [finding if values is not None else locate_finding(config.layers, path, finding) for path, finding in faults]


def merged_layers(layers: Iterable[Layer]) -> dict[str, Any]:
    """Return what the files of a home say together."""
    every: dict[str, Any] = {}
    for layer in layers:
        every = merge(every, layer.values)
    return every


def unknown_plugin_findings(
    names: Iterable[ConfigName], found: Discovery
) -> Iterator[tuple[KeyPath, FindingLevel, str]]:
    """Yield each name of a plugin that no plugin answers to, with what is to be said of it."""
    meant = [each for each in names if each.kind == PLUGIN]
    unknown = unknown_names(PluginSettings(tuple(each.name for each in meant)), found)
    texts = {each.name: each.text for each in unknown}
    for path, _, name in meant:
        if text := texts.get(name, ""):
            yield path, "error", text if path[1] == "enabled" else text.replace("; enable ", "; write ")


def is_loaded_when_named(found: Discovery, path: KeyPath, name: str) -> bool:
    """Say whether a plugin is loaded as soon as the config names it there."""
    manifests = found.plugins.values()
    if path == ("model", "provider"):
        return any(PluginSettings(model_provider=name).selects_model(manifest) for manifest in manifests)
    if path == ("cron", "provider"):
        return any(PluginSettings(scheduler=name).selects_scheduler(manifest) for manifest in manifests)
    return path[0] == "platforms" and any(m.kind == "platform" and name == platform_name(m) for m in manifests)


def is_front_end(path: KeyPath, name: str, whole: Mapping[str, Any]) -> bool:
    """Say whether a name where a platform is named needs none that is connected.

    Args:
        whole: the config that it is part of.
    """
    if path[0] == "platforms":
        return find_value(whole, (*path, "enabled")) is False
    return path[0] not in ("webhooks", "deliver") and name.partition(":")[0] in FRONT_ENDS


def brings_memory(found: Discovery, home: Path, name: str) -> bool:
    """Say whether there is a memory of this name, looking for it as a start does when `memory.provider` names it."""
    if name in BUILTIN_MEMORIES:
        return True
    every = Discovery()
    every.plugins.update(found.plugins)
    add_memory_folder(every, home, name)
    return any(PluginSettings(memory=name).selects_memory(manifest) for manifest in every.plugins.values())


def locate_finding(layers: Iterable[Layer], path: KeyPath, finding: ConfigFinding) -> ConfigFinding:
    """Return the finding with the file and line that decide."""
    named = tuple(part for part in path if isinstance(part, str))
    for layer in reversed(tuple(layers)):
        if find_value(layer.values, named) is not MISSING:
            spot = layer.document.position(path)
            line, column = (spot.line, spot.column) if spot else (None, None)
            return finding._replace(file=layer.document.name, line=line, column=column)
    return finding


def _is_certain(named: ConfigName, whole: Mapping[str, Any], found: Discovery, home: Path) -> bool:
    """Say whether something answers to the name, whatever plugins register."""
    path, kind, name = named
    if is_loaded_when_named(found, path, name):
        return True
    servers, own = whole.get("mcp_servers") or {}, whole.get("providers") or {}
    match kind:
        case _ if kind == PROVIDER:
            from hermes_agent.models.bundled import BUNDLED_ORDER  # dataclasses, for a config that names one

            return name.lower() == "auto" or name in own or name.lower() in BUNDLED_ORDER
        case _ if kind == PLATFORM:
            return is_front_end(path, name, whole)
        case _ if kind == TOOLSET:
            return name.removeprefix("mcp-") in servers
        case _ if kind == TOOL:
            return name.startswith("mcp_")
        case "memory provider":
            return brings_memory(found, home, name)
        case "terminal backend":
            from hermes_agent.contracts.terminal_env import BUILTIN_BACKENDS  # as above

            return name in BUILTIN_BACKENDS
    return False
