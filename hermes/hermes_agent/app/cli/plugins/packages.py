"""Plugins that are Python packages, installed, renewed and removed through pip."""

from __future__ import annotations

import argparse
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from hermes_agent.app.cli.plugins.asking import confirmed
from hermes_agent.app.cli.plugins.ground import InstalledPlugins
from hermes_agent.app.cli.plugins.progress import progress_printer
from hermes_agent.app.cli.plugins.showing import printable, registers_lines, table
from hermes_agent.app.cli.plugins.switching import offer_to_enable
from hermes_agent.core.errors import EXIT_OK, UserError
from hermes_agent.plugins.discovery import BUNDLED, ENTRYPOINT
from hermes_agent.plugins.installing.needs import pip_refusal
from hermes_agent.plugins.installing.package import PluginWheel, build_wheel, install_wheel
from hermes_agent.plugins.installing.preview import preview_registrations
from hermes_agent.plugins.installing.source import PluginSource
from hermes_agent.plugins.installing.stage import fetch
from hermes_agent.plugins.manifest import PluginManifest

__all__ = ["install_package", "update_package"]


def install_package(
    here: InstalledPlugins, requirement: str, source: PluginSource, place: Path, args: argparse.Namespace
) -> int:
    """Install a package that brings plugins, where packages may be installed.

    Raises:
        UserError: they may not, pip fails, or a name is taken.
    """
    refusal = pip_refusal(here.home)
    if refusal is not None:
        raise UserError(f"{source.label} is a Python package, and none is installed here: {refusal}")
    wheel = build_wheel(requirement, place, progress_printer())
    _refuse_collision(here, wheel, force=args.force)
    install_wheel(wheel, place, progress_printer())
    print(f"Installed {wheel.name} {wheel.version}.")
    after = InstalledPlugins()
    for name in wheel.plugins:
        seen = preview_registrations(name, directory=None)
        print(name)
        print("\n".join(table([("from", f"{wheel.name} {wheel.version}"), *registers_lines(seen.registers)])))
        for problem in seen.problems:
            print(f"  ! {printable(problem)}")
        _record(after, name, wheel, source)
        offer_to_enable(name, args)
    return EXIT_OK


def update_package(
    here: InstalledPlugins, manifest: PluginManifest, source: PluginSource, place: Path, args: argparse.Namespace
) -> bool:
    """Build or fetch the package again and install it when it is another one. Return False when nobody agreed.

    Raises:
        UserError: packages are not installed here, pip fails, or the new one does not bring the plugin.
    """
    refusal = pip_refusal(here.home)
    if refusal is not None:
        raise UserError(f"{manifest.key} is a Python package, and none is installed here: {refusal}")
    requirement = source.location
    if source.kind != "pip":
        requirement = str(fetch(source, place, progress_printer())[0])
    wheel = build_wheel(requirement, place, progress_printer())
    if manifest.key not in wheel.plugins:
        raise UserError(f"{wheel.name} {wheel.version} brings no plugin `{manifest.key}` any more; the old one stays")
    old = manifest.distribution.partition(" ")[2]
    if wheel.version == old:
        print(f"{manifest.key} {old} is up to date.")
        return True
    print(f"{manifest.key}: {old} -> {wheel.version}")
    unasked = f"`hermes plugins update {manifest.key} --yes` does it"
    if not confirmed(f"Update {wheel.name}?", "updated", unasked, yes=args.yes, default=True):
        return False
    install_wheel(wheel, place, progress_printer())
    _record(InstalledPlugins(), manifest.key, wheel, source)
    print(f"{manifest.key} is updated; a running daemon keeps the old one until its next start.")
    return True


def _refuse_collision(here: InstalledPlugins, wheel: PluginWheel, *, force: bool) -> None:
    for name in wheel.plugins:
        present = here.found.plugins.get(name)
        if present is None or present.source == BUNDLED:
            continue
        if present.source == ENTRYPOINT and _same(present.distribution.partition(" ")[0], wheel.name):
            if not force:
                raise UserError(
                    f"`{name}` is installed already, by {present.distribution}",
                    hint=f"`hermes plugins update {name}` renews it; --force replaces it.",
                )
            continue
        where = present.distribution or present.path
        raise UserError(
            f"`{name}` is already the {present.source} plugin {where}; {wheel.name} {wheel.version} brings another",
            hint=f"Remove one of them: `hermes plugins remove {name}`.",
        )


def _same(one: str, other: str) -> bool:
    return one.replace("_", "-").replace(".", "-").lower() == other.replace("_", "-").replace(".", "-").lower()


def _record(here: InstalledPlugins, name: str, wheel: PluginWheel, source: PluginSource) -> None:
    manifest = here.find(name)
    origin: dict[str, Any] = {
        **source.as_origin(),
        "distribution": wheel.name,
        "version": wheel.version,
        "sha256": wheel.sha256,
        "installed_at": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    here.trust.note_origin(manifest, origin)
    here.trust.save()
