"""Which platforms the config and the environment enable, and with which settings. Source: plugin contract §8.2.1."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, TypeVar

from hermes_agent.contracts.platform.entry import PLUGIN_SOURCE, PlatformEntry
from hermes_agent.contracts.platform.names import Platform
from hermes_agent.contracts.platform.registry import PlatformAvailability, PlatformRegistry
from hermes_agent.contracts.platform.settings import HomeChannel, PlatformConfig

__all__ = ["GatewayConfig", "PlatformState", "gateway_config", "platform_states"]

logger = logging.getLogger(__name__)

T = TypeVar("T")


@dataclass
class GatewayConfig:
    """What the gateway is told: the platforms and how sessions are cut.

    Attributes:
        platforms: every platform that the config or the environment names, enabled or not.
        reset_triggers: messages that start a new session.
    """

    platforms: dict[Platform, PlatformConfig] = field(default_factory=dict)
    group_sessions_per_user: bool = True
    thread_sessions_per_user: bool = False
    reset_triggers: list[str] = field(default_factory=lambda: ["/new", "/reset"])

    def get_connected_platforms(self) -> list[Platform]:
        """Return those that are enabled."""
        return [platform for platform, config in self.platforms.items() if config.enabled]

    def get_home_channel(self, platform: Platform) -> HomeChannel | None:
        """Return where messages without an addressee go."""
        config = self.platforms.get(platform)
        return config.home_channel if config is not None else None


class PlatformState(NamedTuple):
    """What would become of a registered platform now."""

    name: str
    config: PlatformConfig | None
    """None when neither config nor environment say anything of it."""
    reason: str
    """Why it is enabled, or is not: for people."""

    @property
    def enabled(self) -> bool:
        """Whether a gateway would connect it."""
        return self.config is not None and self.config.enabled


def gateway_config(values: Mapping[str, Any], registry: PlatformRegistry) -> GatewayConfig:
    """Return the gateway's settings.

    Args:
        values: the effective config.
    """
    config = GatewayConfig(
        group_sessions_per_user=bool(values.get("group_sessions_per_user", True)),
        thread_sessions_per_user=bool(values.get("thread_sessions_per_user", False)),
        reset_triggers=list(values.get("reset_triggers") or ["/new", "/reset"]),
    )
    states = {state.name: state for state in platform_states(values, registry)}
    for name in (*_blocks(values), *states):
        try:
            platform = Platform(name)
        except ValueError:
            logger.warning("platforms.%s: no plugin registered a platform of that name", name)
            continue
        block = states[name].config if name in states else _from_block(name, _blocks(values)[name])
        if block is not None:
            config.platforms[platform] = block
    return config


def platform_states(values: Mapping[str, Any], registry: PlatformRegistry, *, load: bool = True) -> list[PlatformState]:
    """Return what would become of each registered platform, in order of registration.

    Args:
        load: load those that are deferred; otherwise they are left out.
    """
    blocks = _blocks(values)
    entries = registry.all_entries() if load else registry.loaded_entries()
    return [_state(entry, values, blocks, registry.availability) for entry in entries]


def _state(
    entry: PlatformEntry,
    values: Mapping[str, Any],
    blocks: Mapping[str, Mapping[str, Any]],
    available: Callable[[str], PlatformAvailability],
) -> PlatformState:
    name = entry.name
    block = blocks.get(name)
    own = _own_settings(entry, values, block or {})
    config = _from_block(name, block) if block is not None else None
    if block is not None and block.get("enabled") is False:
        return PlatformState(name, config, f"platforms.{name}.enabled is false")
    config = config or PlatformConfig()
    config.extra.update(own)
    seed = _settings_of_function(entry.env_enablement_fn, (), "env_enablement_fn", name)
    home = seed.pop("home_channel", None)
    seeded = replace(config, enabled=True, extra={**config.extra, **seed})
    if isinstance(home, Mapping) and home.get("chat_id"):
        seeded.home_channel = HomeChannel.from_dict(home, Platform(name))
    can = available(name)
    if config.enabled:
        reason = "" if can.ok else f"; it cannot be connected: {can.reason}"
        return PlatformState(name, seeded, f"platforms.{name}.enabled is true{reason}")
    said = config if block is not None or own else None
    if entry.source != PLUGIN_SOURCE:
        return PlatformState(name, said, f"platforms.{name}.enabled is not true")
    if entry.is_connected is not None and not _call_platform(entry.is_connected, (seeded,), "is_connected", name):
        return PlatformState(name, said, "it is not configured" + _missing(entry))
    if not can.ok:
        return PlatformState(name, said, can.reason)
    return PlatformState(name, seeded, "it is configured" if entry.is_connected else "its check says yes")


def _blocks(values: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Return the blocks of `platforms` and `gateway.platforms` by name; the first wins, key by key."""
    gateway = values.get("gateway")
    found: dict[str, Mapping[str, Any]] = {}
    for table in (gateway.get("platforms") if isinstance(gateway, Mapping) else None, values.get("platforms")):
        for name, block in table.items() if isinstance(table, Mapping) else ():
            if isinstance(block, Mapping):
                key = str(name).strip().lower()
                found[key] = {**found.get(key, {}), **block}
    return found


def _from_block(name: str, block: Mapping[str, Any]) -> PlatformConfig:
    return PlatformConfig.from_dict(block, Platform(name))


def _own_settings(entry: PlatformEntry, values: Mapping[str, Any], block: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the platform makes of its block at the top level of the config, or below `platforms`."""
    translate = entry.apply_yaml_config_fn
    own = values.get(entry.name)
    said = {**block, **own} if isinstance(own, Mapping) else dict(block)
    said = {key: value for key, value in said.items() if value != {}}  # defaults of the schema, nobody's words
    return _settings_of_function(translate if said else None, (dict(values), said), "apply_yaml_config_fn", entry.name)


def _settings_of_function(
    function: Callable[..., dict[str, Any] | None] | None, args: Iterable[Any], what: str, name: str
) -> dict[str, Any]:
    """Return the settings that one of the platform's functions gives, none when it gives something else."""
    given = _call_platform(function, args, what, name) if function is not None else None
    if given is not None and not isinstance(given, Mapping):
        logger.warning("Platform '%s': %s gave %s, not a dict", name, what, type(given).__name__)
        return {}
    return dict(given or {})


def _missing(entry: PlatformEntry) -> str:
    return f" (it asks for {', '.join(entry.required_env)})" if entry.required_env else ""


def _call_platform(function: Callable[..., T], args: Iterable[Any], what: str, name: str) -> T | None:
    """Call one of the platform's functions; one that fails says nothing, and the log says so."""
    try:
        return function(*args)
    except Exception as exc:  # noqa: BLE001 - a plugin's code: the other platforms go on
        logger.warning("Platform '%s': %s failed: %s: %s", name, what, type(exc).__name__, exc)
        return None
