"""Conversion of Telegram's updates to messages. Source: core.telegram.org/bots/api#message."""

from datetime import UTC, datetime

from hermes_agent.adapters.base import PlatformEvent
from hermes_agent.adapters.events import MessageEvent, MessageType

CHAT_TYPES = {"private": "dm", "group": "group", "supergroup": "group", "channel": "channel"}
FILES = (  # field, kind, name of a file that has none
    ("voice", MessageType.VOICE, "voice.ogg"),
    ("audio", MessageType.AUDIO, "audio.mp3"),
    ("video", MessageType.VIDEO, "video.mp4"),
    ("video_note", MessageType.VIDEO, "video.mp4"),
    ("animation", MessageType.VIDEO, "animation.mp4"),
    ("document", MessageType.DOCUMENT, "file"),
)
GENERAL = "1"
"""Thread id of the general topic of a forum, which is omitted when sending there."""


def file_of(message):
    """Return id, kind, name and MIME type of the file of a message, or None."""
    if message.get("photo"):
        return message["photo"][-1]["file_id"], MessageType.PHOTO, "photo.jpg", "image/jpeg"
    sticker = message.get("sticker")
    if sticker and not sticker.get("is_animated") and not sticker.get("is_video"):
        return sticker["file_id"], MessageType.STICKER, "sticker.webp", "image/webp"
    for field, kind, name in FILES:
        found = message.get(field)
        if found:
            return found["file_id"], kind, found.get("file_name") or name, found.get("mime_type") or ""
    return None


def text_of(message):
    """Return the text of a message, also of a location, contact or sticker."""
    if message.get("location"):
        place, venue = message["location"], message.get("venue") or {}
        named = f"{venue.get('title', '')} {venue.get('address', '')}".strip()
        return f"[Location: {place['latitude']}, {place['longitude']}{f' ({named})' if named else ''}]"
    if message.get("contact"):
        contact = message["contact"]
        name = f"{contact.get('first_name', '')} {contact.get('last_name', '')}".strip()
        return f"[Contact: {name}, {contact.get('phone_number', '')}]"
    sticker = message.get("sticker")
    if sticker:
        return f"[Sticker {sticker.get('emoji', '')}]"
    return message.get("text") or message.get("caption") or ""


def as_event(message, me, build_source, update_id):
    """Return the event of a message; None if it is not for this bot.

    Args:
        me: the user of the bot.
    """
    text, addressed, is_ours = _addressed(message, me)
    if not is_ours or (message.get("from") or {}).get("id") == me["id"]:
        return None
    source = _source_of(message, message.get("from"), build_source)
    event = MessageEvent(text, source=source, raw_message=message, message_id=str(message["message_id"]))
    event.platform_update_id = update_id
    event.message_type = _kind(message, text)
    event.timestamp = datetime.fromtimestamp(message["date"], UTC)
    event.metadata["addressed"] = addressed
    answered = message.get("reply_to_message")
    if answered and not answered.get("forum_topic_created"):
        author = answered.get("from") or {}
        event.reply_to_message_id = str(answered["message_id"])
        event.reply_to_text = (message.get("quote") or {}).get("text") or text_of(answered) or None
        event.reply_to_author_id = str(author["id"]) if "id" in author else None
        event.reply_to_author_name = author.get("first_name")
        event.reply_to_is_own_message = author.get("id") == me["id"]
    return event


def _source_of(message, user, build_source):
    """Return the source of a message or reaction of a user."""
    chat, user = message["chat"], user or {}
    thread = message.get("message_thread_id") if message.get("is_topic_message") else None
    name = " ".join(filter(None, (user.get("first_name"), user.get("last_name")))) or user.get("username")
    return build_source(
        chat_id=chat["id"],
        chat_name=chat.get("title") or name,
        chat_type=CHAT_TYPES.get(chat["type"], "group"),
        user_id=user.get("id"),
        user_name=name,
        thread_id=thread or (GENERAL if chat.get("is_forum") else None),
        is_bot=bool(user.get("is_bot")),
        message_id=message["message_id"],
    )


def as_platform_event(update, me, build_source):
    """Return the reaction or edit of an update; None for others, for the bot's own and for those without a user."""
    edited, reaction = update.get("edited_message"), update.get("message_reaction")
    change = edited or reaction
    user = (edited or {}).get("from") or (reaction or {}).get("user")
    if change is None or user is None or user["id"] == me["id"]:
        return None
    source = _source_of(change, user, build_source)
    fields = {
        "chat_id": str(change["chat"]["id"]),
        "message_id": str(change["message_id"]),
        "thread_id": source.thread_id,
    }
    if edited:
        at = edited.get("edit_date")
        fields["text"] = edited.get("text") or edited.get("caption")
        fields["edited_at"] = datetime.fromtimestamp(at, UTC).isoformat() if at else None
        return PlatformEvent("message_edited", fields, source)
    new = reaction.get("new_reaction") or ()
    fields["emojis"] = [str(one["emoji"]) for one in new if one.get("type") == "emoji"]
    fields["custom_emoji_ids"] = [str(one["custom_emoji_id"]) for one in new if one.get("type") == "custom_emoji"]
    fields["thread_id"] = None  # Telegram does not say the topic
    return PlatformEvent("reaction", fields, source)


def _kind(message, text):
    if message.get("location"):
        return MessageType.LOCATION
    return MessageType.COMMAND if text.startswith("/") else MessageType.TEXT


def _addressed(message, me):
    """Return the text without the bot's name, whether it mentions the bot, and whether it may be for it."""
    text, name = text_of(message), f"@{me.get('username', '')}"
    units = text.encode("utf-16-le")
    addressed = False
    for entity in reversed(message.get("entities") or message.get("caption_entities") or []):
        begin, end = entity["offset"], entity["offset"] + entity["length"]
        part = units[2 * begin : 2 * end].decode("utf-16-le", "ignore")
        if entity["type"] == "bot_command" and "@" in part and begin == 0:
            if part.partition("@")[2].lower() != name[1:].lower():
                return text, False, False
            addressed, cut = True, part.partition("@")[0]
        elif part.lower() == name.lower() or (entity.get("user") or {}).get("id") == me["id"]:
            addressed, cut = True, ""
        else:
            continue
        units = units[: 2 * begin] + cut.encode("utf-16-le") + units[2 * end :]
    return units.decode("utf-16-le", "ignore").strip(), addressed, True
