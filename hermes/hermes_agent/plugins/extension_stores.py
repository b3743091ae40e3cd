"""Registries of the extensions of plugins since 0.23. Source: plugin contract of 0.23 §6, §9."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from hermes_agent.core.lazy_types import LazyNamedTuple
from hermes_agent.core.registry import ListenerStore, Registry, StoreGroup
from hermes_agent.plugins.event_bus import PluginEventBus, Runner
from hermes_agent.plugins.locales import LocaleCatalog, LocaleLayer
from hermes_agent.plugins.prompt_sections import PromptSection


class PlatformHandler(LazyNamedTuple):
    """Function of a plugin that receives the native object of a platform when its adapter connects."""

    factory: Any
    owner: str


class ExtensionStores(StoreGroup):
    """Registries of the extensions of the contract of 0.23, and the event bus.

    They hold prompt sections, context references, approval transports, automation blueprints, platform handlers,
    locales, and MCP servers of portable packages.
    """

    _parts = (
        *("prompt_sections", "context_references", "approval_transports", "blueprints", "platform_handlers"),
        *("locales", "mcp_servers"),
    )

    def handlers_for(self, platform: str) -> list[tuple[str, Any]]:
        """Return the plugins with handlers for a platform, each with its function."""
        return [(item.owner, item.factory) for item in self.platform_handlers.listeners_for(platform)]

    def __init__(
        self, runner: Runner, home: Callable[[], Path] = Path, language: Callable[[], str] = lambda: ""
    ) -> None:
        self.events = PluginEventBus(runner)
        """Events between plugins; a subscription ends with the ledger of its plugin, not with a store."""
        self.prompt_sections: Registry[PromptSection] = Registry("system prompt section")
        self.context_references: Registry[Any] = Registry("context reference")
        self.approval_transports: Registry[Any] = Registry("approval transport")
        self.blueprints: Registry[Any] = Registry("automation blueprint")
        self.platform_handlers: ListenerStore[PlatformHandler] = ListenerStore()
        """Handlers by platform."""
        self.locales: ListenerStore[LocaleLayer] = ListenerStore()
        """Texts of plugins, by `language/surface`."""
        self.mcp_servers: Registry[Mapping[str, Any]] = Registry("MCP server")
        """Blocks of the MCP servers of portable packages, by name, in the form of `mcp_servers` of the config."""
        self.mcp_listeners: list[Callable[[], object]] = []
        """Called in a worker after the MCP servers of packages changed."""
        self._known_servers: dict[str, Mapping[str, Any]] = {}
        self._home, self._language = home, language
        self._texts: LocaleCatalog | None = None

    def mcp_blocks(self, config: Mapping[str, Any] | None) -> dict[str, Any]:
        """Return the blocks of all MCP servers by name; those of the config win.

        Args:
            config: `mcp_servers`.
        """
        return {**dict(self.mcp_servers.items()), **(config or {})}

    def apply_mcp_changes(self) -> None:
        """Call the listeners if the MCP servers of packages have changed since the last call; in a worker."""
        now = dict(self.mcp_servers.items())
        if now != self._known_servers:
            self._known_servers = now
            for listener in self.mcp_listeners:
                listener()

    def texts(self) -> LocaleCatalog:
        """Return the texts in the languages of this host."""
        if self._texts is None:
            self._texts = LocaleCatalog(lambda: self.locales, self._home, self._language)
        return self._texts
