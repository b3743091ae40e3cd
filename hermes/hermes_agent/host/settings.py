"""Values of the config as the settings objects of other packages, and the secrets that are masked."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from hermes_agent import config as configuration
from hermes_agent.adapters.registry import PlatformRegistry
from hermes_agent.agent import AgentSettings
from hermes_agent.agent.settings import CompressionSettings, read_limits
from hermes_agent.agent.system_prompt import platform_hint
from hermes_agent.config.effective import secret_values, secret_variables
from hermes_agent.config.home import PRINCIPALS, WORKSPACE
from hermes_agent.config.settings import Settings, section
from hermes_agent.core.errors import ConfigError, UserError
from hermes_agent.core.redaction import redactor
from hermes_agent.credentials import Credentials
from hermes_agent.hooks import REST_S, HookDeadlines
from hermes_agent.hooks.bus import AnswerSpill
from hermes_agent.plugins.config_schema import schema_with_options
from hermes_agent.plugins.plugin_record import LoadedPlugin
from hermes_agent.policy.network import HostTable, HostTables
from hermes_agent.policy.taint import TaintSettings, TaintTracker
from hermes_agent.service.daemon_state import SystemdUnit, own_unit

logger = logging.getLogger(__name__)

NO_LIMIT_S = 86_400.0
_MODELS = ("auxiliary", "credential_pool_strategies", "fallback_providers", "model", "prompt_caching", "providers")
_CHATS = ("display", "group_sessions_per_user", "platforms", "quick_commands", "reset_triggers", "session_reset")
LIVE = frozenset(
    {
        *_MODELS,
        *_CHATS,
        "mcp",
        "mcp_discovery_timeout",
        "mcp_servers",
        "network",
        "plugins",
        "security",
        "streaming",
        "thread_sessions_per_user",
        "unauthorized_dm_behavior",
        "web",
    }
)
"""Blocks of the config that are read at each use, so that a reload takes effect."""


def working_directory(
    config: configuration.Config,
    home: Path,
    *,
    of_daemon: bool = False,
    find_unit: Callable[[], SystemdUnit | None] = own_unit,
) -> Path:
    """Return the resolved working directory of tools; no directory is created.

    It is `terminal.cwd` or, if that is not set, `$TERMINAL_CWD` (contract §2.3). Without both it is the directory in
    which the process was started. A daemon that is no service with a directory of its own uses `WORKSPACE` in the
    agent's home (docs/decisions/0008).

    Args:
        find_unit: returns the unit of systemd that the process runs in, or None.
    """
    given = config.settings.terminal.cwd
    place = os.environ.get("TERMINAL_CWD") or given if given == "." else given
    found = Path(os.path.expandvars(place)).expanduser().resolve()
    if place != "." or not of_daemon or (find_unit() is not None and not _is_home(found, home)):
        return found
    return (home / WORKSPACE).resolve()


def ensure_working_directory(config: configuration.Config, home: Path, *, of_daemon: bool) -> Path:
    """Return `working_directory`; a missing one in the agent's home is created with mode 0700.

    Raises:
        UserError: it cannot be created.
    """
    found = working_directory(config, home, of_daemon=of_daemon)
    if found == (home / WORKSPACE).resolve():
        try:
            found.mkdir(mode=0o700, exist_ok=True)
        except OSError as exc:
            hint = "Make it a directory that you may write, or name another one in `terminal.cwd`."
            raise UserError(f"cannot create the working directory {found}: {exc.strerror}", hint=hint) from exc
    return found


def _is_home(directory: Path, home: Path) -> bool:
    """Say whether a directory contains the home of the user or of the agent, where no command may write."""
    return any(place.resolve().is_relative_to(directory) for place in (Path.home(), home))


def register_secrets(
    credentials: Credentials, config: configuration.Config, records: Iterable[LoadedPlugin] = ()
) -> None:
    """Have the redactor mask every known secret of credentials and config, besides those of earlier calls.

    Args:
        records: the plugins that were found. A value that was masked only for its name or form is unmasked when an
            enabled plugin declares it harmless.
    """
    found = list(records)
    manifests = [record.manifest for record in found]
    named = dict.fromkeys(secret_variables(config), True)
    secrets = credentials.secrets(_declared_secrets(found) | named)
    if manifests:
        redactor.forget(credentials.secrets(named) - secrets)
    redactor.learn(secrets)
    redactor.learn(secret_values(config, schema_with_options(manifests)))


def _declared_secrets(records: Iterable[LoadedPlugin]) -> dict[str, bool]:
    """Return, by variable, whether plugins declare it a secret.

    One declaration as secret outweighs all others. Only an enabled plugin can declare a variable harmless.
    """
    found: dict[str, bool] = {}
    for record in records:
        for name, secret in record.manifest.variables().items():
            if secret or record.enabled:
                found[name] = found.get(name, False) or secret
    return found


def agent_settings(config: configuration.Config, cwd: Path) -> AgentSettings:
    """Return the settings of every conversation. `cwd`: the working directory of tools."""
    settings = config.settings
    guard, approvals = settings.tool_loop_guardrails, settings.approvals
    return section(
        AgentSettings,
        settings.agent,
        ("smart", "transport"),
        notice_after=guard.notice_after,
        end_after=guard.end_after,
        approval_timeout_s=approvals.timeout,
        approvals_off=approvals.mode == "off",
        limits=read_limits(settings),
        cwd=cwd,
    )


def compression_settings(config: configuration.Config) -> CompressionSettings:
    """Return when and how conversations are compacted."""
    return section(CompressionSettings, config.settings.compression)


def taint_tracker(home: Path, config: Callable[[], configuration.Config]) -> TaintTracker:
    """Return the tracker of untrusted text. `config`: returns the config in effect."""
    known: tuple[configuration.Config | None, TaintSettings] = (None, TaintSettings())

    def now() -> TaintSettings:
        nonlocal known
        if known[0] is not (current := config()):
            known = (current, section(TaintSettings, current.settings.security.foreign_text))
        return known[1]

    caches = ("cache/documents", "document_cache", f"{PRINCIPALS}/*/documents")  # files that came in chats
    sent = [str(home / cache / "*") for cache in caches]
    return TaintTracker(home / "state.db", now, sent)


def is_fail_open(settings: Callable[[], Settings], plugin: str) -> bool:
    """Say whether calls run when a guard of the plugin fails (`on_guard_error: allow`)."""
    return (settings().plugins.entries.get(plugin) or {}).get("on_guard_error") == "allow"


def platform_hints(platforms: PlatformRegistry, settings: Callable[[], Settings]) -> Callable[[str], str]:
    """Return the function that gives the hint about a platform for the system prompt."""

    def hint(platform: str) -> str:
        entry, own = platforms.get(platform), settings().platform_hints
        return platform_hint(platform, "" if entry is None else entry.platform_hint, own.get(platform))

    return hint


def network_table(settings: Callable[[], Settings], home: Path) -> HostTables:
    """Return the table of hosts.

    Args:
        settings: returns the settings in effect, after each reload, too.

    Raises:
        ConfigError: an entry names no host.
    """
    HostTable.of(settings())
    return HostTables(settings, home)


def answer_spill(config: configuration.Config, home: Path) -> AnswerSpill:
    """Return the spill for long texts of hooks."""
    spill = config.settings.hooks.output_spill
    return section(
        AnswerSpill,
        spill,
        directory=Path(os.path.expandvars(spill.directory)).expanduser() if spill.directory else home / "hook_outputs",
        head=spill.preview_head,
        tail=spill.preview_tail,
    )


def hook_deadlines(config: configuration.Config) -> HookDeadlines:
    """Return the time limits of hooks. A limit of 0 stands for a day."""
    plugins = config.settings.plugins
    own = {
        plugin: entry["hook_timeout_s"]
        for plugin, entry in plugins.entries.items()
        if entry and "hook_timeout_s" in entry
    }
    limit_s = plugins.hook_timeout_s if plugins.hook_callback_timeout is None else plugins.hook_callback_timeout
    return HookDeadlines(limit_s or NO_LIMIT_S, own, REST_S)


def disabled_plugins(config: configuration.Config, home: Path) -> Sequence[str]:
    """Return `plugins.disabled` of the config file: a plugin disabled since the start serves no skills.

    Args:
        config: used if the file cannot be read.
    """
    try:
        config = configuration.load(home)
    except ConfigError as exc:
        logger.warning("config: invalid, the values of the start stay in effect: %s: %s", home, exc)
    return [str(name) for name in config.settings.plugins.disabled]


def reload_config(config: configuration.Config, home: Path) -> tuple[configuration.Config, list[str]]:
    """Read the config again; return the config in effect after it, and the blocks that need a restart.

    Raises:
        ConfigError: a setting is wrong.
    """
    read = configuration.load(home)
    HostTable.of(read.settings)
    before, fresh = config.values, read.values
    taken = {root: value for root, value in fresh.items() if root in LIVE}
    changed = {root for root in {*before, *fresh} - LIVE if before.get(root) != fresh.get(root)}
    return config._replace(values={**before, **taken}, layers=read.layers), sorted(changed)
