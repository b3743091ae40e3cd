"""Registered platforms, and which of them the config and the environment enable.

Source: plugin contract §8.2.1, contract of 0.23 §9.3.
"""

from __future__ import annotations

import contextlib
import inspect
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextvars import ContextVar
from dataclasses import field, replace
from typing import Any, Self, TypeVar

from hermes_agent.adapters.config import (
    BUILTIN_PLATFORMS,
    HOST_PLATFORMS,
    PLUGIN_SOURCE,
    SHARED_SETTINGS,
    HomeChannel,
    Platform,
    PlatformConfig,
    PlatformEntry,
    add_lookup,
    lookups,
    may_be_configured,
    platform_blocks,
)
from hermes_agent.contracts.kind import Kind
from hermes_agent.core.lazy_types import LazyNamedTuple, lazy_dataclass
from hermes_agent.core.registry import (
    BUILTIN,
    Conflict,
    Owner,
    RegistrationStore,
    Registry,
    StoreGroup,
    current_owner,
    staged_store,
)

__all__ = [
    "GatewayConfig",
    "PLATFORM",
    "PlatformAvailability",
    "PlatformRegistry",
    "PlatformState",
    "SLACK_ACTION",
    "gateway_config",
    "platform_in_creation",
    "platform_states",
]


PLATFORM = Kind("platform", "register_platform", "platform", is_used=True)
SLACK_ACTION = Kind("slack_action", "register_slack_action_handler", "Slack action handler")


logger = logging.getLogger(__name__)

_platform_in_creation: ContextVar[str] = ContextVar("hermes_platform_being_made", default="")


class PlatformAvailability(LazyNamedTuple):
    """Whether a platform can be connected on this machine."""

    ok: bool
    reason: str
    """The reason; "" if it can."""
    failed: bool = False
    """Whether its check is broken: it raised, or is no plain function."""


def platform_in_creation() -> Platform | None:
    """Return the platform that is created in this context: the default platform of an adapter."""
    name = _platform_in_creation.get()
    return Platform(name) if name else None


class PlatformRegistry(StoreGroup):
    """Platforms by name, in order of registration. The method names are upstream's.

    A deferred platform is a function that registers the platform at its first use.
    """

    _parts = ("_entries", "_deferred")

    def __init__(self) -> None:
        self._entries: Registry[PlatformEntry] = Registry(PLATFORM.label)
        self._deferred: Registry[Callable[[], Any]] = Registry(f"deferred {PLATFORM.label}")
        add_lookup(self)

    def register(self, entry: PlatformEntry) -> None:
        """Register a platform for the current owner; a later registration of the same owner wins.

        A name of another owner is kept, with a warning in the log, unless the operator allowed the plugin to replace
        names.
        """
        owner = current_owner()
        try:
            staged_store(self).add(entry, owner)
        except Conflict as exc:
            logger.warning("Platform '%s' was not registered: %s", entry.name, exc)

    def add(self, entry: PlatformEntry, owner: Owner, *, builtin: bool = False) -> None:
        """Register a platform.

        Args:
            builtin: whether it is part of the agent and may have a name of the host's own.

        Raises:
            ValueError: the name is invalid.
            Conflict: another owner has the name.
        """
        name = entry.name
        if not isinstance(name, str) or not name.strip() or name != name.strip().lower():
            raise ValueError(f"invalid name of a platform: {name!r}: expected lower case")
        if name in HOST_PLATFORMS and not builtin and not owner.may_override:
            raise Conflict(PLATFORM.label, name, BUILTIN, owner.key)
        present = self._entries.get(name)
        self._entries.add(name, entry, owner=owner.key, replace=owner.may_override)
        self._deferred.remove(name)
        if present is not None:
            logger.debug("Platform '%s' re-registered (was %s, now %s)", name, present.source, entry.source)

    def register_deferred(self, name: str, loader: Callable[[], Any], *, owner: str = "") -> None:
        """Register a function that registers the platform at its first use; a registered name is kept."""
        if self._entries.get(name) is None:
            self._deferred.add(name, loader, owner=owner or current_owner().key, replace=True)

    def is_free(self, name: str, values: Mapping[str, Any]) -> bool:
        """Return whether a plugin may take the name: it was only deferred, and the config does not enable it."""
        return name not in self._entries and platform_blocks(values).get(name, {}).get("enabled") is not True

    def unregister(self, name: str) -> bool:
        """Remove a platform; return whether it was there."""
        deferred = self._deferred.remove(name)
        return self._entries.remove(name) or deferred

    def withdraw(self, name: str, entry: PlatformEntry) -> bool:
        """Remove one registration, and return whether it was there; a platform that it replaced is restored."""
        return self._entries.withdraw(name, entry)

    def get(self, name: str) -> PlatformEntry | None:
        """Return a platform; None if it is not registered or cannot be loaded."""
        self._load(name)
        return self._entries.get(name)

    def all_entries(self, wanted: Callable[[str], bool] = lambda name: True) -> list[PlatformEntry]:
        """Return all platforms, and load the deferred ones with a `wanted` name."""
        for name in filter(wanted, self._deferred):
            self._load(name)
        return self.loaded_entries()

    def loaded_entries(self) -> list[PlatformEntry]:
        """Return all platforms except deferred ones."""
        return [entry for _, entry in self._entries.items()]

    def plugin_entries(self) -> list[PlatformEntry]:
        """Return the platforms of plugins."""
        return [entry for entry in self.all_entries() if entry.source == PLUGIN_SOURCE]

    def names(self) -> list[str]:
        """Return all names, without loading platforms."""
        return sorted({*self._entries.names(), *self._deferred})

    def is_registered(self, name: str) -> bool:
        """Return whether a platform is registered, without loading it."""
        return name in self._entries or name in self._deferred

    def owner(self, name: str) -> str | None:
        """Return the key of the plugin that registered a platform."""
        return self._entries.owner(name) or self._deferred.owner(name)

    def availability(self, name: str) -> PlatformAvailability:
        """Return the result of `check_fn`; an exception counts as unavailable and is the reason."""
        entry = self.get(name)
        return PlatformAvailability(False, "it is not registered") if entry is None else _availability(entry)

    def create_adapter(self, name: str, config: Any) -> Any:
        """Return a new adapter, or None and a log line with the reason.

        Args:
            config: the `PlatformConfig` of the platform.
        """
        entry = self.get(name)
        if entry is None:
            return None
        available = _availability(entry)
        if not available.ok and _ensure_requirements(entry):
            available = PlatformAvailability(True, "")
        if not available.ok:
            logger.warning("Platform '%s' requirements not met (%s)", name, available.reason)
            return None
        if not _is_valid(entry, config):
            return None
        try:
            with _mark_creation(name):
                return entry.adapter_factory(config)
        except Exception as exc:
            logger.error("Failed to create adapter for platform '%s': %s", name, exc, exc_info=True)
            return None

    def with_stores(self, stores: Iterable[RegistrationStore]) -> Self:
        """Return a copy with other platforms, which `Platform` looks up, too."""
        other = super().with_stores(stores)
        add_lookup(other)
        return other

    def _load(self, name: str) -> None:
        """Run the loader of a deferred platform, once."""
        loader = self._deferred.get(name)
        if loader is None or not self._deferred.remove(name):
            return
        try:
            loader()
        except Exception as exc:  # noqa: BLE001 - plugin code: other platforms must still load
            logger.warning("Deferred load of platform '%s' failed: %s", name, exc)


@contextlib.contextmanager
def _mark_creation(name: str) -> Iterator[None]:
    token = _platform_in_creation.set(name)
    try:
        yield
    finally:
        _platform_in_creation.reset(token)


def _availability(entry: PlatformEntry) -> PlatformAvailability:
    try:
        answer = entry.check_fn()
    except (Exception, SystemExit) as exc:  # noqa: BLE001 - plugin code: other platforms must still work
        return PlatformAvailability(False, f"its check failed: {type(exc).__name__}: {exc}", True)
    if inspect.iscoroutine(answer):
        answer.close()
        return PlatformAvailability(False, "its check_fn is a coroutine function: expected a plain function", True)
    return (
        PlatformAvailability(True, "")
        if answer
        else PlatformAvailability(False, entry.install_hint or "its check_fn returned False")
    )


def _ensure_requirements(entry: PlatformEntry) -> bool:
    """Return whether `ensure_deps_fn` of a platform made its requirements available."""
    if entry.ensure_deps_fn is None:
        return False
    logger.info("Platform '%s': its check_fn returned False, so its ensure_deps_fn is called", entry.name)
    return bool(_call_platform(entry.ensure_deps_fn, (), "ensure_deps_fn", entry.name)) or _availability(entry).ok


def _is_valid(entry: PlatformEntry, config: Any) -> bool:
    if entry.validate_config is None:
        return True
    try:
        valid = bool(entry.validate_config(config))
    except Exception as exc:  # noqa: BLE001 - plugin code
        logger.warning("Platform '%s' config validation error: %s", entry.name, exc)
        return False
    if not valid:
        logger.warning("Platform '%s' config validation failed", entry.name)
    return valid


T = TypeVar("T")


GATEWAY_SETTINGS = ("group_sessions_per_user", "thread_sessions_per_user", "reset_triggers")
"""Settings of the gateway that are no platform."""


@lazy_dataclass
class GatewayConfig:
    """Settings of the gateway: the platforms, and how sessions are separated.

    Attributes:
        platforms: all platforms in the config or environment, enabled or not.
        reset_triggers: messages that start a new session.
    """

    platforms: dict[Platform, PlatformConfig] = field(default_factory=dict)
    group_sessions_per_user: bool = True
    thread_sessions_per_user: bool = False
    reset_triggers: list[str] = field(default_factory=lambda: ["/new", "/reset"])
    registry: PlatformRegistry | None = field(default=None, init=False, repr=False, compare=False)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> GatewayConfig:
        """Return the settings in a mapping; unregistered platforms and other settings are left out."""
        platforms: dict[Platform, PlatformConfig] = {}
        for name, block in (data.get("platforms") or {}).items():
            with contextlib.suppress(ValueError):
                platform = Platform(name)
                platforms[platform] = PlatformConfig.from_dict(block or {}, platform)
        given: dict[str, Any] = {name: data[name] for name in GATEWAY_SETTINGS if data.get(name) is not None}
        return cls(platforms, **given)

    def to_dict(self) -> dict[str, Any]:
        """Return the settings as a mapping of JSON types."""
        platforms = {platform.value: config.to_dict() for platform, config in self.platforms.items()}
        return {"platforms": platforms, **{name: getattr(self, name) for name in GATEWAY_SETTINGS}}

    def get_connected_platforms(self) -> list[Platform]:
        """Return the enabled platforms that accept their settings; one that is not registered is left out."""
        return [name for name, config in self.platforms.items() if config.enabled and self._accepts(name, config)]

    def _accepts(self, platform: Platform, config: PlatformConfig) -> bool:
        """Return whether the platform's own probe accepts its settings; one of the contract needs no plugin."""
        known = [self.registry] if self.registry else [each for each in lookups() if isinstance(each, PlatformRegistry)]
        entry = next((found for each in known if (found := each.get(platform.value)) is not None), None)
        if entry is None:
            return platform.value in BUILTIN_PLATFORMS
        probe = entry.is_connected or entry.validate_config
        return probe is None or bool(_call_platform(probe, (config,), "its check of the settings", platform.value))

    def get_home_channel(self, platform: Platform) -> HomeChannel | None:
        """Return the home channel of a platform, or None."""
        config = self.platforms.get(platform)
        return config.home_channel if config is not None else None


class PlatformState(LazyNamedTuple):
    """Whether the gateway connects a registered platform, and why."""

    name: str
    config: PlatformConfig | None
    """None if it is neither in the config nor in the environment."""
    reason: str
    """Why it is enabled or not, for users."""

    @property
    def enabled(self) -> bool:
        """Whether the gateway connects it."""
        return self.config is not None and self.config.enabled


def gateway_config(values: Mapping[str, Any], registry: PlatformRegistry) -> GatewayConfig:
    """Return the settings of the gateway.

    Args:
        values: the effective config.
    """
    config = GatewayConfig(
        group_sessions_per_user=bool(values.get("group_sessions_per_user", True)),
        thread_sessions_per_user=bool(values.get("thread_sessions_per_user", False)),
        reset_triggers=list(values.get("reset_triggers") or ["/new", "/reset"]),
    )
    config.registry = registry
    # others are not loaded: a daemon would keep the code of each bundled platform
    registry.all_entries(lambda name: may_be_configured(name, values))
    states = {state.name: state for state in platform_states(values, registry, load=False)}
    for name in (*platform_blocks(values), *states):
        if name not in BUILTIN_PLATFORMS and not registry.is_registered(name):
            logger.warning("platforms.%s: no plugin registered a platform of that name", name)
            continue
        platform = Platform(name)
        block = states[name].config if name in states else _from_block(name, platform_blocks(values)[name])
        if block is not None:
            config.platforms[platform] = block
    return config


def platform_states(values: Mapping[str, Any], registry: PlatformRegistry, *, load: bool = True) -> list[PlatformState]:
    """Return the state of each registered platform, in order of registration.

    Args:
        load: whether to load deferred platforms; otherwise they are omitted.
    """
    blocks = platform_blocks(values)
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
    known = config if block is not None or own else None
    if entry.source != PLUGIN_SOURCE:
        return PlatformState(name, known, f"platforms.{name}.enabled is not true")
    if entry.is_connected is not None and not _call_platform(entry.is_connected, (seeded,), "is_connected", name):
        needs = f" (it needs {', '.join(entry.required_env)})" if entry.required_env else ""
        return PlatformState(name, known, f"it is not configured{needs}")
    if not can.ok and (entry.ensure_deps_fn is None or entry.is_connected is None):
        return PlatformState(name, known, can.reason)
    return PlatformState(name, seeded, "it is configured" if entry.is_connected else "its check_fn returned True")


def _from_block(name: str, block: Mapping[str, Any]) -> PlatformConfig:
    return PlatformConfig.from_dict(block, Platform(name))


def _own_settings(entry: PlatformEntry, values: Mapping[str, Any], block: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that a platform's blocks below `platforms` and at the top level add.

    Of the block at the top level, `SHARED_SETTINGS` count as they are; a key below `platforms` wins.
    """
    translate = entry.apply_yaml_config_fn
    own = values.get(entry.name)
    shared = {k: own[k] for k in SHARED_SETTINGS if k in own and k not in block} if isinstance(own, Mapping) else {}
    block = {**block, **own} if isinstance(own, Mapping) else dict(block)
    block = {key: value for key, value in block.items() if value != {}}  # without defaults of the schema
    return shared | _settings_of_function(
        translate if block else None, (dict(values), block), "apply_yaml_config_fn", entry.name
    )


def _settings_of_function(
    function: Callable[..., dict[str, Any] | None] | None, args: Iterable[Any], what: str, name: str
) -> dict[str, Any]:
    """Return the settings of one of the platform's functions; {} if it returns another type."""
    given = _call_platform(function, args, what, name) if function is not None else None
    if given is not None and not isinstance(given, Mapping):
        logger.warning("Platform '%s': %s returned %s: expected a dict", name, what, type(given).__name__)
        return {}
    return dict(given or {})


def _call_platform(function: Callable[..., T], args: Iterable[Any], what: str, name: str) -> T | None:
    """Call one of the platform's functions; log an exception and return None."""
    try:
        return function(*args)
    except Exception as exc:  # noqa: BLE001 - plugin code: other platforms must still work
        logger.warning("Platform '%s': %s failed: %s: %s", name, what, type(exc).__name__, exc)
        return None
