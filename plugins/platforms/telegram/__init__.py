"""Telegram: a bot, by the Bot API."""

from hermes_agent.adapters.options import Option, Options

SETTINGS = Options(
    "telegram",
    Option("token", "TELEGRAM_BOT_TOKEN", required=True, ask="The bot's token, from @BotFather", secret=True),
    Option("base_url", "TELEGRAM_BASE_URL", "https://api.telegram.org"),  # or that of another Bot API server
    Option("proxy", "TELEGRAM_PROXY"),
    Option("reactions", "TELEGRAM_REACTIONS", False),  # react to a message while it is processed
    Option("poll_timeout", "TELEGRAM_POLL_TIMEOUT", 50),  # seconds for which Telegram delays an empty answer
)


def adapter_class():
    from .adapter import TelegramAdapter  # asyncio is slow to import

    return TelegramAdapter


def register(ctx):
    SETTINGS.register(
        ctx,
        adapter_class,
        label="Telegram",
        alone=("open", "close"),
        attempt=("log_in", "close"),
        max_message_length=4096,
        emoji="✈️",
        platform_hint=(
            "You write into a Telegram chat: short Markdown (bold, italic, code, links, lists); tables are shown as "
            "lists. Files and pictures are sent with MEDIA:<path>, voice messages with [[audio_as_voice]]."
        ),
    )
