"""The schema of the config, paths of keys, and operations on values.

`schema.json` uses a subset of JSON Schema 2020-12 and these annotations:

    x-unit      unit of the number, in words
    x-effect    "used", or the sentence why the key has no effect in this release; holds for all keys below
    x-protects  of a key without effect that requests protection: a start "warn"s, or "refuse"s
    x-idle      values of a key without effect that request nothing, besides null and empty values
    x-secret    whether the value is a secret; without it the key's name decides
    x-renamed   the present name of the key, in the same mapping, which takes the value
    x-open      plugins keep keys of their own in this mapping
    x-what      what is expected, in words, if the type says too little
    x-text-is   a text in place of this mapping stands for the key named here
    x-false-is  YAML reads an unquoted `off` as false; this is the text that it stands for
    x-true-is   the same for `on` and true
    x-owner     the plugin that declares keys of this mapping
    x-absent    the mapping has no default: it exists only if the config has it

The last two stand only in what `extended` returns. A parameter `schema` is the whole schema, which may have options of
plugins; None is `schema.json`. A path is written `agent.max_turns` or `mcp_servers."my.server".args[0]`.

`PATTERNS` lists where names of providers, platforms, toolsets, tools and plugins stand in a config;
`plugins.config_names` reports unknown ones.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from hermes_agent.core.lazy_types import LazyNamedTuple

KeyPath = tuple[str | int, ...]
"""Names of keys of mappings and, for lists, indices from 0."""

_PART = re.compile(r'"([^"]*)"|\[(\d{1,6})\]|([^.\[\]"]+)')
_PLAIN = re.compile(r"[^.\[\]\"\s]+")


def parse_path(text: str) -> KeyPath:
    """Return the parts of a dotted path; a name with a dot stands in double quotes.

    Raises:
        ValueError: the text or a part of it is empty.
    """
    parts: list[str | int] = []
    at = 0
    while at < len(text):
        if parts and text[at] == ".":
            at += 1
        elif parts and text[at] != "[":
            break
        match = _PART.match(text, at)
        if match is None:
            break
        quoted, index, plain = match.groups()
        parts.append(int(index) if index is not None else plain if quoted is None else quoted)
        at = match.end()
        if at == len(text):
            return tuple(parts)
    raise ValueError(f"{text!r} is not the path of a key; write it like agent.max_turns")


def render_path(path: KeyPath) -> str:
    """Return the text that `parse_path` reads as this path."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            name = part if _PLAIN.fullmatch(part) else f'"{part}"'
            text += f".{name}" if text else name
    return text


Node = Mapping[str, Any]
"""One schema: a JSON object."""

OPEN: Final[Node] = {}
"""The schema of an undeclared key in a place where such keys are allowed."""
MISSING: Final = object()
"""Stands for an absent value."""
USED = "used"


RENAMED: Final[Mapping[KeyPath, str]] = {("model", "local", "idle_unload_s"): "idle_s"}
"""Present name of each former key; the schema has the same as `x-renamed`, and a start need not search it."""


def take_former_keys(values: dict[str, Any]) -> dict[str, Any]:
    """Return the values of a layer with those of former keys under their present names, which win."""
    for (*above, former), present in RENAMED.items():
        block: Any = values
        for part in above:
            block = block.get(part) if isinstance(block, Mapping) else None
        if isinstance(block, Mapping) and block.get(former) is not None and block.get(present) is None:
            values = merge(values, nested((*above, present), block[former]))
    return values


@functools.cache
def load_schema() -> dict[str, Any]:
    """Return the whole schema; callers must not change it."""
    loaded: dict[str, Any] = json.loads(Path(__file__).with_name("schema.json").read_bytes())
    return loaded


def resolve(node: Node) -> Node:
    """Return `node` with its `$ref` resolved; keywords next to the `$ref` count first."""
    target = node.get("$ref")
    if target is None:
        return node
    shared = load_schema()["$defs"][target.removeprefix("#/$defs/")]
    own = {key: value for key, value in node.items() if key != "$ref"}
    properties = {**shared.get("properties", {}), **own.get("properties", {})}
    return {**shared, **own, "properties": properties}


def types(node: Node) -> tuple[str, ...]:
    """Return the JSON types that `node` allows; none for `OPEN`."""
    kind = node.get("type", ())
    return (kind,) if isinstance(kind, str) else tuple(kind)


def child(node: Node, key: str | int) -> Node | None:
    """Return the schema of a key of a mapping or of an item of a list; None if it is not allowed."""
    if node is OPEN:
        return OPEN
    if isinstance(key, int):
        return resolve(node.get("items", OPEN)) if "array" in types(node) else None
    if "object" not in types(node):
        return None
    known = node.get("properties", {}).get(key)
    if known is not None:
        return resolve(known)
    other = node.get("additionalProperties", True)
    return resolve(other) if isinstance(other, dict) else OPEN if other else None


def extended(path: KeyPath, options: Mapping[str, Node], owner: str, schema: Node | None = None) -> Node:
    """Return a copy of the whole schema in which `owner` declares `options` in the mapping at `path`.

    A key that the mapping already declares keeps its schema.
    """
    whole = load_schema() if schema is None else schema
    return _with_options(whole, path, options, owner)


def _with_options(node: Node, path: KeyPath, options: Mapping[str, Node], owner: str) -> dict[str, Any]:
    node = resolve(node)
    declared: Mapping[str, Any] = node.get("properties", {})
    if not path:
        mapping = node or {"type": "object", "additionalProperties": True}
        both = {key: {**options[key], **resolve(declared[key])} for key in options.keys() & declared.keys()}
        return {
            **mapping,
            "properties": {**options, **declared, **both},
            "x-open": True,
            "x-owner": owner,
            "x-absent": True,
        }
    name = str(path[0])
    below = child(node, name) or OPEN
    inner = _with_options(below, path[1:], options, owner)
    if name not in declared:
        inner = {**inner, "x-absent": True}
    return {**node, "properties": {**declared, name: inner}}


def lookup(path: KeyPath, schema: Node | None = None) -> Node | None:
    """Return the schema at `path`: `OPEN` for a plugin's own key, None for a key that is not allowed."""
    node: Node | None = load_schema() if schema is None else schema
    for part in path:
        if node is None:
            return None
        node = child(node, part)
    return node


def effect(path: KeyPath) -> str:
    """Return `USED`, or the sentence why the key at `path` has no effect in this release."""
    node: Node | None = load_schema()
    sentence = USED
    for part in path:
        node = child(node, part) if node is not None else None
        sentence = (node or {}).get("x-effect", sentence)
    return sentence


def is_secret(path: KeyPath, schema: Node | None = None) -> bool:
    """Return whether a value at `path` is never shown, by the schema or by a name in the path."""
    from hermes_agent.core.secrecy import looks_like_secret_name  # only where values are shown

    node: Node | None = load_schema() if schema is None else schema
    secret = False
    for part in path:
        node = child(node, part) if node is not None else None
        declared = (node or {}).get("x-secret")
        if declared is not None:
            secret = bool(declared)
        elif not (node and "description" in node) and isinstance(part, str):
            secret = secret or looks_like_secret_name(part)
    return secret


def default(node: Node) -> Any:
    """Return the default of `node`, for a mapping from its keys; `MISSING` if there is none."""
    if "x-absent" in node:
        return MISSING
    if "default" in node:
        value = node["default"]
        return list(value) if isinstance(value, list) else dict(value) if isinstance(value, dict) else value
    if "object" not in types(node) or "properties" not in node:
        return {} if types(node) == ("object",) else MISSING
    filled = {key: default(resolve(sub)) for key, sub in node["properties"].items()}
    return {key: value for key, value in filled.items() if value is not MISSING}


def leaves(node: Node | None = None, path: KeyPath = ()) -> list[tuple[KeyPath, Node]]:
    """Return every declared key that is not a mapping of declared keys; `<name>` stands for any name."""
    node = resolve(load_schema() if node is None else node)
    found: list[tuple[KeyPath, Node]] = []
    for key, sub in node.get("properties", {}).items():
        found += leaves(sub, (*path, key))
    other = node.get("additionalProperties")
    if isinstance(other, dict):
        found += leaves(other, (*path, "<name>"))
    return found or [(path, node)]


_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


def walk(value: Any, path: KeyPath = ()) -> Iterator[tuple[KeyPath, Any]]:
    """Yield every scalar and every empty mapping or list below `value`, with its path."""
    if isinstance(value, dict) and value:
        for key, item in value.items():
            yield from walk(item, (*path, key))
    elif isinstance(value, list) and value:
        for index, item in enumerate(value):
            yield from walk(item, (*path, index))
    else:
        yield path, value


def find_value(value: Any, path: KeyPath) -> Any:
    """Return the value at `path`, or `MISSING`."""
    for part in path:
        if isinstance(part, int):
            if not isinstance(value, list) or part >= len(value):
                return MISSING
        elif not isinstance(value, dict) or part not in value:
            return MISSING
        value = value[part]
    return value


def nested(path: KeyPath, value: Any) -> Any:
    """Return nested mappings with `value` at `path`."""
    for part in reversed(path):
        value = {part: value}
    return value


def merge(under: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    """Return both mappings merged key by key; any other value of `over` replaces that of `under`."""
    merged = dict(under)
    for key, value in over.items():
        below = merged.get(key)
        merged[key] = merge(below, value) if isinstance(below, dict) and isinstance(value, dict) else value
    return merged


def has_variable(text: object) -> bool:
    """Return whether a text contains a variable `${NAME}`."""
    return isinstance(text, str) and _VARIABLE.search(text) is not None


def variables(text: str) -> list[str]:
    """Return the names of the variables in a text."""
    return _VARIABLE.findall(text)


def expand(value: Any, look_up: Callable[[str], str | None]) -> Any:
    """Return `value` with `${NAME}` in texts replaced; an unset variable stays as written."""
    if isinstance(value, str):
        return _VARIABLE.sub(lambda m: m[0] if (v := look_up(m[1])) is None else v, value) if "${" in value else value
    if isinstance(value, dict):
        return {key: expand(item, look_up) for key, item in value.items()}
    if isinstance(value, list):
        return [expand(item, look_up) for item in value]
    return value


def expand_shorthand(value: Any, node: Node) -> Any:
    """Return the text that true or false stands for at this key, else the value itself."""
    return node.get("x-true-is" if value else "x-false-is", value) if isinstance(value, bool) else value


def normalise(value: Any, node: Node | None = None) -> Any:
    """Return a valid `value` with shorthands (`x-text-is`, …) expanded, and integers for 90.0."""
    node = resolve(load_schema() if node is None else node)
    if node is OPEN:
        return value
    if isinstance(value, bool):
        return expand_shorthand(value, node)
    if isinstance(value, str) and "x-text-is" in node:
        return {node["x-text-is"]: value}
    if isinstance(value, float) and "integer" in types(node) and "number" not in types(node):
        return int(value)
    if isinstance(value, dict):
        return {key: normalise(item, child(node, key) or OPEN) for key, item in value.items()}
    if isinstance(value, list):
        return [normalise(item, child(node, index) or OPEN) for index, item in enumerate(value)]
    return value


def fill_defaults(value: Any, node: Node | None = None) -> Any:
    """Return a normalised `value` with the defaults of all missing declared keys."""
    node = resolve(load_schema() if node is None else node)
    if not isinstance(value, dict) or node is OPEN:
        return value
    filled = {key: fill_defaults(item, child(node, key) or OPEN) for key, item in value.items()}
    for key, sub in node.get("properties", {}).items():
        if key not in filled and (given := default(resolve(sub))) is not MISSING:
            filled[key] = given
    return filled


ANY = "<name>"
ITEM = "[]"
"""In a pattern: every item of a list; at its end, of a mapping its `provider`."""
KEY = "<key>"
"""At the end of a pattern: the keys of the mapping are the names."""

PROVIDER, PLATFORM, TOOLSET, TOOL, PLUGIN = "model provider", "platform", "toolset", "tool", "plugin"
TASK, EVENT, SKIN, PERSONALITY = "task", "hook event", "skin", "personality"
SKILL, COMMAND = "skill", "command"
_ROUTE_PERSON = ("model", "routes", ITEM, "person")

PATTERNS: dict[tuple[str, ...], str] = {
    ("model", "provider"): PROVIDER,
    ("model", "routes", ITEM, "provider"): PROVIDER,
    ("model", "routes", ITEM, "task"): TASK,
    _ROUTE_PERSON: PLATFORM,
    ("fallback_providers", ITEM): PROVIDER,
    ("auxiliary", ANY, "provider"): PROVIDER,
    ("auxiliary", ANY, "fallback_chain", ITEM): PROVIDER,
    ("credential_pool_strategies", KEY): PROVIDER,
    ("providers", ANY, "transport"): "wire protocol",
    ("memory", "provider"): "memory provider",
    ("web", "backend"): "web provider",
    ("web", "search_backend"): "web provider",
    ("web", "extract_backend"): "web provider",
    ("tts", "provider"): "TTS provider",
    ("stt", "provider"): "transcription provider",
    ("tts", "pre_synthesis", "required_plugins", ITEM): PLUGIN,
    ("image_gen", "provider"): "image generation provider",
    ("video_gen", "provider"): "video generation provider",
    ("context", "engine"): "context engine",
    ("cron", "provider"): "cron scheduler",
    ("terminal", "backend"): "terminal backend",
    ("security", "approval", "transport"): "approval transport",
    ("toolsets", ITEM): TOOLSET,
    ("agent", "disabled_toolsets", ITEM): TOOLSET,
    ("platform_toolsets", ANY, ITEM): TOOLSET,
    ("webhooks", ANY, "toolsets", ITEM): TOOLSET,
    ("platform_toolsets", KEY): PLATFORM,
    ("platforms", KEY): PLATFORM,
    ("platforms", ANY, "provider"): PLUGIN,
    ("platform_hints", KEY): PLATFORM,
    ("skills", "platform_disabled", KEY): PLATFORM,
    ("skills", "platform_disabled", ANY, ITEM): SKILL,
    ("skills", "disabled", ITEM): SKILL,
    ("quick_commands", ANY, "target"): COMMAND,
    ("webhooks", ANY, "deliver"): PLATFORM,
    ("people", ANY, ITEM): PLATFORM,
    ("plugins", "enabled", ITEM): PLUGIN,
    ("plugins", "disabled", ITEM): PLUGIN,
    ("plugins", "entries", KEY): PLUGIN,
    ("plugins", "allow_tool_override", ITEM): TOOL,
    ("tools", "tool_search", "pinned", ITEM): TOOL,
    ("security", "foreign_text", "tools", KEY): TOOL,
    ("secrets", "sources", ITEM): "secret source",
    ("hooks", KEY): EVENT,
    ("hooks", ITEM, "event"): EVENT,
    ("hooks", "outbound", ITEM, "events", ITEM): EVENT,
    ("display", "skin"): SKIN,
    ("display", "personality"): PERSONALITY,
}
"""The kind of name at each place of the config."""


class ConfigName(LazyNamedTuple):
    """A name that the config uses."""

    path: KeyPath
    kind: str
    name: str


def has_names(path: KeyPath) -> bool:
    """Return whether a value at `path` may contain such names."""
    return any(all(p in (ANY, KEY, ITEM, q) for p, q in zip(pattern, path, strict=False)) for pattern in PATTERNS)


def find_names(values: Mapping[str, Any]) -> Iterator[ConfigName]:
    """Yield every name, but no text with an unset variable and no platform of a rule with a wildcard."""
    for pattern, kind in PATTERNS.items():
        for path, name in _at(values, pattern, ()):
            if not isinstance(name, str) or not name.strip() or has_variable(name):
                continue
            if kind == COMMAND:  # a line, mostly with its slash
                name = next(iter(name.strip().lstrip("/").split()), "")
            if name and (pattern != _ROUTE_PERSON or not set("*?[") & set(name.partition(":")[0])):
                yield ConfigName(path, kind, name.strip())


def _at(value: Any, pattern: tuple[str, ...], path: KeyPath) -> Iterator[tuple[KeyPath, Any]]:
    if not pattern:
        yield path, value
    elif pattern[0] == ITEM:
        for index, item in enumerate(value if isinstance(value, list) else ()):
            if pattern[1:]:
                yield from _at(item, pattern[1:], (*path, index))
            else:
                yield (*path, index), item.get("provider") if isinstance(item, Mapping) else item
    elif pattern[0] == KEY:
        for key in value if isinstance(value, Mapping) else ():
            yield (*path, key), key
    elif isinstance(value, Mapping):
        for key in value if pattern[0] == ANY else (pattern[0],):
            if key in value:
                yield from _at(value[key], pattern[1:], (*path, key))
