"""Conversion of room events to messages. Source: spec.matrix.org, m.room.message."""

import re
from datetime import UTC, datetime

from hermes_agent.adapters.events import MessageEvent, MessageType
from hermes_agent.adapters.text import as_command, strip_mention

KINDS = {
    "m.image": MessageType.PHOTO,
    "m.file": MessageType.DOCUMENT,
    "m.audio": MessageType.AUDIO,
    "m.video": MessageType.VIDEO,
}


def is_for_us(event, me, process_notices):
    """Return whether an event is a new message of another user."""
    content = event.get("content") or {}
    relation = (content.get("m.relates_to") or {}).get("rel_type")
    if event.get("sender") == me or relation == "m.replace" or "msgtype" not in content:
        return event.get("type") == "m.sticker" and event.get("sender") != me
    if event.get("type") != "m.room.message" or content["msgtype"] == "m.notice":
        return event.get("type") == "m.room.message" and process_notices
    return True


def relation_of(content):
    """Return the thread and the quoted event of an event; each may be ""."""
    relates = content.get("m.relates_to") or {}
    answered = (relates.get("m.in_reply_to") or {}).get("event_id") or ""
    if relates.get("rel_type") == "m.thread":
        return relates.get("event_id") or "", "" if relates.get("is_falling_back") else answered
    return "", answered


def as_message(event, room, me, source, answered):
    """Return the message of an event, without its file.

    Args:
        answered: the quoted event, or None.
    """
    content = event["content"]
    text, is_addressed = _strip_mention(_text(event), content, me, room.members.get(me, me))
    message = MessageEvent(as_command(text), source=source, raw_message=event, message_id=event["event_id"])
    message.timestamp = datetime.fromtimestamp(event["origin_server_ts"] / 1000, UTC)
    message.metadata["addressed"] = is_addressed
    if content.get("msgtype") == "m.location":
        message.message_type = MessageType.LOCATION
    if answered:
        author = answered.get("sender")
        message.reply_to_message_id = answered["event_id"]
        message.reply_to_text = _text(answered) or None
        message.reply_to_author_id = author
        message.reply_to_author_name = room.members.get(author, author)
        message.reply_to_is_own_message = author == me
    return message


def file_of(event):
    """Return address, kind, name and MIME type of the file of an event, or None."""
    content = event["content"]
    address = content.get("url")
    if not isinstance(address, str) or not address.startswith("mxc://"):
        return None
    kind = KINDS.get(content.get("msgtype", ""), MessageType.STICKER)
    if "org.matrix.msc3245.voice" in content:
        kind = MessageType.VOICE
    name = content.get("filename") or content.get("body") or "file"
    return address, kind, str(name), str((content.get("info") or {}).get("mimetype") or "")


def _text(event):
    content = event.get("content") or {}
    body, kind = str(content.get("body") or ""), content.get("msgtype")
    if event.get("type") == "m.sticker":
        return f"[Sticker {body}]"
    if kind == "m.location":
        return f"[Location: {content.get('geo_uri', '').removeprefix('geo:')} {body}]"
    if kind in KINDS:
        return body if content.get("filename") not in (None, body) else ""  # otherwise it is the name of the file
    if kind == "m.emote":
        return f"* {event.get('sender')} {body}"
    if (content.get("m.relates_to") or {}).get("m.in_reply_to"):
        body = re.sub(r"\A> <[^\n]*\n(?:>[^\n]*\n)*\n?", "", body)  # older clients quote the message in the body
    return body


def _strip_mention(text, content, me, name):
    """Return the text without the agent's name in front, and whether it mentions the agent."""
    rest, named = strip_mention(text, (me, name, me[1:].partition(":")[0]))
    return rest, named or me in ((content.get("m.mentions") or {}).get("user_ids") or ())
