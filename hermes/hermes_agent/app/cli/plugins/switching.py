"""`hermes plugins enable` and `disable`."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from hermes_agent.app.cli.plugins.asking import confirm
from hermes_agent.app.cli.plugins.ground import InstalledPlugins
from hermes_agent.app.cli.plugins.showing import link_command
from hermes_agent.core.errors import EXIT_OK, UserError
from hermes_agent.plugins.manifest import PluginManifest
from hermes_agent.plugins.trust import PINNED_SOURCES, mode_of

__all__ = ["offer_to_enable", "run_disable", "run_enable", "switch_off", "switch_on"]


def run_enable(args: argparse.Namespace) -> int:
    """Enable a plugin, and pin its files when nothing of it was granted before."""
    here = InstalledPlugins()
    _refuse_folder(here, args.name)
    switch_on(here, args.name, allow_tool_override=args.allow_tool_override, dev=args.dev)
    return EXIT_OK


def run_disable(args: argparse.Namespace) -> int:
    """Disable a plugin; its pin stays."""
    switch_off(InstalledPlugins(), args.name)
    return EXIT_OK


def switch_off(here: InstalledPlugins, name: str) -> None:
    """Disable a plugin.

    Raises:
        UserError: there is none of that name, or the config cannot be changed.
    """
    _set_activation(here, name, on=False)


def switch_on(here: InstalledPlugins, name: str, *, allow_tool_override: bool | None = None, dev: bool = False) -> None:
    """Enable a plugin and say what still keeps it from running, and what an edit of it does.

    Args:
        dev: do not pin it, since the user works on it.

    Raises:
        UserError: there is none of that name, or the config cannot be changed.
    """
    if dev:
        _allow_edits(here, here.find(name))
    _set_activation(here, name, on=True, allow_tool_override=allow_tool_override)
    here.reload_settings()
    manifest = here.find(name)
    state = here.trust.judge(manifest, here.settings).state
    if state == "new":
        here.trust.pin(manifest, by="enable")
        here.trust.save()
    gate, _ = here.activation(manifest)
    if gate.reason:
        print(f"It will not run yet: {gate.reason}")
    if state == "dev":
        print("It runs whatever its files are (trust: dev); edit it as you like.")
    elif state == "new":  # the user put it there by hand, and may be writing it
        print(
            f"Its files are pinned as they are: after an edit it waits for `hermes plugins grant {manifest.key}`.\n"
            f"While you work on it: `hermes plugins enable {manifest.key} --dev`."
        )


def offer_to_enable(key: str, args: argparse.Namespace) -> None:
    """Enable the plugin when that was asked for, or when the person agrees."""
    wanted = args.enable
    if wanted is None:
        wanted = args.yes or confirm(f"Enable {key}?")
    if wanted:
        switch_on(InstalledPlugins(), key)
    else:
        print(f"It is not enabled: `hermes plugins enable {key}` lets it run.")


def _refuse_folder(here: InstalledPlugins, name: str) -> None:
    """Say what to do with the path of a plugin, where its name was expected.

    Raises:
        UserError: `name` is a path.
    """
    folder = Path(name).expanduser()
    known = any(name in manifest.answers_to for manifest in here.found.plugins.values())
    if known or not (os.sep in name or name in (".", "..")) or not folder.exists():
        return
    present = next((m for m in here.found.plugins.values() if Path(m.path).resolve() == folder.resolve()), None)
    if present is not None:
        hint = f"It goes by its name: `hermes plugins enable {present.key}`."
    else:
        hint = (
            f"`hermes plugins install {name} --enable` copies it into the home and enables it. To work on it where it"
            f" is: `{link_command(folder, here.home / 'plugins')}` and `hermes plugins enable NAME --dev`."
        )
    raise UserError(f"{name} is a path, and `enable` takes the name of a plugin", hint=hint)


def _allow_edits(here: InstalledPlugins, manifest: PluginManifest) -> None:
    from hermes_agent.config.edit import set_value  # the config's editor

    if manifest.source not in PINNED_SOURCES:
        print(f"{manifest.key} is a {manifest.source} plugin: those are not pinned, --dev changes nothing.")
    elif mode_of(manifest, here.settings) != "dev":
        set_value(here.home, ("plugins", "entries", manifest.key, "trust"), "dev", environ=os.environ)


def _set_activation(here: InstalledPlugins, name: str, *, on: bool, allow_tool_override: bool | None = None) -> None:
    from hermes_agent.plugins.enabling import set_activation  # the config's editor

    done = set_activation(
        here.home,
        name,
        on=on,
        settings=here.settings,
        environ=os.environ,
        cwd=Path.cwd(),
        allow_tool_override=allow_tool_override,
    )
    key = done.manifest.key
    word = "enabled" if on else "disabled"
    if not done.changed:
        print(f"{key} is {word} already.")
    else:
        print(f"{key} is {word} from the next start on; a running daemon keeps what it has until then.")
