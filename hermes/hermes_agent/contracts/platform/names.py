"""`Platform`: the name of a platform as a value that compares by identity. Source: plugin contract §8.2.1.

The platforms of the contract are members; one that somebody registered is made a member on demand, the same object
every time: `Platform("irc") is Platform("irc")`.
"""

from __future__ import annotations

import threading
import weakref
from enum import Enum
from typing import Any, Protocol

__all__ = ["BUILTIN_PLATFORMS", "PlatformLookup", "Platform", "add_lookup"]


class PlatformLookup(Protocol):
    """Somebody who can say whether a name is a registered platform's."""

    def is_registered(self, name: str) -> bool: ...


_lookups: weakref.WeakSet[Any] = weakref.WeakSet()
_made_platforms: dict[str, Platform] = {}
_lock = threading.Lock()


def add_lookup(registry: PlatformLookup) -> None:
    """Ask `registry` about names that are no members, for as long as it lives."""
    _lookups.add(registry)


class Platform(Enum):
    """A chat service, or another way that messages come in.

    Raises:
        ValueError: `Platform("x")` for a name that nobody registered.
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
        """Return the member for a registered name, made once; None makes the enum raise ValueError."""
        name = value.strip().lower() if isinstance(value, str) else ""
        present = cls._value2member_map_.get(name)
        if present is not None:
            return present  # type: ignore[return-value]  # typeshed calls it Enum
        if not name or not any(registry.is_registered(name) for registry in tuple(_lookups)):
            return None
        with _lock:
            if name not in _made_platforms:
                member = object.__new__(cls)
                member._value_ = name
                member._name_ = name.upper().replace("-", "_")
                _made_platforms[name] = member
            return _made_platforms[name]

    def __reduce_ex__(self, protocol: object) -> tuple[type[Platform], tuple[str]]:
        """Let a copy of a member be the member, also of one that was made on demand."""
        return (Platform, (self.value,))


BUILTIN_PLATFORMS = frozenset(platform.value for platform in Platform)
"""Names of the contract's own platforms."""
