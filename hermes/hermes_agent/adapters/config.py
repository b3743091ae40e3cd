"""Names, settings and registrations of platforms: `Platform`, `PlatformConfig`, `PlatformEntry`.

The platforms of the contract are members of `Platform`. A registered platform becomes a member on demand, the same
object each time: `Platform("irc") is Platform("irc")`. `PlatformEntry` holds the keywords of
`ctx.register_platform`. Source: plugin contract §8.2.1, contract of 0.23 §9.3.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import field
from enum import Enum
from typing import Any, Protocol

from hermes_agent.core.lazy_types import lazy_dataclass

__all__ = [
    "BUILTIN_PLATFORMS",
    "DISPLAY_TIERS",
    "ENTRY_WITHOUT_EFFECT",
    "HOST_PLATFORMS",
    "HomeChannel",
    "NATIVE_ATTRIBUTES",
    "PLUGIN_SOURCE",
    "Platform",
    "PlatformConfig",
    "PlatformEntry",
    "PlatformLookup",
    "SHARED_SETTINGS",
    "add_lookup",
    "cron_target",
    "entry_problem",
    "lookups",
    "may_be_configured",
    "platform_blocks",
    "platform_provider",
    "unused_fields",
]


class PlatformLookup(Protocol):
    """Object that knows the registered platforms."""

    def is_registered(self, name: str) -> bool: ...


_lookups: weakref.WeakSet[Any] = weakref.WeakSet()
_made_platforms: dict[str, Platform] = {}
_lock = threading.Lock()


def add_lookup(registry: PlatformLookup) -> None:
    """Look up names that are not members in `registry`, for as long as it lives."""
    _lookups.add(registry)


def lookups() -> tuple[PlatformLookup, ...]:
    """Return the objects that know names of platforms."""
    return tuple(_lookups)


class Platform(Enum):
    """A chat service, or another source of messages.

    Raises:
        ValueError: no platform of that name is registered.
    """

    LOCAL = "local"
    TELEGRAM = "telegram"
    DISCORD = "discord"
    WHATSAPP = "whatsapp"
    WHATSAPP_CLOUD = "whatsapp_cloud"
    SLACK = "slack"
    SIGNAL = "signal"
    MATTERMOST = "mattermost"
    MATRIX = "matrix"
    HOMEASSISTANT = "homeassistant"
    EMAIL = "email"
    SMS = "sms"
    DINGTALK = "dingtalk"
    API_SERVER = "api_server"
    WEBHOOK = "webhook"
    MSGRAPH_WEBHOOK = "msgraph_webhook"
    FEISHU = "feishu"
    WECOM = "wecom"
    WECOM_CALLBACK = "wecom_callback"
    WEIXIN = "weixin"
    BLUEBUBBLES = "bluebubbles"
    QQBOT = "qqbot"
    YUANBAO = "yuanbao"
    RELAY = "relay"

    @classmethod
    def _missing_(cls, value: object) -> Platform | None:
        """Return the member of a registered name, created once; for None the enum raises ValueError."""
        name = value.strip().lower() if isinstance(value, str) else ""
        present = cls._value2member_map_.get(name)
        if present is not None:
            return present  # type: ignore[return-value]  # typeshed declares Enum
        if not name or not any(registry.is_registered(name) for registry in lookups()):
            return None
        with _lock:
            if name not in _made_platforms:
                member = object.__new__(cls)
                member._value_ = name
                member._name_ = name.upper().replace("-", "_")
                _made_platforms[name] = member
            return _made_platforms[name]

    def __reduce_ex__(self, protocol: object) -> tuple[type[Platform], tuple[str]]:
        """Copy and unpickle a member as the same object, including members that were created on demand."""
        return (Platform, (self.value,))


BUILTIN_PLATFORMS = frozenset(platform.value for platform in Platform)
"""Names of the platforms of the contract."""
HOST_PLATFORMS = frozenset({"local", "api_server", "webhook"})
"""Those that the host itself serves; the other names are free for plugins."""

NATIVE_ATTRIBUTES = {
    "telegram": ("_app", "_application"),
    "discord": ("_client", "_bot"),
    "slack": ("_app",),
    "matrix": ("_client",),
    "teams": ("_app",),
    "dingtalk": ("_stream_client", "_client"),
    "feishu": ("_client",),
    "line": ("_app",),
    "api_server": ("_app",),
    "msgraph_webhook": ("_app",),
}
"""By platform: attributes in which adapters keep the object of the service's SDK."""

SHARED_SETTINGS = (
    *("allow_admin_from", "allow_from", "allowed_chats", "allowed_topics", "channel_prompts", "channel_skill_bindings"),
    *("cron_continuable_surface", "dm_policy", "exclusive_bot_mentions", "free_response_channels"),
    *("group_allow_admin_from", "group_allow_from", "group_allowed_chats", "group_policy"),
    *("group_user_allowed_commands", "mention_patterns", "notice_delivery", "observe_unmentioned_group_messages"),
    *("reply_in_thread", "reply_prefix", "require_mention", "unauthorized_dm_behavior", "user_allowed_commands"),
)
"""Settings that a platform's block at the top level of the config may have, besides those below `platforms`."""


def platform_blocks(values: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Return the blocks of `platforms` and `gateway.platforms` by name; keys of `platforms` win."""
    gateway = values.get("gateway")
    found: dict[str, Mapping[str, Any]] = {}
    for table in (gateway.get("platforms") if isinstance(gateway, Mapping) else None, values.get("platforms")):
        for name, block in table.items() if isinstance(table, Mapping) else ():
            if isinstance(block, Mapping):
                key = str(name).strip().lower()
                found[key] = {**found.get(key, {}), **block}
    return found


def may_be_configured(name: str, values: Mapping[str, Any]) -> bool:
    """Return whether the config or the environment may enable a bundled platform.

    The variables of a bundled platform begin with its name, so that its code is not loaded for the answer.
    """
    prefix = f"{name.upper().replace('-', '_')}_"
    in_config = name in platform_blocks(values) or bool(values.get(name))
    return in_config or any(variable.startswith(prefix) for variable in os.environ)


def platform_provider(values: Mapping[str, Any], name: str) -> str:
    """Return the plugin that `platforms.<name>.provider` of a config selects, or ""."""
    return str(platform_blocks(values).get(name, {}).get("provider") or "")


_PLAIN = (
    "token",
    "api_key",
    "gateway_restart_notification",
    "typing_indicator",
    "typing_status_text",
)
_KNOWN = frozenset({"enabled", "provider", "home_channel", "reply_to_mode", "channel_overrides", "extra", *_PLAIN})


@lazy_dataclass
class HomeChannel:
    """The chat for messages without a target."""

    platform: Platform
    chat_id: str
    name: str = "Home"
    thread_id: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return a dict of JSON types."""
        return {
            "platform": self.platform.value,
            "chat_id": self.chat_id,
            "name": self.name,
            "thread_id": self.thread_id,
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any], platform: Platform | None = None) -> HomeChannel:
        """Return the home channel of a `to_dict` value, or of a `home_channel` of the config.

        Args:
            platform: the platform, if `data` has none.

        Raises:
            KeyError: `chat_id` or the platform is missing.
            ValueError: the platform is not registered.
        """
        thread = data.get("thread_id")
        owner = platform if platform is not None and "platform" not in data else Platform(data["platform"])
        return cls(
            owner, str(data["chat_id"]), str(data.get("name") or "Home"), None if thread is None else str(thread)
        )


@lazy_dataclass
class PlatformConfig:
    """The block `platforms.<name>`.

    Attributes:
        home_channel: the chat for messages without a target.
        reply_to_mode: the parts of an answer that quote the message: `off`, `first` or `all`.
        typing_indicator: whether to show that an answer is being written.
        channel_overrides: settings of individual channels.
        extra: the adapter's own settings: the other keys of the block.
    """

    enabled: bool = False
    token: str | None = None
    api_key: str | None = None
    home_channel: HomeChannel | None = None
    reply_to_mode: str = "first"
    gateway_restart_notification: bool = True
    typing_indicator: bool = True
    typing_status_text: str | None = None
    channel_overrides: dict[str, Any] = field(default_factory=dict)
    extra: dict[str, Any] = field(default_factory=dict)

    def __repr__(self) -> str:
        secrets = {"token": bool(self.token), "api_key": bool(self.api_key)}
        has = ", ".join(name for name, present in secrets.items() if present) or "no secret"
        return f"PlatformConfig(enabled={self.enabled}, with {has}, extra keys {sorted(self.extra)})"

    def to_dict(self) -> dict[str, Any]:
        """Return a dict of JSON types."""
        return {
            "enabled": self.enabled,
            **{name: getattr(self, name) for name in _PLAIN},
            "home_channel": self.home_channel.to_dict() if self.home_channel else None,
            "reply_to_mode": self.reply_to_mode,
            "channel_overrides": dict(self.channel_overrides),
            "extra": dict(self.extra),
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any], platform: Platform | None = None) -> PlatformConfig:
        """Return the settings of a block; keys outside of the contract go into `extra`, which wins.

        Args:
            platform: the platform of the block, and of a `home_channel` without a platform.
        """
        plain = {name: data[name] for name in _PLAIN if data.get(name) is not None}
        mode = data.get("reply_to_mode", "first")
        return cls(
            enabled=bool(data.get("enabled", False)),
            home_channel=_home_channel(data.get("home_channel"), platform),
            reply_to_mode="off" if mode is False else str(mode or "first"),
            channel_overrides=dict(data.get("channel_overrides") or {}),
            extra={**{k: v for k, v in data.items() if k not in _KNOWN}, **(data.get("extra") or {})},
            **plain,
        )


def _home_channel(value: Any, platform: Platform | None) -> HomeChannel | None:
    """Return the home channel of a mapping or chat id, or None."""
    if isinstance(value, HomeChannel):
        return value
    if isinstance(value, Mapping) and value.get("chat_id"):
        return HomeChannel.from_dict(value, platform)
    if isinstance(value, (str, int)) and str(value).strip() and platform is not None:
        return HomeChannel(platform, str(value).strip())
    return None


PLUGIN_SOURCE = "plugin"

DISPLAY_TIERS = {"high": "", "medium": "new", "low": "off", "minimal": "off"}
"""By tier of a platform: the displayed tool calls; "" is what the config says. `minimal` streams no answers, too."""
ENTRY_WITHOUT_EFFECT = {
    "send_message_handler": "there is no tool send_message; `hermes send` and ctx.inject_message reach a chat",
    "shared_env_prefixes": "each profile is a home with an environment of its own",
}
"""Fields of an entry that the agent accepts and does not use, with the reason."""


@lazy_dataclass
class PlatformEntry:
    """A registered platform.

    Attributes:
        name: its id, which is the key below `platforms` and the value of its `Platform`.
        label: the name that users see.
        adapter_factory: `(PlatformConfig) -> adapter`, or None on failure.
        check_fn: `() -> bool`: whether its requirements are installed.
        validate_config: `(PlatformConfig) -> bool`.
        is_connected: `(PlatformConfig) -> bool`: whether it is configured well enough to connect.
        required_env: variables that the setup asks for.
        install_hint: what to do if `check_fn` returns False.
        setup_fn: asks the questions of the setup.
        allowed_users_env: the variable with the allowed users.
        allow_all_env: the variable that allows all users.
        max_message_length: characters of a message; 0: the adapter decides.
        pii_safe: whether ids are hashed before the model sees them.
        allow_update_command: whether `/update` works there.
        platform_hint: an addition to the system prompt.
        env_enablement_fn: `() -> dict | None`: settings of the environment, or None.
        apply_yaml_config_fn: `(whole config, own block) -> dict | None`: settings of its own block.
        cron_deliver_env_var: the variable with the target chat of scheduled jobs.
        standalone_sender_fn: sends without a running gateway.
        attempt_fn: `async (PlatformConfig) -> str | None`: connects and disconnects without receiving messages, also
            while a gateway runs; raises the reason of a failure. The setup tests the answers with it and shows the
            returned text.
        ensure_deps_fn: `() -> bool`: makes the requirements available, when an adapter is created and `check_fn`
            returns False; `check_fn` itself only looks.
        parse_target_ref_fn: `(text) -> (chat, thread) | None`: reads the target of a delivery.
        validate_target_ref_fn: `(chat) -> bool | str`: whether a chat can be a target; a text is the complaint.
        send_message_handler: has no effect: there is no tool that sends messages.
        trusted_inbound: whether messages need no list of allowed users.
        display_tier: how much of a turn is displayed: a key of `DISPLAY_TIERS`, or "" for what the config says.
        shared_env_prefixes: has no effect: each profile has an environment of its own.
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
    ensure_deps_fn: Callable[[], Any] | None = None
    parse_target_ref_fn: Callable[[str], tuple[str, str | None] | None] | None = None
    validate_target_ref_fn: Callable[[str], bool | str] | None = None
    send_message_handler: Callable[..., Any] | None = None
    trusted_inbound: bool = False
    display_tier: str = ""
    shared_env_prefixes: tuple[str, ...] = ()


def cron_target(entry: PlatformEntry, environ: Mapping[str, str]) -> tuple[str, str | None] | None:
    """Return the default chat and thread of scheduled jobs; None if the variable is not set."""
    variable = entry.cron_deliver_env_var
    chat = environ.get(variable, "").strip() if variable else ""
    return (chat, environ.get(f"{variable}_THREAD_ID", "").strip() or None) if chat else None


def unused_fields(entry: PlatformEntry) -> list[str]:
    """Return a remark for each field that an entry sets and the agent does not use."""
    return [
        f"platform `{entry.name}`: {name} has no effect here: {why}"
        for name, why in ENTRY_WITHOUT_EFFECT.items()
        if getattr(entry, name)
    ]


def entry_problem(entry: PlatformEntry) -> str:
    """Return what is wrong with the fields of 0.23 of an entry; "" if nothing is."""
    if entry.trusted_inbound and entry.name in BUILTIN_PLATFORMS:
        return f"platform {entry.name!r} is part of upstream: trusted_inbound is for the platforms of plugins only"
    if str(entry.display_tier or "") not in ("", *DISPLAY_TIERS):
        return f"display_tier of platform {entry.name!r} is {entry.display_tier!r}: expected {', '.join(DISPLAY_TIERS)}"
    return ""
