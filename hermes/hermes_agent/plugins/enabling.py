"""Switch a plugin on or off in the config, or take it out. Source: plugin contract §1.13."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import NamedTuple

from hermes_agent.core.errors import UserError
from hermes_agent.plugins.discovery import Discovery, discover
from hermes_agent.plugins.gate import PluginSettings, unknown_names
from hermes_agent.plugins.manifest import PluginManifest
from hermes_agent.plugins.memory_folder import add_every_memory_folder

__all__ = ["ActivationChange", "find_plugin", "set_activation", "remove_from_config"]


class ActivationChange(NamedTuple):
    """What `switch` did."""

    manifest: PluginManifest
    changed: bool
    """False when the config said so already."""


def find_plugin(name: str, found: Discovery) -> PluginManifest:
    """Return the plugin that answers to `name`.

    Raises:
        UserError: none does; the message names the one that is probably meant.
    """
    for manifest in found.plugins.values():
        if name in manifest.answers_to:
            return manifest
    unknown = unknown_names(PluginSettings(enabled=(name,)), found)[0]
    known = ", ".join(sorted(found.plugins)) or "none"
    raise UserError(unknown.text, hint="" if unknown.nearest else f"Plugins that are there: {known}.")


def set_activation(
    home: Path,
    name: str,
    *,
    on: bool,
    settings: PluginSettings,
    environ: Mapping[str, str],
    cwd: Path,
    allow_tool_override: bool | None = None,
) -> ActivationChange:
    """Put the plugin into `plugins.enabled` or `plugins.disabled` and take it out of the other.

    Args:
        name: key or name of a plugin that is there.
        settings: as in effect now.
        allow_tool_override: None leaves that setting as it is.

    Raises:
        UserError: no such plugin, or the setting cannot be changed (declared by Nix, read-only file).
    """
    from hermes_agent.config.edit import set_value  # a listing changes nothing

    found = discover(home, environ, cwd)
    add_every_memory_folder(found, home, settings.memory)
    manifest = find_plugin(name, found)
    wanted = _with(settings, manifest) if on else _without(settings, manifest)
    changed = False
    for field in ("enabled", "disabled"):
        value = getattr(wanted, field)
        if value != getattr(settings, field):
            set_value(home, ("plugins", field), list(value), environ=environ)
            changed = True
    if allow_tool_override is not None:
        path = ("plugins", "entries", manifest.key, "allow_tool_override")
        if settings.entry(manifest).get("allow_tool_override", False) != allow_tool_override:
            set_value(home, path, allow_tool_override, environ=environ)
            changed = True
    return ActivationChange(manifest, changed)


def remove_from_config(
    home: Path, names: Collection[str], settings: PluginSettings, environ: Mapping[str, str]
) -> list[str]:
    """Remove the names from `plugins.enabled` and `plugins.disabled`, as far as these are the person's own.

    Returns:
        A sentence for each list that still names the plugin, because it cannot be changed here.
    """
    from hermes_agent.config.edit import set_value  # as above

    left = []
    for field in ("enabled", "disabled"):
        present: tuple[str, ...] = getattr(settings, field)
        kept = [name for name in present if name not in names]
        if len(kept) != len(present):
            try:
                set_value(home, ("plugins", field), kept, environ=environ)
            except UserError as exc:
                left.append(f"plugins.{field} still names it: {' '.join(str(exc).split())}")
    return left


def _with(settings: PluginSettings, manifest: PluginManifest) -> PluginSettings:
    disabled = tuple(n for n in settings.disabled if n not in manifest.answers_to)
    implied = settings.auto_enable and manifest.source in ("declared", "entrypoint")
    named = implied or any(n in manifest.answers_to for n in settings.enabled)
    enabled = settings.enabled if named else (*settings.enabled, manifest.key)
    return settings._replace(enabled=enabled, disabled=disabled)


def _without(settings: PluginSettings, manifest: PluginManifest) -> PluginSettings:
    enabled = tuple(n for n in settings.enabled if n not in manifest.answers_to)
    named = any(n in manifest.answers_to for n in settings.disabled)
    return settings._replace(
        enabled=enabled, disabled=settings.disabled if named else (*settings.disabled, manifest.key)
    )
