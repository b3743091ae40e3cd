"""The state of one plugin in its host. Source of the attribute names: plugin contract §1.11."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

from hermes_agent.contracts.kind import Kind
from hermes_agent.plugins.activation import Status
from hermes_agent.plugins.manifest import PluginManifest

logger = logging.getLogger(__name__)

LoadedCallback = Callable[[list[dict[str, Any]]], object]
"""A callback of `PluginManager.on_plugin_loaded`."""


@dataclass(frozen=True, slots=True)
class RegistrationProblem:
    """A registration of a plugin that was refused; the plugin runs without it."""

    kind: str
    """`tool`, `slash command` or `terminal command`."""
    name: str
    owner: str
    """Who has the name: a plugin's key, or `builtin`."""
    text: str
    remedy: str = ""

    @property
    def full(self) -> str:
        """The text with the remedy, where there is one."""
        return f"{self.text} ({self.remedy})" if self.remedy else self.text


@dataclass(slots=True)
class LoadedPlugin:
    """A plugin that was found, whether it runs or not."""

    manifest: PluginManifest
    status: Status = "not enabled"
    error: str | None = None
    """Why it does not run."""
    missing: tuple[str, ...] = ()
    """Ours: the variables without which it does not run."""
    remedy: str = ""
    """Ours: what to do about the failure, where that is known."""
    where: str = ""
    """`file:line` of the failure, as far as known."""
    module: ModuleType | Any = None
    """The imported module, or the object that an entry point names."""
    tools_registered: list[str] = field(default_factory=list)
    hooks_registered: list[str] = field(default_factory=list)
    middleware_registered: list[str] = field(default_factory=list)
    commands_registered: list[str] = field(default_factory=list)
    cli_commands_registered: list[str] = field(default_factory=list)
    """Ours; upstream does not count them."""
    providers_registered: list[tuple[Kind, str]] = field(default_factory=list)
    """Ours: kind and name of each provider."""
    skills_registered: list[str] = field(default_factory=list)
    """Ours: qualified names."""
    stale: str = ""
    """Ours: why a newer version could not take its place; empty when this is the newest."""
    older_module: str = ""
    """Ours: the name of the module that it took the place of."""
    deferred: bool = False
    is_dev: bool = False
    """Ours: the operator lets it run whatever its files are (`plugins.entries.<id>.trust: dev`)."""
    problems: list[RegistrationProblem] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    """What its author or operator may want to know; nothing is refused."""

    @property
    def failure(self) -> str:
        """Why it does not run, with the place where that is known; empty when it does."""
        return f"{self.error} ({self.where})" if self.error and self.where else self.error or ""

    @property
    def enabled(self) -> bool:
        """Whether it runs."""
        return self.status == "enabled"

    def registers(self) -> dict[str, list[str]]:
        """Return the names of what it registered, sorted, by kind; kinds without any are left out."""
        providers = [f"{kind.name}:{name}" for kind, name in self.providers_registered]
        names = self._registered() | {"providers": providers}
        return {kind: sorted(set(values)) for kind, values in names.items() if values}

    def activation_summary(self) -> dict[str, Any]:
        """Return the dict that callbacks of `PluginManager.on_plugin_loaded` are given."""
        registered = self.registers()
        deferred = {kind: registered.pop(kind) for kind in ("tools", "skills") if kind in registered}
        return {
            "name": self.manifest.name,
            "key": self.manifest.key,
            "activated_now": registered,
            "deferred": deferred,
        }

    def forget_registrations(self) -> None:
        """Empty the lists after a rollback."""
        for names in (*self._registered().values(), self.problems):
            names.clear()

    def _registered(self) -> dict[str, list[Any]]:
        return {
            "tools": self.tools_registered,
            "hooks": self.hooks_registered,
            "middleware": self.middleware_registered,
            "commands": self.commands_registered,
            "cli_commands": self.cli_commands_registered,
            "providers": self.providers_registered,
            "skills": self.skills_registered,
        }

    def summary(self) -> dict[str, Any]:
        """Return the dict that `list_plugins` gives."""
        manifest = self.manifest
        return {
            "name": manifest.name,
            "key": manifest.key,
            "kind": manifest.kind,
            "version": manifest.version,
            "description": manifest.description,
            "source": manifest.source,
            "enabled": self.enabled,
            "tools": len(self.tools_registered),
            "hooks": len(self.hooks_registered),
            "middleware": len(self.middleware_registered),
            "commands": len(self.commands_registered),
            "error": self.error,
        }


def announce_loaded(records: list[LoadedPlugin], callbacks: Iterable[LoadedCallback]) -> None:
    """Call the callbacks of `PluginManager.on_plugin_loaded` with the plugins that a sweep has loaded."""
    rows = [record.activation_summary() for record in records]
    for callback in list(callbacks) if rows else ():
        try:
            callback(rows)
        except Exception:
            logger.exception("plugins: a callback of on_plugin_loaded failed")
