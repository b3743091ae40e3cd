"""Who registers: one plugin, with the host that it registers in and the record of what came of it."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TypeVar

from hermes_agent.contracts.kind import Kind
from hermes_agent.core.registry import describe_owner
from hermes_agent.plugins.gate import PluginSettings
from hermes_agent.plugins.ground import HostServices
from hermes_agent.plugins.manifest import PluginManifest
from hermes_agent.plugins.record import LoadedPlugin, RegistrationProblem

__all__ = ["Registration", "add_once"]

logger = logging.getLogger(__name__)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Registration:
    """A plugin at the counter; whatever is registered with it belongs to that plugin."""

    services: HostServices
    record: LoadedPlugin
    settings: PluginSettings

    @property
    def manifest(self) -> PluginManifest:
        """The plugin's manifest."""
        return self.record.manifest

    @property
    def key(self) -> str:
        """The owner's name in every registry."""
        return self.record.manifest.key

    @property
    def name(self) -> str:
        """The plugin's name, for the log."""
        return self.record.manifest.name

    def note(self, text: str) -> None:
        """Keep what the plugin's author or operator may want to know."""
        add_once(self.record.notes, text)

    def registered(self, kind: Kind, name: str) -> None:
        """Note a success: in the record, and as a line in the log."""
        add_once(self.record.providers_registered, (kind, name))
        logger.debug("Plugin '%s' registered %s: %s", self.name, kind.label, name)

    def refused(self, kind: str, shown: str, owner: str, *, log: bool = True) -> None:
        """Note that somebody else has the name; the plugin goes without.

        Args:
            kind: what was to be registered, in words.
            shown: its name as people write it: `/name`, `hermes name`.
        """
        text = f"{kind} `{shown}` belongs to {describe_owner(owner)}"
        if log:
            logger.warning("Plugin '%s' goes without its %s: %s", self.name, kind, text)
        self.record.problems.append(RegistrationProblem(kind, shown, owner, text, "rename it in one of the two"))


def add_once(items: list[T], item: T) -> None:
    """Append what is not there yet."""
    if item not in items:
        items.append(item)
