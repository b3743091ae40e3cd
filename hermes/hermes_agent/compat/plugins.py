"""Upstream's module functions over plugins and slash commands. Source: plugin contract §1.11, §1.14, §7, §11.1.

Upstream's functions over skills. Source: plugin contract §6, §11.2; `agent.skill_utils` by its names.

Upstream's menus of slash commands for chat services: `hermes_cli.commands`. Source: plugin contract §11.1.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hermes_agent.commands import RESERVED, await_result, normalise_name
from hermes_agent.compat.agent import host, of_host
from hermes_agent.config import hermes_home
from hermes_agent.core.read_only import ReadOnlyDict, ReadOnlyList
from hermes_agent.core.registry import BUILTIN
from hermes_agent.plugins.discovery import add_memory_folder, discover
from hermes_agent.plugins.manager import PluginManager
from hermes_agent.skills.library import NAME, SkillLibrary
from hermes_agent.skills.skill_file import SkillFile, fits_platform, parse_document


@dataclass(frozen=True)
class CommandDef:
    """One command of the agent's own."""

    name: str
    description: str
    category: str = "Session"
    aliases: tuple[str, ...] = ()
    args_hint: str = ""


def get_plugin_manager() -> PluginManager:
    """Return the host's plugin manager."""
    return host().plugins


discover_plugins = of_host(lambda host: host.plugins, PluginManager.discover_and_load)
has_hook = of_host(lambda host: host.plugins, PluginManager.has_hook)
has_middleware = of_host(lambda host: host.plugins, PluginManager.has_middleware)


def invoke_hook(hook_name: str, **kwargs: Any) -> list[Any]:
    """Call a hook's listeners and return what they answered."""
    return host().plugins.invoke_hook(hook_name, **kwargs)


def invoke_middleware(kind: str, **kwargs: Any) -> list[Any]:
    """Go through the middleware of a kind and return the answers; those of an execution kind stand around `next_call`.

    Raises:
        TypeError: an execution kind without `next_call`.
    """
    return host().plugins.invoke_middleware(kind, **kwargs)


def get_plugin_commands() -> dict[str, dict[str, Any]]:
    """Return the slash commands of plugins: `handler`, `description`, `plugin`, `args_hint` by name."""
    discover_plugins()
    return host().plugins._plugin_commands


def get_plugin_command_handler(name: str) -> Callable[..., Any] | None:
    """Return the handler of a plugin's slash command, or None."""
    command = get_plugin_commands().get(normalise_name(name))
    return None if command is None else command["handler"]


def resolve_plugin_command_result(value: Any) -> Any:
    """Return what a command's handler returned, awaited when it is a coroutine.

    Raises:
        TimeoutError: it did not finish within 30 s, or raised one itself.
    """
    return await_result(value, host().bridge)


def get_plugin_auxiliary_tasks() -> list[dict[str, Any]]:
    """Return the side tasks of plugins: `key`, `display_name`, `description`, `defaults`, `plugin`."""
    return list(get_plugin_manager()._aux_tasks.values())


def get_plugin_toolsets() -> list[tuple[str, str, str]]:
    """Return toolset, title and description of each toolset that plugins bring."""
    found: dict[str, tuple[str, str, str]] = {}
    current = host()
    for record in current.plugins.records:
        for tool in record.tools_registered:
            toolset = current.tools.get_toolset_for_tool(tool)
            if toolset is not None and toolset not in found:
                title = toolset.replace("-", " ").replace("_", " ").title()
                found[toolset] = (toolset, f"🔌 {title}", record.manifest.description)
    return [found[name] for name in sorted(found)]


def find_provider_dir(name: str) -> Path | None:
    """Return the folder of the memory plugin that `memory.provider: NAME` would take; None when there is none.

    Nothing of it is imported, and it need not be enabled. An installed package has no folder of this kind.
    """
    home = hermes_home()
    found = discover(home, os.environ, Path.cwd())
    add_memory_folder(found, home, name)
    for manifest in found.plugins.values():
        if manifest.kind == "exclusive" and manifest.folder and name in (*manifest.answers_to, manifest.folder):
            return Path(manifest.path)
    return None


def command_registry() -> list[CommandDef]:
    """Return the agent's own commands that are there in this process, sorted by name."""
    commands = host().commands
    found = [
        CommandDef(command.name, command.description, args_hint=command.args_hint)
        for command in sorted(commands.commands("terminal"), key=lambda command: command.name)
        if commands.owner(command.name) == BUILTIN
    ]
    return ReadOnlyList(found, "ctx.register_command(name, handler) registers a command")


def plugin_command_entries() -> list[tuple[str, str, str]]:
    """Return name, description and what may follow it, for each slash command of plugins."""
    return [(name, c["description"], c["args_hint"]) for name, c in sorted(get_plugin_commands().items())]


def resolve_command(name: str) -> CommandDef | None:
    """Return the agent's own command of that name, or None."""
    return next((entry for entry in command_registry() if entry.name == normalise_name(name)), None)


def is_gateway_known_command(name: str | None) -> bool:
    """Say whether a name is a command: of the agent, reserved by it, or a plugin's."""
    return bool(name) and (normalise_name(str(name)) in RESERVED or host().commands.find(str(name), "chat") is not None)


PLATFORM = "cli"


def get_skill_commands() -> dict[str, dict[str, Any]]:
    """Return the skills that are slash commands: `/slug` to `name`, `description`, `skill_md_path`, `skill_dir`."""
    found = {
        f"/{slug}": {
            "name": skill.name,
            "description": skill.document.description,
            "skill_md_path": str(skill.file),
            "skill_dir": str(skill.directory),
        }
        for slug, skill in host().slash.skills.offered(PLATFORM).items()
    }
    return ReadOnlyDict(found, "a skill is a folder in skills/ of the home, or comes by ctx.register_skill(name, path)")


def parse_frontmatter(content: str) -> tuple[dict[str, Any], str]:
    """Return the fields at the top of a `SKILL.md`, and the text after them."""
    document = parse_document(content)
    return dict(document.fields), document.body


def skill_matches_platform(frontmatter: Mapping[str, Any]) -> bool:
    """Say whether a skill with these fields is for this system."""
    return fits_platform(SkillFile("", "", fields=frontmatter), sys.platform)


def get_disabled_skill_names(platform: str | None = None) -> set[str]:
    """Return the skills that the operator took away, everywhere or on `platform`."""
    settings = host().service(SkillLibrary).settings
    names = set(settings.disabled)
    for name, disabled in settings.disabled_by_platform:
        names |= disabled if name == platform else set()
    return names


def get_external_skills_dirs() -> list[Path]:
    """Return the directories of `skills.external_dirs` that are there."""
    return [place for place in host().service(SkillLibrary).settings.external if place.is_dir()]


def parse_qualified_name(name: str) -> tuple[str | None, str]:
    """Return namespace and bare name of `plugin:skill`; None for a name without one."""
    namespace, colon, bare = name.partition(":")
    return (namespace, bare) if colon else (None, name)


def is_valid_namespace(candidate: str | None) -> bool:
    """Say whether a plugin's skills can be asked for under this name."""
    return bool(candidate) and NAME.fullmatch(str(candidate)) is not None


def skills_directory() -> Path:
    """Return the home's directory of skills."""
    return hermes_home() / "skills"


def skill_view(name: str, file_path: str | None = None, task_id: str | None = None) -> str:
    """Return what the tool `skill_view` answers."""
    return host().tools.dispatch("skill_view", {"name": name, "file_path": file_path}, task_id=task_id)


def skills_list(category: str | None = None, task_id: str | None = None) -> str:
    """Return what the tool `skills_list` answers."""
    return host().tools.dispatch("skills_list", {"category": category}, task_id=task_id)


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
    table = host().commands
    hints = {command.name: command.args_hint for command in (*table.commands("terminal"), *table.commands("chat"))}
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
    return sorted(host().commands.menu("terminal"))
