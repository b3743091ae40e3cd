"""Unknown names in the config: providers, platforms, toolsets, tools, plugins.

`hermes config check` and `set`, `hermes doctor`, the start of a host and the Nix gate use these functions. They need a
host with loaded plugins, since many names are known only from registrations. `config_schema` decides the names for
which no plugin has to run.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache, partial
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from hermes_agent.agent.quick_commands import QuickCommands
from hermes_agent.commands import normalise_name
from hermes_agent.config.custom_providers import with_custom_providers
from hermes_agent.config.schema import (
    COMMAND,
    EVENT,
    PERSONALITY,
    PLATFORM,
    PLUGIN,
    PROVIDER,
    SKILL,
    SKIN,
    TASK,
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
from hermes_agent.core.lazy_types import LazyNamedTuple
from hermes_agent.core.text import nearest_name
from hermes_agent.models.api_modes import API_MODE_ALIASES, API_MODES
from hermes_agent.plugins.activation import enable_hint
from hermes_agent.plugins.config_schema import (
    UPSTREAM_NAMES,
    brings_memory,
    event_names,
    is_front_end,
    is_loaded_when_named,
    locate_finding,
    merged_layers,
    personality_names,
    skin_names,
    task_names,
    unknown_plugin_findings,
)
from hermes_agent.plugins.discovery import BUNDLED, Discovery, bundled_memories, is_on
from hermes_agent.plugins.host_services import HostServices
from hermes_agent.policy.approval_transport import BUILTIN_TRANSPORT
from hermes_agent.skills.library import SkillLibrary
from hermes_agent.skills.skill_commands import SkillCommands

if TYPE_CHECKING:
    from hermes_agent.config.yaml_document import ConfigDocument
    from hermes_agent.plugins.plugin_record import LoadedPlugin
    from hermes_agent.tools.toolsets import Toolsets


T = TypeVar("T")


class _Loaded(Protocol):
    """The plugins that a manager found and loaded."""

    found: Discovery

    @property
    def records(self) -> list[LoadedPlugin]: ...


class ConfigHost(HostServices, Protocol):
    """A host with loaded plugins, which knows the names."""

    @property
    def toolsets(self) -> Toolsets: ...
    @property
    def plugins(self) -> _Loaded: ...
    def service(self, kind: type[T]) -> T:
        """Return the service of a class that a built-in feature provides."""
        ...


class _KnownNames(LazyNamedTuple):
    """The known names of one kind."""

    has: Callable[[str], bool]
    names: Callable[[], Iterable[str]]


def find_unknown_names(host: ConfigHost, values: Mapping[str, Any] | None = None) -> list[ConfigFinding]:
    """Return a finding for each unknown name in the config.

    A finding is an error, or a warning if an installed plugin that does not run may provide the name.

    Args:
        host: a host with loaded plugins.
        values: checked instead of the content of the files; the findings then name no file.
    """
    if is_on(os.environ.get("HERMES_SAFE_MODE")):
        return []  # plugins are switched off
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
    """Return the findings for a config file of another home; only near misses are certain errors there.

    Args:
        host: a host with loaded plugins; its config does not apply to the file.
        document: a valid config.
    """
    if is_on(os.environ.get("HERMES_SAFE_MODE")):
        return []
    found: list[ConfigFinding] = []
    for path, level, text in _unknown_names(host, document.value, document.value):
        is_decided = path[0] == "hooks" or path == ("display", "personality") or "did you mean" in text
        if level == "error" and not is_decided:
            owner = "a file of that home" if path == ("display", "skin") else "a plugin that is not installed here"
            level, text = "warning", f"{text}; {owner} may bring it"
        spot = document.position(path)
        line, column = (spot.line, spot.column) if spot else (None, None)
        found.append(
            ConfigFinding(document.name, line, column, render_path(path), f"{render_path(path)}: {text}", level)
        )
    return found


def find_missing_platform(host: ConfigHost, target: str) -> tuple[FindingLevel, str] | None:
    """Return level and text of a problem with the platform of `PLATFORM[:CHAT[:THREAD]]`, or None.

    Args:
        host: a host with loaded plugins.
    """
    name = target.partition(":")[0]
    return _unknown_name(host, _known_names(host, host.config.values)[PLATFORM], PLATFORM, ("deliver",), name, {})


def find_platform_problem(host: ConfigHost, target: str) -> str:
    """Return why the platform of a target cannot exist, or "" if it may exist."""
    fault = find_missing_platform(host, target)
    return fault[1] if fault is not None and fault[0] == "error" else ""


def _unknown_names(
    host: ConfigHost, values: Mapping[str, Any], whole: Mapping[str, Any]
) -> Iterator[tuple[KeyPath, FindingLevel, str]]:
    """Yield each unknown name in `values`, which are part of the config `whole`."""
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
    if name.lower() in UPSTREAM_NAMES.get(kind, ()):
        return "warning", f"`{name}` is a {kind} of upstream's program, which is not here: no effect"
    text = _text(known, kind, name)
    if kind in (EVENT, SKIN, PERSONALITY):  # no plugin brings one
        return "error", text
    if kind == SKILL:  # skills of a home come and go
        return "warning", text
    text += _hint(host, name)
    doubt = _unloaded_candidates(host, text)
    return ("warning", text + doubt) if doubt else ("error", text)


def _exists(known: _KnownNames, kind: str, path: KeyPath, name: str, whole: Mapping[str, Any]) -> bool:
    if kind == PLATFORM:
        return known.has(name.partition(":")[0]) or is_front_end(path, name, whole)
    if kind == COMMAND and (find_value(whole, path[:-1]) or {}).get("type") != "alias":
        return True  # nothing reads it
    return known.has(name)


def _text(known: _KnownNames, kind: str, name: str) -> str:
    there = sorted(set(known.names()))
    near = nearest_name(name.partition(":")[0] if kind == PLATFORM else name, there)
    if near is not None:
        return f"there is no {kind} `{name}` (did you mean `{near}`?)"
    listed = f"; there are {', '.join(there)}" if 0 < len(there) <= MAX_LISTED else ""
    return f"there is no {kind} `{name}`{listed}"


def _unloaded_candidates(host: ConfigHost, text: str) -> str:
    """Return which plugins that do not run, and have unknown registrations, may provide the name."""
    failed = [r.manifest.key for r in host.plugins.records if r.status in ("failed", "changed") or r.missing]
    if failed:
        more = f" or {len(failed) - MAX_CANDIDATES} more" if len(failed) > MAX_CANDIDATES else ""
        plugins = ", ".join(f"`{key}`" for key in failed[:MAX_CANDIDATES])
        return f"; it may be of plugin {plugins}{more}, which did not load"
    others = [r for r in host.plugins.records if r.manifest.source != BUNDLED and r.status == "not enabled"]
    explained = "did you mean" in text or "does not run" in text
    return "; a plugin that is not enabled may bring it (`hermes plugins list`)" if others and not explained else ""


def _hint(host: ConfigHost, name: str) -> str:
    """Return how to enable a plugin of this name that does not run, or "" if there is none."""
    for record in host.plugins.records:
        manifest = record.manifest
        if record.status == "not enabled" and name in (*manifest.answers_to, manifest.folder):
            return f"; plugin `{manifest.key}` does not run: {enable_hint(manifest)}"
    return ""


MAX_CANDIDATES = 3
"""Number of plugins that a message names."""
MAX_LISTED = 12
"""Number of names that a message lists if none of them is similar."""


def _known_names(host: ConfigHost, values: Mapping[str, Any]) -> dict[str, _KnownNames]:
    """Return the names that plugins registered and that blocks of the config define, by kind."""
    tools, servers = host.tools, values.get("mcp_servers") or {}

    def registered(kind: str, *own: str, block: tuple[str, ...] = ()) -> _KnownNames:
        entries = find_value(values, block) if block else None
        names = {*own, *host.providers[kind].names(), *(entries if isinstance(entries, Mapping) else ())}
        return _KnownNames(names.__contains__, lambda: names)

    own = with_custom_providers(dict(values)).get("providers") or {}
    platforms, catalogue = host.platforms, host.model_providers
    tasks, personalities = {*task_names(values), *host.auxiliary_tasks.names()}, personality_names(values)
    skills = cache(partial(_skills, host))
    transports = [BUILTIN_TRANSPORT, *host.extensions.approval_transports.names()]
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
        TASK: _KnownNames(tasks.__contains__, lambda: tasks),
        EVENT: _KnownNames(event_names().__contains__, event_names),
        SKIN: _KnownNames(lambda name: name in skin_names(host.home), partial(skin_names, host.home)),
        PERSONALITY: _KnownNames(lambda name: name.lower() in map(str.lower, personalities), lambda: personalities),
        SKILL: _KnownNames(lambda name: name in skills(), skills),
        COMMAND: _KnownNames(partial(_is_command, host, values), partial(_commands, host)),
        "wire protocol": _KnownNames({*API_MODES, *API_MODE_ALIASES}.__contains__, lambda: API_MODES),
        "secret source": registered("secret_source"),
        "memory provider": _KnownNames(partial(_is_memory, host), partial(_memories, host)),
        "web provider": registered("web_search"),
        "TTS provider": registered("tts", *BUILTIN_TTS, block=("tts", "providers")),
        "transcription provider": registered("transcription", *BUILTIN_STT, block=("stt", "providers")),
        "image generation provider": registered("image_gen"),
        "video generation provider": registered("video_gen"),
        "context engine": registered("context_engine", DEFAULT_ENGINE),
        "cron scheduler": registered("cron_scheduler"),
        "terminal backend": registered("terminal_env", *BUILTIN_BACKENDS),
        "approval transport": _KnownNames(lambda name: name.lower() in transports, lambda: transports),
    }


def _skills(host: ConfigHost) -> set[str]:
    return {name for skill in host.service(SkillLibrary).all_skills() for name in skill.setting_names}


def _is_command(host: ConfigHost, values: Mapping[str, Any], name: str) -> bool:
    """Return whether an alias may stand for the name: that of a command, a shell command or a skill."""
    key = normalise_name(name)
    if not {key, key.replace("_", "-")}.isdisjoint(_commands(host)):
        return True
    quick = QuickCommands(lambda: values, host.working_directory)
    if quick.find(name) is not None:
        return not quick.alias_target(name)
    return host.plugin_skills.get(name) is not None or name in host.service(SkillCommands).offered("")


def _commands(host: ConfigHost) -> set[str]:
    return {name for key, command in host.commands.items() for name in (key, *command.aliases)}


def _is_memory(host: ConfigHost, name: str) -> bool:
    return name in host.providers["memory"].names() or brings_memory(host.plugins.found, host.home, name)


def _memories(host: ConfigHost) -> list[str]:
    manifests = host.plugins.found.plugins.values()
    return [*bundled_memories(), *(m.folder or m.name for m in manifests if m.kind == "exclusive")]
