"""What the config says of one platform. Source: plugin contract §8.2.1."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from hermes_agent.contracts.platform.names import Platform

__all__ = ["HomeChannel", "PlatformConfig"]

_PLAIN = (
    "token",
    "api_key",
    "gateway_restart_notification",
    "typing_indicator",
    "typing_status_text",
)
_KNOWN = frozenset({"enabled", "home_channel", "reply_to_mode", "channel_overrides", "extra", *_PLAIN})


@dataclass
class HomeChannel:
    """Where messages without an addressee go."""

    platform: Platform
    chat_id: str
    name: str = "Home"
    thread_id: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON types."""
        return {
            "platform": self.platform.value,
            "chat_id": self.chat_id,
            "name": self.name,
            "thread_id": self.thread_id,
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any], platform: Platform | None = None) -> HomeChannel:
        """Read what `to_dict` gave, or a `home_channel` of the config.

        Args:
            platform: whose it is when `data` does not say.

        Raises:
            KeyError: there is no `chat_id`, or no platform.
            ValueError: nobody registered its platform.
        """
        thread = data.get("thread_id")
        whose = platform if platform is not None and "platform" not in data else Platform(data["platform"])
        return cls(
            whose, str(data["chat_id"]), str(data.get("name") or "Home"), None if thread is None else str(thread)
        )


@dataclass
class PlatformConfig:
    """The block `platforms.<name>`.

    Attributes:
        home_channel: where messages without an addressee go.
        reply_to_mode: which parts of an answer are replies to the message: `off`, `first` or `all`.
        typing_indicator: show that an answer is being written.
        channel_overrides: settings of single channels.
        extra: the adapter's own settings: the block's other keys.
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
        """Return it as JSON types."""
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
        """Read a block of the config; keys that are not of the contract go into `extra`, which itself wins.

        Args:
            platform: whose block it is; a `home_channel` without a platform is of this one.
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
    """Return the home channel that a mapping or a chat id names."""
    if isinstance(value, HomeChannel):
        return value
    if isinstance(value, Mapping) and value.get("chat_id"):
        return HomeChannel.from_dict(value, platform)
    if isinstance(value, (str, int)) and str(value).strip() and platform is not None:
        return HomeChannel(platform, str(value).strip())
    return None
