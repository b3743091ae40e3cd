"""Read a line that may be a slash command. Source: plugin contract §7.1.

Names that no plugin may take: upstream's built-in commands and aliases. Source: plugin contract §7.1.

Some of them are not built here; they stay reserved, so that a plugin that upstream refused is refused here too.

Who has which slash command.

Which command a typed name means. Source: plugin contract §7.2, §7.3.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Sequence

from hermes_agent.contracts.command import COMMAND, CommandHandler, SlashCommand
from hermes_agent.core.registry import BUILTIN, Registry

_LINE = re.compile(r"/([A-Za-z][\w:.-]*)(?:@\w+)?(?:\s+(.*))?", re.DOTALL)


def normalise_name(name: str) -> str:
    """Return the name as it is registered: lower case, no leading slash, `-` for blanks."""
    return name.lower().strip().lstrip("/").replace(" ", "-")


def parse_command(text: str) -> tuple[str, str] | None:
    """Return name and stripped arguments of `/name arguments`, or None when it is not a command.

    A path (`/etc/hosts`) is not a command: a name holds no second slash.
    """
    match = _LINE.fullmatch(text.strip())
    if match is None:
        return None
    return normalise_name(match[1]), (match[2] or "").strip()


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


def find_command(commands: CommandTable, name: str) -> SlashCommand | None:
    """Return the command of that name or alias; `_` may stand for `-`, since some chat platforms know no hyphens."""
    key = normalise_name(name)
    return commands.resolve(key) or commands.resolve(key.replace("_", "-"))


def find_by_prefix(name: str, names: Iterable[str]) -> str | None:
    """Return the only one of `names` that begins with `name`."""
    fits = [known for known in names if known.startswith(name)]
    return fits[0] if len(fits) == 1 else None
