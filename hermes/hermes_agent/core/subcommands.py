"""The agent's own `hermes NAME`."""

__all__ = ["SUBCOMMANDS"]

SUBCOMMANDS = (
    "auth", "completion", "config", "cron", "doctor", "gateway", "insights", "logs", "mcp", "memory", "model",
    "pairing", "plugins", "profile", "rollback", "send", "sessions", "skills", "state", "tools",
)  # fmt: skip
"""Each is a module of `hermes_agent.app.cli`, imported when it is asked for. A plugin's command of such a name would
never be reached, and is refused."""
