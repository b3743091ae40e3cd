"""Telegram: a bot, by the HTTP interface that Telegram has for bots."""

from hermes_agent.adapters.options import Option, Options

SETTINGS = Options(
    "telegram",
    Option("token", "TELEGRAM_BOT_TOKEN", required=True, ask="The bot's token, from @BotFather", secret=True),
    Option("base_url", "TELEGRAM_BASE_URL", "https://api.telegram.org"),  # or that of a Bot API server of one's own
    Option("proxy", "TELEGRAM_PROXY"),
    Option("reactions", "TELEGRAM_REACTIONS", False),  # show on a message that it is worked on
    Option("poll_timeout", "TELEGRAM_POLL_TIMEOUT", 50),  # seconds that Telegram holds an empty answer back
)


def adapter_class():
    from .adapter import TelegramAdapter  # asyncio: only where Telegram is used

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
