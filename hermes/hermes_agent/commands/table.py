"""The table of slash commands, and parsing of lines. Source: plugin contract §7.1, §7.2, §7.3."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import NamedTuple

from hermes_agent.contracts.command import COMMAND, EVERYWHERE, SlashCommand, Where
from hermes_agent.core.registry import BUILTIN, RegistryFacade

logger = logging.getLogger(__name__)

_LINE = re.compile(r"/([A-Za-z][\w:.-]*)(?:@\w+)?(?:\s+(.*))?", re.DOTALL)

_NAMES = """
start new reset topic clear redraw history save retry prompt compose undo title handoff branch fork
compress compact rollback snapshot snap stop approve deny background bg btw agents tasks journey
learning memory-graph queue q steer goal moa subgoal status whoami profile sethome set-home resume
sessions config model codex-runtime personality statusbar sb timestamps ts verbose footer yolo
reasoning fast skin indicator voice busy tools toolsets skills memory bundles pet hatch generate-pet
learn cron suggestions suggest blueprint bp curator kanban reload reload-mcp reload-skills browser
plugins commands help restart usage subscription upgrade topup insights platforms gateway platform
copy paste image update version v debug quit exit
"""

RESERVED: frozenset[str] = frozenset(_NAMES.split())
"""Names that no plugin may use: upstream's commands and aliases, also those that do not exist here."""

MAX_MENU_NAME = 32
"""Longest name in the menus of chat platforms."""


def normalise_name(name: str) -> str:
    """Return the name as it is registered: lower case, no leading slash, `-` for blanks."""
    return name.lower().strip().lstrip("/").replace(" ", "-")


def parse_command(text: str) -> tuple[str, str] | None:
    """Return name and stripped arguments of `/name arguments`, or None if it is no command.

    A path (`/etc/hosts`) is no command: a name contains no second slash.
    """
    match = _LINE.fullmatch(text.strip())
    if match is None:
        return None
    return normalise_name(match[1]), (match[2] or "").strip()


class HelpRow(NamedTuple):
    """A command in help and completion."""

    name: str
    """Without the slash."""
    hint: str
    """Its arguments, such as `<text>`."""
    description: str


def help_text(rows: Iterable[HelpRow]) -> str:
    """Return rows as lines of two columns, sorted by name."""
    lines = [(f"/{row.name} {row.hint}".rstrip(), row.description) for row in sorted(rows)]
    width = max((len(name) for name, _ in lines), default=0)
    return "\n".join(f"  {name:<{width}}  {text}" for name, text in lines)


def _always(command: SlashCommand) -> bool:
    return True


class CommandTable(RegistryFacade[SlashCommand]):
    """Slash commands of all front ends; built-in ones take precedence over plugins.

    The registry holds the commands of every front end, those of plugins included. Commands of some front ends are built
    in and stored for each front end, since two may have different commands of one name (`/new`).
    """

    def __init__(self) -> None:
        super().__init__(COMMAND.label)
        self._by_front_end: dict[Where, dict[str, SlashCommand]] = {where: {} for where in EVERYWHERE}

    def register(self, command: SlashCommand, *, owner: str = BUILTIN) -> bool:
        """Add a command; return False, with a warning in the log, for an empty or built-in name.

        Of two plugins with one name the first keeps it.

        Raises:
            Conflict: another plugin has the name.
        """
        key = normalise_name(command.name)
        if not key:
            logger.warning("Plugin '%s' tried to register a command with an empty name.", owner)
            return False
        if owner != BUILTIN and (key in RESERVED or self.owner(key) == BUILTIN):
            logger.warning(
                "Plugin '%s' tried to register command '/%s' which conflicts with a built-in command. Skipping.",
                owner,
                key,
            )
            return False
        command = replace(command, name=key)
        if command.where == EVERYWHERE:
            self._entries.add(key, command, owner=owner)
        else:
            for where in command.where:
                self._by_front_end[where][key] = command
        return True

    def owner(self, name: str) -> str | None:
        """Return the owner of `name`, in any front end."""
        if any(name in commands for commands in self._by_front_end.values()):
            return BUILTIN
        return super().owner(name)

    def commands(self, where: Where) -> list[SlashCommand]:
        """Return the commands of a front end: its own, shared ones, those of plugins."""
        own = self._by_front_end[where]
        found = [*own.values(), *(command for name, command in self.items() if name not in own)]
        return sorted(found, key=lambda command: (self.owner(command.name) != BUILTIN, len(command.where)))

    def find(self, name: str, where: Where) -> SlashCommand | None:
        """Return the command of that name or alias in a front end.

        `_` may stand for `-`, since some chat platforms allow no hyphens.
        """
        key = normalise_name(name)
        return self._find(key, where) or self._find(key.replace("_", "-"), where)

    def _find(self, key: str, where: Where) -> SlashCommand | None:
        found = self._by_front_end[where].get(key) or self.get(key)
        return found or next((command for command in self.commands(where) if key in command.aliases), None)

    def find_by_prefix(self, name: str, where: Where, others: Iterable[str] = ()) -> str | None:
        """Return the only name that begins with `name`, among the front end's commands and `others`, or None."""
        known = {*(command.name for command in self.commands(where)), *others}
        fits = [one for one in known if one.startswith(name)]
        return fits[0] if len(fits) == 1 else None

    def help_rows(
        self, where: Where, *, sign: str = "/", is_allowed: Callable[[SlashCommand], bool] = _always
    ) -> list[HelpRow]:
        """Return the rows for help about a front end.

        Args:
            sign: first character of commands there.
            is_allowed: returns whether the user may run a command; others are left out.
        """
        return [
            HelpRow(command.name, command.args_hint, command.description + _also(command, sign))
            for command in self.commands(where)
            if is_allowed(command)
        ]

    def menu(self, where: Where) -> list[tuple[str, str]]:
        """Return name and description of the commands for a platform's menu: those without required arguments.

        Names fit into menus: at most 32 characters, `_` for `-`.
        """
        return [
            (command.name.replace("-", "_"), command.description)
            for command in self.commands(where)
            if len(command.name) <= MAX_MENU_NAME and (not command.args_hint or command.args_hint.startswith("["))
        ]


def _also(command: SlashCommand, sign: str) -> str:
    """Return the aliases of a command for help."""
    return f" (also {', '.join(sign + alias for alias in command.aliases)})" if command.aliases else ""
