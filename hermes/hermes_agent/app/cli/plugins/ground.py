"""What the subcommands of `hermes plugins` stand on: a home, its settings, its plugins and its pins."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from hermes_agent.config import hermes_home, load
from hermes_agent.plugins.debug_log import quiet_or_debug
from hermes_agent.plugins.discovery import Discovery, discover
from hermes_agent.plugins.enabling import find_plugin
from hermes_agent.plugins.gate import Activation, PluginSettings, make_value_check
from hermes_agent.plugins.manifest import PluginManifest
from hermes_agent.plugins.memory_folder import add_every_memory_folder
from hermes_agent.plugins.seen import ManifestCache
from hermes_agent.plugins.trust import GrantState, GrantStore, activation_with_grant

if TYPE_CHECKING:
    from hermes_agent.credentials import Credentials

__all__ = ["InstalledPlugins", "LazySecrets"]


class LazySecrets:
    """The secrets of a home, opened when a plugin asks for one: most ask for none, and a listing is to be quick."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._opened: Credentials | None = None

    def get(self, name: str, /) -> str | None:
        """Return the value of `name`, or None."""
        if self._opened is None:
            from hermes_agent.credentials import Credentials

            self._opened = Credentials(self._home, os.environ)
        return self._opened.get(name)


class InstalledPlugins:
    """The plugins of the home that the environment names, as they are now; nothing is loaded.

    Raises:
        ConfigError: a setting is wrong.
    """

    def __init__(self) -> None:
        quiet_or_debug(os.environ)
        self.home = hermes_home()
        seen = ManifestCache(self.home)
        self.settings = seen.settings()
        self.secrets = LazySecrets(self.home)
        self.trust = GrantStore(self.home)
        self.found: Discovery = discover(self.home, os.environ, Path.cwd(), read=seen.manifest)
        add_every_memory_folder(self.found, self.home, self.settings.memory)
        seen.save()

    def find(self, name: str) -> PluginManifest:
        """Return the plugin of that key or name.

        Raises:
            UserError: there is none; the nearest is named.
        """
        return find_plugin(name, self.found)

    def activation(self, manifest: PluginManifest) -> tuple[Activation, GrantState]:
        """Say whether the plugin would run at the next start."""
        return activation_with_grant(manifest, self.settings, make_value_check(self.secrets), self.trust)

    def reload_settings(self) -> None:
        """Read the settings again, after a change."""
        self.settings = PluginSettings.of(load(self.home).values)
