"""Where names stand in the config (of providers, platforms, toolsets, tools, plugins), and of what each is the name.

`plugins.config_names` says which of them nothing answers to.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from hermes_agent.config.keypath import KeyPath
from hermes_agent.config.values import has_variable

__all__ = ["PLATFORM", "PLUGIN", "PROVIDER", "TOOL", "TOOLSET", "ConfigName", "has_names", "find_names"]

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


class ConfigName(NamedTuple):
    """A name that the config uses."""

    path: KeyPath
    kind: str
    name: str


def has_names(path: KeyPath) -> bool:
    """Say whether a value at `path` may hold such names."""
    return any(all(p in (ANY, KEY, ITEM, q) for p, q in zip(pattern, path, strict=False)) for pattern in PATTERNS)


def find_names(values: Mapping[str, Any]) -> Iterator[ConfigName]:
    """Yield every name; a text with a variable that is not set is none."""
    for pattern, kind in PATTERNS.items():
        for path, name in _at(values, pattern, ()):
            if isinstance(name, str) and name.strip() and not has_variable(name):
                yield ConfigName(path, kind, name.strip())


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
