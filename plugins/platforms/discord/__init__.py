"""Discord: a bot, with discord.py (the extra `discord`)."""

import importlib.util

from hermes_agent.contracts.platform.alone import send_all
from hermes_agent.contracts.platform.options import Option, Options

SETTINGS = Options(
    "discord",
    Option("token", "DISCORD_BOT_TOKEN", required=True, ask="The bot's token, from the developer portal", secret=True),
    Option("auto_thread", "DISCORD_AUTO_THREAD", True),  # in channels, an answer begins a thread
    Option("reactions", "DISCORD_REACTIONS", False),  # show on a message that it is worked on
    Option("slash_commands", "DISCORD_SLASH_COMMANDS", True),  # register the commands that need nothing more
    Option("base_url", "DISCORD_API_URL", "https://discord.com/api/v10"),
    Option("proxy", "DISCORD_PROXY"),
    Option("max_media_bytes", "DISCORD_MAX_MEDIA_BYTES", 100 * 2**20),
)


def is_installed():
    return importlib.util.find_spec("discord") is not None


def made(config):
    from .adapter import DiscordAdapter  # discord.py: only where Discord is used

    return DiscordAdapter(config, SETTINGS.read(config))


async def send_alone(config, chat_id, message, *, thread_id=None, media_files=None, force_document=False):
    """Send without a gateway: calls need no connection."""
    speaker = made(config)
    try:
        await speaker.log_in()
        return await send_all(
            speaker, chat_id, message, media_files, thread_id=thread_id, force_document=force_document
        )
    except Exception as exc:  # noqa: BLE001 - whoever asked is told
        return {"success": False, "error": f"{type(exc).__name__}: {exc}"}
    finally:
        await speaker.close()


def register(ctx):
    ctx.register_platform(
        name="discord",
        label="Discord",
        adapter_factory=made,
        check_fn=is_installed,
        install_hint="pip install 'hermes-agent[discord]'; with Nix: extraDependencyGroups = [ \"discord\" ]",
        validate_config=SETTINGS.is_valid,
        is_connected=SETTINGS.is_set,
        required_env=SETTINGS.required_env,
        setup_fn=SETTINGS.ask,
        env_enablement_fn=SETTINGS.seed,
        allowed_users_env="DISCORD_ALLOWED_USERS",
        allow_all_env="DISCORD_ALLOW_ALL_USERS",
        cron_deliver_env_var="DISCORD_HOME_CHANNEL",
        standalone_sender_fn=send_alone,
        max_message_length=2000,
        emoji="🎮",
        platform_hint=(
            "You write into a Discord chat: Markdown without tables, short messages (2,000 characters each). Files and "
            "pictures are sent with MEDIA:<path>."
        ),
    )
