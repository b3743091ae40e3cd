"""`hermes plugins remove`: move a plugin away and list what remains; no data of the user is deleted."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator
from pathlib import Path

from hermes_agent.app.plugins.doctor import pip_refusal
from hermes_agent.app.plugins.home import InstalledPlugins
from hermes_agent.app.plugins.packages import uninstall
from hermes_agent.app.plugins.staged_plugin import free_removed_folder
from hermes_agent.app.plugins.terminal_io import apply_in_daemon, confirmed
from hermes_agent.config import home_paths
from hermes_agent.config.dotenv import read_env_file
from hermes_agent.core.errors import EXIT_FAILED, EXIT_OK, UserError
from hermes_agent.plugins.activation import remove_from_config
from hermes_agent.plugins.grants import entry_name
from hermes_agent.plugins.manifest import PluginManifest

DATA = ("data", "plugin_data", "plugins_data", "plugin-data")
"""Folders of the home in which published plugins create a folder with their name."""


def run_remove(args: argparse.Namespace) -> int:
    """Remove a plugin from the home; its files, settings and data are kept."""
    here = InstalledPlugins()
    manifest = _find(here, args.name)
    what = _package_refusal(here, manifest) if manifest.source == "entrypoint" else _refuse_foreign(manifest)
    unasked = f"`hermes plugins remove {args.name} --yes` removes it"
    if not confirmed(f"Remove {manifest.key} ({what})?", "removed", unasked, yes=args.yes):
        return EXIT_FAILED
    left = remove_from_config(here.home, manifest.answers_to, here.settings, os.environ)
    if manifest.source == "entrypoint":
        uninstall(manifest.distribution.partition(" ")[0])
    else:
        left = [*_move_away(here, manifest), *left]
    here.trust.forget(entry_name(here.home, manifest))
    print(f"Removed {manifest.key}.")
    if manifest.source != "entrypoint":  # the modules of a package stay in the process until a restart
        apply_in_daemon(here.home, manifest.key, "")
    else:
        print("A running daemon keeps it until its next start.")
    for line in [*left, *_what_is_left(here, manifest)]:
        print(f"  left: {line}")
    return EXIT_OK


def _find(here: InstalledPlugins, name: str) -> PluginManifest:
    """Return the plugin of that name, including a rejected one, which the user may want to remove."""
    for rejected in here.found.rejected:
        folder = Path(rejected.path)
        if name in (rejected.name, folder.name) and rejected.source == "user" and name not in here.found.plugins:
            return PluginManifest(name, key=rejected.name, source="user", path=rejected.path)
    return here.find(name)


def _refuse_foreign(manifest: PluginManifest) -> str:
    match manifest.source:
        case "user":
            return manifest.path
        case "bundled":
            hint = f"`hermes plugins disable {manifest.key}` keeps it from running."
            raise UserError(f"{manifest.key} came with the agent and stays", hint=hint)
        case "declared":
            raise UserError(
                f"{manifest.key} is declared by Nix ({manifest.path})",
                hint="Take it out of services.hermes-agent.extraPlugins and rebuild.",
            )
        case _:
            raise UserError(
                f"{manifest.key} belongs to the project: {manifest.path}", hint="Remove its folder from the project."
            )


def _package_refusal(here: InstalledPlugins, manifest: PluginManifest) -> str:
    package = manifest.distribution.partition(" ")[0]
    refusal = pip_refusal(here.home)
    if refusal is not None:
        raise UserError(
            f"{manifest.key} comes from the package {manifest.distribution}, and none is removed here: {refusal}",
            hint="Take it out of services.hermes-agent.extraPythonPackages, or remove it with what installed it.",
        )
    if not here.trust.entry(manifest).origin:
        raise UserError(
            f"{manifest.key} comes from the package {manifest.distribution}, which `hermes plugins` did not install",
            hint=f"{sys.executable} -m pip uninstall {package}",
        )
    others = [m.key for m in here.found.plugins.values() if m.distribution == manifest.distribution]
    return f"the package {manifest.distribution} with {', '.join(others)}"


def _move_away(here: InstalledPlugins, manifest: PluginManifest) -> list[str]:
    path = Path(manifest.path)
    try:
        if path.is_symlink():
            leads = path.readlink()
            path.unlink()
            return [f"{leads}, which the link led to"]
        aside = free_removed_folder(here.home, manifest.key)
        path.rename(aside)
    except OSError as exc:
        raise UserError(f"{path} cannot be moved away: {exc.strerror}") from exc
    return [f"its files: {aside}"]


def _what_is_left(here: InstalledPlugins, manifest: PluginManifest) -> Iterator[str]:
    others = {n for m in here.found.plugins.values() if m.key != manifest.key for n in m.env_names}
    file = home_paths(here.home).env
    stored = [n for n in manifest.env_names if n in read_env_file(file) and n not in others]
    if stored:
        yield f"in {file}: {', '.join(stored)} (`hermes config unset NAME`)"
    for name in manifest.answers_to:
        if name in here.settings.entries:
            yield f"its settings: plugins.entries.{name} (`hermes config unset plugins.entries.{name}`)"
    for folder in (here.home / manifest.name, *(here.home / top / manifest.name for top in DATA)):
        if folder.is_dir():
            yield f"its data: {folder}"
