"""What Slack tells of a message, as the agent's own. Source: docs.slack.dev, events API."""

import re
from datetime import UTC, datetime
from html import unescape

from hermes_agent.adapters.events import MessageEvent
from hermes_agent.adapters.text import as_command

SPOKEN = (None, "file_share", "thread_broadcast", "me_message", "bot_message")
"""Subtypes of what somebody said; the others tell of changes, and of who came and went."""
_REFERENCE = re.compile(r"<([@#!]?)([^<>|]+)(?:\|([^<>]*))?>")


def is_message(event, me):
    """Whether an event is something that somebody else said."""
    spoken = event.get("type") in ("message", "app_mention") and event.get("subtype") in SPOKEN
    return spoken and bool(event.get("ts")) and event.get("user") != me and not event.get("hidden")


def readable_text(text, names):
    """Return a text of Slack's as people see it. `names`: of people, by id."""

    def shown(found):
        kind, target, label = found.groups()
        if kind == "@":
            return f"@{label or names.get(target, target)}"
        if kind in ("#", "!"):
            return f"{'#' if kind == '#' else '@'}{label or target}"
        return f"{label} ({target})" if label and label not in target else target

    return unescape(_REFERENCE.sub(shown, text))


def mentioned_ids(text):
    """Return the ids of the people that a text names."""
    return re.findall(r"<@([A-Z0-9]+)(?:\|[^<>]*)?>", text)


def as_event(event, me, name, names, build_source, *, own_thread):
    """Return what somebody said; files are not fetched yet.

    Args:
        name: of who said it.
        own_thread: an answer in a channel begins a thread.
    """
    said, channel = str(event.get("text") or ""), event["channel"]
    direct = event.get("channel_type") == "im" or channel.startswith("D")
    addressed = me in mentioned_ids(said)
    text = readable_text(re.sub(rf"<@{me}(?:\|[^<>]*)?>", "", said), names).strip(" ,:\n")
    thread = event.get("thread_ts")
    begins = own_thread and not direct and not thread
    source = build_source(
        chat_id=channel,
        chat_type="dm" if direct else "group",
        user_id=event.get("user") or event.get("bot_id"),
        user_name=name,
        thread_id=thread or (event["ts"] if begins else None),
        is_bot="bot_id" in event,
        scope_id=event.get("team"),
        auto_thread_created=begins,
    )
    message = MessageEvent(as_command(text), source=source, raw_message=event, message_id=event["ts"])
    message.timestamp = datetime.fromtimestamp(float(event["ts"]), UTC)
    message.metadata["addressed"] = addressed
    if thread and thread != event["ts"]:
        message.reply_to_message_id = thread
        message.reply_to_is_own_message = event.get("parent_user_id") == me
    return message
