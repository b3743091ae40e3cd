"""Conversion of Slack's events to messages. Source: docs.slack.dev, events API."""

import re
from datetime import UTC, datetime
from html import unescape

from hermes_agent.adapters.events import MessageEvent
from hermes_agent.adapters.text import as_command

SPOKEN = (None, "file_share", "thread_broadcast", "me_message", "bot_message")
"""Subtypes of messages of users; others are notices of changes."""
_REFERENCE = re.compile(r"<([@#!]?)([^<>|]+)(?:\|([^<>]*))?>")


def is_message(event, me):
    """Return whether an event is a message of another user."""
    spoken = event.get("type") in ("message", "app_mention") and event.get("subtype") in SPOKEN
    return spoken and bool(event.get("ts")) and event.get("user") != me and not event.get("hidden")


def readable_text(text, names):
    """Return a text of Slack as users see it. `names`: names of users by id."""

    def shown(found):
        kind, target, label = found.groups()
        if kind == "@":
            return f"@{label or names.get(target, target)}"
        if kind in ("#", "!"):
            return f"{'#' if kind == '#' else '@'}{label or target}"
        return f"{label} ({target})" if label and label not in target else target

    return unescape(_REFERENCE.sub(shown, text))


def mentioned_ids(text):
    """Return the ids of the users that a text mentions."""
    return re.findall(r"<@([A-Z0-9]+)(?:\|[^<>]*)?>", text)


def as_event(event, me, name, names, build_source, *, own_thread):
    """Return the message of an event, without its files.

    Args:
        name: name of the sender.
        own_thread: whether an answer in a channel starts a thread.
    """
    text, channel = str(event.get("text") or ""), event["channel"]
    direct = event.get("channel_type") == "im" or channel.startswith("D")
    addressed = me in mentioned_ids(text)
    text = readable_text(re.sub(rf"<@{me}(?:\|[^<>]*)?>", "", text), names).strip(" ,:\n")
    thread = event.get("thread_ts")
    starts_thread = own_thread and not direct and not thread
    source = build_source(
        chat_id=channel,
        chat_type="dm" if direct else "group",
        user_id=event.get("user") or event.get("bot_id"),
        user_name=name,
        thread_id=thread or (event["ts"] if starts_thread else None),
        is_bot="bot_id" in event,
        scope_id=event.get("team"),
        auto_thread_created=starts_thread,
    )
    message = MessageEvent(as_command(text), source=source, raw_message=event, message_id=event["ts"])
    message.timestamp = datetime.fromtimestamp(float(event["ts"]), UTC)
    message.metadata["addressed"] = addressed
    if thread and thread != event["ts"]:
        message.reply_to_message_id = thread
        message.reply_to_is_own_message = event.get("parent_user_id") == me
    return message
