"""What adapters wrote of the channels that they know: `HOME/channel_directory.json`. Source: plugin contract §12.2.

`{"updated_at": …, "platforms": {"<platform>": [{"id": …, "name": …, "type": …}, …]}}`
"""

from __future__ import annotations

from hermes_agent.config import hermes_home
from hermes_agent.contracts.platform.state_file import read_json

__all__ = ["lookup_channel_type"]


def lookup_channel_type(platform_name: str, chat_id: str) -> str | None:
    """Return the kind of a channel (`channel`, `forum`, `dm`, …); None when no adapter wrote of it."""
    platforms = read_json(hermes_home() / "channel_directory.json").get("platforms")
    channels = platforms.get(platform_name) if isinstance(platforms, dict) else None
    for channel in channels if isinstance(channels, list) else ():
        if isinstance(channel, dict) and str(channel.get("id")) == str(chat_id):
            kind = channel.get("type")
            return kind if isinstance(kind, str) else None
    return None
