"""`hermes plugins update`: fetch a plugin again from where it came, show what is different, exchange it in one step."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from hermes_agent.app.cli.plugins.asking import confirmed
from hermes_agent.app.cli.plugins.ground import InstalledPlugins
from hermes_agent.app.cli.plugins.installing import now
from hermes_agent.app.cli.plugins.packages import update_package
from hermes_agent.app.cli.plugins.progress import progress_printer
from hermes_agent.app.cli.plugins.showing import capability_changes, printable
from hermes_agent.app.cli.plugins.wanting import ask_for_variables, name_missing_packages
from hermes_agent.core.errors import EXIT_FAILED, EXIT_OK, EXIT_USAGE, UserError
from hermes_agent.plugins.gate import PluginSettings
from hermes_agent.plugins.installing.place import copy_examples, copy_own_files, put_in_place
from hermes_agent.plugins.installing.preview import RegistrationPreview, preview_registrations
from hermes_agent.plugins.installing.source import PluginSource
from hermes_agent.plugins.installing.stage import StagedPlugin, fetch, read_staged, staging
from hermes_agent.plugins.manifest import PluginManifest
from hermes_agent.plugins.trust_copies import difference
from hermes_agent.plugins.trust_files import PinChanges, changes_between, pin_files, unpinned_files

__all__ = ["run_update"]


def run_update(args: argparse.Namespace) -> int:
    """Update one plugin, or every one whose origin is known; one that fails keeps no other from being updated."""
    here = InstalledPlugins()
    if bool(args.name) == args.all:
        print("hermes: name a plugin, or use --all", file=sys.stderr)
        return EXIT_USAGE
    if args.name:
        return EXIT_OK if _update(here, here.find(args.name), args) else EXIT_FAILED
    known = [m for m in here.found.plugins.values() if here.trust.entry(m).origin]
    if not known:
        print("No plugin here was installed by `hermes plugins install`.")
    done = True
    for manifest in known:
        try:
            done = _update(here, manifest, args) and done
        except UserError as exc:
            print(f"hermes: {manifest.key}: {exc}", file=sys.stderr)
            done = False
    return EXIT_OK if done else EXIT_FAILED


def _update(here: InstalledPlugins, manifest: PluginManifest, args: argparse.Namespace) -> bool:
    """Update a plugin; return False when the person, or nobody, did not agree."""
    source = _source(here, manifest)
    with staging(here.home) as place:
        if source.kind == "pip" or manifest.source == "entrypoint":
            return update_package(here, manifest, source, place, args)
        _refuse_own_changes(here, manifest, force=args.force)
        folder, origin = fetch(source, place, progress_printer())
        staged = read_staged(folder, origin, source.label)
        if staged.manifest.name != manifest.name:
            raise UserError(
                f"{source.label} is now called `{staged.manifest.name}`, not `{manifest.name}`",
                hint=f"Install it as a new plugin, and `hermes plugins remove {manifest.key}`.",
            )
        entry = here.trust.entry(manifest)
        changes = changes_between(entry.files, pin_files(str(folder)))
        if not changes:
            here.trust.note_origin(manifest, {**entry.origin, **origin})
            here.trust.save()
            print(f"{manifest.key} {manifest.shown_version} is up to date.")
            return True
        seen = preview_registrations(staged.manifest.key, directory=folder)
        if not seen.loaded and not args.force:
            why = "; ".join(map(printable, seen.problems))
            raise UserError(
                f"the new {manifest.key} cannot be loaded, so the old one stays: {why}",
                hint="--force takes it all the same.",
            )
        _show(here, manifest, staged, seen, changes, with_text=args.diff)
        unasked = f"`hermes plugins update {manifest.key} --yes` does it"
        if not confirmed(f"Update {manifest.key}?", "updated", unasked, yes=args.yes, default=True):
            return False
        copy_own_files(Path(manifest.path), folder, unpinned_files(manifest.path, entry.files))
        copy_examples(folder)
        put_in_place(folder, Path(manifest.path), place / "old")
    fresh = staged.manifest._replace(path=manifest.path)
    here.trust.note_origin(fresh, {**origin, "installed_at": now()})
    here.trust.pin(fresh, by="update", registers=seen.registers)
    here.trust.save()
    print(f"{manifest.key} is updated; a running daemon keeps the old one until its next start.")
    ask_for_variables(here, fresh, may_ask=not args.yes)
    return True


def _source(here: InstalledPlugins, manifest: PluginManifest) -> PluginSource:
    source = PluginSource.of_origin(here.trust.entry(manifest).origin)
    if source is None:
        raise UserError(
            f"it is not known where {manifest.key} came from ({manifest.path})",
            hint="`hermes plugins install SRC --force` installs it anew.",
        )
    if manifest.source == "user" and Path(manifest.path).is_symlink():
        raise UserError(f"{manifest.path} is a link; what it leads to is updated where it lies")
    return source


def _refuse_own_changes(here: InstalledPlugins, manifest: PluginManifest, *, force: bool) -> None:
    verdict = here.trust.judge(manifest, PluginSettings())  # what the settings let pass would be lost, too
    if verdict.changes and not force:
        raise UserError(
            f"{manifest.key} was changed here, and an update would undo that: {verdict.changes.text}",
            hint=f"`hermes plugins grant {manifest.key}` shows it; --force takes the new one.",
        )


def _show(
    here: InstalledPlugins,
    manifest: PluginManifest,
    staged: StagedPlugin,
    seen: RegistrationPreview,
    changes: PinChanges,
    *,
    with_text: bool,
) -> None:
    entry = here.trust.entry(manifest)
    commit = f" (commit {staged.origin['commit'][:12]})" if staged.origin.get("commit") else ""
    old, new = manifest.shown_version or "no version", staged.manifest.shown_version or "no version"
    print(printable(f"{manifest.key}: {old} -> {new}{commit}"))
    print("\n".join(capability_changes(entry.registers, seen.registers) or ["  registers what it did"]))
    for word, names in zip(("new", "changed", "gone"), changes, strict=True):
        if names:
            print(f"  {word} files: {', '.join(map(printable, names[:20]))}{' …' if len(names) > 20 else ''}")
    if with_text:
        print("\n".join(difference(here.home, staged.manifest.path, entry.files, changes)))
    for problem in seen.problems:
        print(f"  ! {printable(problem)}")
    name_missing_packages(here, staged.dependencies)
