"""A text that somebody sends to a chat: from a shell, a webhook, a clock."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hermes_agent.contracts.platform.chunks import split_message
from hermes_agent.contracts.platform.names import Platform
from hermes_agent.core.errors import UserError
from hermes_agent.delivery import Reply, Target
from hermes_agent.gateway.parts import parts_of

if TYPE_CHECKING:
    from hermes_agent.gateway.runner import Gateway

__all__ = ["plain_reply", "reply_of"]

SHORTEST_LIMIT = 2000
"""Characters of one message where the platform cannot be asked."""


def plain_reply(platform: str, chat: str, thread: str, text: str) -> Reply:
    """Return a reply for a platform that is not there to be asked how long its messages may be."""
    return Reply(
        Target(platform, chat, thread), tuple({"text": one} for one in split_message(text, SHORTEST_LIMIT, None))
    )


def reply_of(gateway: Gateway, platform: str, chat: str, thread: str, text: str) -> Reply:
    """Return a reply as its platform wants it. It calls the adapter's own code: not for the core loop.

    Args:
        chat: empty means the platform's home channel.

    Raises:
        UserError: there is no such platform, or it has no home channel.
    """
    if gateway.works.platforms.get(platform) is None:
        known = ", ".join(sorted(state["name"] for state in gateway.states())) or "none is configured"
        raise UserError(f"there is no platform {platform!r}: {known}", hint="`hermes gateway status` lists them.")
    config = gateway.config.platforms.get(Platform(platform))
    if not chat:
        home = config.home_channel if config is not None else None
        if home is None:
            raise UserError(
                f"{platform} has no home channel", hint=f"Say which chat: `--to {platform}:CHAT`, or /sethome there."
            )
        chat, thread = home.chat_id, thread or home.thread_id or ""
    adapter = gateway.adapters.get(Platform(platform))
    if adapter is None:
        return plain_reply(platform, chat, thread, text)
    limit = getattr(gateway.works.platforms.get(platform), "max_message_length", 0)
    parts = parts_of(text, adapter, limit)
    if not parts:
        raise UserError("there is nothing to send", hint="The text is empty.")
    return Reply(Target(platform, chat, thread), tuple(parts))
