"""IRC, implemented with the standard library."""

from hermes_agent.adapters.options import Option, Options

SETTINGS = Options(
    "irc",
    Option("server", "IRC_SERVER", required=True, ask="Host name of the server"),
    Option("channel", "IRC_CHANNEL", [], ask="Channels to join, separated by commas"),
    Option("nickname", "IRC_NICKNAME", "hermes-bot", ask="Nick of the agent"),
    Option("port", "IRC_PORT", 0, ask="Port (0: 6697 with TLS, 6667 without)"),
    Option("use_tls", "IRC_USE_TLS", True, ask="TLS (yes or no)"),
    Option("tls_certificate", "IRC_TLS_CERTIFICATE"),  # certificate and key in one file, for SASL EXTERNAL
    Option("server_password", "IRC_SERVER_PASSWORD", secret=True),
    Option("nickserv_password", "IRC_NICKSERV_PASSWORD", ask="Password of the nick at NickServ", secret=True),
    Option("sasl_mechanism", "IRC_SASL_MECHANISM"),  # default: PLAIN if there is a password
    Option("sasl_account", "IRC_SASL_ACCOUNT"),  # default: the nick
    Option("sasl_password", "IRC_SASL_PASSWORD", secret=True),
    Option("require_mention", "IRC_REQUIRE_MENTION", True),
    Option("free_response_channels", "IRC_FREE_RESPONSE_CHANNELS", []),
    Option("identify_by", "IRC_IDENTIFY_BY", "nick"),  # or account
    Option("flood_burst", "IRC_FLOOD_BURST", 5),  # lines that are sent without a delay
    Option("flood_interval", "IRC_FLOOD_INTERVAL", 1.0),  # then seconds per line; 0: no limit
    Option("ping_interval", "IRC_PING_INTERVAL", 60.0),
)


def adapter_class():
    from .adapter import IrcAdapter  # asyncio and ssl are slow to import

    return IrcAdapter


async def send_alone(config, chat_id, message, *, thread_id=None, media_files=None, force_document=False):
    """Send without a gateway, under another nick, because a gateway may use the configured one."""
    adapter = SETTINGS.made(adapter_class, config)
    adapter.settings.nickname += "-send"
    adapter.settings.channel = [chat_id] if chat_id[:1] in "#&" else []
    try:
        if not await adapter.connect():
            return {"success": False, "error": adapter.fatal_error_message}
        result = await adapter.send(chat_id, message)
    finally:
        await adapter.disconnect()
    return {"success": result.success, "message_id": result.message_id, "error": result.error}


def register(ctx):
    SETTINGS.register(
        ctx,
        adapter_class,
        attempt=("log_in",),
        label="IRC",
        standalone_sender_fn=send_alone,
        emoji="📟",
        platform_hint=(
            "You write into an IRC chat: short plain lines without Markdown. Files and pictures cannot be sent; "
            "give an address instead."
        ),
    )
