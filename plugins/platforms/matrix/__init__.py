"""Matrix, by the client-server API."""

from hermes_agent.adapters.options import Option, Options

SETTINGS = Options(
    "matrix",
    Option("homeserver", "MATRIX_HOMESERVER", required=True, ask="Address of the homeserver (https://…)"),
    Option("access_token", "MATRIX_ACCESS_TOKEN", ask="Access token of the agent's account", secret=True),
    Option("user_id", "MATRIX_USER_ID", ask="Without a token: id of the account (@name:server)"),
    Option("password", "MATRIX_PASSWORD", ask="Without a token: its password", secret=True),
    Option("auto_join", "MATRIX_AUTO_JOIN", True),
    Option("auto_thread", "MATRIX_AUTO_THREAD", True),  # in rooms, an answer starts a thread
    Option("process_notices", "MATRIX_PROCESS_NOTICES", False),
    Option("reactions", "MATRIX_REACTIONS", True),  # react to a message while it is processed
    Option("max_media_bytes", "MATRIX_MAX_MEDIA_BYTES", 100 * 2**20),
    home_env="MATRIX_HOME_ROOM",
)


def adapter_class():
    from .adapter import MatrixAdapter  # asyncio is slow to import

    return MatrixAdapter


def is_set(config):
    """Return whether there is a homeserver, and a token or user id with password."""
    if not SETTINGS.is_set(config):
        return False
    settings = SETTINGS.read(config)
    return bool(settings.access_token or (settings.user_id and settings.password))


def register(ctx):
    SETTINGS.register(
        ctx,
        adapter_class,
        label="Matrix",
        is_connected=is_set,
        alone=("log_in", "close"),
        max_message_length=16000,
        emoji="🔷",
        platform_hint=(
            "You write into a Matrix room: Markdown with lists, code and links; tables are shown as lists. Files and "
            "pictures are sent with MEDIA:<path>."
        ),
    )
