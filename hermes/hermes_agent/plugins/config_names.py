"""Unknown names in the config: of providers, platforms, toolsets, tools, plugins.

One function for `hermes config check` and `set`, `hermes doctor`, a start and the Nix gate. It needs a host whose
plugins are loaded, since many names are known only by what plugins registered; `certain_names` answers without one
where no plugin has to be asked.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from hermes_agent.config.schema import (
    PLATFORM,
    PLUGIN,
    PROVIDER,
    TOOL,
    TOOLSET,
    KeyPath,
    find_names,
    find_value,
    merge,
    render_path,
)
from hermes_agent.config.yaml_document import ConfigFinding, FindingLevel
from hermes_agent.contracts.context_engine import DEFAULT_ENGINE
from hermes_agent.contracts.speech import BUILTIN_STT, BUILTIN_TTS
from hermes_agent.contracts.terminal_env import BUILTIN_BACKENDS
from hermes_agent.core.text import nearest_name
from hermes_agent.plugins.activation import enable_hint
from hermes_agent.plugins.config_schema import (
    brings_memory,
    is_front_end,
    is_loaded_when_named,
    locate_finding,
    merged_layers,
    unknown_plugin_findings,
)
from hermes_agent.plugins.discovery import BUNDLED, Discovery, bundled_memories, is_on
from hermes_agent.plugins.host_services import HostServices

if TYPE_CHECKING:
    from hermes_agent.config.yaml_document import ConfigDocument
    from hermes_agent.plugins.plugin_record import LoadedPlugin
    from hermes_agent.tools.toolsets import Toolsets


class _Loaded(Protocol):
    """What a manager of plugins found and loaded."""

    found: Discovery

    @property
    def records(self) -> list[LoadedPlugin]: ...


class ConfigHost(HostServices, Protocol):
    """A host with its plugins loaded: the names that it knows."""

    @property
    def toolsets(self) -> Toolsets: ...
    @property
    def plugins(self) -> _Loaded: ...


class _KnownNames(NamedTuple):
    """What there is of one kind."""

    has: Callable[[str], bool]
    names: Callable[[], Iterable[str]]


def find_unknown_names(host: ConfigHost, values: Mapping[str, Any] | None = None) -> list[ConfigFinding]:
    """Return a finding for each name in the config that nothing answers to.

    It is an error; or a warning when it may be the name of something that an installed plugin brings which does not
    run.

    Args:
        host: with its plugins loaded.
        values: what is checked in place of what the files say; the findings then name no file.
    """
    if is_on(os.environ.get("HERMES_SAFE_MODE")):
        return []  # no plugin is looked for
    every = merged_layers(host.config.layers)
    whole = every if values is None else merge(every, dict(values))
    faults = _unknown_names(host, every if values is None else values, whole)
    found = (
        (path, ConfigFinding("", None, None, render_path(path), f"{render_path(path)}: {text}", level))
        for path, level, text in faults
    )
    return [
        finding if values is not None else locate_finding(host.config.layers, path, finding) for path, finding in found
    ]


def find_unknown_names_in_file(host: ConfigHost, document: ConfigDocument) -> list[ConfigFinding]:
    """Return the same for a file of another home: of what this one has not, only near misses are certain.

    Args:
        host: with its plugins loaded; its config says nothing about the file.
        document: a valid config.
    """
    if is_on(os.environ.get("HERMES_SAFE_MODE")):
        return []
    found: list[ConfigFinding] = []
    for path, level, text in _unknown_names(host, document.value, document.value):
        if level == "error" and "did you mean" not in text:
            level, text = "warning", f"{text}; a plugin that is not installed here may bring it"
        spot = document.position(path)
        line, column = (spot.line, spot.column) if spot else (None, None)
        found.append(
            ConfigFinding(document.name, line, column, render_path(path), f"{render_path(path)}: {text}", level)
        )
    return found


def find_missing_platform(host: ConfigHost, target: str) -> tuple[FindingLevel, str] | None:
    """Return what is to be said of a target `PLATFORM[:CHAT[:THREAD]]` whose platform there is not; None for others.

    Args:
        host: with its plugins loaded.
    """
    name = target.partition(":")[0]
    return _unknown_name(host, _known_names(host, host.config.values)[PLATFORM], PLATFORM, ("deliver",), name, {})


def find_platform_problem(host: ConfigHost, target: str) -> str:
    """Return why a target's platform cannot be; empty when it may."""
    fault = find_missing_platform(host, target)
    return fault[1] if fault is not None and fault[0] == "error" else ""


def _unknown_names(
    host: ConfigHost, values: Mapping[str, Any], whole: Mapping[str, Any]
) -> Iterator[tuple[KeyPath, FindingLevel, str]]:
    """Yield each name in `values` that nothing answers to. `whole`: the config that they are part of."""
    known, names = _known_names(host, whole), list(find_names(values))
    yield from unknown_plugin_findings(names, host.plugins.found)
    for path, kind, name in names:
        if kind != PLUGIN and (fault := _unknown_name(host, known[kind], kind, path, name, whole)):
            yield path, *fault


def _unknown_name(
    host: ConfigHost, known: _KnownNames, kind: str, path: KeyPath, name: str, whole: Mapping[str, Any]
) -> tuple[FindingLevel, str] | None:
    if _exists(known, kind, path, name, whole) or is_loaded_when_named(host.plugins.found, path, name):
        return None
    text = _text(known, kind, name) + _hint(host, name)
    doubt = _unloaded_candidates(host, text)
    return ("warning", text + doubt) if doubt else ("error", text)


def _exists(known: _KnownNames, kind: str, path: KeyPath, name: str, whole: Mapping[str, Any]) -> bool:
    if kind == PLATFORM:
        return known.has(name.partition(":")[0]) or is_front_end(path, name, whole)
    return known.has(name)


def _text(known: _KnownNames, kind: str, name: str) -> str:
    there = sorted(set(known.names()))
    near = nearest_name(name.partition(":")[0] if kind == PLATFORM else name, there)
    if near is not None:
        return f"there is no {kind} `{name}` (did you mean `{near}`?)"
    listed = f"; there are {', '.join(there)}" if 0 < len(there) <= MAX_LISTED else ""
    return f"there is no {kind} `{name}`{listed}"


def _unloaded_candidates(host: ConfigHost, text: str) -> str:
    """Return which plugins may have the name, of those whose names are not known since they do not run."""
    failed = [r.manifest.key for r in host.plugins.records if r.status in ("failed", "changed") or r.missing]
    if failed:
        more = f" or {len(failed) - MAX_CANDIDATES} more" if len(failed) > MAX_CANDIDATES else ""
        plugins = ", ".join(f"`{key}`" for key in failed[:MAX_CANDIDATES])
        return f"; it may be of plugin {plugins}{more}, which did not load"
    others = [r for r in host.plugins.records if r.manifest.source != BUNDLED and r.status == "not enabled"]
    explained = "did you mean" in text or "does not run" in text
    return "; a plugin that is not enabled may bring it (`hermes plugins list`)" if others and not explained else ""


def _hint(host: ConfigHost, name: str) -> str:
    """Return how to enable a plugin of this name that does not run; empty when there is none."""
    for record in host.plugins.records:
        manifest = record.manifest
        if record.status == "not enabled" and name in (*manifest.answers_to, manifest.folder):
            return f"; plugin `{manifest.key}` does not run: {enable_hint(manifest)}"
    return ""


MAX_CANDIDATES = 3
"""Plugins that a message names."""
MAX_LISTED = 12
"""Names that a message lists when none of them is near."""


def _known_names(host: ConfigHost, values: Mapping[str, Any]) -> dict[str, _KnownNames]:
    """Return what there is, by kind: of plugins, and in the blocks of a config."""
    tools, servers = host.tools, values.get("mcp_servers") or {}

    def registered(kind: str, *own: str, block: tuple[str, ...] = ()) -> _KnownNames:
        entries = find_value(values, block) if block else None
        names = {*own, *host.providers[kind].names(), *(entries if isinstance(entries, Mapping) else ())}
        return _KnownNames(names.__contains__, lambda: names)

    own = values.get("providers") or {}
    platforms, catalogue = host.platforms, host.model_providers
    return {
        PROVIDER: _KnownNames(
            lambda name: name.lower() == "auto" or name in own or catalogue.profile(name) is not None,
            lambda: [*catalogue.names(), *own],
        ),
        PLATFORM: _KnownNames(platforms.is_registered, platforms.names),
        TOOLSET: _KnownNames(
            lambda name: host.toolsets.exists(name) or name.removeprefix("mcp-") in servers,
            lambda: [*host.toolsets.names(), *servers],
        ),
        TOOL: _KnownNames(
            lambda name: tools.get(name) is not None or name.startswith("mcp_"), tools.get_all_tool_names
        ),
        "memory provider": _KnownNames(partial(_is_memory, host), partial(_memories, host)),
        "web provider": registered("web_search"),
        "TTS provider": registered("tts", *BUILTIN_TTS, block=("tts", "providers")),
        "transcription provider": registered("transcription", *BUILTIN_STT, block=("stt", "providers")),
        "image generation provider": registered("image_gen"),
        "context engine": registered("context_engine", DEFAULT_ENGINE),
        "cron scheduler": registered("cron_scheduler"),
        "terminal backend": registered("terminal_env", *BUILTIN_BACKENDS),
    }


def _is_memory(host: ConfigHost, name: str) -> bool:
    return name in host.providers["memory"].names() or brings_memory(host.plugins.found, host.home, name)


def _memories(host: ConfigHost) -> list[str]:
    manifests = host.plugins.found.plugins.values()
    return [*bundled_memories(), *(m.folder or m.name for m in manifests if m.kind == "exclusive")]
