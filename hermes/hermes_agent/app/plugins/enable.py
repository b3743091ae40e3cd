"""`hermes plugins enable`, `disable` and `grant`, and the checklist that `hermes plugins` shows.

Without a terminal `hermes plugins` prints the list instead. `grant` shows what changed in a plugin since the last
grant, and pins its present files. Source: plugin contract §1.13.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from hermes_agent.app.plugins.consent import ask_for_capabilities
from hermes_agent.app.plugins.home import InstalledPlugins, run_list
from hermes_agent.app.plugins.terminal_io import (
    apply_in_daemon,
    confirm,
    confirmed,
    is_interactive,
    link_command,
    printable,
)
from hermes_agent.core.errors import EXIT_FAILED, EXIT_OK, UserError
from hermes_agent.plugins.grants import PINNED_SOURCES, GrantState, mode_of
from hermes_agent.plugins.manifest import PluginManifest


def run_enable(args: argparse.Namespace) -> int:
    """Enable a plugin, and pin its files if it has no grant yet."""
    here = InstalledPlugins()
    _refuse_folder(here, args.name)
    switch_on(here, args.name, allow_tool_override=args.allow_tool_override, dev=args.dev)
    return EXIT_OK


def run_disable(args: argparse.Namespace) -> int:
    """Disable a plugin; its pin is kept."""
    switch_off(InstalledPlugins(), args.name)
    return EXIT_OK


def switch_off(here: InstalledPlugins, name: str) -> None:
    """Disable a plugin.

    Raises:
        UserError: there is no plugin of that name, or the config cannot be changed.
    """
    key = _set_activation(here, name, on=False)
    if key:
        apply_in_daemon(here.home, key, f"{key} is disabled from the next start on.")


def switch_on(here: InstalledPlugins, name: str, *, allow_tool_override: bool | None = None, dev: bool = False) -> None:
    """Enable a plugin; print what still prevents it from running, and what an edit of its files does.

    Args:
        dev: do not pin its files, since the user develops the plugin.

    Raises:
        UserError: there is no plugin of that name, or the config cannot be changed.
    """
    if dev:
        _allow_edits(here, here.find(name))
    changed = _set_activation(here, name, on=True, allow_tool_override=allow_tool_override)
    here.reload_settings()
    manifest = here.find(name)
    state = here.trust.judge(manifest, here.settings).state
    if state == "new":
        here.trust.pin(manifest, by="enable")
        here.trust.save()
    gate, _ = here.activation(manifest)
    if changed:
        apply_in_daemon(here.home, changed, f"{changed} is enabled from the next start on.")
    if gate.reason:
        print(f"It will not run yet: {gate.reason}")
    ask_for_capabilities(here, manifest)
    if state == "dev":
        print("It runs whatever its files are (trust: dev); edit it as you like.")
    elif state == "new":  # the user copied it by hand, and may be developing it
        print(
            f"Its files are pinned as they are: after an edit it waits for `hermes plugins grant {manifest.key}`.\n"
            f"While you work on it: `hermes plugins enable {manifest.key} --dev`."
        )


def offer_to_enable(key: str, args: argparse.Namespace) -> None:
    """Enable the plugin if a flag says so or the user agrees."""
    wanted = args.enable
    if wanted is None:
        wanted = args.yes or confirm(f"Enable {key}?")
    if wanted:
        switch_on(InstalledPlugins(), key)  # asks for the capabilities, too
    else:
        here = InstalledPlugins()
        ask_for_capabilities(here, here.find(key))
        print(f"It is not enabled: `hermes plugins enable {key}` lets it run.")


def _refuse_folder(here: InstalledPlugins, name: str) -> None:
    """Refuse the path of a plugin in place of its name.

    Raises:
        UserError: `name` is a path; the hint says what to do with it.
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
    from hermes_agent.config.edit import set_value  # loads the editor of the config

    if manifest.source not in PINNED_SOURCES:
        print(f"{manifest.key} is a {manifest.source} plugin: those are not pinned, --dev changes nothing.")
    elif mode_of(manifest, here.settings) != "dev":
        set_value(here.home, ("plugins", "entries", manifest.key, "trust"), "dev", environ=os.environ)


def _set_activation(here: InstalledPlugins, name: str, *, on: bool, allow_tool_override: bool | None = None) -> str:
    """Change the config; return the key of the plugin, or "" if nothing was to be changed."""
    from hermes_agent.plugins.activation import set_activation  # loads the editor of the config

    done = set_activation(
        here.home,
        name,
        on=on,
        settings=here.settings,
        environ=os.environ,
        cwd=Path.cwd(),
        allow_tool_override=allow_tool_override,
    )
    if not done.changed:
        print(f"{done.manifest.key} is {'enabled' if on else 'disabled'} already.")
        return ""
    return done.manifest.key


OFF = ("disabled", "not enabled")
"""States in which a plugin is not ticked; one that lacks only a variable or a grant is ticked."""


def run_checklist(args: argparse.Namespace) -> int:
    """Show a checklist of the plugins, and enable or disable those that the user changed.

    Return exit status 1 if a plugin could not be changed.
    """
    if not is_interactive():
        return run_list(argparse.Namespace(json=False, plain=False, enabled=False, user=False, no_bundled=False))
    here = InstalledPlugins()
    plugins = here.found.plugins
    if not plugins:
        print(f"No plugins. Those of this home go to {here.home}/plugins/.")
        return EXIT_OK
    before = {key for key, manifest in plugins.items() if here.activation(manifest)[0].status not in OFF}
    labels = {key: f"{key}: {m.description}" if m.description else key for key, m in sorted(plugins.items())}
    after = choose_plugins({key: printable(label) for key, label in labels.items()}, before)
    if after is None or after == before:
        print("Nothing is changed.")
        return EXIT_OK
    status = EXIT_OK
    for key in sorted(before ^ after):
        try:
            if key in after:
                switch_on(InstalledPlugins(), key)
            else:
                switch_off(InstalledPlugins(), key)
        except UserError as error:  # the other plugins are still changed
            print(f"{key}: {error}")
            status = EXIT_FAILED
    return status


def choose_plugins(labels: dict[str, str], ticked: set[str]) -> set[str] | None:
    """Show the checklist and return the keys of the ticked plugins, or None if the user cancels.

    Args:
        labels: text of each row, by key.
        ticked: keys that are ticked at the start.
    """
    from prompt_toolkit.shortcuts import checkboxlist_dialog  # takes 100 ms to import; only needed at a terminal

    chosen = checkboxlist_dialog(
        title="Plugins",
        text="Space ticks, Tab goes to Ok; Cancel leaves all as it is. A running daemon takes the change at once.",
        values=list(labels.items()),
        default_values=sorted(ticked),
    ).run()
    return None if chosen is None else set(chosen)


def run_grant(args: argparse.Namespace) -> int:
    """Show what changed since the last grant, ask the user, and pin the files."""
    here = InstalledPlugins()
    manifest = here.find(args.name)
    verdict = here.trust.judge(manifest, here.settings)
    if verdict.state == "free":
        print(f"{manifest.key} is not pinned: it is a {manifest.source} plugin, only {_and(PINNED_SOURCES)} ones are.")
        return EXIT_OK
    if verdict.state == "dev":
        print(f"{manifest.key} is not pinned: `plugins.entries.{manifest.key}.trust` is dev.")
        return EXIT_OK
    if verdict.state == "pinned":
        here.trust.save()
        print(f"{manifest.key} is granted as it is.")
        return EXIT_OK
    _show_changes(here, manifest, verdict)
    unasked = f"`hermes plugins grant {manifest.key} --yes` grants it"
    if not confirmed(f"Grant {manifest.key} as it is now?", "granted", unasked, yes=args.yes):
        return EXIT_FAILED
    entry = here.trust.pin(manifest, by="grant")
    here.trust.save()
    print(f"{manifest.key} is granted: {len(entry.files)} files, sha256 {entry.hash[:16]}….")
    gate, _ = here.activation(manifest)
    if gate.reason:
        print(f"It will not run yet: {gate.reason}")
    else:
        print(f"It runs from the next start on; `hermes plugins reload {manifest.key}` has a running daemon take it.")
    return EXIT_OK


def _show_changes(here: InstalledPlugins, manifest: PluginManifest, verdict: GrantState) -> None:
    from hermes_agent.plugins.grant_copies import difference  # hashlib, difflib

    entry = here.trust.entry(manifest)
    if verdict.changes:
        since = f" on {entry.grant['at']} ({entry.grant.get('by', '')})" if entry.grant.get("at") else ""
        print(f"{manifest.key} ({manifest.path}) was granted{since}. Since then:")
        print("\n".join(difference(here.home, manifest.path, entry.files, verdict.changes)))
    elif verdict.reason:
        print(f"{manifest.key} ({manifest.path}): {verdict.reason}")
    else:
        print(f"Nothing of {manifest.key} ({manifest.path}) was granted yet.")


def _and(words: tuple[str, ...]) -> str:
    return " and ".join(words)
