"""Activation: whether a plugin runs, with the reason; and the change of that decision in the config.

The decisions are pure functions of settings and manifests. Source: plugin contract §1.5, §1.6 (its texts in backticks
are used word for word), §1.13.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, Protocol

from hermes_agent.contracts.kind import read_setting
from hermes_agent.core.errors import UserError
from hermes_agent.core.lazy_types import LazyNamedTuple
from hermes_agent.core.text import nearest_name
from hermes_agent.plugins.capabilities import TOOLS_OVERRIDE, is_granted
from hermes_agent.plugins.discovery import Discovery, RejectedPlugin, add_every_memory_folder, discover
from hermes_agent.plugins.manifest import PluginManifest, guess_kind

logger = logging.getLogger(__name__)

Status = Literal["enabled", "disabled", "not enabled", "failed", "refused", "changed"]
"""`failed`: it is enabled but could not be loaded; `refused`: another plugin has its key, or its manifest is invalid;
`changed`: its files differ from the granted ones (`grants`).
"""

NOT_GATED_BY_ENV = ("backend", "platform", "model-provider", "exclusive")
"""Kinds of plugins that check themselves whether they are configured."""


IN_PROCESS, HOST = "in_process", "host"
"""Values of `plugins.isolation`: in the process of the agent, or in one of the plugin."""


class PluginProcessSettings(LazyNamedTuple):
    """The settings under `plugins.host`."""

    launcher: tuple[str, ...] = ()
    """Program and arguments that start the process, in place of the sandbox."""
    memory_mb: int = 1024
    call_timeout_s: float = 600.0
    stall_s: float = 20.0
    sockets: str = "/run/hermes-plugin"
    """Folder of the sockets that start a systemd unit for a plugin."""

    @classmethod
    def of(cls, section: Mapping[str, Any]) -> PluginProcessSettings:
        """Read the settings."""
        launcher = section.get("launcher") or ()
        if isinstance(launcher, str):
            import shlex  # few configs have a launcher

            launcher = shlex.split(launcher)
        return cls(
            tuple(str(word) for word in launcher),
            int(section.get("memory_mb", cls().memory_mb)),
            float(section.get("call_timeout_s", cls().call_timeout_s)),
            float(section.get("stall_s", cls().stall_s)),
            str(section.get("sockets") or cls().sockets),
        )


class PluginSettings(LazyNamedTuple):
    """The settings under `plugins`."""

    enabled: tuple[str, ...] = ()
    disabled: tuple[str, ...] = ()
    auto_enable: bool = False
    """Run the plugins that a build declared, and those of installed packages, unless they are disabled."""
    entries: Mapping[str, Mapping[str, Any]] = MappingProxyType({})
    """`plugins.entries`: settings by plugin."""
    memory: str = ""
    """`memory.provider`: the plugin that provides the memory."""
    model_provider: str = ""
    """`model.provider`: a plugin of this name provides the model."""
    scheduler: str = ""
    """`cron.provider`: a plugin of this name provides the scheduler."""
    load_timeout_s: float = 30.0
    """Time limit for the import and registration of one plugin, in seconds."""
    free_tools: tuple[str, ...] = ()
    """`plugins.allow_tool_override`: tools that any plugin may replace."""
    isolation: str = IN_PROCESS
    """`plugins.isolation`: where plugins run, unless their entry says otherwise."""
    host: Mapping[str, Any] = MappingProxyType({})
    """`plugins.host`: the processes of isolated plugins (`PluginProcessSettings.of`)."""

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> PluginSettings:
        """Read the settings from the effective config; values of a wrong type enable nothing."""
        memory = read_setting(values, "memory.provider")
        chosen = (read_setting(values, "model.provider"), read_setting(values, "cron.provider"))
        section = values.get("plugins")
        if not isinstance(section, Mapping):
            return cls((), (), False, {}, memory, *chosen)
        entries = section.get("entries")
        return cls(
            _names(section.get("enabled")),
            _names(section.get("disabled")),
            section.get("auto_enable") is True,
            {str(k): v for k, v in entries.items() if isinstance(v, Mapping)} if isinstance(entries, Mapping) else {},
            memory,
            *chosen,
            _seconds(section.get("load_timeout_seconds", section.get("load_timeout_s"))),
            _names(section.get("allow_tool_override")),
            str(section.get("isolation") or IN_PROCESS),
            section["host"] if isinstance(section.get("host"), Mapping) else {},
        )

    def entry(self, manifest: PluginManifest) -> Mapping[str, Any]:
        """Return the settings of one plugin, by key or by name."""
        return self.entries.get(manifest.key) or self.entries.get(manifest.name) or {}

    @property
    def memory_mb(self) -> int:
        """`plugins.host.memory_mb`: most memory of an isolated plugin in MiB; 0 for no limit."""
        return PluginProcessSettings.of(self.host).memory_mb

    def is_isolated(self, manifest: PluginManifest) -> bool:
        """Return whether the plugin runs in a process of its own; bundled and portable plugins never do.

        An unknown value means the process of the agent, with a warning.
        """
        if manifest.source == "bundled" or manifest.portable:
            return False
        given = self.entry(manifest).get("isolation") or self.isolation
        if given not in (IN_PROCESS, HOST):
            logger.warning(
                "plugins.isolation: %r is unknown; plugin %s runs in the process of the agent", given, manifest.key
            )
        return bool(given == HOST)

    def may_override(self, manifest: PluginManifest) -> bool:
        """Return whether the operator allows the plugin to replace tools; bundled plugins always may."""
        return manifest.source == "bundled" or bool(is_granted(self.entry(manifest), TOOLS_OVERRIDE))

    def selects_memory(self, manifest: PluginManifest) -> bool:
        """Return whether `memory.provider` selects this plugin.

        The setting may hold the key, the name or the folder, with or without the category. A folder that calls itself
        standalone is selected too if its source has a memory, as upstream's memory loader asks for no kind.
        """
        if not self.memory or self.memory not in _setting_names(manifest):
            return False
        return manifest.kind == "exclusive" or _has_memory(manifest)

    def enables(self, manifest: PluginManifest) -> bool:
        """Return whether `plugins.enabled` names this plugin."""
        return _is_named(manifest, self.enabled)

    def selects_model(self, manifest: PluginManifest) -> bool:
        """Return whether `model.provider` selects this plugin, by the same names as for a memory."""
        chosen = self.model_provider
        return manifest.kind == "model-provider" and bool(chosen) and chosen in _setting_names(manifest)

    def selects_scheduler(self, manifest: PluginManifest) -> bool:
        """Return whether `cron.provider` selects this plugin, by the same names as for a memory."""
        return (
            manifest.kind in ("standalone", "backend")
            and bool(self.scheduler)
            and self.scheduler in _setting_names(manifest)
        )


class SecretLookup(Protocol):
    """Lookup of secrets by the names of their variables."""

    def get(self, name: str, /) -> str | None:
        """Return the value, or None.

        Raises:
            ValueError: `name` could not be the name of a variable.
        """
        ...


def make_value_check(secrets: SecretLookup) -> Callable[[str], bool]:
    """Return a function that tells whether a variable of `requires_env` has a value.

    A name that no variable can have counts as one without a value.
    """

    def ask(name: str) -> bool:
        try:
            return bool(secrets.get(name))
        except ValueError:
            return False

    return ask


class Activation(LazyNamedTuple):
    """The decision for one plugin."""

    load: bool
    status: Status
    reason: str = ""
    """Why the plugin does not run; empty if it runs."""
    missing: tuple[str, ...] = ()
    """Variables of `requires_env` without a value, if they are the reason."""


def decide_activation(manifest: PluginManifest, settings: PluginSettings, has_env: Callable[[str], bool]) -> Activation:
    """Decide whether the plugin runs.

    Args:
        has_env: whether a variable of `requires_env` has a value in any secret source.
    """
    if _is_named(manifest, settings.disabled):
        return Activation(False, "disabled", "disabled via config")
    match manifest.kind:
        case "exclusive" if settings.selects_memory(manifest):
            return Activation(True, "enabled")
        case "standalone" if settings.selects_memory(manifest):
            return Activation(True, "enabled")
        case "exclusive":
            return Activation(False, "not enabled", "exclusive plugin — activate via <category>.provider config")
        case "model-provider" if settings.selects_model(manifest):
            return Activation(True, "enabled")
        case "backend" if manifest.source == "bundled":
            return Activation(True, "enabled")
        case "platform" if manifest.source == "bundled":
            return Activation(True, "enabled")
    chosen = settings.selects_scheduler(manifest) or _declared_default(manifest, settings)
    if not (_is_named(manifest, settings.enabled) or chosen):
        return Activation(False, "not enabled", f"not enabled in config ({enable_hint(manifest)})")
    missing = [] if _ignores_env(manifest, settings) else [n for n in manifest.env_names if not has_env(n)]
    if missing:
        text = f"Plugin {manifest.name} disabled (missing: {', '.join(missing)})"
        return Activation(False, "disabled", text, tuple(missing))
    return Activation(True, "enabled")


def enable_hint(manifest: PluginManifest) -> str:
    """Return the instruction to enable the plugin, in the words of the contract."""
    return f"run `hermes plugins enable {manifest.key}` to activate"


def _setting_names(manifest: PluginManifest) -> tuple[str, ...]:
    """Return the names by which a setting may select the plugin."""
    return (*manifest.answers_to, manifest.folder, manifest.key.partition("/")[2])


def _has_memory(manifest: PluginManifest) -> bool:
    return (
        manifest.kind == "standalone" and manifest.source != "entrypoint" and guess_kind(manifest.path) == "exclusive"
    )


def _is_named(manifest: PluginManifest, names: Iterable[str]) -> bool:
    return not set(manifest.answers_to).isdisjoint(names)


def _declared_default(manifest: PluginManifest, settings: PluginSettings) -> bool:
    return settings.auto_enable and manifest.source in ("declared", "entrypoint")


def _ignores_env(manifest: PluginManifest, settings: PluginSettings) -> bool:
    return manifest.kind in NOT_GATED_BY_ENV or settings.entry(manifest).get("ignore_missing_env") is True


def _seconds(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or value < 0:
        return 30.0
    return min(float(value), 3600.0)


def _names(value: object) -> tuple[str, ...]:
    return tuple(str(item) for item in value) if isinstance(value, list) else ()


class UnknownPluginName(LazyNamedTuple):
    """A name in the settings that matches no usable plugin."""

    name: str
    text: str
    """Message for the operator, one sentence."""
    nearest: str = ""
    """The plugin that is probably meant; empty if no name is similar."""


def unknown_names(settings: PluginSettings, found: Discovery) -> list[UnknownPluginName]:
    """Return the names in `plugins.enabled` that match no plugin."""
    known = {name for manifest in found.plugins.values() for name in manifest.answers_to}
    return [_explain_unknown(name, found, known) for name in dict.fromkeys(settings.enabled) if name not in known]


def _explain_unknown(name: str, found: Discovery, known: set[str]) -> UnknownPluginName:
    for manifest in found.plugins.values():
        if manifest.folder == name:
            return UnknownPluginName(
                name, f"{name} is the folder of plugin `{manifest.key}`; enable `{manifest.key}`", manifest.key
            )
    rejected = _explain_rejected(name, found.rejected)
    if rejected is not None:
        return UnknownPluginName(name, f"plugin `{name}` ({rejected.path}) cannot be used: {rejected.reason}")
    near = nearest_name(name, sorted(known))
    if near is not None:
        return UnknownPluginName(name, f"unknown plugin `{name}` (did you mean `{near}`?)", near)
    return UnknownPluginName(name, f"unknown plugin `{name}`: `hermes plugins list` shows those that are there")


def _explain_rejected(name: str, rejected: Iterable[RejectedPlugin]) -> RejectedPlugin | None:
    return next((r for r in rejected if not r.rival and name in (r.name, r.name.rpartition("/")[2])), None)


class ActivationChange(LazyNamedTuple):
    """Result of `set_activation`."""

    manifest: PluginManifest
    changed: bool
    """False if the config already had this setting."""


def find_plugin(name: str, found: Discovery) -> PluginManifest:
    """Return the plugin with this key or name.

    Raises:
        UserError: there is none; the message names the plugin that is probably meant.
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
    """Add the plugin to `plugins.enabled` or `plugins.disabled` and remove it from the other list.

    Args:
        name: key or name of a plugin that was found.
        settings: the settings in effect.
        allow_tool_override: new value of that setting; None leaves it unchanged.

    Raises:
        UserError: there is no such plugin, or the setting cannot be changed (declared by Nix, read-only file).
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
    """Remove the names from `plugins.enabled` and `plugins.disabled` of the operator's own config.

    Returns:
        A sentence for each list that still names the plugin because it cannot be changed here.
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
