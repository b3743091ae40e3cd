"""A chat in this process: what is written goes to the agent, and what the agent sends is kept."""

import os

from .adapter import ExampleAdapter


def check_requirements():
    return True


def is_connected(config):
    return bool(config.extra.get("token"))


def env_enablement():
    token = os.environ.get("EXAMPLE_CHAT_TOKEN", "").strip()
    if not token:
        return None
    seed = {"token": token}
    if os.environ.get("EXAMPLE_CHAT_HOME"):
        seed["home_channel"] = {"chat_id": os.environ["EXAMPLE_CHAT_HOME"], "name": "Home"}
    return seed


def apply_yaml_config(config, own):
    return {"room": own["room"]} if "room" in own else None


async def on_button(ack, body, action):
    await ack()


def register(ctx):
    ctx.register_platform(
        name="example",
        label="Example",
        adapter_factory=ExampleAdapter,
        check_fn=check_requirements,
        validate_config=is_connected,
        is_connected=is_connected,
        required_env=["EXAMPLE_CHAT_TOKEN"],
        env_enablement_fn=env_enablement,
        apply_yaml_config_fn=apply_yaml_config,
        cron_deliver_env_var="EXAMPLE_CHAT_HOME",
        allowed_users_env="EXAMPLE_CHAT_ALLOWED_USERS",
        max_message_length=100,
        emoji="💬",
        platform_hint="You write into a chat without Markdown.",
    )
    ctx.register_slack_action_handler("example_button", on_button)
