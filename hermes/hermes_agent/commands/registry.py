"""Who has which slash command."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from hermes_agent.commands.line import normalise_name
from hermes_agent.commands.reserved import RESERVED
from hermes_agent.contracts.command import COMMAND, CommandHandler, SlashCommand
from hermes_agent.core.registry import BUILTIN, Registry

__all__ = ["CommandTable"]

logger = logging.getLogger(__name__)


class CommandTable(Registry[SlashCommand]):
    """Slash commands by normalised name; built-ins win."""

    def __init__(self) -> None:
        super().__init__(COMMAND.label)
        self._aliases: dict[str, str] = {}

    def register(
        self,
        name: str,
        handler: CommandHandler,
        *,
        plugin: str = BUILTIN,
        description: str = "",
        args_hint: str = "",
        beside: bool = True,
        aliases: Sequence[str] = (),
    ) -> bool:
        """Add a command; false, with a warning in the log, when the name is empty or a built-in's.

        Of two plugins with one name the first keeps it.

        Args:
            aliases: other names of a built-in; `resolve` knows them, listings leave them out.

        Raises:
            Conflict: another plugin has the name.
        """
        key = normalise_name(name)
        if not key:
            logger.warning("Plugin '%s' tried to register a command with an empty name.", plugin)
            return False
        if plugin != BUILTIN and (key in RESERVED or self.owner(key) == BUILTIN):
            logger.warning(
                "Plugin '%s' tried to register command '/%s' which conflicts with a built-in command. Skipping.",
                plugin,
                key,
            )
            return False
        self.add(key, SlashCommand(key, handler, description or "Plugin command", args_hint, beside), owner=plugin)
        self._aliases |= dict.fromkeys(aliases, key)
        return True

    def resolve(self, name: str) -> SlashCommand | None:
        """Return the command of that name or alias, or None."""
        return self.get(name) or self.get(self._aliases.get(name, ""))
