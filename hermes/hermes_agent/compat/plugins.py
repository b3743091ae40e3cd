"""Upstream's functions for plugins, slash commands, skills and the command menus of chat platforms.

The skill functions are those of upstream's `agent/skill_utils.py`, the menus those of `hermes_cli.commands`. Source:
plugin contract §1.11, §1.14, §6, §7, §11.1, §11.2.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

from hermes_agent.commands import RESERVED, await_result, normalise_name
from hermes_agent.compat.agent import host, of_host
from hermes_agent.config import hermes_home
from hermes_agent.core.lazy_types import lazy_dataclass
from hermes_agent.core.read_only import ReadOnlyDict, ReadOnlyList
from hermes_agent.core.registry import BUILTIN
from hermes_agent.plugins.discovery import add_memory_folder, discover
from hermes_agent.plugins.manager import PluginManager
from hermes_agent.skills.library import NAME, SkillLibrary
from hermes_agent.skills.skill_file import SkillFile, fits_platform, parse_document


@lazy_dataclass(frozen=True)
class CommandDef:
    """A built-in slash command."""

    name: str
    description: str
    category: str = "Session"
    aliases: tuple[str, ...] = ()
    args_hint: str = ""
    subcommands: tuple[str, ...] = ()
    cli_only: bool = False
    gateway_only: bool = False
    gateway_config_gate: str | None = None
    """Always None: no setting adds a command to chats."""


def get_plugin_manager() -> PluginManager:
    """Return the host's plugin manager."""
    return host().plugins


discover_plugins = of_host(lambda host: host.plugins, PluginManager.discover_and_load)
has_hook = of_host(lambda host: host.plugins, PluginManager.has_hook)
has_middleware = of_host(lambda host: host.plugins, PluginManager.has_middleware)


def invoke_hook(hook_name: str, **kwargs: Any) -> list[Any]:
    """Call a hook's listeners and return their answers."""
    return host().plugins.invoke_hook(hook_name, **kwargs)


def invoke_middleware(kind: str, **kwargs: Any) -> list[Any]:
    """Call the middleware of a kind and return the answers; execution kinds wrap `next_call`.

    Raises:
        TypeError: `next_call` is missing for an execution kind.
    """
    return host().plugins.invoke_middleware(kind, **kwargs)


def get_plugin_commands() -> dict[str, dict[str, Any]]:
    """Return `handler`, `description`, `plugin` and `args_hint` of the plugins' slash commands by name."""
    discover_plugins()
    return host().plugins._plugin_commands


def get_plugin_command_handler(name: str) -> Callable[..., Any] | None:
    """Return the handler of a plugin's slash command, or None."""
    command = get_plugin_commands().get(normalise_name(name))
    return None if command is None else command["handler"]


def resolve_plugin_command_result(result: Any) -> Any:
    """Return the result of a command's handler; await it if it is a coroutine.

    Raises:
        TimeoutError: the coroutine did not end within 30 s, or raised this error itself.
    """
    return await_result(result, host().bridge)


def get_plugin_auxiliary_tasks() -> list[dict[str, Any]]:
    """Return the plugins' auxiliary tasks: `key`, `display_name`, `description`, `defaults`, `plugin`."""
    return list(get_plugin_manager()._aux_tasks.values())


def get_plugin_toolsets() -> list[tuple[str, str, str]]:
    """Return name, title and description of each toolset with tools of plugins, sorted by name."""
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
    """Return the folder of the memory plugin that `memory.provider: NAME` selects, or None.

    The plugin is not imported and need not be enabled. A plugin in an installed package has no such folder.
    """
    home = hermes_home()
    found = discover(home, os.environ, Path.cwd())
    add_memory_folder(found, home, name)
    for manifest in found.plugins.values():
        if manifest.kind == "exclusive" and manifest.folder and name in (*manifest.answers_to, manifest.folder):
            return Path(manifest.path)
    return None


def command_registry() -> list[CommandDef]:
    """Return the built-in commands of this process, sorted by name."""
    commands = host().commands
    found = [
        CommandDef(
            command.name,
            command.description,
            aliases=tuple(command.aliases),
            args_hint=command.args_hint,
            cli_only="chat" not in command.where,
            gateway_only="terminal" not in command.where,
        )
        for command in sorted(commands.commands("terminal"), key=lambda command: command.name)
        if commands.owner(command.name) == BUILTIN
    ]
    return ReadOnlyList(found, "ctx.register_command(name, handler) registers a command")


def plugin_command_entries() -> list[tuple[str, str, str]]:
    """Return name, description and argument hint of each plugin's slash command, sorted by name."""
    return [(name, c["description"], c["args_hint"]) for name, c in sorted(get_plugin_commands().items())]


def resolve_command(name: str) -> CommandDef | None:
    """Return the built-in command of that name, or None."""
    return next((entry for entry in command_registry() if entry.name == normalise_name(name)), None)


def is_gateway_known_command(name: str | None) -> bool:
    """Return whether a name is a built-in, reserved or plugin command in chats."""
    return bool(name) and (normalise_name(str(name)) in RESERVED or host().commands.find(str(name), "chat") is not None)


PLATFORM = "cli"


def get_skill_commands() -> dict[str, dict[str, Any]]:
    """Return the skills that are slash commands, by `/slug`.

    Each has `name`, `description`, `skill_md_path` and `skill_dir`.
    """
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
    """Return the front matter of a `SKILL.md` and the text after it."""
    document = parse_document(content)
    return dict(document.fields), document.body


def skill_matches_platform(frontmatter: Mapping[str, Any]) -> bool:
    """Return whether a skill with this front matter supports this operating system."""
    return fits_platform(SkillFile("", "", fields=frontmatter), sys.platform)


def get_disabled_skill_names(platform: str | None = None) -> set[str]:
    """Return the skills that the operator disabled, everywhere or on `platform`."""
    settings = host().service(SkillLibrary).settings
    names = set(settings.disabled)
    for name, disabled in settings.disabled_by_platform:
        names |= disabled if name == platform else set()
    return names


def get_external_skills_dirs() -> list[Path]:
    """Return the existing directories of `skills.external_dirs`."""
    return [place for place in host().service(SkillLibrary).settings.external if place.is_dir()]


def parse_qualified_name(name: str) -> tuple[str | None, str]:
    """Return namespace and bare name of `plugin:skill`; the namespace is None if there is none."""
    namespace, colon, bare = name.partition(":")
    return (namespace, bare) if colon else (None, name)


def is_valid_namespace(candidate: str | None) -> bool:
    """Return whether `candidate` is a valid namespace for a plugin's skills."""
    return bool(candidate) and NAME.fullmatch(str(candidate)) is not None


def skills_directory() -> Path:
    """Return the home's directory of skills."""
    return hermes_home() / "skills"


def skill_view(name: str, file_path: str | None = None, task_id: str | None = None, preprocess: bool = True) -> str:
    """Return the result of the tool `skill_view`.

    Args:
        preprocess: accepted and ignored; the config determines what is replaced in the text.
    """
    return host().tools.dispatch("skill_view", {"name": name, "file_path": file_path}, task_id=task_id)


def skills_list(category: str | None = None, task_id: str | None = None) -> str:
    """Return the result of the tool `skills_list`."""
    return host().tools.dispatch("skills_list", {"category": category}, task_id=task_id)


TELEGRAM_MOST = 100
"""Maximum number of commands in Telegram's menu."""
SLACK_MOST = 50
"""Maximum number of slash commands in a Slack manifest."""
DISCORD_MOST = 25
"""Maximum number of choices in one Discord list."""
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
"""Names that Slack reserves."""


def telegram_menu_max_commands() -> int:
    """Return the maximum number of commands in Telegram's menu."""
    return TELEGRAM_MOST


def telegram_menu_commands(max_commands: int = TELEGRAM_MOST) -> tuple[list[tuple[str, str]], int]:
    """Return command names in Telegram's form with descriptions, and how many were omitted.

    Commands of the agent, of plugins and of the operator come first, then skills.
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
    """Return name, description and argument hint of each slash command of a Slack app.

    `hermes` is the first.
    """
    entries = [("hermes", "Talk to the agent, or give one of its commands", "[command] [text]")]
    table = host().commands
    hints = {command.name: command.args_hint for command in (*table.commands("terminal"), *table.commands("chat"))}
    for name, text in _commands():
        slash = name.replace("_", "-")
        if slash not in SLACK_RESERVED and slash not in {entry[0] for entry in entries}:
            entries.append((slash, text[:140], hints.get(slash, "")[:100]))
    return entries[:SLACK_MOST]


def slack_subcommand_map() -> dict[str, str]:
    """Return the commands by the word that follows `/hermes`."""
    return {name.replace("_", "-"): f"/{name.replace('_', '-')}" for name, _ in _commands()}


def discord_skill_commands_by_category(
    reserved_names: Collection[str],
) -> tuple[dict[str, list[tuple[str, str, str]]], list[tuple[str, str, str]], int]:
    """Return the skills by category, those without a category, and how many were omitted.

    Each skill is a tuple of name, description and command.

    Args:
        reserved_names: names of other commands; skills with these names are left out.
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
    """Return the menu of the running gateway; without a gateway, that of the console."""
    gateway = host().running_gateway()
    if gateway is not None:
        return [(name, text) for name, text in gateway.menu()]
    return sorted(host().commands.menu("terminal"))
