"""The plugins of one host: finding them, loading those that are enabled, and what became of each.

The method and attribute names are upstream's (plugin contract §1.11), as far as what they stand for is here.
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

from hermes_agent.adapters.registry import PLATFORM, PlatformState, platform_states
from hermes_agent.contracts.command import SlashCommand
from hermes_agent.core.errors import UserError
from hermes_agent.core.log_context import log_context
from hermes_agent.core.read_only import ReadOnlyDict, ReadOnlyList, ReadOnlySet
from hermes_agent.core.registry import Owner
from hermes_agent.core.text import nearest_name
from hermes_agent.plugins.activation import (
    Activation,
    PluginSettings,
    UnknownPluginName,
    make_value_check,
    unknown_names,
)
from hermes_agent.plugins.config_schema import option_problems, platform_name
from hermes_agent.plugins.context import PluginContext, count_model_providers
from hermes_agent.plugins.discovery import Discovery, RejectedPlugin, add_memory_folder, discover
from hermes_agent.plugins.grants import GrantStore, activation_with_grant
from hermes_agent.plugins.host_services import HostServices, StagedHost
from hermes_agent.plugins.loader import (
    LoadFailed,
    ReloadResult,
    ReloadSteps,
    load_within,
    reload_one,
    reload_targets,
    remedy_for,
    transaction,
    unload_modules,
)
from hermes_agent.plugins.manifest import PluginManifest
from hermes_agent.plugins.plugin_record import LoadedPlugin
from hermes_agent.plugins.plugin_state import write_state
from hermes_agent.plugins.registration import Registration, add_once, is_deferred, register_memory_cli
from hermes_agent.plugins.status_text import (
    banner_lines,
    explain_absence,
    explain_not_running,
    is_missed,
    plugin_text,
    plugins_text,
    start_hints,
    suspension_line,
)
from hermes_agent.runtime.workers import can_interrupt

logger = logging.getLogger(__name__)

Decide = Callable[[PluginManifest], Activation]


class PluginManager:
    """Loads plugins once; a plugin that runs is never registered a second time.

    Args:
        ground: the host.
    """

    def __init__(self, ground: HostServices) -> None:
        self._services = ground
        self._settings = PluginSettings.of(ground.config.values)
        self._trust = GrantStore(ground.home)
        self._dev: set[str] = set()
        self._pinned: list[str] = []
        """Plugins that this start granted, for one line in the log."""
        self._plugins: dict[str, LoadedPlugin] = {}
        self._contexts: dict[str, PluginContext] = {}
        self._loading: LoadedPlugin | None = None
        self._lock = threading.RLock()
        self._discovered = False
        self._cli_ref = None
        """Upstream: the interactive terminal. Here nothing of ours is handed out that way."""
        self.found = Discovery()
        """What the last sweep came upon."""
        self.rejected: list[RejectedPlugin] = []
        """What is there and is no usable plugin."""
        self.remarks: list[str] = []
        """What concerns all plugins: an index that is not used."""
        self.unknown: list[UnknownPluginName] = []
        """Names in `plugins.enabled` that nobody answers to."""
        for registry, kind in (
            (ground.tools, "tools"),
            (ground.commands, "commands"),
            (ground.cli_commands, "cli_commands"),
            (ground.plugin_skills, "skills"),
        ):
            registry.why_absent = partial(self._why_absent, kind)

    def discover_and_load(self, force: bool = False) -> None:
        """Find the plugins and load those that are enabled; the second call does nothing.

        Args:
            force: look again, and load what is new; what runs is left as it is.
        """
        with self._lock:
            if self._discovered and not force:
                return
            self._discovered = True
            try:
                found = discover(self._services.home, os.environ, Path.cwd())
                add_memory_folder(found, self._services.home, self._settings.memory)
                self.load(found, self._decide)
            except BaseException:
                self._discovered = False
                raise
        self._log_option_problems()
        write_state(self._services.home, self._plugins.values())
        self._keep_pins()

    def load(self, found: Discovery, decide: Decide) -> None:
        """Load what `decide` lets run, in the order of `found`."""
        self.found = found
        self.rejected, self.remarks = found.rejected, [found.index_ignored] if found.index_ignored else []
        self.unknown = unknown_names(self._settings, found)
        for unknown in self.unknown:
            logger.warning("plugins.enabled: %s", unknown.text)
        for key, manifest in found.plugins.items():
            present = self._plugins.get(key)
            if present is None or not present.enabled:
                self._plugins[key] = self._load_one(manifest, decide(manifest))
        if found.plugins:
            enabled = sum(record.enabled for record in self._plugins.values())
            logger.debug("Plugin discovery complete: %d found, %d enabled", len(found.plugins), enabled)

    def reload(self, name: str | None = None) -> list[ReloadResult]:
        """Bring one plugin, or all, to what their folders and the config say now (`plugins.reload`).

        Call it in a worker, never on the core loop. Every plugin has `plugins.load_timeout_s`.

        Args:
            name: key or name; None means all of them.

        Raises:
            UserError: nobody has the name, or the config cannot be read; nothing has changed then.
        """
        with self._lock:
            waits = self._services.reread_config()
            self._settings, self._trust = (
                PluginSettings.of(self._services.config.values),
                GrantStore(self._services.home),
            )
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
                bundled = record is not None and record.manifest.source == "bundled"
                if bundled and name is None and what.outcome == "not loaded":
                    continue  # one of those that wait to be enabled
                if what.outcome != "unchanged":
                    logger.info("reload: %s", what)
                elif bundled:
                    continue
                done.append(what)
            if waits:
                logger.warning("the config also changed in %s: that needs a restart", ", ".join(waits))
        self._log_option_problems()
        write_state(self._services.home, self._plugins.values())
        self._keep_pins()
        return done

    def _why_absent(self, kind: str, name: str) -> str:
        return explain_absence(kind, name, self.records, self._trust)

    def _keep(self, key: str, record: LoadedPlugin | None) -> None:
        """Put the record in the place of the older one, whose modules' predecessors nobody needs any more."""
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
        self._services.stores.remove_owner(key)
        self._contexts.pop(key, None)

    def list_plugins(self) -> list[dict[str, Any]]:
        """Return a dict for each plugin, sorted by key (contract §1.11)."""
        return [self._plugins[key].summary() for key in sorted(self._plugins)]

    @property
    def records(self) -> list[LoadedPlugin]:
        """Every plugin that was found, in load order."""
        return list(self._plugins.values())

    @property
    def suspects(self) -> list[LoadedPlugin]:
        """Every plugin whose code may run: the records, and the one that is loaded right now."""
        loading = self._loading
        return self.records if loading is None else [*self.records, loading]

    def status_text(self) -> str:
        """Return what `/plugins` shows."""
        home = str(self._services.home)
        remarks = [*self.remarks, *self.suspensions()]
        return plugins_text(self.records, self.rejected, self.unknown, home, self.platform_states(), remarks)

    def suspensions(self) -> list[str]:
        """Return a line for each plugin whose hooks are called no more, with the reason and the remedy."""
        return [suspension_line(key, why) for key, why in self._services.hooks.suspended().items()]

    def platform_states(self) -> dict[str, PlatformState]:
        """Return what would become of each platform that is loaded, by name: whether it is enabled, and why."""
        return {s.name: s for s in platform_states(self._services.config.values, self._services.platforms, load=False)}

    def plugin_text(self, name: str) -> str:
        """Return what `/plugins NAME` shows; of a name that nobody has, the nearest one."""
        record = self.find(name)
        if record is not None:
            key = record.manifest.key
            why = self._services.hooks.suspended().get(key, "")
            return plugin_text(record, self._services.account.usage_of(key), self.platform_states(), suspended=why)
        rejected = next((r for r in self.rejected if r.name == name), None)
        if rejected is not None:
            return f"  ✗ {rejected.name} [refused] — {rejected.reason}"
        near = nearest_name(name, sorted({n for r in self.records for n in r.manifest.answers_to}))
        meant = f" (did you mean `{near}`?)" if near else ""
        return f"There is no plugin `{name}`{meant}. `/plugins` lists those that are there."

    def missed(self) -> list[str]:
        """Return a line for each plugin that is to run and does not."""
        return [explain_not_running(record) for record in self.records if is_missed(record)]

    def find(self, name: str) -> LoadedPlugin | None:
        """Return the plugin of that key or name."""
        found = self._plugins.get(name)
        return found or next((r for r in self.records if name in r.manifest.answers_to), None)

    def banner_lines(self) -> list[str]:
        """Return the tools of each plugin that runs: `calculator: calculate, unit_convert`."""
        return banner_lines(self.records)

    def hints(self) -> list[str]:
        """Return what somebody may want to put right, a line each."""
        return [*self.remarks, *self.suspensions(), *start_hints(self.records, self.rejected, self.unknown)]

    # -- hooks -----------------------------------------------------------------------------------------------

    def invoke_hook(self, hook_name: str, **kwargs: Any) -> list[Any]:
        """Call the hook's listeners in this thread and return what they answered."""
        return [r.value for r in self._services.hooks.fire(hook_name, **kwargs) if r.error is None]

    def has_hook(self, hook_name: str) -> bool:
        """Say whether anybody listens."""
        return self._services.hooks.has(hook_name)

    # -- middleware ------------------------------------------------------------------------------------------

    def invoke_middleware(self, kind: str, **kwargs: Any) -> list[Any]:
        """Go through the middleware of a kind in this thread and return the answers: `HookBus.invoke_middleware`."""
        return self._services.hooks.invoke_middleware(kind, **kwargs)

    def has_middleware(self, kind: str) -> bool:
        """Say whether anybody registered middleware of a kind."""
        return self._services.hooks.middleware.has(kind)

    # -- upstream's attributes -------------------------------------------------------------------------------

    @property
    def _hooks(self) -> dict[str, list[Callable[..., Any]]]:
        listeners = self._services.hooks
        found = {name: [callback for _, callback in listeners.listeners(name)] for name in listeners.names()}
        return ReadOnlyDict(found, "ctx.register_hook(name, callback) adds a callback")

    @property
    def _middleware(self) -> dict[str, list[Callable[..., Any]]]:
        middleware = self._services.hooks.middleware
        found = {kind: [callback for _, callback in middleware.listeners(kind)] for kind in middleware.names()}
        return ReadOnlyDict(found, "ctx.register_middleware(kind, callback) adds one")

    @property
    def _plugin_tool_names(self) -> set[str]:
        found = (name for record in self._plugins.values() for name in record.tools_registered)
        return ReadOnlySet(found, "ctx.register_tool registers a tool")

    @property
    def _plugin_commands(self) -> dict[str, dict[str, Any]]:
        commands = self._services.commands
        owned = [(n, c, commands.owner(n)) for n, c in commands.items()]
        found = {name: _command_dict(command, owner) for name, command, owner in owned if owner in self._plugins}
        return ReadOnlyDict(found, "ctx.register_command(name, handler) registers a command")

    @property
    def _cli_commands(self) -> dict[str, dict[str, Any]]:
        commands = self._services.cli_commands
        found = {
            name: {
                "name": name,
                "help": command.help,
                "setup_fn": command.setup_fn,
                "handler_fn": command.handler_fn,
                "description": command.description,
                "plugin": commands.owner(name),
            }
            for name, command in commands.items()
            if commands.owner(name) in self._plugins
        }
        return ReadOnlyDict(found, "ctx.register_cli_command(name, help, setup_fn) registers a command")

    @property
    def _aux_tasks(self) -> dict[str, dict[str, Any]]:
        tasks = self._services.auxiliary_tasks
        found = {
            key: {**task._asdict(), "defaults": dict(task.defaults), "plugin": tasks.owner(key)}
            for key, task in tasks.items()
        }
        return ReadOnlyDict(found, "ctx.register_auxiliary_task registers a side task")

    @property
    def _plugin_skills(self) -> dict[str, dict[str, Any]]:
        found = {
            name: {"path": s.path, "plugin": s.plugin, "bare_name": s.bare_name, "description": s.description}
            for name, s in self._services.plugin_skills.items()
        }
        return ReadOnlyDict(found, "ctx.register_skill(name, path) registers a skill")

    @property
    def _slack_action_handlers(self) -> list[tuple[Any, Callable[..., Any], str]]:
        found = [(a.action_id, a.callback, a.plugin) for a in self._services.slack_actions.items()]
        return ReadOnlyList(found, "ctx.register_slack_action_handler(action_id, callback) registers one")

    # -- skills ----------------------------------------------------------------------------------------------

    def find_plugin_skill(self, qualified_name: str) -> Path | None:
        """Return the `SKILL.md` of `plugin:skill`, or None."""
        skill = self._services.plugin_skills.get(qualified_name)
        return None if skill is None else skill.path

    def list_plugin_skills(self, plugin_name: str) -> list[str]:
        """Return the names of a plugin's skills, without the plugin's before them, sorted."""
        return [skill.bare_name for skill in self._services.plugin_skills.of_plugin(plugin_name)]

    def remove_plugin_skill(self, qualified_name: str) -> None:
        """Forget a skill; one that is not there is no error."""
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
        elif verdict.state == "new":  # it was named in the config by hand: that is the grant
            try:
                entry = self._trust.pin(manifest, by="first start")
            except UserError as exc:
                return Activation(False, "changed", str(exc))
            self._pinned.append(f"{manifest.key} ({len(entry.files)} files)")
        return gate

    def _log_option_problems(self) -> None:
        """Say which settings are not what the plugins that run declare; they run all the same."""
        running = [record.manifest for record in self._plugins.values() if record.enabled]
        for text in option_problems(self._services.config, running, make_value_check(self._services.credentials)):
            logger.warning("%s", text)

    def _keep_pins(self) -> None:
        if self._pinned:
            logger.info("plugins pinned as they are now: %s", ", ".join(self._pinned))
            self._pinned.clear()
        for record in self._plugins.values():
            if record.enabled:
                self._trust.learn(record.manifest, record.registers())
        try:
            self._trust.save()
        except UserError as exc:
            logger.warning("%s; changes of these plugins will not be seen", exc)

    def _defer(self, record: LoadedPlugin, gate: Activation) -> LoadedPlugin:
        """Load a platform that comes with the agent when somebody asks for it (contract §1.8)."""
        manifest = record.manifest

        def load_now() -> None:
            loaded = self._plugins[manifest.key] = self._load_one(manifest, gate, deferred=True)
            if not loaded.enabled:
                raise LoadFailed(manifest.key, loaded.error or "it does not run")

        self._services.platforms.register_deferred(platform_name(manifest), load_now)
        record.status, record.error, record.deferred = "enabled", None, True
        return record

    def _load_one(
        self, manifest: PluginManifest, gate: Activation, staging: StagedHost | None = None, *, deferred: bool = False
    ) -> LoadedPlugin:
        """Load a plugin.

        Args:
            staging: the stores that it registers in; None means the host's.
            deferred: it was put off, and now somebody asks for it.
        """
        record = LoadedPlugin(manifest, gate.status, gate.reason or None, notes=list(manifest.notes))
        self._loading = record
        record.is_dev = manifest.key in self._dev
        keeper = self._services.providers.memory_plugin
        if gate.load and self._settings.selects_memory(manifest) and keeper not in ("", manifest.key):
            gate = Activation(False, "not enabled", f"memory.provider is kept by plugin `{keeper}`")
            record.status, record.error = gate.status, gate.reason
        if not gate.load:
            record.missing = gate.missing
            if gate.missing:
                logger.warning("%s", gate.reason)
            logger.debug("skip %s: %s", manifest.key, gate.reason)
            return record
        if staging is None and is_deferred(manifest) and not deferred:
            return self._defer(record, gate)
        if staging is None and not can_interrupt():  # a plugin that is left behind must not register later
            staging = StagedHost(self._services, manifest.key)
        ground = cast("HostServices", staging or self._services)
        ctx = PluginContext(ground, record, self._settings, self)
        owner = Owner(manifest.key, self._settings.may_override(manifest), self._settings.free_tools)
        by = Registration(ground, record, self._settings)
        limit_s, stores = self._settings.load_timeout_s, None if staging is None else staging.stand_in
        refusals, refused_models = len(ground.tools.refusals), len(ground.model_providers.refusals)
        logger.debug("load %s: import %s and call register(ctx)", manifest.key, manifest.path)
        with log_context(plugin=manifest.key):
            try:
                with transaction(ground, manifest):
                    record.module = load_within(limit_s, self._services.bridge, manifest, ctx, owner, stores)
                    count_model_providers(by, refused_models)
                    _check_outcome(record)
            except LoadFailed as exc:
                _note_failure(record, exc)
                return record
        self._count_direct_registrations(ground, record, ctx, refusals)
        if staging is not None:
            staging.commit()
        record.status, record.error = "enabled", None
        self._contexts[manifest.key] = ctx
        if self._settings.selects_memory(manifest):
            self._services.providers.memory_plugin = manifest.key
            register_memory_cli(by, record.module)
        logger.debug(
            "%s registered: %d tool(s), %d hook(s), %d middleware, %d slash command(s), %d CLI command(s)",
            manifest.key,
            len(record.tools_registered),
            len(record.hooks_registered),
            len(record.middleware_registered),
            len(record.commands_registered),
            len(record.cli_commands_registered),
        )
        return record

    def _count_direct_registrations(
        self, ground: HostServices, record: LoadedPlugin, ctx: PluginContext, refusals: int
    ) -> None:
        """Count what the plugin registered with `tools.registry` or `platform_registry` itself, past its context."""
        key = record.manifest.key
        for name in ground.tools.owned_by(key):
            if name not in record.tools_registered:
                record.tools_registered.append(name)
        for name in ground.platforms.owned_by(key):
            add_once(record.providers_registered, (PLATFORM, name))
        for refusal in ground.tools.refusals[refusals:]:
            if refusal.claimed_by == key:
                ctx.refused_tool(refusal.tool, refusal.owner)


def _check_outcome(record: LoadedPlugin) -> None:
    manifest = record.manifest
    if manifest.kind == "model-provider" and not (record.providers_registered or record.problems or record.notes):
        raise LoadFailed(manifest.key, "no provider profile registered")


def _note_failure(record: LoadedPlugin, exc: LoadFailed) -> None:
    record.forget_registrations()
    record.status, record.error, record.where = "failed", str(exc), exc.where
    record.remedy = remedy_for(str(exc), record.manifest)
    logger.warning("Failed to load plugin '%s': %s", record.manifest.name, record.failure)
    logger.debug("traceback of plugin %s", record.manifest.key, exc_info=exc.__cause__ or exc)


def _command_dict(command: SlashCommand, owner: str | None) -> dict[str, Any]:
    return {
        "handler": command.handler,
        "description": command.description,
        "plugin": owner,
        "args_hint": command.args_hint,
    }
