"""XMPP (Jabber): contacts and rooms of one account, implemented with slixmpp (extra `xmpp`)."""

from hermes_agent.adapters.options import Option, Options

SETTINGS = Options(
    "xmpp",
    Option("jid", "XMPP_JID", required=True, ask="Address of the agent's account (name@server)"),
    Option("password", "XMPP_PASSWORD", required=True, ask="Its password", secret=True),
    Option("rooms", "XMPP_ROOMS", [], ask="Addresses of the rooms to join, separated by commas"),
    Option("nickname", "XMPP_NICKNAME", "hermes", ask="Its name in rooms"),
    Option("host", "XMPP_HOST"),  # if the server is not found by DNS records
    Option("port", "XMPP_PORT", 5222),
    Option("tls", "XMPP_TLS", "starttls"),  # for `host`: starttls, direct or none
    Option("ca_file", "XMPP_CA_FILE"),  # certificates of a private authority
    Option("auto_join", "XMPP_AUTO_JOIN", True),  # accept room invitations of authorized users
    Option("threads", "XMPP_THREADS", False),  # each <thread/> has a session of its own
    Option("reactions", "XMPP_REACTIONS", False),  # react to a message while it is processed
    Option("ping_interval", "XMPP_PING_INTERVAL", 60.0),
    Option("max_media_bytes", "XMPP_MAX_MEDIA_BYTES", 100 * 2**20),
)


def adapter_class():
    from .adapter import XmppAdapter  # slixmpp is slow to import

    return XmppAdapter


def register(ctx):
    SETTINGS.register(
        ctx,
        adapter_class,
        sdk=("slixmpp",),
        label="XMPP",
        alone=("connect_alone", "disconnect"),
        emoji="💡",
        platform_hint=(
            "You write into an XMPP chat: short texts with *bold*, _italic_, `code` and > quotes; no tables. Files and "
            "pictures are sent with MEDIA:<path>."
        ),
    )
