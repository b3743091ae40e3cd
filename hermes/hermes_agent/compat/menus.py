"""Upstream's menus of slash commands for chat services: `hermes_cli.commands`. Source: plugin contract §11.1."""

from __future__ import annotations

from collections.abc import Collection

from hermes_agent.compat.hosting import host

__all__ = [
    "discord_skill_commands_by_category",
    "slack_native_slashes",
    "slack_subcommand_map",
    "telegram_menu_commands",
    "telegram_menu_max_commands",
]

TELEGRAM_MOST = 100
"""Commands that Telegram's menu takes."""
SLACK_MOST = 50
"""Slash commands that Slack's manifest takes."""
DISCORD_MOST = 25
"""Choices that Discord shows in one list."""
MAX_NAME_LENGTH = 32
SLACK_RESERVED = frozenset(
    [
        "away",
        "apps",
        "call",
        "collapse",
        "dnd",
        "expand",
        "feed",
        "focus",
        "help",
        "invite",
        "join",
        "kick",
        "leave",
        "me",
        "mute",
        "msg",
        "open",
        "remind",
        "remove",
        "rename",
        "search",
        "shrug",
        "star",
        "status",
        "topic",
        "unmute",
    ]
)
"""Names that Slack keeps for itself."""


def telegram_menu_max_commands() -> int:
    """Return how many commands the menu has at most."""
    return TELEGRAM_MOST


def telegram_menu_commands(max_commands: int = TELEGRAM_MOST) -> tuple[list[tuple[str, str]], int]:
    """Return names, as the service takes them, with descriptions, and how many found no room.

    Commands come first, those of the agent, of plugins and of the operator, and then skills.
    """
    skills = [
        (slug.replace("-", "_"), skill.document.description or slug)
        for slug, skill in host().slash.skills.offered("telegram").items()
        if len(slug) <= MAX_NAME_LENGTH
    ]
    found: dict[str, str] = {}
    for name, text in (*_commands(), *skills):
        found.setdefault(name, text[:256])
    return list(found.items())[:max_commands], max(len(found) - max_commands, 0)


def slack_native_slashes() -> list[tuple[str, str, str]]:
    """Return name, description and what may follow it, for each slash command of a Slack app; `hermes` comes first."""
    entries = [("hermes", "Talk to the agent, or give one of its commands", "[command] [text]")]
    hints = {name: command.args_hint for name, command in host().commands.items()}
    for name, text in _commands():
        slash = name.replace("_", "-")
        if slash not in SLACK_RESERVED and slash not in {entry[0] for entry in entries}:
            entries.append((slash, text[:140], hints.get(slash, "")[:100]))
    return entries[:SLACK_MOST]


def slack_subcommand_map() -> dict[str, str]:
    """Return for each word behind `/hermes` the command that it stands for."""
    return {name.replace("_", "-"): f"/{name.replace('_', '-')}" for name, _ in _commands()}


def discord_skill_commands_by_category(
    reserved_names: Collection[str],
) -> tuple[dict[str, list[tuple[str, str, str]]], list[tuple[str, str, str]], int]:
    """Return the skills by category, those without one, and how many found no room: name, description, command.

    Args:
        reserved_names: that are commands already.
    """
    categories: dict[str, list[tuple[str, str, str]]] = {}
    alone: list[tuple[str, str, str]] = []
    hidden = 0
    for slug, skill in sorted(host().slash.skills.offered("discord").items()):
        if slug in reserved_names:
            continue
        category, nested, _ = skill.place.rpartition("/")
        place = categories.setdefault(category.partition("/")[0], []) if nested else alone
        if len(slug) > MAX_NAME_LENGTH or len(place) >= DISCORD_MOST:
            hidden += 1
        else:
            place.append((slug, skill.document.description[:100], f"/{slug}"))
    return {name: found for name, found in categories.items() if found}, alone, hidden


def _commands() -> list[tuple[str, str]]:
    """Return the running gateway's menu; without one, the commands of every front end."""
    gateway = host().running_gateway()
    if gateway is not None:
        return [(name, text) for name, text in gateway.menu()]
    return [
        (name.replace("-", "_"), command.description)
        for name, command in sorted(host().commands.items())
        if len(name) <= MAX_NAME_LENGTH and (not command.args_hint or command.args_hint.startswith("["))
    ]
