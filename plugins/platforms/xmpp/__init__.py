"""XMPP (Jabber): contacts and rooms of one account, with slixmpp (the extra `xmpp`)."""

import importlib.util

from hermes_agent.contracts.platform.alone import send_all
from hermes_agent.contracts.platform.options import Option, Options

SETTINGS = Options(
    "xmpp",
    Option("jid", "XMPP_JID", required=True, ask="Address of the agent's account (name@server)"),
    Option("password", "XMPP_PASSWORD", required=True, ask="Its password", secret=True),
    Option("rooms", "XMPP_ROOMS", [], ask="Addresses of the rooms to join, with commas between them"),
    Option("nickname", "XMPP_NICKNAME", "hermes", ask="Its name in rooms"),
    Option("host", "XMPP_HOST"),  # where the address's own server is not found by its DNS records
    Option("port", "XMPP_PORT", 5222),
    Option("tls", "XMPP_TLS", "starttls"),  # of `host`; or direct, or none
    Option("ca_file", "XMPP_CA_FILE"),  # of an authority of one's own
    Option("auto_join", "XMPP_AUTO_JOIN", True),  # rooms that somebody who may talk to it invites it to
    Option("threads", "XMPP_THREADS", False),  # each <thread/> is a conversation of its own
    Option("reactions", "XMPP_REACTIONS", False),  # show on a message that it is worked on
    Option("ping_interval", "XMPP_PING_INTERVAL", 60.0),
    Option("max_media_bytes", "XMPP_MAX_MEDIA_BYTES", 100 * 2**20),
)


def is_installed():
    return importlib.util.find_spec("slixmpp") is not None


def made(config):
    from .adapter import XmppAdapter  # slixmpp: only where XMPP is used

    return XmppAdapter(config, SETTINGS.read(config))


async def send_alone(config, chat_id, message, *, thread_id=None, media_files=None, force_document=False):
    """Send without a gateway; one that runs keeps its own connection."""
    speaker = made(config)
    speaker.alone()
    try:
        if not await speaker.connect():
            return {"success": False, "error": speaker.fatal_error_message}
        return await send_all(speaker, chat_id, message, media_files, thread_id=thread_id)
    finally:
        await speaker.disconnect()


def register(ctx):
    ctx.register_platform(
        name="xmpp",
        label="XMPP",
        adapter_factory=made,
        check_fn=is_installed,
        install_hint="pip install 'hermes-agent[xmpp]'; with Nix: extraDependencyGroups = [ \"xmpp\" ]",
        validate_config=SETTINGS.is_valid,
        is_connected=SETTINGS.is_set,
        required_env=SETTINGS.required_env,
        setup_fn=SETTINGS.ask,
        env_enablement_fn=SETTINGS.seed,
        allowed_users_env="XMPP_ALLOWED_USERS",
        allow_all_env="XMPP_ALLOW_ALL_USERS",
        cron_deliver_env_var="XMPP_HOME_CHANNEL",
        standalone_sender_fn=send_alone,
        emoji="💡",
        platform_hint=(
            "You write into an XMPP chat: short texts with *bold*, _italic_, `code` and > quotes; no tables. Files and "
            "pictures are sent with MEDIA:<path>."
        ),
    )
