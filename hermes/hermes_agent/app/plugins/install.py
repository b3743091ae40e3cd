"""`hermes plugins install` and `update`.

`install` fetches a plugin, shows what it registers, moves it to its folder, and asks for the variables that it
requires. `update` fetches it again from its origin, shows the changes, and replaces it in one step.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from hermes_agent.app.plugins.catalog import CatalogEntry
from hermes_agent.app.plugins.catalog_commands import (
    COMMIT,
    catalog_record,
    entry_named,
    read_catalog,
    refuse_removed,
)
from hermes_agent.app.plugins.consent import ask_for_capabilities, declared_changes, declared_rows
from hermes_agent.app.plugins.doctor import missing_variables, requirement_hint
from hermes_agent.app.plugins.enable import offer_to_enable
from hermes_agent.app.plugins.home import InstalledPlugins
from hermes_agent.app.plugins.packages import install_package, update_package
from hermes_agent.app.plugins.scan import scan_plugin, verdict_of
from hermes_agent.app.plugins.sources import PluginSource, parse_source
from hermes_agent.app.plugins.staged_plugin import (
    RegistrationPreview,
    StagedPlugin,
    copy_examples,
    copy_own_files,
    fetch,
    free_removed_folder,
    is_python_package,
    name_collision,
    preview_registrations,
    put_in_place,
    read_staged,
    staging,
    target_folder,
)
from hermes_agent.app.plugins.terminal_io import (
    apply_in_daemon,
    ask_text,
    capability_changes,
    confirmed,
    is_interactive,
    printable,
    progress_printer,
    registers_lines,
    table,
    title,
)
from hermes_agent.config import home_paths, load
from hermes_agent.config.dotenv import write_env_value
from hermes_agent.core.errors import EXIT_FAILED, EXIT_OK, EXIT_USAGE, UserError
from hermes_agent.plugins.activation import PluginSettings
from hermes_agent.plugins.discovery import BUNDLED
from hermes_agent.plugins.grant_copies import difference
from hermes_agent.plugins.manifest import PluginManifest
from hermes_agent.plugins.pinned_files import PinChanges, changes_between, content_hash, pin_files, unpinned_files
from hermes_agent.system.installation import missing_packages


def ask_for_variables(here: InstalledPlugins, manifest: PluginManifest, *, may_ask: bool) -> None:
    """Ask for the variables of `requires_env` that have no value, and store them in `.env`.

    Print the names of those that the user does not give or cannot be asked for.
    """
    missing = missing_variables(manifest, here.secrets)
    if not missing:
        return
    where = home_paths(here.home)
    if where.declared is not None:
        names = ", ".join(v.name for v in missing)
        print(f"It needs {names}: set it with services.hermes-agent.credentials or environmentFiles.")
        return
    left = []
    for variable in missing:
        value = ""
        if may_ask and is_interactive():
            print(f"It needs {variable.name}{printable(f': {variable.description}') if variable.description else ''}")
            if variable.url:
                print(f"  Get one at {printable(variable.url)}")
            value = ask_text(f"  {variable.name} (empty: later)", hidden=variable.secret)
        if value:
            write_env_value(where.env, variable.name, value)
            print(f"  {variable.name} is stored in {where.env}.")
        else:
            left.append(variable.name)
    for name in left:
        print(f"It needs {name}: `hermes config set {name} VALUE` stores it in {where.env}.")


def name_missing_packages(here: InstalledPlugins, requirements: Sequence[str]) -> None:
    """Print the missing Python packages of a manifest, and how to add them."""
    missing = missing_packages(requirements)
    if missing:
        print(f"It needs Python packages that are not installed with the agent: {', '.join(map(printable, missing))}")
        print(f"  {requirement_hint(missing, here.home)}", file=sys.stdout)


AFTER = "after-install.md"


def run_install(args: argparse.Namespace) -> int:
    """Install a plugin; none of its code runs in the agent until it is enabled."""
    here = InstalledPlugins()
    listed = entry_named(here, args.source, Path.cwd())
    source = listed.source if listed else parse_source(args.source, ref=args.ref or "", cwd=Path.cwd())
    if listed and args.ref not in (None, "", listed.sha):
        raise UserError(
            f"{listed.name} is installed at the commit of the catalogue, {listed.sha}",
            hint=f"{listed.repo}@{args.ref} names the repository instead.",
        )
    names = (listed.name,) if listed else ()
    refuse_removed(here, names, source.location, allowed=args.allow_removed)
    if source.location.startswith("http://"):
        print(f"warning: {source.label} is fetched without encryption: who sits in between can change it.")
    with staging(here.home) as place:
        if source.kind == "pip":
            return install_package(here, source.location, source, place, args)
        folder, origin = fetch(source, place, progress_printer())
        if is_python_package(folder):
            return install_package(here, str(folder), source, place, args)
        staged = read_staged(folder, origin | _marks(source, listed, args), source.label)
        refuse_removed(here, staged.manifest.answers_to, source.location, allowed=args.allow_removed)
        if not _passes_scan(here, staged, is_reviewed=listed is not None, yes=args.yes or args.force):
            return EXIT_FAILED
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


def _marks(source: PluginSource, listed: CatalogEntry | None, args: argparse.Namespace) -> dict[str, Any]:
    """Return the marks of an origin: a pin, an entry of the catalogue, an allowed removal."""
    marks: dict[str, Any] = {"catalog": listed.as_origin()} if listed else {}
    if listed or COMMIT.fullmatch(source.ref):
        marks["pinned"] = True
    if args.allow_removed:
        marks["allow_removed"] = True
    return marks


def _passes_scan(here: InstalledPlugins, staged: StagedPlugin, *, is_reviewed: bool, yes: bool) -> bool:
    """Return whether a plugin may be installed after its scan (`plugins.scan_on_install`).

    Args:
        is_reviewed: it is a commit that the catalogue pins, for which a caution is only shown.
        yes: the operator accepts a caution.

    Raises:
        UserError: the scan found code that no honest plugin has.
    """
    if not load(here.home).settings.plugins.scan_on_install:
        return True
    findings = scan_plugin(Path(staged.manifest.path))
    verdict = verdict_of(findings)
    if verdict == "dangerous":
        raise UserError(
            f"{staged.manifest.key} is not installed: {'; '.join(map(str, findings[:5]))}",
            hint="No option lifts this. Report it to its author if it is a mistake of the scan.",
        )
    for finding in findings[:20]:
        print(f"  ! scan: {printable(str(finding))}")
    unasked = "--yes (or --force) accepts these findings"
    return verdict == "safe" or is_reviewed or confirmed("Go on in spite of this?", "installed", unasked, yes=yes)


def show(here: InstalledPlugins, staged: StagedPlugin, seen: RegistrationPreview) -> None:
    """Print the plugin's title and origin, and what it would register."""
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
    rows.append(("needs", ", ".join(manifest.env_names)))
    rows += declared_rows(manifest)
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
    """Return the present time as recorded with an origin (ISO 8601, UTC)."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def _refuse_collision(here: InstalledPlugins, staged: StagedPlugin, target: Path, *, force: bool) -> bool:
    """Return whether the install replaces a plugin.

    Raises:
        UserError: the name is taken, and `force` is not set or does not help.
    """
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
    feed = {"update_url": manifest.update_url} if manifest.update_url else {}
    here.trust.note_origin(manifest, {**staged.origin, **feed, "installed_at": now()})
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


def run_update(args: argparse.Namespace) -> int:
    """Update one plugin, or all plugins with a known origin; after a failure the others are still updated."""
    here = InstalledPlugins()
    if bool(args.name) == args.all:
        print("hermes: name a plugin, or use --all", file=sys.stderr)
        return EXIT_USAGE
    if args.name:
        return EXIT_OK if _update(here, here.find(args.name), args) else EXIT_FAILED
    known = [m for m in here.found.plugins.values() if here.trust.entry(m).origin]
    for manifest in [m for m in known if _is_pinned(here, m)]:
        print(f"{manifest.key} is pinned, and stays: {_pin_remedy(here, manifest)}")
        known.remove(manifest)
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
    """Update a plugin; return False if the user did not agree or cannot be asked."""
    if _is_pinned(here, manifest):
        commit = here.trust.entry(manifest).origin.get("commit", "")
        raise UserError(f"{manifest.key} is pinned at {commit}", hint=_pin_remedy(here, manifest))
    before = here.trust.entry(manifest).origin
    record = catalog_record(here, manifest)
    listed = read_catalog(here).find(str(record["name"])) if record else None
    source = listed.source if listed else _source(here, manifest)
    allowed = before.get("allow_removed") is True
    refuse_removed(here, manifest.answers_to, source.location, allowed=allowed)
    with staging(here.home) as place:
        if source.kind == "pip" or manifest.source == "entrypoint":
            return update_package(here, manifest, source, place, args)
        _refuse_own_changes(here, manifest, force=args.force)
        folder, origin = fetch(source, place, progress_printer())
        origin |= {key: before[key] for key in KEPT_MARKS if key in before}
        origin |= {"catalog": listed.as_origin()} if listed else {}
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
        if not _passes_scan(here, staged, is_reviewed=listed is not None, yes=args.yes or args.force):
            return False
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
    print(f"{manifest.key} is updated.")
    apply_in_daemon(here.home, manifest.key, "It runs from the next start on.")
    ask_for_variables(here, fresh, may_ask=not args.yes)
    ask_for_capabilities(here, fresh)
    return True


KEPT_MARKS = ("pinned", "allow_removed", "update_url", "catalog")
"""Marks of an origin that an update keeps."""


def _is_pinned(here: InstalledPlugins, manifest: PluginManifest) -> bool:
    """Return whether a plugin stays at the commit that was named at its installation."""
    origin = here.trust.entry(manifest).origin
    named = origin.get("kind") == "git" and COMMIT.fullmatch(str(origin.get("ref") or "")) is not None
    return (origin.get("pinned") is True or named) and not catalog_record(here, manifest)


def _pin_remedy(here: InstalledPlugins, manifest: PluginManifest) -> str:
    source = PluginSource.of_origin({**here.trust.entry(manifest).origin, "ref": ""})
    where = source.label if source is not None else "SRC"
    return f"`hermes plugins install {where} --ref COMMIT --force` moves it."


def _source(here: InstalledPlugins, manifest: PluginManifest) -> PluginSource:
    source = PluginSource.of_origin(here.trust.entry(manifest).origin)
    if source is None:
        raise UserError(
            f"it is not known where {manifest.key} came from ({manifest.path})",
            hint="`hermes plugins install SRC --force` replaces it.",
        )
    if manifest.source == "user" and Path(manifest.path).is_symlink():
        raise UserError(f"{manifest.path} is a link; what it leads to is updated where it lies")
    return source


def _refuse_own_changes(here: InstalledPlugins, manifest: PluginManifest, *, force: bool) -> None:
    verdict = here.trust.judge(
        manifest, PluginSettings()
    )  # default settings: an update would also undo edits that `trust: dev` allows
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
    for line in declared_changes(manifest, staged.manifest, here.settings.entry(manifest)):
        print(line)
    for word, names in zip(("new", "changed", "gone"), changes, strict=True):
        if names:
            print(f"  {word} files: {', '.join(map(printable, names[:20]))}{' …' if len(names) > 20 else ''}")
    if with_text:
        print("\n".join(difference(here.home, staged.manifest.path, entry.files, changes)))
    for problem in seen.problems:
        print(f"  ! {printable(problem)}")
    name_missing_packages(here, staged.dependencies)
