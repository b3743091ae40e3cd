"""Telegram: a bot, by the HTTP interface that Telegram has for bots."""

from hermes_agent.contracts.platform.alone import send_all
from hermes_agent.contracts.platform.options import Option, Options

SETTINGS = Options(
    "telegram",
    Option("token", "TELEGRAM_BOT_TOKEN", required=True, ask="The bot's token, from @BotFather", secret=True),
    Option("base_url", "TELEGRAM_BASE_URL", "https://api.telegram.org"),  # or that of a Bot API server of one's own
    Option("proxy", "TELEGRAM_PROXY"),
    Option("reactions", "TELEGRAM_REACTIONS", False),  # show on a message that it is worked on
    Option("poll_timeout", "TELEGRAM_POLL_TIMEOUT", 50),  # seconds that Telegram holds an empty answer back
)


def made(config):
    from .adapter import TelegramAdapter  # asyncio: only where Telegram is used

    return TelegramAdapter(config, SETTINGS.read(config))


async def send_alone(config, chat_id, message, *, thread_id=None, media_files=None, force_document=False):
    """Send without a gateway: no connection is needed for it."""
    speaker = made(config)
    try:
        speaker.open()
        return await send_all(
            speaker, chat_id, message, media_files, thread_id=thread_id, force_document=force_document
        )
    finally:
        await speaker.close()


def register(ctx):
    ctx.register_platform(
        name="telegram",
        label="Telegram",
        adapter_factory=made,
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
