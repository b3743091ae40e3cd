"""`hermes plugins install`: fetch, look, show, place, ask."""

from __future__ import annotations

import argparse
from datetime import UTC, datetime
from pathlib import Path

from hermes_agent.app.cli.plugins.ground import InstalledPlugins
from hermes_agent.app.cli.plugins.packages import install_package
from hermes_agent.app.cli.plugins.progress import progress_printer
from hermes_agent.app.cli.plugins.showing import printable, registers_lines, table, title
from hermes_agent.app.cli.plugins.switching import offer_to_enable
from hermes_agent.app.cli.plugins.wanting import ask_for_variables, name_missing_packages
from hermes_agent.core.errors import EXIT_OK, UserError
from hermes_agent.plugins.discovery import BUNDLED
from hermes_agent.plugins.installing.place import (
    copy_examples,
    free_removed_folder,
    name_collision,
    put_in_place,
    target_folder,
)
from hermes_agent.plugins.installing.preview import RegistrationPreview, preview_registrations
from hermes_agent.plugins.installing.source import parse_source
from hermes_agent.plugins.installing.stage import StagedPlugin, fetch, is_python_package, read_staged, staging
from hermes_agent.plugins.trust_files import content_hash, pin_files

__all__ = ["now", "run_install", "show"]

AFTER = "after-install.md"


def run_install(args: argparse.Namespace) -> int:
    """Install a plugin: nothing of it runs in the agent before it is enabled."""
    here = InstalledPlugins()
    source = parse_source(args.source, ref=args.ref or "", cwd=Path.cwd())
    if source.location.startswith("http://"):
        print(f"warning: {source.label} is fetched without encryption: who sits in between can change it.")
    with staging(here.home) as place:
        if source.kind == "pip":
            return install_package(here, source.location, source, place, args)
        folder, origin = fetch(source, place, progress_printer())
        if is_python_package(folder):
            return install_package(here, str(folder), source, place, args)
        staged = read_staged(folder, origin, source.label)
        target = target_folder(here.home, staged.manifest)
        replaced = _refuse_collision(here, staged, target, force=args.force)
        seen = preview_registrations(staged.manifest.key, directory=folder)
        show(here, staged, seen)
        made = copy_examples(folder)
        aside = free_removed_folder(here.home, staged.manifest.name) if replaced else place / "old"
        put_in_place(folder, target, aside)
    print(f"Installed {staged.manifest.key}: {target}")
    if replaced:
        print(f"What was there is now {aside}.")
    if made:
        print(f"Made from its examples, for you to edit: {', '.join(map(printable, made))}")
    _record(here, staged, seen, target)
    _after(here, staged, target, args)
    return EXIT_OK


def show(here: InstalledPlugins, staged: StagedPlugin, seen: RegistrationPreview) -> None:
    """Print what the plugin is, where it came from, and what it would register."""
    manifest, origin = staged.manifest, staged.origin
    files = pin_files(manifest.path)
    commit = f" (commit {origin['commit'][:12]})" if origin.get("commit") else ""
    rows = [
        ("from", f"{origin['source']}{'@' + origin['ref'] if origin['ref'] else ''}{commit}"),
        ("files", f"{len(files)}, {sum(f.size for f in files.values())} bytes, sha256 {content_hash(files)[:16]}…"),
    ]
    if seen.loaded:
        rows += registers_lines(seen.registers) or [("registers", "nothing")]
    else:
        rows += [
            ("tools", ", ".join(manifest.provides_tools) and f"{', '.join(manifest.provides_tools)} (declared)"),
            ("hooks", ", ".join(manifest.provides_hooks) and f"{', '.join(manifest.provides_hooks)} (declared)"),
        ]
    rows += [
        (kind, f"{', '.join(names)} (declared; nothing holds it to that)") for kind, names in staged.permissions.items()
    ]
    rows.append(("wants", ", ".join(manifest.env_names)))
    print(title(manifest))
    print("\n".join(table(rows)))
    if not staged.permissions:
        print("  It declares nothing about network and files: like every plugin it can do what you can.")
    if not seen.loaded:
        print("It was not loaded when tried in the sandbox:")
    for problem in seen.problems:
        print(f"  ! {printable(problem)}")
    for note in manifest.notes:
        print(f"  ! plugin.yaml: {printable(note)}")
    name_missing_packages(here, staged.dependencies)


def now() -> str:
    """Return the time for the record."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def _refuse_collision(here: InstalledPlugins, staged: StagedPlugin, target: Path, *, force: bool) -> bool:
    """Refuse a name that is taken; return whether a plugin is going to be replaced."""
    taken = name_collision(staged.manifest, target, here.found)
    if taken is not None:
        text, remedy, replaceable = taken
        if not (force and replaceable):
            raise UserError(text, hint=remedy)
        return True
    present = here.found.plugins.get(staged.manifest.name)
    if present is not None and present.source == BUNDLED:
        print(f"warning: it takes the place of the plugin of that name which came with the agent ({present.path}).")
    return False


def _record(here: InstalledPlugins, staged: StagedPlugin, seen: RegistrationPreview, target: Path) -> None:
    manifest = staged.manifest._replace(path=str(target))
    here.trust.note_origin(manifest, {**staged.origin, "installed_at": now()})
    here.trust.pin(manifest, by="install", registers=seen.registers)
    here.trust.save()


def _after(here: InstalledPlugins, staged: StagedPlugin, target: Path, args: argparse.Namespace) -> None:
    ask_for_variables(here, staged.manifest, may_ask=not args.yes)
    text = target / AFTER
    if text.is_file():
        print(
            "\n".join(printable(line) for line in text.read_text(encoding="utf-8", errors="replace").splitlines()[:200])
        )
    offer_to_enable(staged.manifest.key, args)
