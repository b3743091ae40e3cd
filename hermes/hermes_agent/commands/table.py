"""The table of slash commands, and parsing of lines. Source: plugin contract §7.1, §7.2, §7.3."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from hermes_agent.contracts.command import BY_FRONT_END, COMMAND, CommandHandler, SlashCommand, Where
from hermes_agent.core.lazy_types import LazyNamedTuple
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


class HelpRow(LazyNamedTuple):
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
    """Slash commands of all front ends, each declared once; built-in ones take precedence over plugins.

    A front end has the commands that are declared for it and have a handler: the declared one, or one that it binds.
    """

    def __init__(self) -> None:
        super().__init__(COMMAND.label)
        self._bound: dict[Where, Mapping[str, CommandHandler]] = {}

    def register(self, command: SlashCommand, *, owner: str = BUILTIN) -> bool:
        """Add a command; return False, with a warning in the log, for an empty or built-in name.

        Of two plugins with one name the first keeps it.

        Raises:
            Conflict: another plugin has the name.
            ValueError: the agent declares it a second time.
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
        if owner == BUILTIN and self.owner(key) == BUILTIN:
            raise ValueError(f"the slash command /{key} is declared twice")
        self._entries.add(key, replace(command, name=key), owner=owner)
        return True

    def replace_command(self, command: SlashCommand, *, owner: str) -> None:
        """Replace the command of a plugin; when `owner` leaves, the command of another owner returns."""
        self._entries.add(command.name, command, owner=owner, replace=True)

    def bind(self, where: Where, handlers: Mapping[str, CommandHandler]) -> None:
        """Set the handlers of a front end, by name; they take precedence over declared handlers.

        Raises:
            LookupError: a name is not declared for the front end, or a declared command has no handler.
        """
        declared = {name: command for name, command in self.items() if where in command.where}
        if unknown := handlers.keys() - declared.keys():
            raise LookupError(f"commands without a declaration for {where!r}: {', '.join(sorted(unknown))}")
        self._bound[where] = dict(handlers)
        missing = sorted(name for name, command in declared.items() if self._resolve(command, where) is None)
        if missing:
            raise LookupError(f"commands without a handler for {where!r}: {', '.join(missing)}")

    def _resolve(self, command: SlashCommand, where: Where) -> SlashCommand | None:
        """Return the command as a front end has it, or None if it does not have it."""
        if where not in command.where:
            return None
        if where in command.waits_in:
            command = replace(command, during_turn=False)
        handler = self._bound.get(where, {}).get(command.name)
        if handler is not None:
            return replace(command, handler=handler, is_bound=True)
        return None if command.handler is BY_FRONT_END else command

    def commands(self, where: Where) -> list[SlashCommand]:
        """Return the commands of a front end: those that it runs itself, others of the agent, then plugins'."""
        found = [self._resolve(command, where) for _, command in self.items()]
        return sorted(filter(None, found), key=lambda each: (self.owner(each.name) != BUILTIN, not each.is_bound))

    def find(self, name: str, where: Where) -> SlashCommand | None:
        """Return the command of that name or alias in a front end.

        `_` may stand for `-`, since some chat platforms allow no hyphens.
        """
        key = normalise_name(name)
        return self._find(key, where) or self._find(key.replace("_", "-"), where)

    def _find(self, key: str, where: Where) -> SlashCommand | None:
        declared = self.get(key)
        found = None if declared is None else self._resolve(declared, where)
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
        found = self.commands(where)
        names = {command.name for command in found}
        rows = []
        for command in filter(is_allowed, found):
            hint, text = command.args_hint, command.description
            if where == "chat" and command.confirm is not None:
                hint, text = f"{hint} [now]".strip(), f"{text}; `now` skips the question"
            aliases = [f"{sign}{alias}" for alias in command.aliases if alias not in names]
            rows.append(HelpRow(command.name, hint, text + (f" (also {', '.join(aliases)})" if aliases else "")))
        return rows

    def menu(self, where: Where) -> list[tuple[str, str]]:
        """Return name and description of the commands for a platform's menu: those without required arguments.

        Names fit into menus: at most 32 characters, `_` for `-`.
        """
        return [
            (command.name.replace("-", "_"), command.description)
            for command in self.commands(where)
            if len(command.name) <= MAX_MENU_NAME and (not command.args_hint or command.args_hint.startswith("["))
        ]
