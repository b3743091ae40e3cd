"""Email, implemented with the standard library."""

from hermes_agent.adapters.options import Option, Options

SETTINGS = Options(
    "email",
    Option("address", "EMAIL_ADDRESS", required=True, ask="The agent's own address"),
    Option("password", "EMAIL_PASSWORD", required=True, ask="Password of the mailbox", secret=True),
    Option("imap_host", "EMAIL_IMAP_HOST", required=True, ask="IMAP server"),
    Option("smtp_host", "EMAIL_SMTP_HOST", required=True, ask="SMTP server"),
    Option("imap_port", "EMAIL_IMAP_PORT", 993, ask="Port of the IMAP server"),
    Option("smtp_port", "EMAIL_SMTP_PORT", 587, ask="Port of the SMTP server"),
    Option("imap_security", "EMAIL_IMAP_SECURITY"),  # tls, starttls or none; by default the port determines it
    Option("smtp_security", "EMAIL_SMTP_SECURITY"),
    Option("user", "EMAIL_USER"),  # login name, by default the address
    Option("folder", "EMAIL_FOLDER", "INBOX"),
    Option("poll_interval", "EMAIL_POLL_INTERVAL", 15.0),  # seconds, used without IDLE
    Option("resume_after_downtime", "EMAIL_RESUME_AFTER_DOWNTIME", True),
    Option("skip_attachments", "EMAIL_SKIP_ATTACHMENTS", False),
    Option("require_authentication", "EMAIL_REQUIRE_AUTHENTICATION"),  # name of the server that checks DMARC
    home_env="EMAIL_HOME_ADDRESS",
)


def adapter_class():
    from .adapter import EmailAdapter  # the mail packages are slow to import

    return EmailAdapter


async def send_alone(config, chat_id, message, *, thread_id=None, media_files=None, force_document=False):
    """Send without a gateway: SMTP needs no connection to the mailbox."""
    adapter = SETTINGS.made(adapter_class, config)
    files = [path for path, _ in adapter.filter_media_delivery_paths(media_files or [])]
    result = await adapter.mail(chat_id, message, files, metadata={"thread_id": thread_id} if thread_id else None)
    return {"success": result.success, "message_id": result.message_id, "error": result.error}


def register(ctx):
    SETTINGS.register(
        ctx,
        adapter_class,
        attempt=("log_in",),
        label="Email",
        standalone_sender_fn=send_alone,
        emoji="📧",
        platform_hint=(
            "You write an email: plain text, whole sentences, one message per answer. Files are attached with "
            "MEDIA:<path>. The subject is kept; do not write one."
        ),
    )
