"""The plugins of one host: discovery, loading, reload and unload, and the state of each plugin.

Method and attribute names are upstream's (plugin contract §1.11) where the host has the same thing.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any, cast

from hermes_agent.adapters.registry import PlatformState, platform_states
from hermes_agent.core.errors import UserError
from hermes_agent.core.log_context import log_context
from hermes_agent.core.registry import Owner, staged_store
from hermes_agent.plugins import upstream_views
from hermes_agent.plugins.activation import (
    Activation,
    PluginSettings,
    UnknownPluginName,
    make_value_check,
    unknown_names,
)
from hermes_agent.plugins.config_schema import DeclaredPlatforms, option_problems, platform_name
from hermes_agent.plugins.context import PluginContext
from hermes_agent.plugins.discovery import Discovery, RejectedPlugin, add_memory_folder, discover
from hermes_agent.plugins.extension_registration import register_declared_locales
from hermes_agent.plugins.grants import GrantStore, activation_with_grant
from hermes_agent.plugins.host_services import HostServices, StagedHost
from hermes_agent.plugins.live_tables import LiveCommands, LiveListeners
from hermes_agent.plugins.loader import (
    LoadFailed,
    ReloadResult,
    ReloadSteps,
    check_outcome,
    load_within,
    note_failure,
    reload_one,
    reload_targets,
    transaction,
    unload_modules,
)
from hermes_agent.plugins.manifest import PluginManifest
from hermes_agent.plugins.memory_context import contexts_of
from hermes_agent.plugins.plugin_record import LoadedCallback, LoadedPlugin, announce_loaded
from hermes_agent.plugins.plugin_state import write_state
from hermes_agent.plugins.provider_registration import count_direct_registrations, count_model_providers
from hermes_agent.plugins.registration import is_deferred, register_memory_cli
from hermes_agent.plugins.requirements import hermes_refusal, load_order, prepare_load
from hermes_agent.plugins.status_text import (
    banner_lines,
    explain_absence,
    missed_lines,
    plugin_text,
    plugins_text,
    refused_plugin_text,
    start_hints,
    suspension_line,
)
from hermes_agent.policy.approval_transport import RegisteredApprovalTransport
from hermes_agent.runtime.workers import can_interrupt

logger = logging.getLogger(__name__)

Decide = Callable[[PluginManifest], Activation]


class PluginManager(upstream_views.UpstreamAttributes):
    """The plugins of one host. A running plugin is never registered a second time.

    Args:
        ground: the services of the host.
    """

    isolates = True
    """Whether isolated plugins get a process; a check loads every plugin in its own process."""

    def __init__(self, ground: HostServices) -> None:
        self._services = ground
        self._settings = PluginSettings.of(ground.config.values)
        self._trust = GrantStore(ground.home)
        self._dev: set[str] = set()
        self._pinned: list[str] = []
        """Plugins that this start has pinned, for one line in the log."""
        self._plugins: dict[str, LoadedPlugin] = {}
        self.contexts: dict[str, PluginContext] = {}
        self._loading: LoadedPlugin | None = None
        self._loading_context: PluginContext | None = None
        """Context of the plugin that is being imported."""
        self._lock = threading.RLock()
        self._discovered = False
        self._on_loaded: list[LoadedCallback] = []
        self.context_class: type[PluginContext] = PluginContext
        """Class of the contexts; the process of an isolated plugin has another one."""
        self._platform_names = DeclaredPlatforms(lambda: self.found.plugins.values())  # the lookup keeps it weakly
        self._hooks = LiveListeners(lambda: staged_store(ground.hooks).store, "hook")
        self._middleware = LiveListeners(lambda: staged_store(ground.hooks).middleware.store, "middleware")
        self._plugin_commands = LiveCommands(lambda: staged_store(ground.commands))
        self._cli_ref = None
        """Upstream's reference to the console, which this host does not provide."""
        self.found = Discovery()
        """Result of the last scan."""
        self.rejected: list[RejectedPlugin] = []
        """Folders and entry points that are no usable plugin."""
        self.remarks: list[str] = []
        """Remarks that concern all plugins, such as an ignored index."""
        self.unknown: list[UnknownPluginName] = []
        """Names in `plugins.enabled` that match no plugin."""
        for registry, kind in (
            (ground.tools, "tools"),
            (ground.commands, "commands"),
            (ground.cli_commands, "cli_commands"),
            (ground.plugin_skills, "skills"),
        ):
            registry.why_absent = partial(self._why_absent, kind)

    def discover_and_load(self, force: bool = False) -> None:
        """Find the plugins and load the enabled ones; without `force` a second call does nothing.

        Args:
            force: read the config and scan again, unload plugins that may no longer run, and load new ones. A plugin
                that runs and may run stays as it is.
        """
        with self._lock:
            if self._discovered and not force:
                return
            if self._discovered:
                self._read_settings()
            self._discovered = True
            try:
                found = discover(self._services.home, os.environ, Path.cwd())
                add_memory_folder(found, self._services.home, self._settings.memory)
                self.load(found, self._decide)
            except BaseException:
                self._discovered = False
                raise
        self._finish_scan()

    def load(self, found: Discovery, decide: Decide) -> None:
        """Load the plugins that `decide` allows, in the order of `found`, and unload the others."""
        before = {key for key, record in self._plugins.items() if record.enabled}
        self.found = found
        self.rejected, self.remarks = found.rejected, [found.index_ignored] if found.index_ignored else []
        self.unknown = unknown_names(self._settings, found)
        for unknown in self.unknown:
            logger.warning("plugins.enabled: %s", unknown.text)
        activations = {key: decide(manifest) for key, manifest in found.plugins.items()}
        for manifest in load_order(found.plugins.values(), lambda m: activations[m.key].load):
            key = manifest.key
            present, activation = self._plugins.get(key), activations[key]
            if present is not None and present.enabled and activation.load:
                continue
            if present is not None and present.enabled:
                self._stop(key)
            self._plugins[key] = self._load_one(manifest, activation)
        for key in [key for key in self._plugins if key not in found.plugins]:
            self._stop(key)
            del self._plugins[key]
        announce_loaded([r for k, r in self._plugins.items() if r.enabled and k not in before], self._on_loaded)
        if found.plugins:
            enabled = sum(record.enabled for record in self._plugins.values())
            logger.debug("Plugin discovery complete: %d found, %d enabled", len(found.plugins), enabled)

    def on_plugin_loaded(self, callback: LoadedCallback) -> Callable[[], None]:
        """Call `callback` after each scan that loaded plugins; return a function that withdraws it.

        The callback is given a dict for each new plugin: `name`, `key`, `activated_now` and `deferred`, which map kinds
        to names. Tools and skills are deferred: a running session keeps its tools and its prompt.
        """
        self._on_loaded.append(callback)
        return lambda: self._on_loaded.remove(callback) if callback in self._on_loaded else None

    def unload(self, name: str | None = None) -> None:
        """Unload one plugin or all: undo registrations in reverse order and run unload callbacks.

        The next `discover_and_load` loads them again.

        Args:
            name: key or name; None means all plugins.
        """
        with self._lock:
            for key in [
                k for k in reversed(self.contexts) if name is None or name in self._plugins[k].manifest.answers_to
            ]:
                self._stop(key)
                record = self._plugins[key]
                record.forget_registrations()
                record.status, record.error = "not enabled", "unloaded"
            if name is None:
                self._discovered = False

    def close(self) -> None:
        """Run the unload callbacks of every plugin at the end of the process; registrations stay."""
        with self._lock:
            for ctx in reversed(list(self.contexts.values())):
                ctx.ledger.close(replaced=True)

    def reload(self, name: str | None = None, *, new_sessions: bool = False) -> list[ReloadResult]:
        """Load, reload or unload one plugin, or all, as their folders and the config require.

        Call it in a worker, never on the core loop. Each plugin has the time limit `plugins.load_timeout_s`.

        Args:
            name: key or name; None means all plugins.
            new_sessions: show the tools of a plugin that did not run before to new sessions only.

        Raises:
            UserError: no plugin has the name, or the config cannot be read; nothing has changed then.
        """
        with self._lock:
            waits = self._read_settings()
            found = discover(self._services.home, os.environ, Path.cwd())
            add_memory_folder(found, self._services.home, self._settings.memory)
            keys = reload_targets(name, found, self._plugins)
            self.found = found
            self.rejected, self.unknown = found.rejected, unknown_names(self._settings, found)
            self.remarks = [found.index_ignored] if found.index_ignored else []
            workshop = ReloadSteps(self._decide, self._load_staged, self._stop)
            done = []
            for key in keys:
                record, what = reload_one(key, self._plugins.get(key), found, workshop, by_name=name is not None)
                self._keep(key, record)
                what.show_tools(self._services.tools, new_sessions=new_sessions)
                bundled = record is not None and record.manifest.source == "bundled"
                if bundled and name is None and what.outcome == "not loaded":
                    continue  # a bundled plugin that is not enabled
                if what.outcome != "unchanged":
                    logger.info("reload: %s", what)
                elif bundled:
                    continue
                done.append(what)
            if waits:
                logger.warning("the config also changed in %s: that needs a restart", ", ".join(waits))
        self._finish_scan()
        return done

    def _read_settings(self) -> list[str]:
        """Read the config and the grants again; return the changed settings that need a restart."""
        waits = self._services.reread_config()
        self._settings, self._trust = PluginSettings.of(self._services.config.values), GrantStore(self._services.home)
        return waits

    def _why_absent(self, kind: str, name: str) -> str:
        return explain_absence(kind, name, self.records, self._trust)

    def _keep(self, key: str, record: LoadedPlugin | None) -> None:
        """Replace the record of a plugin and unload the modules of the version before the previous one."""
        before = self._plugins.get(key)
        if record is None:
            self._plugins.pop(key, None)
        elif record is not before:
            if before is not None and isinstance(before.module, ModuleType):
                record.older_module = before.module.__name__
                if before.older_module:
                    unload_modules(before.older_module)
            self._plugins[key] = record

    def _load_staged(self, manifest: PluginManifest, gate: Activation) -> LoadedPlugin:
        return self._load_one(manifest, gate, StagedHost(self._services, manifest.key))

    def _stop(self, key: str) -> None:
        """Undo every registration of a plugin, including those that it made without its context."""
        ctx = self.contexts.pop(key, None)
        if ctx is not None:
            ctx.ledger.close()
        self._services.stores.remove_owner(key)
        if self._services.providers.memory_plugin == key:
            self._services.providers.memory_plugin = ""

    def list_plugins(self) -> list[dict[str, Any]]:
        """Return a dict for each plugin, sorted by key (contract §1.11)."""
        return [self._plugins[key].summary() for key in sorted(self._plugins)]

    @property
    def records(self) -> list[LoadedPlugin]:
        """Every plugin that was found, in load order."""
        return list(self._plugins.values())

    @property
    def suspects(self) -> list[LoadedPlugin]:
        """Every plugin with code that may run: the records, and the plugin that is being loaded."""
        return self.records if self._loading is None else [*self.records, self._loading]

    def status_text(self) -> str:
        """Return the text of `/plugins`."""
        home, remarks = str(self._services.home), [*self.remarks, *self.suspensions()]
        return plugins_text(self.records, self.rejected, self.unknown, home, self.platform_states(), remarks)

    def suspensions(self) -> list[str]:
        """Return a line for each plugin with suspended hooks, with the reason and the remedy."""
        return [suspension_line(key, why) for key, why in self._services.hooks.suspended().items()]

    def platform_states(self) -> dict[str, PlatformState]:
        """Return the state of each loaded platform by name: whether it is enabled, and why."""
        return {s.name: s for s in platform_states(self._services.config.values, self._services.platforms, load=False)}

    def plugin_text(self, name: str) -> str:
        """Return the text of `/plugins NAME`; a `UserError` has the nearest name if there is no such plugin."""
        record = self.find(name)
        if record is not None:
            key = record.manifest.key
            why = self._services.hooks.suspended().get(key, "")
            return plugin_text(record, self._services.account.usage_of(key), self.platform_states(), suspended=why)
        return refused_plugin_text(name, self.records, self.rejected)

    def missed(self) -> list[str]:
        """Return a line for each plugin that should run but does not, be it installed or not."""
        return missed_lines(self.records, self.unknown)

    def find(self, name: str) -> LoadedPlugin | None:
        """Return the plugin of that key or name."""
        found = self._plugins.get(name)
        return found or next((r for r in self.records if name in r.manifest.answers_to), None)

    def context_of(self, manifest: PluginManifest) -> PluginContext:
        """Return the context of a plugin that runs; while a plugin is imported, its own.

        Raises:
            LookupError: no plugin of that key or name runs.
        """
        if self._loading_context is not None:
            return self._loading_context
        name = manifest.key or manifest.name
        record = self.find(name)
        ctx = self.contexts.get(record.manifest.key) if record is not None else None
        if ctx is None:
            raise LookupError(f"no plugin `{name}` runs, so it has no context; `register(ctx)` is given one")
        return ctx

    def banner_lines(self) -> list[str]:
        """Return the tools of each plugin that runs: `calculator: calculate, unit_convert`."""
        return banner_lines(self.records)

    def hints(self) -> list[str]:
        """Return remarks for the operator that suggest an action, one per line."""
        return [*self.remarks, *self.suspensions(), *start_hints(self.records, self.rejected, self.unknown)]

    # -- hooks and middleware --------------------------------------------------------------------------------

    def invoke_hook(self, hook_name: str, **kwargs: Any) -> list[Any]:
        """Call the hook's listeners in this thread and return their answers."""
        return [r.value for r in self._services.hooks.fire(hook_name, **kwargs) if r.error is None]

    def has_hook(self, hook_name: str) -> bool:
        """Return whether the hook has a listener."""
        return self._services.hooks.has(hook_name)

    def invoke_middleware(self, kind: str, **kwargs: Any) -> list[Any]:
        """Call the middleware of a kind in this thread and return the answers (`HookBus.invoke_middleware`)."""
        return self._services.hooks.invoke_middleware(kind, **kwargs)

    def has_middleware(self, kind: str) -> bool:
        """Return whether middleware of a kind is registered."""
        return self._services.hooks.middleware.has(kind)

    def get_approval_transport(self, name: str) -> RegisteredApprovalTransport | None:
        """Return the approval transport of a name, or None."""
        return self._services.extensions.approval_transports.get(str(name).strip().lower())

    # -- skills ----------------------------------------------------------------------------------------------

    def find_plugin_skill(self, qualified_name: str) -> Path | None:
        """Return the `SKILL.md` of `plugin:skill`, or None."""
        skill = self._services.plugin_skills.get(qualified_name)
        return None if skill is None else skill.path

    def list_plugin_skills(self, plugin_name: str) -> list[str]:
        """Return the names of a plugin's skills without the plugin's name, sorted."""
        return [skill.bare_name for skill in self._services.plugin_skills.of_plugin(plugin_name)]

    def remove_plugin_skill(self, qualified_name: str) -> None:
        """Remove a skill; a missing one is no error."""
        self._services.plugin_skills.remove(qualified_name)

    # -- one plugin ------------------------------------------------------------------------------------------

    def _decide(self, manifest: PluginManifest) -> Activation:
        gate, verdict = activation_with_grant(
            manifest, self._settings, make_value_check(self._services.credentials), self._trust
        )
        if verdict.state == "dev":
            self._dev.add(manifest.key)
        elif verdict.state == "changed":
            logger.warning("Plugin '%s' is not loaded: %s", manifest.name, verdict.reason)
        elif verdict.state == "new":  # the operator named it in the config, which is the grant
            try:
                entry = self._trust.pin(manifest, by="first start")
            except UserError as exc:
                return Activation(False, "changed", str(exc))
            self._pinned.append(f"{manifest.key} ({len(entry.files)} files)")
        return gate

    def _finish_scan(self) -> None:
        """Apply and record what a scan loaded; log settings that do not match the declarations."""
        self._services.extensions.apply_mcp_changes()
        running = [record.manifest for record in self._plugins.values() if record.enabled]
        for text in option_problems(self._services.config, running, make_value_check(self._services.credentials)):
            logger.warning("%s", text)
        for record in self._plugins.values():
            record.note_twin(self._plugins)
        write_state(self._services.home, self._plugins.values())
        if self._pinned:
            logger.info("plugins pinned as they are now: %s", ", ".join(self._pinned))
            self._pinned.clear()
        self._trust.keep((r.manifest, r.registers()) for r in self._plugins.values() if r.enabled)

    def _defer(self, record: LoadedPlugin, gate: Activation) -> LoadedPlugin:
        """Register a bundled platform so that it is loaded on demand (contract §1.8)."""
        manifest = record.manifest

        def load_now() -> None:
            loaded = self._plugins[manifest.key] = self._load_one(manifest, gate, deferred=True)
            if not loaded.enabled:
                raise LoadFailed(manifest.key, loaded.error or "it does not run")

        self._services.platforms.register_deferred(platform_name(manifest), load_now, owner=manifest.key)
        record.status, record.error, record.deferred = "enabled", None, True
        return record

    def _import(self, ctx: PluginContext, given: object, owner: Owner, staging: StagedHost | None) -> Any:
        """Run the plugin's code in this process, or start its own process; return its module or object."""
        limit_s, stores = self._settings.load_timeout_s, None if staging is None else staging.stand_in
        if not (self.isolates and self._settings.is_isolated(ctx.manifest)):
            return load_within(limit_s, self._services.bridge, ctx.manifest, given, owner, stores)
        from hermes_agent.plugins.isolation.isolated_plugin import load_isolated  # few hosts isolate plugins

        ctx.registration.record.process = load_isolated(ctx, self._decide, limit_s)
        return None

    def _load_one(
        self, manifest: PluginManifest, gate: Activation, staging: StagedHost | None = None, *, deferred: bool = False
    ) -> LoadedPlugin:
        """Load a plugin and return its record.

        Args:
            staging: staged host with the stores for its registrations; None means the stores of the host.
            deferred: the load was deferred and is needed now.
        """
        record = LoadedPlugin(manifest, gate.status, gate.reason or None, notes=list(manifest.notes))
        self._loading = record
        record.is_dev = manifest.key in self._dev
        keeper = self._services.providers.memory_plugin
        if gate.load and self._settings.selects_memory(manifest) and keeper not in ("", manifest.key):
            gate = Activation(False, "not enabled", f"memory.provider selects plugin `{keeper}`")
            record.status, record.error = gate.status, gate.reason
        if not gate.load:
            record.missing = gate.missing
            if gate.missing:
                logger.warning("%s", gate.reason)
            logger.debug("skip %s: %s", manifest.key, gate.reason)
            return record
        if refusal := hermes_refusal(manifest.requires_hermes):
            note_failure(record, LoadFailed(manifest.key, refusal))
            return record
        prepare_load(manifest, self._services.home)
        if staging is None and is_deferred(manifest) and not deferred:
            return self._defer(record, gate)
        if staging is None and not can_interrupt():  # an abandoned plugin must not register later
            staging = StagedHost(self._services, manifest.key)
        ground = cast("HostServices", staging or self._services)
        ctx = self.context_class(ground, record, self._settings, self)
        given = contexts_of(ctx, self._settings)
        owner = Owner(manifest.key, self._settings.may_override(manifest), self._settings.free_tools)
        by = ctx.registration
        refusals, refused_models = len(ground.tools.refusals), len(ground.model_providers.refusals)
        logger.debug("load %s: import %s and call register(ctx)", manifest.key, manifest.path)
        with log_context(plugin=manifest.key):
            try:
                self._loading_context = ctx
                with transaction(ground, manifest):
                    register_declared_locales(by)
                    record.module = self._import(ctx, given, owner, staging)
                    count_model_providers(by, refused_models)
                    check_outcome(record)
            except LoadFailed as exc:
                ctx.ledger.seal("its load timed out" if str(exc).startswith("load timed out") else "its load failed")
                ctx.ledger.close()
                note_failure(record, exc)
                return record
            finally:
                self._loading_context = None
        count_direct_registrations(by, refusals)
        if staging is not None:
            staging.commit()
        record.status, record.error = "enabled", None
        before = self.contexts.pop(manifest.key, None)
        self.contexts[manifest.key] = ctx
        if before is not None:
            before.ledger.close(replaced=True)
        if self._settings.selects_memory(manifest):
            self._services.providers.memory_plugin = manifest.key
            register_memory_cli(by, record.module)
        record.log_registrations()
        return record
