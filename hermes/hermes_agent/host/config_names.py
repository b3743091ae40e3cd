"""Unknown names in the config: of providers, platforms, toolsets, tools, plugins.

One function for `hermes config check` and `set`, `hermes doctor`, a start and the Nix gate. It needs a host whose
plugins are loaded, since many names are known only by what plugins registered.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from hermes_agent.config.findings import Finding, Level
from hermes_agent.config.keypath import KeyPath, render
from hermes_agent.config.nearness import nearest
from hermes_agent.config.schema import MISSING
from hermes_agent.config.values import find, has_variable, merge
from hermes_agent.contracts.context_engine import DEFAULT_ENGINE
from hermes_agent.contracts.platform.names import Platform
from hermes_agent.contracts.terminal_env import BUILTIN_BACKENDS
from hermes_agent.contracts.transcription import BUILTIN_STT
from hermes_agent.contracts.tts import BUILTIN_TTS
from hermes_agent.plugins.config_schema import platform_name
from hermes_agent.plugins.discovery import BUNDLED, Discovery, is_on
from hermes_agent.plugins.gate import PluginSettings, enable_hint, unknown_names
from hermes_agent.plugins.memory_folder import add_memory_folder, bundled_memories

if TYPE_CHECKING:
    from hermes_agent.config.document import Document
    from hermes_agent.host.graph import Host

__all__ = ["Named", "has_names", "misnamed", "misnamed_elsewhere", "names_in", "no_platform", "platform_fault"]

ANY = "<name>"
ITEM = "[]"
"""In a pattern: every item of a list; of a mapping its `provider`."""
KEY = "<key>"
"""At the end of a pattern: the keys of the mapping are the names."""

PROVIDER, PLATFORM, TOOLSET, TOOL, PLUGIN = "model provider", "platform", "toolset", "tool", "plugin"

PATTERNS: dict[tuple[str, ...], str] = {
    ("model", "provider"): PROVIDER,
    ("fallback_providers", ITEM): PROVIDER,
    ("auxiliary", ANY, "provider"): PROVIDER,
    ("auxiliary", ANY, "fallback_chain", ITEM): PROVIDER,
    ("credential_pool_strategies", KEY): PROVIDER,
    ("memory", "provider"): "memory provider",
    ("web", "backend"): "web provider",
    ("web", "search_backend"): "web provider",
    ("web", "extract_backend"): "web provider",
    ("tts", "provider"): "TTS provider",
    ("stt", "provider"): "transcription provider",
    ("image_gen", "provider"): "image generation provider",
    ("context", "engine"): "context engine",
    ("cron", "provider"): "cron scheduler",
    ("terminal", "backend"): "terminal backend",
    ("toolsets", ITEM): TOOLSET,
    ("agent", "disabled_toolsets", ITEM): TOOLSET,
    ("platform_toolsets", ANY, ITEM): TOOLSET,
    ("webhooks", ANY, "toolsets", ITEM): TOOLSET,
    ("platform_toolsets", KEY): PLATFORM,
    ("platforms", KEY): PLATFORM,
    ("platform_hints", KEY): PLATFORM,
    ("skills", "platform_disabled", KEY): PLATFORM,
    ("webhooks", ANY, "deliver"): PLATFORM,
    ("people", ANY, ITEM): PLATFORM,
    ("plugins", "enabled", ITEM): PLUGIN,
    ("plugins", "disabled", ITEM): PLUGIN,
    ("plugins", "entries", KEY): PLUGIN,
    ("plugins", "allow_tool_override", ITEM): TOOL,
    ("tools", "tool_search", "pinned", ITEM): TOOL,
    ("security", "foreign_text", "tools", KEY): TOOL,
}
"""Where names stand in the config, and of what."""

OWN_MEMORY = ("default", "builtin", "built-in", "none")
"""Values of `memory.provider` for the agent's own memory alone."""
FRONT_ENDS = ("cli", "cron", "tui", "acp", "subagent", *(member.value for member in Platform))
"""Names that stand for a platform where tools and hints are concerned, without being one that is connected."""


class Named(NamedTuple):
    """A name that the config uses."""

    path: KeyPath
    kind: str
    name: str


class _Known(NamedTuple):
    """What there is of one kind."""

    has: Callable[[str], bool]
    names: Callable[[], Iterable[str]]


def has_names(path: KeyPath) -> bool:
    """Say whether a value at `path` may hold such names."""
    return any(all(p in (ANY, KEY, ITEM, q) for p, q in zip(pattern, path, strict=False)) for pattern in PATTERNS)


def names_in(values: Mapping[str, Any]) -> Iterator[Named]:
    """Yield every name; a text with a variable that is not set is none."""
    for pattern, kind in PATTERNS.items():
        for path, name in _at(values, pattern, ()):
            if isinstance(name, str) and name.strip() and not has_variable(name):
                yield Named(path, kind, name.strip())


def misnamed(host: Host, values: Mapping[str, Any] | None = None) -> list[Finding]:
    """Return a finding for each name in the config that nothing answers to.

    It is an error; or a warning when it may be the name of something that an installed plugin brings which does not
    run.

    Args:
        host: with its plugins loaded.
        values: what is checked in place of what the files say; the findings then name no file.
    """
    if is_on(os.environ.get("HERMES_SAFE_MODE")):
        return []  # no plugin is looked for
    written: dict[str, Any] = {}
    for layer in host.config.layers:
        written = merge(written, layer.values)
    whole = written if values is None else merge(written, dict(values))
    faults = _faults(host, written if values is None else values, whole)
    found = (
        (path, Finding("", None, None, render(path), f"{render(path)}: {text}", level)) for path, level, text in faults
    )
    return [finding if values is not None else _placed(host, path, finding) for path, finding in found]


def misnamed_elsewhere(host: Host, document: Document) -> list[Finding]:
    """Return the same for a file of another home: of what this one has not, only near misses are certain.

    Args:
        host: with its plugins loaded; its config says nothing about the file.
        document: a valid config.
    """
    if is_on(os.environ.get("HERMES_SAFE_MODE")):
        return []
    found: list[Finding] = []
    for path, level, text in _faults(host, document.value, document.value):
        if level == "error" and "did you mean" not in text:
            level, text = "warning", f"{text}; a plugin that is not installed here may bring it"
        spot = document.spot(path)
        line, column = (spot.line, spot.column) if spot else (None, None)
        found.append(Finding(document.name, line, column, render(path), f"{render(path)}: {text}", level))
    return found


def no_platform(host: Host, target: str) -> tuple[Level, str] | None:
    """Return what is to be said of a target `PLATFORM[:CHAT[:THREAD]]` whose platform there is not; None for others.

    Args:
        host: with its plugins loaded.
    """
    name = target.partition(":")[0]
    return _fault(host, _known(host, host.config.values)[PLATFORM], PLATFORM, ("deliver",), name, {})


def platform_fault(host: Host, target: str) -> str:
    """Return why a target's platform cannot be; empty when it may."""
    fault = no_platform(host, target)
    return fault[1] if fault is not None and fault[0] == "error" else ""


def _faults(host: Host, values: Mapping[str, Any], whole: Mapping[str, Any]) -> Iterator[tuple[KeyPath, Level, str]]:
    """Yield each name in `values` that nothing answers to. `whole`: the config that they are part of."""
    known = _known(host, whole)
    for path, kind, name in names_in(values):
        if kind == PLUGIN:
            text = next((unknown.text for unknown in unknown_names(PluginSettings((name,)), host.plugins.found)), "")
            text = text if path[1] == "enabled" else text.replace("; enable ", "; write ")
            if text:
                yield path, "error", text
        elif fault := _fault(host, known[kind], kind, path, name, whole):
            yield path, *fault


def _fault(
    host: Host, known: _Known, kind: str, path: KeyPath, name: str, whole: Mapping[str, Any]
) -> tuple[Level, str] | None:
    if _exists(known, kind, path, name, whole) or _is_brought(host, path, name):
        return None
    text = _text(known, kind, name) + _hint(host, name)
    doubt = _doubt(host, text)
    return ("warning", text + doubt) if doubt else ("error", text)


def _at(value: Any, pattern: tuple[str, ...], path: KeyPath) -> Iterator[tuple[KeyPath, Any]]:
    if not pattern:
        yield path, value
    elif pattern[0] == ITEM:
        for index, item in enumerate(value if isinstance(value, list) else ()):
            yield (*path, index), item.get("provider") if isinstance(item, Mapping) else item
    elif pattern[0] == KEY:
        for key in value if isinstance(value, Mapping) else ():
            yield (*path, key), key
    elif isinstance(value, Mapping):
        for key in value if pattern[0] == ANY else (pattern[0],):
            if key in value:
                yield from _at(value[key], pattern[1:], (*path, key))


def _exists(known: _Known, kind: str, path: KeyPath, name: str, written: Mapping[str, Any]) -> bool:
    if kind == PLATFORM:
        off = path[0] == "platforms" and find(written, (*path, "enabled")) is False
        connected = path[0] in ("platforms", "webhooks", "deliver")
        start = name.partition(":")[0]
        return off or known.has(start) or (not connected and start in FRONT_ENDS)
    return known.has(name)


def _is_brought(host: Host, path: KeyPath, name: str) -> bool:
    """Say whether a plugin is loaded as soon as the config names it there."""
    found = host.plugins.found.plugins.values()
    if path == ("model", "provider"):
        return any(PluginSettings(model_provider=name).brings_model(manifest) for manifest in found)
    if path == ("cron", "provider"):
        return any(PluginSettings(scheduler=name).brings_scheduler(manifest) for manifest in found)
    return path[0] == "platforms" and any(m.kind == "platform" and name == platform_name(m) for m in found)


def _text(known: _Known, kind: str, name: str) -> str:
    there = sorted(set(known.names()))
    near = nearest(name.partition(":")[0] if kind == PLATFORM else name, there)
    if near is not None:
        return f"there is no {kind} `{name}` (did you mean `{near}`?)"
    listed = f"; there are {', '.join(there)}" if 0 < len(there) <= MOST_LISTED else ""
    return f"there is no {kind} `{name}`{listed}"


def _doubt(host: Host, text: str) -> str:
    """Return which plugins may have the name, of those whose names are not known since they do not run."""
    failed = [r.manifest.key for r in host.plugins.records if r.status in ("failed", "changed") or r.missing]
    if failed:
        more = f" or {len(failed) - FEW} more" if len(failed) > FEW else ""
        return f"; it may be of plugin {', '.join(f'`{key}`' for key in failed[:FEW])}{more}, which did not load"
    others = [r for r in host.plugins.records if r.manifest.source != BUNDLED and r.status == "not enabled"]
    told = "did you mean" in text or "does not run" in text
    return "; a plugin that is not enabled may bring it (`hermes plugins list`)" if others and not told else ""


def _hint(host: Host, name: str) -> str:
    """Return how to enable a plugin of this name that does not run; empty when there is none."""
    for record in host.plugins.records:
        manifest = record.manifest
        if record.status == "not enabled" and name in (*manifest.answers_to, manifest.folder):
            return f"; plugin `{manifest.key}` does not run: {enable_hint(manifest)}"
    return ""


FEW = 3
"""Plugins that a message names."""
MOST_LISTED = 12
"""Names that a message lists when none of them is near."""


def _placed(host: Host, path: KeyPath, finding: Finding) -> Finding:
    """Return the finding with the file and line that decide."""
    for layer in reversed(host.config.layers):
        named = tuple(part for part in path if isinstance(part, str))
        if find(layer.values, named) is not MISSING:
            spot = layer.document.spot(path)
            line, column = (spot.line, spot.column) if spot else (None, None)
            return finding._replace(file=layer.document.name, line=line, column=column)
    return finding


def _known(host: Host, values: Mapping[str, Any]) -> dict[str, _Known]:
    """Return what there is, by kind: of plugins, and in the blocks of a config."""
    tools, servers = host.tools, values.get("mcp_servers") or {}

    def registered(kind: str, *own: str, block: tuple[str, ...] = ()) -> _Known:
        written = find(values, block) if block else None
        names = {*own, *host.providers[kind].names(), *(written if isinstance(written, Mapping) else ())}
        return _Known(names.__contains__, lambda: names)

    own = values.get("providers") or {}
    platforms, catalogue = host.platforms, host.model_providers
    return {
        PROVIDER: _Known(
            lambda name: name.lower() == "auto" or name in own or catalogue.profile(name) is not None,
            lambda: [*catalogue.names(), *own],
        ),
        PLATFORM: _Known(platforms.is_registered, platforms.names),
        TOOLSET: _Known(
            lambda name: host.toolsets.exists(name) or name.removeprefix("mcp-") in servers,
            lambda: [*host.toolsets.names(), *servers],
        ),
        TOOL: _Known(lambda name: tools.get(name) is not None or name.startswith("mcp_"), tools.get_all_tool_names),
        "memory provider": _Known(partial(_is_memory, host), partial(_memories, host)),
        "web provider": registered("web_search"),
        "TTS provider": registered("tts", *BUILTIN_TTS, block=("tts", "providers")),
        "transcription provider": registered("transcription", *BUILTIN_STT, block=("stt", "providers")),
        "image generation provider": registered("image_gen"),
        "context engine": registered("context_engine", DEFAULT_ENGINE),
        "cron scheduler": registered("cron_scheduler"),
        "terminal backend": registered("terminal_env", *BUILTIN_BACKENDS),
    }


def _is_memory(host: Host, name: str) -> bool:
    """Say whether there is a memory of this name, looking for it as a start does when `memory.provider` names it."""
    if name in OWN_MEMORY or name in host.providers["memory"].names():
        return True
    found = Discovery()
    found.plugins.update(host.plugins.found.plugins)
    add_memory_folder(found, host.home, name)
    return any(PluginSettings(memory=name).keeps_memory(manifest) for manifest in found.plugins.values())


def _memories(host: Host) -> list[str]:
    manifests = host.plugins.found.plugins.values()
    return [*bundled_memories(), *(m.folder or m.name for m in manifests if m.kind == "exclusive")]
