"""Config checks that need no host: options of plugins (`config_schema`) and names from manifests.

The options of a platform are keys of `platforms.<name>`; those of another plugin are keys of
`plugins.entries.<key>.settings` (or `.config`). A value that does not match is an error of `hermes config check` and
`set`; a start only logs a warning.

Names that tables of the agent and manifests decide are checked here as well. Most configs contain no others, and
building a host takes as long as the rest of `hermes config check`. Source: plugin contract of 0.23 §4.4.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hermes_agent.adapters.config import Platform, add_lookup
from hermes_agent.config.custom_providers import with_custom_providers
from hermes_agent.config.schema import (
    EVENT,
    MISSING,
    PERSONALITY,
    PLATFORM,
    PLUGIN,
    PROVIDER,
    SKIN,
    TASK,
    TOOL,
    TOOLSET,
    ConfigName,
    KeyPath,
    Node,
    extended,
    find_names,
    find_value,
    load_schema,
    merge,
    render_path,
    types,
)
from hermes_agent.config.validate import Violation, validate
from hermes_agent.config.yaml_document import ConfigFinding, FindingLevel
from hermes_agent.plugins.activation import PluginSettings, unknown_names
from hermes_agent.plugins.discovery import Discovery, add_memory_folder, is_on
from hermes_agent.plugins.manifest import PluginManifest

if TYPE_CHECKING:
    from hermes_agent.config.load import Config, Layer
    from hermes_agent.plugins.host_services import ConfigValues


SETTINGS_KEYS = ("settings", "config")
"""Keys of `plugins.entries.<key>` under which a plugin has its settings; the first key that is present counts."""

_WORDS = {"integer": "an integer", "number": "a number", "boolean": "true or false", "array": "a list"}
_AS_TEXT = {
    "integer": r"^\s*([+-]?\d+)?\s*$",
    "number": r"^\s*([+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?)?\s*$",
    "boolean": r"^\s*(?i:1|true|yes|on|0|false|no|off|)\s*$",
    "array": "",
}
"""Pattern of a text that stands for a value of the type: a variable (`${NAME}`) always yields text."""


def platform_name(manifest: PluginManifest) -> str:
    """Return the platform of a plugin of kind `platform`: its name without `-platform`, or its folder's."""
    name = manifest.name.removesuffix("-platform")
    return name if name != manifest.name and name else manifest.folder or manifest.name


class DeclaredPlatforms:
    """Names of the platforms that found plugins declare, for adapters that are not registered yet."""

    def __init__(self, manifests: Callable[[], Iterable[PluginManifest]]) -> None:
        self._manifests = manifests
        add_lookup(self)

    def is_registered(self, name: str) -> bool:
        """Return whether a found plugin of kind `platform` has that name."""
        return any(m.kind == "platform" and name in (platform_name(m), m.folder) for m in self._manifests())


def schema_with_options(manifests: Iterable[PluginManifest]) -> Node:
    """Return the whole schema of the config, including the options that these plugins declare."""
    schema: Node | None = None
    for manifest in manifests:
        if not manifest.config_schema:
            continue
        if manifest.kind == "platform":
            options = {key: _node(spec, texts=True) for key, spec in manifest.config_schema.items()}
            name = platform_name(manifest)
            schema = extended(("platforms", name), options, manifest.key, schema)
            bare = {key: {k: v for k, v in node.items() if k != "default"} for key, node in options.items()}
            schema = extended(("platforms", name, "extra"), bare, manifest.key, schema)
        else:
            options = {key: _node(spec) for key, spec in manifest.config_schema.items()}
            for called in manifest.answers_to:
                for key in SETTINGS_KEYS:
                    schema = extended(("plugins", "entries", called, key), options, manifest.key, schema)
    return load_schema() if schema is None else schema


def option_problems(
    config: ConfigValues, manifests: Iterable[PluginManifest], has_env: Callable[[str], bool]
) -> Iterator[str]:
    """Yield a sentence for each option with a missing value or one that does not match its declaration.

    Args:
        manifests: manifests of plugins that run.
        has_env: whether a variable has a value.
    """
    declaring = [manifest for manifest in manifests if manifest.config_schema]
    if not declaring:
        return
    schema = schema_with_options(declaring)
    for layer in config.layers:
        for violation in validate(layer.values, schema):
            if violation.path[0] == "plugins" and violation.kind == "type":
                yield _describe_option_violation(violation)
            else:
                from hermes_agent.config.validate import describe_violation  # needed only for a problem

                yield str(describe_violation(violation, layer.document, schema))
    entries = config.settings.plugins.entries
    for manifest in declaring:
        if manifest.kind != "platform":
            yield from _missing(manifest, entries, has_env)


def _describe_option_violation(violation: Violation) -> str:
    given = type(violation.value).__name__
    return f"{render_path(violation.path)} should be {types(violation.node)[0]} (got {given})"


def _missing(
    manifest: PluginManifest, entries: Mapping[str, Mapping[str, Any]], has_env: Callable[[str], bool]
) -> Iterator[str]:
    called = next((name for name in manifest.answers_to if entries.get(name)), manifest.key)
    entry = entries.get(called) or {}
    under = next((key for key in SETTINGS_KEYS if isinstance(entry.get(key), Mapping)), SETTINGS_KEYS[0])
    settings = entry.get(under) or {}
    for key, spec in manifest.config_schema.items():
        path: KeyPath = ("plugins", "entries", called, under, key)
        stored = spec.get("secret") and has_env(_variable(manifest, key, spec))
        if spec.get("required") and settings.get(key) is None and "default" not in spec and not stored:
            yield f"{render_path(path)} is required by the plugin's config_schema but is not set"


def _variable(manifest: PluginManifest, key: str, spec: Mapping[str, Any]) -> str:
    """Return the name of the variable that holds a secret option."""
    return str(spec.get("env") or re.sub(r"[^A-Za-z0-9]+", "_", f"{manifest.key}_{key}").upper())


def _node(spec: Mapping[str, Any], *, texts: bool = False) -> Node:
    """Return the config schema of one option.

    Args:
        spec: the declaration, as read by `manifest`.
        texts: accept a text that can be parsed as a value of the type.
    """
    kind = spec.get("type", "")
    node: dict[str, Any] = {"description": _sentence(spec)}
    if kind == "string":
        node["type"] = ["string", "null"]
        node["x-what"] = "text"
    elif kind == "object":
        node.update({"type": ["object", "null"], "additionalProperties": True, "x-what": "a mapping"})
    elif kind:
        node.update({"type": [kind, "string", "null"] if texts else [kind, "null"], "x-what": _WORDS[kind]})
        if texts and _AS_TEXT[kind]:
            node["pattern"] = _AS_TEXT[kind]
    if spec.get("choices"):
        node["enum"] = [*spec["choices"], "", None]
    if spec.get("secret"):
        node["x-secret"] = True
    if "default" in spec:
        node["default"] = spec["default"]
    return node


def _sentence(spec: Mapping[str, Any]) -> str:
    text = str(spec.get("description") or spec.get("label") or "An option of the plugin").strip()
    variable = f" (variable `{spec['env']}`)" if spec.get("env") else ""
    return f"{text.rstrip('.')}{variable}."


BUILTIN_MEMORIES = ("default", "builtin", "built-in", "none")
"""Values of `memory.provider` for the built-in memory alone."""
FRONT_ENDS = ("cli", "cron", "tui", "acp", "subagent", *(member.value for member in Platform))
"""Names that settings of tools and hints accept as platforms although no adapter connects to them."""
BUILTIN_SKINS = ("dark", "light", "high-contrast", "none", "default")
"""Values of `display.skin` that need no file."""
BUILTIN_PERSONALITIES = ("concise", "technical", "teacher", "creative", "none", "default", "off")
"""Values of `display.personality` that need no entry of `personalities`."""
UPSTREAM_NAMES: Mapping[str, tuple[str, ...]] = {
    SKIN: ("ares", "mono", "slate", "daylight", "warm-lightmode", "poseidon", "sisyphus", "charizard"),
    PERSONALITY: (
        *("helpful", "kawaii", "catgirl", "pirate", "shakespeare"),
        *("surfer", "noir", "uwu", "philosopher", "hype"),
    ),
}
"""Names of upstream that are not here, by kind: its configs have them, and they have no effect."""
BUILT_BY_HOST = (("network",), ("security", "website_blocklist"))
"""Settings with entries that only a host reads, in which errors must be found, too."""


def find_certain_unknown_names(
    config: Config, found: Discovery, values: Mapping[str, Any] | None = None
) -> list[ConfigFinding] | None:
    """Return the findings of `find_unknown_names` for this config, or None if only a host can decide.

    Args:
        found: the plugins of the home, with the memory that the config names.
        values: checked instead of the content of the files; the findings then name no file.
    """
    if is_on(os.environ.get("HERMES_SAFE_MODE")):
        return []  # plugins are switched off
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
    """Return the merged values of the config files of a home."""
    every: dict[str, Any] = {}
    for layer in layers:
        every = merge(every, layer.values)
    return every


def unknown_plugin_findings(
    names: Sequence[ConfigName], found: Discovery
) -> Iterator[tuple[KeyPath, FindingLevel, str]]:
    """Yield each plugin name that matches no plugin, with level and text of the finding."""
    folders = {manifest.folder for manifest in found.plugins.values()}
    of_platform = {each.path for each in names if each.path[0] == "platforms" and each.name in folders}
    meant = [each for each in names if each.kind == PLUGIN and each.path not in of_platform]
    unknown = unknown_names(PluginSettings(tuple(each.name for each in meant)), found)
    texts = {each.name: each.text for each in unknown}
    for path, _, name in meant:
        if text := texts.get(name, ""):
            yield path, "error", text if path[1] == "enabled" else text.replace("; enable ", "; write ")


def skin_names(home: Path) -> set[str]:
    """Return the values of `display.skin` that a home has: themes, and the names of `skins/*.yaml`."""
    from hermes_agent.config.bounded_yaml import YamlRejected, read_yaml  # few homes have such files

    found = set(BUILTIN_SKINS)
    for file in (home / "skins").glob("*.yaml"):
        try:
            found.add(str(read_yaml(str(file), ("name",)).values.get("name") or file.stem))
        except (OSError, YamlRejected, UnicodeDecodeError):
            continue  # the console names it, and does not use it
    return found


def personality_names(values: Mapping[str, Any]) -> list[str]:
    """Return the values of `display.personality` that a config has; their case does not matter."""
    own = values.get("personalities")
    texts = own.items() if isinstance(own, Mapping) else ()
    return [*BUILTIN_PERSONALITIES, *(str(name) for name, text in texts if text)]


def task_names(values: Mapping[str, Any]) -> set[str]:
    """Return the tasks that a rule of `model.routes` can name, without those that plugins register."""
    own = load_schema()["properties"]["auxiliary"]["properties"]
    configured = values.get("auxiliary")
    return {
        *("conversation", "job"),
        *(name for name, node in own.items() if "$ref" in node),
        *(configured if isinstance(configured, Mapping) else ()),
    }


def event_names() -> set[str]:
    """Return the keys of `hooks`: events that a program may answer, and other blocks."""
    from hermes_agent.hooks.catalog import HOOKS  # few homes have hooks
    from hermes_agent.hooks.shell_hooks import OTHER_KEYS, REFUSED

    return {*HOOKS, *OTHER_KEYS} - REFUSED


def is_of_program(named: ConfigName, whole: Mapping[str, Any], home: Path) -> bool:
    """Return whether the name is of a kind that the program and the home have by themselves, and is known."""
    kind, name = named.kind, named.name
    return (
        (kind == TASK and name in task_names(whole))
        or (kind == EVENT and name in event_names())
        or (kind == SKIN and name in skin_names(home))
        or (kind == PERSONALITY and name.lower() in map(str.lower, personality_names(whole)))
    )


def is_loaded_when_named(found: Discovery, path: KeyPath, name: str) -> bool:
    """Return whether a plugin is loaded as soon as the config names it in this place."""
    manifests = found.plugins.values()
    if path == ("model", "provider"):
        return any(PluginSettings(model_provider=name).selects_model(manifest) for manifest in manifests)
    if path == ("cron", "provider"):
        return any(PluginSettings(scheduler=name).selects_scheduler(manifest) for manifest in manifests)
    return path[0] == "platforms" and any(m.kind == "platform" and name == platform_name(m) for m in manifests)


def is_front_end(path: KeyPath, name: str, whole: Mapping[str, Any]) -> bool:
    """Return whether a name in the place of a platform needs no connected platform.

    Args:
        whole: the config that contains the name.
    """
    if path[0] == "platforms":
        return find_value(whole, (*path, "enabled")) is False
    return path[0] not in ("webhooks", "deliver") and name.partition(":")[0] in FRONT_ENDS


def brings_memory(found: Discovery, home: Path, name: str) -> bool:
    """Return whether there is a memory of this name, as a start with that `memory.provider` would find it."""
    if name in BUILTIN_MEMORIES:
        return True
    every = Discovery()
    every.plugins.update(found.plugins)
    add_memory_folder(every, home, name)
    return any(PluginSettings(memory=name).selects_memory(manifest) for manifest in every.plugins.values())


def locate_finding(layers: Iterable[Layer], path: KeyPath, finding: ConfigFinding) -> ConfigFinding:
    """Return the finding with the file and line that set the value."""
    named = tuple(takewhile(lambda part: isinstance(part, str), path))  # a layer sets a list as a whole
    for layer in reversed(tuple(layers)):
        if find_value(layer.values, named) is not MISSING:
            spot = layer.document.position(path)
            line, column = (spot.line, spot.column) if spot else (None, None)
            return finding._replace(file=layer.document.name, line=line, column=column)
    return finding


def _is_certain(named: ConfigName, whole: Mapping[str, Any], found: Discovery, home: Path) -> bool:
    """Return whether the name is known regardless of what plugins register."""
    path, kind, name = named
    if is_loaded_when_named(found, path, name):
        return True
    servers = whole.get("mcp_servers") or {}
    own = with_custom_providers(dict(whole)).get("providers") or {}
    match kind:
        case _ if kind == PROVIDER:
            from hermes_agent.models.bundled import (
                BUNDLED_ORDER,
            )  # loads dataclasses, only when needed

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
        case "approval transport":
            from hermes_agent.policy.approval_transport import BUILTIN_TRANSPORT  # as above

            return name.lower() == BUILTIN_TRANSPORT
    return is_of_program(named, whole, home)
