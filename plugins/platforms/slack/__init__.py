"""Slack: an app in socket mode, implemented with Slack's SDK (extra `slack`)."""

from hermes_agent.adapters.options import Option, Options

SETTINGS = Options(
    "slack",
    Option("token", "SLACK_BOT_TOKEN", required=True, ask="The app's bot token (xoxb-…)", secret=True),
    Option("app_token", "SLACK_APP_TOKEN", required=True, ask="The app's own token (xapp-…)", secret=True),
    Option("base_url", "SLACK_API_URL", "https://slack.com/api/"),
    Option("reply_in_thread", "SLACK_REPLY_IN_THREAD", True),  # in channels, an answer starts a thread
    Option("reactions", "SLACK_REACTIONS", False),  # react to a message while it is processed
)


def adapter_class():
    from .adapter import SlackAdapter  # the SDK is slow to import

    return SlackAdapter


def register(ctx):
    SETTINGS.register(
        ctx,
        adapter_class,
        sdk=("slack_sdk", "aiohttp"),
        label="Slack",
        alone=("open",),
        attempt=("log_in",),
        max_message_length=12000,
        emoji="💼",
        platform_hint=(
            "You write into a Slack channel: Markdown with lists, code and links. Files and pictures are sent with "
            "MEDIA:<path>."
        ),
    )
