"""Subcommands of plugins, and their part of `hermes --help`. Source: plugin contract §7.4.

The help loads no plugin: the last load recorded the commands of each plugin (`plugins.plugin_state`). A record is valid
while the files of the plugin are unchanged and the plugin would run at the next start.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Sequence

from hermes_agent.config.home import PLUGINS_STATE, hermes_home
from hermes_agent.core.errors import EXIT_FAILED, EXIT_USAGE, UserError
from hermes_agent.core.lazy_types import LazyNamedTuple


def run_plugin_command(name: str, argv: Sequence[str], built_in: Collection[str]) -> int:
    """Load the plugins and run their command `name`; an unknown name is an error with the nearest name.

    Args:
        built_in: the built-in subcommands, for the nearest name.
    """
    from hermes_agent.app.cli.command import loaded_host  # the help loads no plugin

    with loaded_host() as host:
        from hermes_agent.plugins.registration import run_cli_command

        command = host.cli_commands.get(name)
        if command is not None:
            return run_cli_command(command, argv, host.bridge)
        why = host.cli_commands.why_absent(name)
        if why:
            print(f"hermes: the command `{name}` is not there: {why}", file=sys.stderr)
            return EXIT_FAILED
        known = [*host.cli_commands.names(), *built_in]
    import difflib  # only for a suggestion

    near = difflib.get_close_matches(name, known, n=1)
    meant = f" (did you mean `{near[0]}`?)" if near else ""
    print(f"hermes: there is no command {name!r}{meant}", file=sys.stderr)
    print("`hermes --help` lists the commands; to ask a question use `hermes -z`.", file=sys.stderr)
    return EXIT_USAGE


class PluginCommand(LazyNamedTuple):
    """A subcommand that an enabled plugin registered at its last load."""

    name: str
    plugin: str
    about: str
    """The plugin's description; may be empty."""


def known_commands(built_in: Collection[str]) -> list[PluginCommand]:
    """Return the commands of plugins that would run, by name.

    Args:
        built_in: the built-in subcommands; no plugin can have one of these names.

    Raises:
        ConfigError: a setting is wrong, so that the enabled plugins are unknown.
    """
    try:
        recorded = (hermes_home() / PLUGINS_STATE).read_bytes()
    except OSError:
        return []  # no plugin was ever loaded
    if b'"cli_commands"' not in recorded:
        return []  # the common case, which costs a help no import
    from hermes_agent.plugins.plugin_state import last_load, read_state

    state = read_state(hermes_home())
    if not any(_commands(entry) for entry in state.values()):
        return []
    from hermes_agent.app.plugins.home import InstalledPlugins  # only if a plugin has a command

    here = InstalledPlugins()
    found: dict[str, PluginCommand] = {}
    for manifest in here.found.plugins.values():
        names = _commands(last_load(state, manifest)) if manifest.key in state else []
        if names and here.activation(manifest)[0].load:
            for name in names:
                if name not in built_in:
                    found.setdefault(name, PluginCommand(name, manifest.key, manifest.description))
    return [found[name] for name in sorted(found)]


def help_text(built_in: Collection[str]) -> str:
    """Return a line for each command; empty when there is none."""
    try:
        commands = known_commands(built_in)
    except UserError:
        return "  not known: the config is wrong, see `hermes config check`"
    if not commands:
        return ""
    from hermes_agent.app.plugins.terminal_io import printable  # 20 ms that a help without such commands does not need

    width = max(len(printable(command.name)) for command in commands)
    lines = []
    for name, plugin, about in commands:
        text = printable(f"plugin {plugin}: {about}" if about else f"plugin {plugin}")
        lines.append(f"  {printable(name):<{width}}  {text}")
    return "\n".join(lines)


def _commands(entry: object) -> list[str]:
    registers = entry.get("registers") if isinstance(entry, dict) else None
    names = registers.get("cli_commands") if isinstance(registers, dict) else None
    return [name for name in names if isinstance(name, str)] if isinstance(names, list) else []
