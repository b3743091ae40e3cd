"""Where a text goes that answers nobody: `PLATFORM[:CHAT[:THREAD]]`, as scheduled jobs and `hermes send` name it."""

from __future__ import annotations

import re
from collections.abc import Mapping

from hermes_agent.contracts.platform.enabling import GatewayConfig
from hermes_agent.contracts.platform.entry import PlatformEntry, cron_target
from hermes_agent.core.errors import UserError
from hermes_agent.delivery import ReplyTarget

__all__ = ["parse_target", "parse_chat_target"]

_THREAD = re.compile(r"(?P<chat>.+):(?P<thread>\d[\d.]*|[$<].+)")
"""A chat's own name may have colons; the last piece is a thread where it looks like one."""


def parse_target(
    text: str, config: GatewayConfig, entries: Mapping[str, PlatformEntry], environ: Mapping[str, str]
) -> ReplyTarget:
    """Return the target; without a chat it is where the platform's messages without an addressee go.

    Args:
        entries: the platforms that there are, by name.

    Raises:
        UserError: there is no such platform, or none of its chats is its home.
    """
    name, _, rest = text.strip().partition(":")
    known = {platform.value: platform for platform in config.platforms}
    if name not in known and name not in entries:
        names = ", ".join(sorted(known.keys() | entries.keys())) or "none is there"
        raise UserError(f"there is no platform {name!r}", hint=f"Platforms: {names}.")
    if rest:
        return parse_chat_target(name, rest)
    named = cron_target(entries[name], environ) if name in entries else None
    home = config.get_home_channel(known[name]) if name in known else None
    if named is None and home is not None:
        named = home.chat_id, home.thread_id
    if named is None:
        raise UserError(
            f"{text!r} names no chat, and {name} has no home channel",
            hint=f"Write {name}:CHAT, or set platforms.{name}.home_channel.",
        )
    return ReplyTarget(name, named[0], named[1] or "")


def parse_chat_target(platform: str, rest: str) -> ReplyTarget:
    """Return the target of `CHAT[:THREAD]`."""
    match = _THREAD.fullmatch(rest)
    return ReplyTarget(platform, match["chat"], match["thread"]) if match else ReplyTarget(platform, rest)
