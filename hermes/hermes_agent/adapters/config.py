"""Names and settings of platforms: `Platform`, `PlatformConfig`, `HomeChannel`.

The platforms of the contract are members of `Platform`. A registered platform becomes a member on demand, the same
object each time: `Platform("irc") is Platform("irc")`. Source: plugin contract §8.2.1.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Protocol

__all__ = [
    "BUILTIN_PLATFORMS",
    "HOST_PLATFORMS",
    "HomeChannel",
    "Platform",
    "PlatformConfig",
    "PlatformLookup",
    "SHARED_SETTINGS",
    "add_lookup",
    "lookups",
    "may_be_configured",
    "platform_blocks",
    "platform_provider",
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


@dataclass
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


@dataclass
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
