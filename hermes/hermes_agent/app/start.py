"""The start of a process with an agent: host, log, compat names, plugins, warnings about the config."""

from __future__ import annotations

import logging
from collections.abc import Iterator

from hermes_agent.agent.settings import PRICE_REMEDY, read_limits, unpriced_sentence
from hermes_agent.compat import import_hook
from hermes_agent.config import Config
from hermes_agent.config.check import keys_without_effect
from hermes_agent.config.effective import write_effective
from hermes_agent.config.settings import plain
from hermes_agent.config.yaml_document import ConfigFinding, config_error
from hermes_agent.core.errors import UserError
from hermes_agent.credentials.secret_sources import SecretSources
from hermes_agent.host import Host
from hermes_agent.logs.setup import LogMode, configure_logging
from hermes_agent.models.selection import ModelSelection
from hermes_agent.plugins.config_names import find_unknown_names
from hermes_agent.plugins.usage_account import watch_threads
from hermes_agent.policy.network import explain_unruled
from hermes_agent.workspace.shell_hooks import ShellHookLoader
from hermes_agent.workspace.task_shells import TaskShells

logger = logging.getLogger(__name__)


def start_host(mode: LogMode = "terminal", *, log_level: str | None = None, fetches: bool = True) -> Host:
    """Return a host with its plugins loaded.

    Args:
        mode: where the log goes, and whether the process is a daemon.
        log_level: None takes the level of the config.
        fetches: whether secret sources are asked; the check of a declared host has no network.

    Raises:
        ConfigError: a setting is wrong.
    """
    host = Host.build(is_daemon=mode == "daemon")
    configure_logging(host.config.settings.logging, home=host.home, mode=mode, level_name=log_level)
    _check_unprotected(host.config)
    write_effective(host.config)
    for warning in host.credentials.warnings():
        logger.warning("%s", warning)
    import_hook.install()
    watch_threads(lambda: host.plugins.suspects, host.account.fault)
    host.load_plugins()
    if fetches:
        host.service(SecretSources).fetch()
    for sentence in (*_sandbox_warning(host.config), *start_warnings(host), *unpriced_models(host)):
        logger.warning("%s", sentence)
    return host


def _sandbox_warning(config: Config) -> list[str]:
    """Return the warning about a disabled sandbox."""
    if config.settings.terminal.backend != "local" or config.settings.terminal.sandbox != "off":
        return []
    return ["terminal.sandbox is off: commands run outside a sandbox, and each is asked about"]


def start_warnings(host: Host) -> list[str]:
    """Return a sentence for each setting without effect and each secret source that failed.

    The manager of plugins reports unknown names in `plugins.enabled`.
    """
    found = [finding for finding in _log_without_effect(host.config) if finding.level == "warning"]
    names = [finding for finding in find_unknown_names(host) if not finding.key_path.startswith("plugins.enabled")]
    hooks = host.service(ShellHookLoader).hints()
    sources = host.service(SecretSources).failures()
    return [*sources, *_network(host), *hooks, *(str(finding) for finding in (*found, *names))]


def _network(host: Host) -> list[str]:
    """Return the rules of `terminal.network` that the backend of commands does not apply."""
    config = host.config
    written = any((layer.document.value.get("terminal") or {}).get("network") is not None for layer in config.layers)
    why = explain_unruled(host.service(TaskShells).name, config.settings)
    asks = config.settings.network.deny or (written and config.settings.terminal.network != "on")
    return [why] if why and asks else []


def _check_unprotected(config: Config) -> None:
    """Log the keys of the config that have no effect.

    Raises:
        ConfigError: a key demands a protection that is not available.
    """
    found = _log_without_effect(config)
    if errors := [finding for finding in found if finding.level == "error"]:
        raise config_error(errors)
    for finding in found:
        if finding.level == "note":
            logger.info("%s", finding)


def _log_without_effect(config: Config) -> list[ConfigFinding]:
    return [finding for layer in config.layers for finding in keys_without_effect(layer.document)]


def unpriced_models(host: Host) -> list[str]:
    """Return a sentence for each configured model that a cap in dollars cannot count for lack of a price."""
    limits = read_limits(host.config.settings)
    key = next((f"limits.{name}" for name in ("session_usd", "job_usd", "day_usd") if getattr(limits, name)), "")
    if not key or not isinstance(limits.unknown_price, str):
        return []
    follows = "it is not asked" if limits.refuses_unpriced else "its calls are not counted"
    found: dict[tuple[str, str], str] = {}
    for use, selection in configured_models(host):
        if not host.model_infos.is_priced(selection.endpoint, selection.model):
            why = unpriced_sentence(selection.model, selection.provider, key)
            found.setdefault((selection.provider, selection.model), f"{use}: {why}; {follows}. {PRICE_REMEDY}")
    return list(found.values())


def configured_models(host: Host) -> Iterator[tuple[str, ModelSelection]]:
    """Yield the configured models, each with its key of the config; unavailable models are left out."""
    from hermes_agent.plugins.llm_access import task_selection  # 20 ms that a start without caps does not need
    from hermes_agent.plugins.llm_client import task_settings

    try:
        yield "model", host.select_model()
    except UserError:
        return  # no model is configured; each model request says so
    for selection in host.fallbacks():
        yield "fallback_providers", selection
    for number, selection in host.model_routes.selections():
        yield f"model.routes[{number}]", selection
    for task, block in plain(host.config.settings.auxiliary).items():
        if isinstance(block, dict) and any(block.get(name) for name in ("model", "base_url")):
            try:
                yield f"auxiliary.{task}", task_selection(host, task_settings(host, task))
            except UserError:
                continue
