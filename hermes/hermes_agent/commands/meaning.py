"""Which command a typed name means. Source: plugin contract §7.2, §7.3."""

from __future__ import annotations

from collections.abc import Iterable

from hermes_agent.commands.line import normalise_name
from hermes_agent.commands.registry import CommandTable
from hermes_agent.contracts.command import SlashCommand

__all__ = ["find_by_prefix", "find_command"]


def find_command(commands: CommandTable, name: str) -> SlashCommand | None:
    """Return the command of that name or alias; `_` may stand for `-`, since some chat platforms know no hyphens."""
    key = normalise_name(name)
    return commands.resolve(key) or commands.resolve(key.replace("_", "-"))


def find_by_prefix(name: str, names: Iterable[str]) -> str | None:
    """Return the only one of `names` that begins with `name`."""
    fits = [known for known in names if known.startswith(name)]
    return fits[0] if len(fits) == 1 else None
