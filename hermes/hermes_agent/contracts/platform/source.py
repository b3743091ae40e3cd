"""Where a message comes from, and the key of the session that it belongs to. Source: plugin contract §8.2.3."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from hermes_agent.contracts.platform.names import Platform

__all__ = ["CHAT_TYPES", "SessionSource", "build_session_key"]

CHAT_TYPES = ("dm", "group", "channel", "thread", "forum")


@dataclass
class SessionSource:
    """Who wrote, and where.

    Attributes:
        chat_type: one of `CHAT_TYPES`.
        user_id_alt: another id of the same person, the steadier one where a platform has two.
        scope_id: the space that the chat is in; `guild_id` is Discord's word for it.
        role_authorized: the platform's own roles let this person talk to the agent.
        profile: the profile that answers; None means the default one.
    """

    platform: Platform
    chat_id: str
    chat_name: str | None = None
    chat_type: str = "dm"
    user_id: str | None = None
    user_name: str | None = None
    thread_id: str | None = None
    chat_topic: str | None = None
    user_id_alt: str | None = None
    chat_id_alt: str | None = None
    is_bot: bool = False
    scope_id: str | None = None
    guild_id: str | None = None
    parent_chat_id: str | None = None
    message_id: str | None = None
    role_authorized: bool = False
    profile: str | None = None
    auto_thread_created: bool = False
    auto_thread_initial_name: str | None = None
    delivered_via_upstream_relay: bool = False

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON types."""
        return {**asdict(self), "platform": self.platform.value}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> SessionSource:
        """Read what `to_dict` gave; keys that are not known are left out.

        Raises:
            KeyError: platform or chat is missing.
            ValueError: nobody registered its platform.
        """
        known = {f.name for f in fields(cls)} - {"platform", "chat_id"}
        rest = {key: value for key, value in data.items() if key in known}
        return cls(Platform(data["platform"]), str(data["chat_id"]), **rest)


def build_session_key(
    source: SessionSource,
    group_sessions_per_user: bool = True,
    thread_sessions_per_user: bool = False,
    profile: str | None = None,
) -> str:
    """Return the key of the session that a message belongs to: `agent:main:<platform>:<chat_type>:…`.

    Args:
        group_sessions_per_user: in a group, each person has a session.
        thread_sessions_per_user: in a thread too.
        profile: takes the place of `main`; None and `default` mean `main`.
    """
    whose = profile if profile and profile != "default" else "main"
    platform = source.platform.value if isinstance(source.platform, Platform) else str(source.platform)
    person = source.user_id_alt or source.user_id
    parts: list[str | None] = ["agent", whose, platform, source.chat_type or "dm"]
    if parts[-1] == "dm":
        parts += [source.chat_id or person, source.thread_id]
    else:
        parts += [source.chat_id, source.thread_id]
        if group_sessions_per_user and (thread_sessions_per_user or not source.thread_id):
            parts.append(person)
    return ":".join(str(part) for part in parts if part)
