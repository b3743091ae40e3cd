"""Slack: an app in socket mode, with Slack's own SDK (the extra `slack`)."""

import importlib.util

from hermes_agent.contracts.platform.alone import send_all
from hermes_agent.contracts.platform.options import Option, Options

SETTINGS = Options(
    "slack",
    Option("token", "SLACK_BOT_TOKEN", required=True, ask="The app's bot token (xoxb-…)", secret=True),
    Option("app_token", "SLACK_APP_TOKEN", required=True, ask="The app's own token (xapp-…)", secret=True),
    Option("base_url", "SLACK_API_URL", "https://slack.com/api/"),
    Option("reply_in_thread", "SLACK_REPLY_IN_THREAD", True),  # in channels, an answer begins a thread
    Option("reactions", "SLACK_REACTIONS", False),  # show on a message that it is worked on
)


def is_installed():
    return all(importlib.util.find_spec(name) for name in ("slack_sdk", "aiohttp"))


def made(config):
    from .adapter import SlackAdapter  # the SDK: only where Slack is used

    return SlackAdapter(config, SETTINGS.read(config))


async def send_alone(config, chat_id, message, *, thread_id=None, media_files=None, force_document=False):
    """Send without a gateway: no connection is needed for it."""
    speaker = made(config)
    speaker.open()
    return await send_all(speaker, chat_id, message, media_files, thread_id=thread_id, force_document=force_document)


def register(ctx):
    ctx.register_platform(
        name="slack",
        label="Slack",
        adapter_factory=made,
        check_fn=is_installed,
        install_hint="pip install 'hermes-agent[slack]'; with Nix: extraDependencyGroups = [ \"slack\" ]",
        validate_config=SETTINGS.is_valid,
        is_connected=SETTINGS.is_set,
        required_env=SETTINGS.required_env,
        setup_fn=SETTINGS.ask,
        env_enablement_fn=SETTINGS.seed,
        allowed_users_env="SLACK_ALLOWED_USERS",
        allow_all_env="SLACK_ALLOW_ALL_USERS",
        cron_deliver_env_var="SLACK_HOME_CHANNEL",
        standalone_sender_fn=send_alone,
        max_message_length=12000,
        emoji="💼",
        platform_hint=(
            "You write into a Slack channel: Markdown with lists, code and links. Files and pictures are sent with "
            "MEDIA:<path>."
        ),
    )
