"""What a plugin says of its platform: the keywords of `ctx.register_platform`. Source: plugin contract §8.2.1.

Who is a platform in this process: `gateway.platform_registry.platform_registry`. Source: plugin contract §8.2.1.

Which platforms the config and the environment enable, and with which settings. Source: plugin contract §8.2.1.
"""

from __future__ import annotations

import contextlib
import inspect
import logging
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Self, TypeVar

from hermes_agent.adapters.config import BUILTIN_PLATFORMS, HomeChannel, Platform, PlatformConfig, add_lookup
from hermes_agent.contracts.kind import Kind
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
    "PLUGIN_SOURCE",
    "PlatformAvailability",
    "PlatformEntry",
    "PlatformRegistry",
    "PlatformState",
    "SLACK_ACTION",
    "cron_target",
    "gateway_config",
    "platform_in_creation",
    "platform_states",
]


PLATFORM = Kind("platform", "register_platform", "platform", is_used=True)
SLACK_ACTION = Kind("slack_action", "register_slack_action_handler", "Slack action handler")

PLUGIN_SOURCE = "plugin"


@dataclass
class PlatformEntry:
    """One platform.

    Attributes:
        name: its id: the key below `platforms`, and the value of its `Platform`.
        label: what people call it.
        adapter_factory: `(PlatformConfig) -> adapter`; None means that it cannot be made.
        check_fn: `() -> bool`: whether what it needs is installed.
        validate_config: `(PlatformConfig) -> bool`.
        is_connected: `(PlatformConfig) -> bool`: whether it is configured well enough to be connected.
        required_env: variables that setup asks for.
        install_hint: what to do when `check_fn` says no.
        setup_fn: the questions of the setup.
        allowed_users_env: the variable that lists who may talk to it.
        allow_all_env: the variable that lets everybody.
        max_message_length: characters of one message; 0 leaves it to the adapter.
        pii_safe: ids are hashed before the model sees them.
        allow_update_command: `/update` works there.
        platform_hint: added to the system prompt.
        env_enablement_fn: `() -> dict | None`: settings from the environment; None when there are none.
        apply_yaml_config_fn: `(whole config, own block) -> dict | None`: settings from a block of its own.
        cron_deliver_env_var: the variable with the chat that scheduled jobs report to.
        standalone_sender_fn: sends without a running gateway.
        attempt_fn: `async (PlatformConfig) -> str | None`: connects and disconnects, beside a gateway that may run, and
            takes no message; raises the reason why it cannot. Setup tries the answers with it, and shows the text that
            it returns: what the operator did not ask for and has to know.
    """

    name: str
    label: str
    adapter_factory: Callable[[Any], Any]
    check_fn: Callable[[], bool]
    validate_config: Callable[[Any], bool] | None = None
    is_connected: Callable[[Any], bool] | None = None
    required_env: list[str] = field(default_factory=list)
    install_hint: str = ""
    setup_fn: Callable[[], Any] | None = None
    source: str = PLUGIN_SOURCE
    plugin_name: str = ""
    allowed_users_env: str = ""
    allow_all_env: str = ""
    max_message_length: int = 0
    pii_safe: bool = False
    emoji: str = "🔌"
    allow_update_command: bool = True
    platform_hint: str = ""
    env_enablement_fn: Callable[[], dict[str, Any] | None] | None = None
    apply_yaml_config_fn: Callable[[dict[str, Any], dict[str, Any]], dict[str, Any] | None] | None = None
    cron_deliver_env_var: str = ""
    standalone_sender_fn: Callable[..., Any] | None = None
    attempt_fn: Callable[[Any], Coroutine[Any, Any, Any]] | None = None


def cron_target(entry: PlatformEntry, environ: Mapping[str, str]) -> tuple[str, str | None] | None:
    """Return the chat and thread that scheduled jobs report to by default; None when none is named."""
    variable = entry.cron_deliver_env_var
    chat = environ.get(variable, "").strip() if variable else ""
    return (chat, environ.get(f"{variable}_THREAD_ID", "").strip() or None) if chat else None


logger = logging.getLogger(__name__)

_platform_in_creation: ContextVar[str] = ContextVar("hermes_platform_being_made", default="")


class PlatformAvailability(NamedTuple):
    """Whether a platform could be connected on this machine."""

    ok: bool
    reason: str
    """Why not; empty when it could."""
    failed: bool = False
    """Its check is at fault: it raised, or is no plain function."""


def platform_in_creation() -> Platform | None:
    """Return the platform whose `adapter_factory` runs in this context: what an adapter is that was not told."""
    name = _platform_in_creation.get()
    return Platform(name) if name else None


class PlatformRegistry(StoreGroup):
    """Platforms by name, in order of registration. The method names are upstream's.

    A deferred one is a function that registers the platform when somebody asks for it.
    """

    _parts = ("_entries", "_deferred")

    def __init__(self) -> None:
        self._entries: Registry[PlatformEntry] = Registry(PLATFORM.label)
        self._deferred: Registry[Callable[[], Any]] = Registry(f"deferred {PLATFORM.label}")
        add_lookup(self)

    def register(self, entry: PlatformEntry) -> None:
        """Register a platform for whoever registers now; of the same owner the last one counts.

        A name that is somebody else's stays theirs, with a line in the log, unless the operator allowed the plugin
        to take over names.
        """
        owner = current_owner()
        try:
            staged_store(self).add(entry, owner)
        except Conflict as exc:
            logger.warning("Platform '%s' was not registered: %s", entry.name, exc)

    def add(self, entry: PlatformEntry, owner: Owner, *, builtin: bool = False) -> None:
        """Register a platform.

        Args:
            builtin: it comes with the agent, and may have one of the contract's names.

        Raises:
            ValueError: it has no usable name.
            Conflict: somebody else has the name.
        """
        name = entry.name
        if not isinstance(name, str) or not name.strip() or name != name.strip().lower():
            raise ValueError(f"a platform needs a name in lower case: {name!r} is none")
        if name in BUILTIN_PLATFORMS and not builtin and not owner.may_override:
            raise Conflict(PLATFORM.label, name, BUILTIN, owner.key)
        present = self._entries.get(name)
        self._entries.add(name, entry, owner=owner.key, replace=owner.may_override)
        self._deferred.remove(name)
        if present is not None:
            logger.debug("Platform '%s' re-registered (was %s, now %s)", name, present.source, entry.source)

    def register_deferred(self, name: str, loader: Callable[[], Any]) -> None:
        """Let `loader` register the platform when somebody asks for it; a name that is taken is left alone."""
        if self._entries.get(name) is None:
            self._deferred.add(name, loader, owner=current_owner().key, replace=True)

    def unregister(self, name: str) -> bool:
        """Forget a platform; false when there is none."""
        deferred = self._deferred.remove(name)
        return self._entries.remove(name) or deferred

    def withdraw(self, name: str, entry: PlatformEntry) -> bool:
        """Remove one registration, and return whether it was there; what it had replaced comes back."""
        return self._entries.withdraw(name, entry)

    def get(self, name: str) -> PlatformEntry | None:
        """Return a platform; None when nobody registered it, or it could not be loaded."""
        self._load(name)
        return self._entries.get(name)

    def all_entries(self) -> list[PlatformEntry]:
        """Return every platform; what was deferred is loaded."""
        for name in self._deferred:
            self._load(name)
        return self.loaded_entries()

    def loaded_entries(self) -> list[PlatformEntry]:
        """Return every platform but those that are still deferred."""
        return [entry for _, entry in self._entries.items()]

    def plugin_entries(self) -> list[PlatformEntry]:
        """Return those of plugins."""
        return [entry for entry in self.all_entries() if entry.source == PLUGIN_SOURCE]

    def names(self) -> list[str]:
        """Return the name of each, without loading one."""
        return sorted({*self._entries.names(), *self._deferred})

    def is_registered(self, name: str) -> bool:
        """Say whether there is one, without loading it."""
        return name in self._entries or name in self._deferred

    def owner(self, name: str) -> str | None:
        """Return the key of the plugin that registered it."""
        return self._entries.owner(name)

    def availability(self, name: str) -> PlatformAvailability:
        """Ask `check_fn`; one that raises means no, with the exception as the reason."""
        entry = self.get(name)
        return PlatformAvailability(False, "nobody registered it") if entry is None else _availability(entry)

    def create_adapter(self, name: str, config: Any) -> Any:
        """Return a new adapter, or None with a line in the log that says why there is none.

        Args:
            config: its `PlatformConfig`.
        """
        entry = self.get(name)
        if entry is None:
            return None
        available = _availability(entry)
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
        """Return a copy with other platforms, which `Platform` knows, too."""
        other = super().with_stores(stores)
        add_lookup(other)
        return other

    def _load(self, name: str) -> None:
        """Run the loader of a deferred platform; it is asked once, whatever comes of it."""
        loader = self._deferred.get(name)
        if loader is None or not self._deferred.remove(name):
            return
        try:
            loader()
        except Exception as exc:  # noqa: BLE001 - a plugin's code: the other platforms go on
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
    except (Exception, SystemExit) as exc:  # noqa: BLE001 - a plugin's code: the others go on
        return PlatformAvailability(False, f"its check failed: {type(exc).__name__}: {exc}", True)
    if inspect.iscoroutine(answer):
        answer.close()
        return PlatformAvailability(False, "its check_fn is a coroutine function: it must be a plain one", True)
    return (
        PlatformAvailability(True, "")
        if answer
        else PlatformAvailability(False, entry.install_hint or "its check says no")
    )


def _is_valid(entry: PlatformEntry, config: Any) -> bool:
    if entry.validate_config is None:
        return True
    try:
        valid = bool(entry.validate_config(config))
    except Exception as exc:  # noqa: BLE001 - a plugin's code
        logger.warning("Platform '%s' config validation error: %s", entry.name, exc)
        return False
    if not valid:
        logger.warning("Platform '%s' config validation failed", entry.name)
    return valid


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
