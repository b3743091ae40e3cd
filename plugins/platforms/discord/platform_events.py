"""Events of Discord that are no messages: edits, deletions, new and renamed threads.

Source: contract of 0.23 §7.4. A deletion does not say who deleted; it counts as one of the author of the message.
"""

import logging
from collections import OrderedDict

import discord
from hermes_agent.adapters.base import PlatformEvent

logger = logging.getLogger(__name__)

REMEMBERED = 2000
"""Messages with known authors; for other messages no deletion is reported."""


class SeenAuthors:
    """The authors of the last messages, by the id of the message."""

    def __init__(self):
        self._authors = OrderedDict()

    def add(self, message):
        """Remember the author of a message."""
        self._authors[message.id] = message.author
        if len(self._authors) > REMEMBERED:
            self._authors.popitem(last=False)

    def pop(self, message_id):
        """Return the author of a message, or None, and forget the message."""
        return self._authors.pop(message_id, None)


def as_platform_event(item, me, authors, build_source):
    """Return the event of a raw edit, a raw deletion, a thread, or a thread before and after; None if it is none."""
    try:
        return _as_event(item, me, authors, build_source)
    except (KeyError, TypeError, ValueError, AttributeError) as exc:  # an invalid event must not block messages
        logger.warning("[discord] %s skipped: %r", type(item).__name__, exc)
        return None


def _as_event(item, me, authors, build_source):
    if isinstance(item, discord.RawMessageUpdateEvent):
        return _edited(item, me, build_source)
    if isinstance(item, discord.RawMessageDeleteEvent):
        return _deleted(item, authors.pop(item.message_id), me, build_source)
    if isinstance(item, discord.Thread):
        fields = _thread_fields(item) | {"name": item.name, "owner_id": _text(item.owner_id)}
        return _of_thread("thread_created", item, fields, me, build_source)
    before, after = item
    if before.name == after.name:
        return None
    fields = _thread_fields(after) | {"old_name": before.name, "new_name": after.name}
    return _of_thread("thread_renamed", after, fields, me, build_source)


def _edited(change, me, build_source):
    message = change.message
    if message.author.id == me or message.edited_at is None:  # without a time it is a preview of a link, or a pin
        return None
    fields = _message_fields(message.channel, message.id)
    fields |= {"text": change.data.get("content"), "edited_at": message.edited_at.isoformat()}
    source = _source(message.channel, change.guild_id, message.author, build_source, message.id)
    return PlatformEvent("message_edited", fields, source)


def _deleted(change, author, me, build_source):
    if author is None or author.id == me:
        return None
    channel = getattr(author, "guild", None) and author.guild.get_channel_or_thread(change.channel_id)
    channel = channel or discord.Object(change.channel_id)
    fields = _message_fields(channel, change.message_id) | {"author_id": str(author.id)}
    source = _source(channel, change.guild_id, author, build_source, change.message_id)
    return PlatformEvent("message_deleted", fields, source)


def _of_thread(kind, thread, fields, me, build_source):
    """Return an event of a thread; its owner counts as the user, since Discord does not say who renames it."""
    if thread.owner_id is None or thread.owner_id == me:
        return None
    source = _source(thread, thread.guild.id, discord.Object(thread.owner_id), build_source)
    return PlatformEvent(kind, fields, source)


def _message_fields(channel, message_id):
    thread = str(channel.id) if isinstance(channel, discord.Thread) else None
    return {"chat_id": str(channel.id), "message_id": str(message_id), "thread_id": thread}


def _thread_fields(thread):
    return {"thread_id": str(thread.id), "parent_chat_id": _text(thread.parent_id)}


def _source(channel, guild_id, user, build_source, message_id=None):
    thread = channel.id if isinstance(channel, discord.Thread) else None
    return build_source(
        chat_id=channel.id,
        chat_name=getattr(channel, "name", None),
        chat_type="thread" if thread is not None else "dm" if guild_id is None else "group",
        user_id=user.id,
        user_name=getattr(user, "display_name", None),
        thread_id=thread,
        is_bot=bool(getattr(user, "bot", False)),
        guild_id=guild_id,
        scope_id=guild_id,
        parent_chat_id=getattr(channel, "parent_id", None) if thread is not None else None,
        message_id=message_id,
    )


def _text(value):
    return None if value is None else str(value)
