"""XMPP (Jabber): contacts and rooms of one account, with slixmpp (the extra `xmpp`)."""

from hermes_agent.adapters.options import Option, Options

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


def adapter_class():
    from .adapter import XmppAdapter  # slixmpp: only where XMPP is used

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
