"""Values of a plugin in the config: `ctx.get_config` and `ctx.set_config`.

They are stored under `plugins.entries.<id>.settings`; `.config` is the older place, which is read second. Source:
plugin contract of 0.23 §6.2, §6.3.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hermes_agent.core.errors import ConfigError, UserError
from hermes_agent.plugins.capabilities import entry_of
from hermes_agent.plugins.manifest import PluginManifest

logger = logging.getLogger(__name__)

_SEGMENT = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,127}")
_RESERVED = frozenset({"model", "plugins", "security", "settings"})
_PLACES = ("settings", "config")
_MISSING = object()


def check_key(plugin: str, key: object) -> tuple[str, ...]:
    """Return the segments of a dotted key.

    Raises:
        ValueError: the key is no path below the plugin's own settings.
    """
    segments = tuple(key.split(".")) if isinstance(key, str) else ()
    if not segments or segments[0] in _RESERVED or not all(_SEGMENT.fullmatch(segment) for segment in segments):
        logger.warning("Rejected config path %r of plugin '%s'", key, plugin)
        raise ValueError(
            f"config key {key!r} of plugin '{plugin}' is not usable: expected dotted names of letters, digits, `_` and"
            f" `-`, of which the first is none of {', '.join(sorted(_RESERVED))}"
        )
    return segments


def get_config(values: Mapping[str, Any], manifest: PluginManifest, key: str | None, default: Any = None) -> Any:
    """Return a value of the plugin, or `default` if it is not set.

    Args:
        values: the config in effect.
        key: None for all settings, as a mapping.

    Raises:
        ValueError: the key is unusable.
    """
    segments = () if key is None else check_key(manifest.key, key)
    entry = entry_of(values, manifest)
    for place in _PLACES:
        found: Any = entry.get(place, _MISSING)
        for segment in segments:
            found = found.get(segment, _MISSING) if isinstance(found, Mapping) else _MISSING
        if found is not _MISSING:
            return found
    return default


def set_config(home: Path, manifest: PluginManifest, key: str, value: Any) -> None:
    """Write one value into the config of a home; comments and other keys stay.

    Raises:
        ValueError: the key is unusable, or the config rejects the value.
        PermissionError: the key is declared by the administrator, or the file cannot be changed.
    """
    from hermes_agent.config.edit import set_value  # few plugins write their config

    segments = check_key(manifest.key, key)
    path = ("plugins", "entries", manifest.key, _PLACES[0], *segments)
    try:
        set_value(home, path, value, environ=os.environ)
    except ConfigError as exc:
        raise ValueError(f"set_config({key!r}) of plugin '{manifest.key}': {exc}") from exc
    except UserError as exc:
        raise PermissionError(f"set_config({key!r}) of plugin '{manifest.key}': {exc}") from exc
