"""The state of one plugin in its host. Source of the attribute names: plugin contract §1.11."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import field
from types import ModuleType
from typing import TYPE_CHECKING, Any

from hermes_agent.contracts.kind import Kind
from hermes_agent.core.lazy_types import lazy_dataclass
from hermes_agent.plugins.activation import Status
from hermes_agent.plugins.manifest import PluginManifest

if TYPE_CHECKING:
    from hermes_agent.plugins.isolation.process_state import StatedProcess

logger = logging.getLogger(__name__)

LoadedCallback = Callable[[list[dict[str, Any]]], object]
"""A callback of `PluginManager.on_plugin_loaded`."""
DESCRIPTIVE = frozenset({"version", "description", "author", "license", "homepage", "tags"})
"""Fields of the manifest that a plugin may change while it runs."""
_FIXED = "what names a plugin, or decides whether it runs, is read from its manifest alone"


@lazy_dataclass(frozen=True, slots=True)
class RegistrationProblem:
    """A refused registration of a plugin, which runs without it."""

    kind: str
    """`tool`, `slash command` or `terminal command`."""
    name: str
    owner: str
    """Owner of the name: a plugin's key, or `builtin`."""
    text: str
    remedy: str = ""

    @property
    def full(self) -> str:
        """The text, with the remedy if there is one."""
        return f"{self.text} ({self.remedy})" if self.remedy else self.text


@lazy_dataclass(slots=True)
class LoadedPlugin:
    """A plugin that was found, loaded or not."""

    manifest: PluginManifest
    status: Status = "not enabled"
    error: str | None = None
    """Why the plugin does not run."""
    missing: tuple[str, ...] = ()
    """Extension: missing variables that prevent the plugin from running."""
    remedy: str = ""
    """Extension: what the operator can do about the failure, if known."""
    where: str = ""
    """`file:line` of the failure, if known."""
    module: ModuleType | Any = None
    """The imported module, or the object that an entry point names."""
    tools_registered: list[str] = field(default_factory=list)
    hooks_registered: list[str] = field(default_factory=list)
    middleware_registered: list[str] = field(default_factory=list)
    commands_registered: list[str] = field(default_factory=list)
    cli_commands_registered: list[str] = field(default_factory=list)
    """Extension: names of terminal commands, which upstream does not record."""
    providers_registered: list[tuple[Kind, str]] = field(default_factory=list)
    """Extension: kind and name of each provider."""
    skills_registered: list[str] = field(default_factory=list)
    """Extension: qualified names of skills."""
    stale: str = ""
    """Extension: why a newer version could not replace this one; empty if this is the newest."""
    older_module: str = ""
    """Extension: name of the module of the replaced version."""
    process: StatedProcess | None = None
    """Extension: the plugin's own process; None in the process of the agent."""
    deferred: bool = False
    is_dev: bool = False
    """Extension: the plugin runs without a comparison of its files (`plugins.entries.<id>.trust: dev`)."""
    problems: list[RegistrationProblem] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    """Remarks for the plugin's author or operator; none of them is a refusal."""

    @property
    def failure(self) -> str:
        """Why the plugin does not run, with the place if known; empty if it runs."""
        return f"{self.error} ({self.where})" if self.error and self.where else self.error or ""

    @property
    def enabled(self) -> bool:
        """Whether the plugin runs."""
        return self.status == "enabled"

    def note_twin(self, plugins: Mapping[str, LoadedPlugin]) -> None:
        """Take what the same module registered already, from another group of entry points, for no problem."""
        twins = {p.owner for p in self.problems if p.owner in plugins and self._is_module_of(plugins[p.owner])}
        self.problems[:] = [problem for problem in self.problems if problem.owner not in twins]
        for twin in sorted(twins):
            text = f"its package lists it in a second group, as `{twin}`, which registers the same"
            self.notes += [text] if text not in self.notes else []

    def _is_module_of(self, other: LoadedPlugin) -> bool:
        sides = (self.manifest, other.manifest)
        return all(m.source == "entrypoint" for m in sides) and len({m.path.partition(":")[0] for m in sides}) == 1

    def registers(self) -> dict[str, list[str]]:
        """Return the sorted names of its registrations by kind, without empty kinds."""
        providers = [f"{kind.name}:{name}" for kind, name in self.providers_registered]
        names = self._registered() | {"providers": providers}
        return {kind: sorted(set(values)) for kind, values in names.items() if values}

    def activation_summary(self) -> dict[str, Any]:
        """Return the dict for the callbacks of `PluginManager.on_plugin_loaded`."""
        registered = self.registers()
        deferred = {kind: registered.pop(kind) for kind in ("tools", "skills") if kind in registered}
        return {
            "name": self.manifest.name,
            "key": self.manifest.key,
            "activated_now": registered,
            "deferred": deferred,
        }

    def log_registrations(self) -> None:
        """Log how many registrations the plugin made."""
        logger.debug(
            "%s registered: %d tool(s), %d hook(s), %d middleware, %d slash command(s), %d CLI command(s)",
            self.manifest.key,
            len(self.tools_registered),
            len(self.hooks_registered),
            len(self.middleware_registered),
            len(self.commands_registered),
            len(self.cli_commands_registered),
        )

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
        """Return the dict of this plugin in `list_plugins`."""
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
    """Call the callbacks of `PluginManager.on_plugin_loaded` with the plugins that a scan loaded."""
    rows = [record.activation_summary() for record in records]
    for callback in list(callbacks) if rows else ():
        try:
            callback(rows)
        except Exception:
            logger.exception("plugins: a callback of on_plugin_loaded failed")


class OwnManifest:
    """A plugin's manifest as the plugin itself has it: it may change what describes it, as in upstream.

    Args:
        record: receives the changes.
    """

    __slots__ = ("_record",)
    _record: LoadedPlugin

    def __init__(self, record: LoadedPlugin) -> None:
        object.__setattr__(self, "_record", record)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._record.manifest, name)

    def __setattr__(self, name: str, value: Any) -> None:
        manifest = self._record.manifest
        if name in DESCRIPTIVE:
            self._record.manifest = manifest._replace(**{name: value})
        elif getattr(manifest, name, None) != value:
            logger.warning(
                "plugin %s: manifest.%s stays %r: %s", manifest.key, name, getattr(manifest, name, None), _FIXED
            )

    def __repr__(self) -> str:
        return repr(self._record.manifest)
