"""Telegram: a bot, by the HTTP interface that Telegram has for bots."""

from hermes_agent.contracts.platform.options import Option, Options

SETTINGS = Options(
    "telegram",
    Option("token", "TELEGRAM_BOT_TOKEN", required=True, ask="The bot's token, from @BotFather", secret=True),
    Option("base_url", "TELEGRAM_BASE_URL", "https://api.telegram.org"),  # or that of a Bot API server of one's own
    Option("proxy", "TELEGRAM_PROXY"),
    Option("reactions", "TELEGRAM_REACTIONS", False),  # show on a message that it is worked on
    Option("poll_timeout", "TELEGRAM_POLL_TIMEOUT", 50),  # seconds that Telegram holds an empty answer back
)


def adapter(config):
    from .adapter import TelegramAdapter  # asyncio: only where Telegram is used

    return TelegramAdapter(config, SETTINGS.read(config))


async def send_alone(config, chat_id, message, *, thread_id=None, media_files=None, force_document=False):
    """Send without a gateway: no connection is needed for it."""
    speaker = adapter(config)
    metadata = {"thread_id": thread_id} if thread_id else None
    try:
        speaker.open()
        result = None
        for part in speaker.truncate_message(message, speaker.MAX_MESSAGE_LENGTH, speaker.message_len_fn):
            result = await speaker.send(chat_id, part, metadata=metadata) if part.strip() else result
        for path, is_voice in speaker.filter_media_delivery_paths(media_files or []):
            send = speaker.send_voice if is_voice and not force_document else speaker.send_document
            result = await send(chat_id, path, metadata=metadata)
    finally:
        await speaker.close()
    if result is None:
        return {"success": False, "error": "there is nothing to send"}
    return {"success": result.success, "message_id": result.message_id, "error": result.error}


def register(ctx):
    ctx.register_platform(
        name="telegram",
        label="Telegram",
        adapter_factory=adapter,
        check_fn=lambda: True,
        validate_config=SETTINGS.is_valid,
        is_connected=SETTINGS.is_set,
        required_env=SETTINGS.required_env,
        setup_fn=SETTINGS.ask,
        env_enablement_fn=SETTINGS.seed,
        allowed_users_env="TELEGRAM_ALLOWED_USERS",
        allow_all_env="TELEGRAM_ALLOW_ALL_USERS",
        cron_deliver_env_var="TELEGRAM_HOME_CHANNEL",
        standalone_sender_fn=send_alone,
        max_message_length=4096,
        emoji="✈️",
        platform_hint=(
            "You write into a Telegram chat: short Markdown (bold, italic, code, links, lists); tables are shown as "
            "lists. Files and pictures are sent with MEDIA:<path>, voice messages with [[audio_as_voice]]."
        ),
    )
