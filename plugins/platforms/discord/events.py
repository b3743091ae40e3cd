"""Conversion of Discord's messages and interactions to events."""

import re

import discord
from hermes_agent.adapters.events import MessageEvent, MessageType, SendResult
from hermes_agent.adapters.questions import answer_text

SPOKEN = (discord.MessageType.default, discord.MessageType.reply)
"""Types of messages of users; others are notices of changes."""
BUTTON_PREFIX = "hermes:"
"""Prefix of the ids of the adapter's buttons."""
KINDS = {"image": MessageType.PHOTO, "video": MessageType.VIDEO, "audio": MessageType.AUDIO}


def is_message(message, me):
    """Return whether a message was sent by another user."""
    return message.author.id != me and message.type in SPOKEN


def readable_text(message, text):
    """Return a text with names instead of ids, as users see it."""
    for user in message.mentions:
        text = re.sub(rf"<@!?{user.id}>", f"@{user.display_name}", text)
    for channel in message.channel_mentions:
        text = text.replace(f"<#{channel.id}>", f"#{channel.name}")
    for role in message.role_mentions:
        text = text.replace(f"<@&{role.id}>", f"@{role.name}")
    return re.sub(r"<a?(:\w+:)\d+>", r"\1", text)


def text_of(message):
    """Return the text of a message, with its stickers."""
    stickers = [f"[Sticker {sticker.name}]" for sticker in message.stickers]
    return "\n".join(part for part in (readable_text(message, message.content), *stickers) if part).strip()


def as_event(message, channel, me, build_source, thread):
    """Return the event of a message, without its files.

    Args:
        channel: the channel, as far as it is known.
        thread: the thread that the answer starts, or None.
    """
    named = any(user.id == me for user in message.mentions)
    content = re.sub(rf"<@!?{me}>", "", message.content) if named else message.content
    stickers = [f"[Sticker {sticker.name}]" for sticker in message.stickers]
    text = "\n".join(part for part in (readable_text(message, content).lstrip(" ,:\n").rstrip(), *stickers) if part)
    event = MessageEvent(text, raw_message=message, message_id=str(message.id))
    event.source = source_of(channel, message.author, build_source, thread)
    event.timestamp = message.created_at
    event.metadata["addressed"] = named
    answered = message.reference.resolved if message.reference is not None else None
    if isinstance(answered, discord.Message):
        event.reply_to_message_id, event.reply_to_text = str(answered.id), text_of(answered) or None
        event.reply_to_author_id, event.reply_to_author_name = str(answered.author.id), answered.author.display_name
        event.reply_to_is_own_message = answered.author.id == me
    return event


def source_of(channel, author, build_source, thread=None):
    """Return the source of a message. `thread`: the thread that the answer starts."""
    guild = getattr(channel, "guild", None)
    within = thread or (channel if isinstance(channel, discord.Thread) else None)
    kind = "thread" if within is not None else "dm" if guild is None else "group"
    parent = channel.id if thread is not None else getattr(channel, "parent_id", None)
    return build_source(
        chat_id=within.id if within is not None else channel.id,
        chat_name=getattr(within or channel, "name", None),
        chat_type=kind,
        user_id=author.id,
        user_name=author.display_name,
        thread_id=within.id if within is not None else None,
        chat_topic=getattr(channel, "topic", None),
        is_bot=author.bot,
        scope_id=guild.id if guild is not None else None,
        guild_id=guild.id if guild is not None else None,
        parent_chat_id=parent if within is not None else None,
        auto_thread_created=thread is not None,
    )


def kind_of(attachment, kept):
    """Return the kind of a stored attachment."""
    voice = attachment.is_voice_message()
    return MessageType.VOICE if voice else KINDS.get(kept.kind, MessageType.DOCUMENT)


def interaction_text(interaction):
    """Return the text of an interaction and the label of its button; two empty texts for other buttons."""
    data = interaction.data or {}
    pressed = str(data.get("custom_id") or "")
    if interaction.type is discord.InteractionType.application_command:
        rest = " ".join(str(option.get("value") or "") for option in data.get("options") or ())
        return f"/{data['name']} {rest}".strip(), ""
    if interaction.type is discord.InteractionType.component and pressed.startswith(BUTTON_PREFIX):
        buttons = (item for row in interaction.message.components for item in getattr(row, "children", ()))
        label = next((button.label or "" for button in buttons if button.custom_id == pressed), "")
        value = pressed.removeprefix(BUTTON_PREFIX)
        return answer_text(value, label), label
    return "", ""


def failed_result(exc):
    """Return the result of a call that Discord refused."""
    if exc.status >= 500:
        return SendResult(False, error="timed out: it may have arrived", error_kind="unknown")
    if exc.status == 429:
        pause = float(exc.response.headers.get("Retry-After") or 60)
        return SendResult(False, error="429", error_kind="rate_limited", retry_after=pause)
    if exc.status == 401:
        return SendResult(False, error="401: Discord rejected the token", retryable=True)
    kinds = {403: "forbidden", 404: "not_found", 413: "too_long"}
    kind = kinds.get(exc.status, "too_long" if "2000 or fewer" in str(exc) else "bad_format")
    return SendResult(False, error=f"{exc.status} {exc.text}".strip(), error_kind=kind)
