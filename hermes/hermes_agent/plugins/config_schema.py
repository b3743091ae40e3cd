"""`config_schema` of a manifest: the options that a plugin declares. Source: contract of 0.23 §4.4.

A platform's options are keys of `platforms.<name>`; those of another plugin are keys of
`plugins.entries.<key>.settings` (or `.config`). A value that does not fit is an error of `hermes config check` and
`set`; a start only warns.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from hermes_agent.config.keypath import KeyPath, render_path
from hermes_agent.config.schema import Node, extended, load_schema, types
from hermes_agent.config.validate import Violation, validate
from hermes_agent.plugins.manifest import PluginManifest

if TYPE_CHECKING:  # it brings the agent, which `hermes config` has no use for
    from hermes_agent.plugins.ground import ConfigValues

__all__ = ["option_problems", "platform_name", "schema_with_options"]

SETTINGS_KEYS = ("settings", "config")
"""Keys of `plugins.entries.<key>` under which a plugin keeps its settings; the first one that is there counts."""

_WORDS = {"integer": "an integer", "number": "a number", "boolean": "true or false", "array": "a list"}
_AS_TEXT = {
    "integer": r"^\s*([+-]?\d+)?\s*$",
    "number": r"^\s*([+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?)?\s*$",
    "boolean": r"^\s*(?i:1|true|yes|on|0|false|no|off|)\s*$",
    "array": "",
}
"""What a text must look like that stands for a value of the type: a variable (`${NAME}`) always gives text."""


def platform_name(manifest: PluginManifest) -> str:
    """Return the platform of a plugin of kind `platform`: its name without `-platform`, or that of its folder."""
    name = manifest.name.removesuffix("-platform")
    return name if name != manifest.name and name else manifest.folder or manifest.name


def schema_with_options(manifests: Iterable[PluginManifest]) -> Node:
    """Return the whole schema of the config with the options that these plugins declare."""
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
    """Yield a sentence for each value that is not what one of these plugins declares, and for each that is missing.

    Args:
        manifests: of plugins that run.
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
                from hermes_agent.config.explain import describe_violation  # only for something that is wrong

                yield str(describe_violation(violation, layer.document, schema))
    entries = config.values.get("plugins", {}).get("entries", {})
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
    """Return the variable that a secret option is kept in."""
    return str(spec.get("env") or re.sub(r"[^A-Za-z0-9]+", "_", f"{manifest.key}_{key}").upper())


def _node(spec: Mapping[str, Any], *, texts: bool = False) -> Node:
    """Return the schema of the config for one option.

    Args:
        spec: as `manifest` read it.
        texts: a text that reads as a value of the type is one.
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
