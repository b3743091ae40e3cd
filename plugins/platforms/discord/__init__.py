"""Discord: a bot, implemented with discord.py (extra `discord`)."""

from hermes_agent.adapters.options import Option, Options

SETTINGS = Options(
    "discord",
    Option("token", "DISCORD_BOT_TOKEN", required=True, ask="The bot's token, from the developer portal", secret=True),
    Option("auto_thread", "DISCORD_AUTO_THREAD", True),  # in channels, an answer starts a thread
    Option("reactions", "DISCORD_REACTIONS", False),  # react to a message while it is processed
    Option("slash_commands", "DISCORD_SLASH_COMMANDS", True),  # register slash commands with Discord
    Option("base_url", "DISCORD_API_URL", "https://discord.com/api/v10"),
    Option("proxy", "DISCORD_PROXY"),
    Option("max_media_bytes", "DISCORD_MAX_MEDIA_BYTES", 100 * 2**20),
)


def adapter_class():
    from .adapter import DiscordAdapter  # discord.py is slow to import

    return DiscordAdapter


def register(ctx):
    SETTINGS.register(
        ctx,
        adapter_class,
        sdk=("discord",),
        label="Discord",
        alone=("log_in", "close"),
        max_message_length=2000,
        emoji="🎮",
        platform_hint=(
            "You write into a Discord chat: Markdown without tables, short messages (2,000 characters each). Files and "
            "pictures are sent with MEDIA:<path>."
        ),
    )
