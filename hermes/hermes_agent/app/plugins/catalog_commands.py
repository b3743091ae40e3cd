"""The commands of the catalogue: `hermes plugins search`, `check-updates` and `trust-update-url`.

Source: plugin contract of 0.23 §11.3, §11.4.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from hermes_agent.app.plugin_updates import installed_version
from hermes_agent.app.plugins.catalog import (
    CAPABILITIES,
    Catalog,
    CatalogEntry,
    check_address,
    fetch_text,
    is_catalog_name,
    load_catalog,
)
from hermes_agent.app.plugins.home import InstalledPlugins
from hermes_agent.app.plugins.sources import PluginSource
from hermes_agent.app.plugins.staged_plugin import remote_commit
from hermes_agent.app.plugins.terminal_io import capability_changes, confirmed, printable, table
from hermes_agent.config import load
from hermes_agent.config.bounded_yaml import YamlRejected, parse_yaml
from hermes_agent.core.errors import EXIT_FAILED, EXIT_OK, UserError
from hermes_agent.core.lazy_types import LazyNamedTuple
from hermes_agent.plugins.manifest import PluginManifest
from hermes_agent.plugins.removed_list import find_removed, read_removed
from hermes_agent.plugins.requirements import hermes_refusal

COMMIT = re.compile(r"[0-9a-f]{40}")
FEED_BYTES, FEED_S = 2**20, 10.0
KINDS = {"provides_tools": "tools", "provides_hooks": "hooks", "provides_middleware": "middleware"}


def catalog_place(here: InstalledPlugins) -> str:
    """Return the setting `plugins.catalog`."""
    return load(here.home).settings.plugins.catalog


def read_catalog(here: InstalledPlugins) -> Catalog:
    """Return the catalogue that the operator names.

    Raises:
        UserError: there is none, or it cannot be read.
    """
    return load_catalog(here.home, catalog_place(here))


def entry_named(here: InstalledPlugins, text: str, cwd: Path) -> CatalogEntry | None:
    """Return the entry that a bare name means, or None if the text is no name or no catalogue is named.

    Raises:
        UserError: the catalogue cannot be read or has no such entry.
    """
    if not is_catalog_name(text) or (cwd / text).exists() or not catalog_place(here):
        return None
    entry = read_catalog(here).find(text)
    if refusal := hermes_refusal(entry.requires_hermes):
        raise UserError(f"{entry.name}: {refusal}")
    return entry


def refuse_removed(here: InstalledPlugins, names: tuple[str, ...], repo: str, *, allowed: bool) -> None:
    """Refuse a plugin that the catalogue removed.

    Raises:
        UserError: it is on the list, and the operator did not allow it.
    """
    if catalog_place(here):
        try:
            read_catalog(here)  # it keeps the list
        except UserError as exc:
            print(f"warning: {printable(str(exc))}", file=sys.stderr)
    entry = find_removed(read_removed(here.home), names, repo)
    if entry is not None and not allowed:
        raise UserError(
            f"{names[0] if names else repo} is {entry.text}", hint="--allow-removed installs it all the same."
        )


def run_search(args: argparse.Namespace) -> int:
    """Print the entries of the catalogue that match a term."""
    here = InstalledPlugins()
    catalog = read_catalog(here)
    rows = [_row(here, catalog, entry) for entry in catalog.entries.values() if _matches(entry, args.term or "")]
    rows.sort(key=lambda row: (row["tier"] != "official", row["name"]))
    if args.json:
        print(json.dumps(rows, indent=2, ensure_ascii=False))
        return EXIT_OK
    for row in rows:
        about = row["title"] or row["description"]
        print(
            printable(f"{row['name']:<28} {row['tier']:<10} {row['category']:<11} {row['state']:<10} {about}").rstrip()
        )
    if not rows:
        print(f"The catalogue has no plugin with {args.term!r}." if args.term else "The catalogue is empty.")
    for problem in catalog.problems:
        print(f"warning: {printable(problem)}", file=sys.stderr)
    return EXIT_OK


def _matches(entry: CatalogEntry, term: str) -> bool:
    words = f"{entry.name} {entry.title} {entry.description} {entry.category} {entry.maintainer}".lower()
    return all(word in words for word in term.lower().split())


def _row(here: InstalledPlugins, catalog: Catalog, entry: CatalogEntry) -> dict[str, Any]:
    removed = find_removed(catalog.removed, (entry.name,), entry.repo)
    state = "removed" if removed is not None else ""
    for manifest in here.found.plugins.values() if not state else ():
        record = catalog_record(here, manifest)
        if record.get("name") == entry.name:
            state = "installed" if record.get("sha") == entry.sha else "update"
    return {**entry.as_json(), "state": state, "removed": "" if removed is None else removed.reason}


def catalog_record(here: InstalledPlugins, manifest: PluginManifest) -> Mapping[str, Any]:
    """Return the entry from which a plugin was installed; empty for other plugins."""
    record = here.trust.entry(manifest).origin.get("catalog")
    return record if isinstance(record, Mapping) else {}


def show_entry(here: InstalledPlugins, name: str, *, as_json: bool) -> bool:
    """Print a plugin of the catalogue that is not installed; return False if there is no such entry.

    Raises:
        UserError: the catalogue cannot be read.
    """
    if not is_catalog_name(name) or not catalog_place(here):
        return False
    catalog = read_catalog(here)
    entry = catalog.entries.get(name)
    if entry is None:
        return False
    row = _row(here, catalog, entry)
    if as_json:
        print(json.dumps(row, indent=2, ensure_ascii=False))
        return True
    print(printable(f"{entry.name} {entry.version}".strip() + f": {entry.description or entry.title}"))
    shown = [
        ("status", "removed from the catalogue: " + row["removed"] if row["removed"] else "not installed"),
        ("source", f"{entry.repo}@{entry.sha[:12]}" + (f"#{entry.subdir}" if entry.subdir else "")),
        ("tier", entry.tier),
        *((key.replace("_", " "), getattr(entry, key)) for key in ("category", "maintainer", "docs_url")),
        ("requires hermes", entry.requires_hermes),
        ("platforms", ", ".join(entry.platforms)),
        *((key.replace("_", " "), ", ".join(entry.capabilities.get(key, ()))) for key in CAPABILITIES),
        ("known issues", entry.known_issues),
        ("install", f"hermes plugins install {entry.name}"),
    ]
    print("\n".join(table(shown)))
    return True


class UpdateReport(LazyNamedTuple):
    """What is known about an update of one plugin."""

    name: str
    state: str
    """`current`, `update`, `pinned`, `removed`, `blocked` or `unknown`."""
    installed: str
    available: str
    text: str
    changes: tuple[str, ...] = ()
    """Names that it registers in addition or no longer, as far as they are declared."""


def run_check_updates(args: argparse.Namespace) -> int:
    """Print for each installed plugin whether there is an update; nothing is changed."""
    reports = update_reports(InstalledPlugins(), lambda text: print(f"warning: {text}", file=sys.stderr))
    if args.json:
        print(json.dumps([report._asdict() for report in reports], indent=2, ensure_ascii=False))
        return EXIT_OK
    for report in reports:
        print(printable(f"{report.name}: {report.text}"))
        print("\n".join(report.changes), end="\n" if report.changes else "")
    if not reports:
        print("No plugin here has a known source.")
    return EXIT_OK


def update_reports(here: InstalledPlugins, warn: Callable[[str], None]) -> list[UpdateReport]:
    """Ask the source of each installed plugin, where it is known, for an update."""
    catalog = None
    followed = [manifest for manifest in here.found.plugins.values() if _is_followed(here, manifest)]
    if followed and catalog_place(here):
        try:
            catalog = read_catalog(here)
        except UserError as exc:
            warn(printable(str(exc)))
    return [_check(here, manifest, catalog) for manifest in followed]


def _is_followed(here: InstalledPlugins, manifest: PluginManifest) -> bool:
    return bool(here.trust.entry(manifest).origin) or bool(manifest.update_url and manifest.source == "user")


def _check(here: InstalledPlugins, manifest: PluginManifest, catalog: Catalog | None) -> UpdateReport:
    entry, now = here.trust.entry(manifest), installed_version(manifest, here.trust)

    def report(state: str, text: str, available: str = "", changes: tuple[str, ...] = ()) -> UpdateReport:
        return UpdateReport(manifest.key, state, now, available, text, changes)

    if (removal := here.trust.removal(manifest)) is not None:
        return report("removed", f"{removal.text}; `hermes plugins remove {manifest.key}` removes it")
    record = catalog_record(here, manifest)
    try:
        if record:
            if catalog is None or record.get("name") not in catalog.entries:
                return report("unknown", f"the catalogue has no plugin `{record.get('name')}` now")
            new = catalog.entries[str(record["name"])]
            if new.sha == record.get("sha"):
                return report("current", f"up to date with the catalogue ({new.sha[:12]})", new.sha)
            text = f"update {str(record.get('sha'))[:12]} -> {new.sha[:12]}: `hermes plugins update {manifest.key}`"
            return report("update", text, new.sha, tuple(declared_changes(entry.registers, new)))
        if manifest.update_url:
            return _check_feed(manifest, str(entry.origin.get("update_url") or ""), report)
        if entry.origin.get("pinned"):
            return report("pinned", f"pinned at {now[:12]}")
        source = PluginSource.of_origin(entry.origin)
        if source is None or source.kind != "git":
            return report("unknown", f"no update can be looked up for a {entry.origin.get('kind', 'plugin by hand')}")
        head = remote_commit(source)
    except UserError as exc:
        return report("unknown", exc.message)
    if head == now:
        return report("current", f"up to date ({head[:12]})", head)
    return report("update", f"update {now[:12]} -> {head[:12]}: `hermes plugins update {manifest.key}`", head)


def declared_changes(registers: Mapping[str, Any], entry: CatalogEntry) -> Iterator[str]:
    """Yield a line for each name that an entry declares in addition or no longer."""
    for key, kind in KINDS.items():
        before, after = set(registers.get(kind, ())), set(entry.capabilities.get(key, ()))
        if before or after:
            yield from capability_changes({kind: sorted(before)}, {kind: sorted(after)})


def _check_feed(manifest: PluginManifest, recorded: str, report: Any) -> UpdateReport:
    """Read the update feed of a plugin; an address that the operator did not see is not asked.

    Raises:
        UserError: the feed cannot be read.
    """
    if manifest.update_url != recorded:
        text = (
            f"its update_url is now {manifest.update_url}, which was not trusted and is not fetched: "
            f"`hermes plugins trust-update-url {manifest.key}`"
        )
        return report("blocked", text)  # type: ignore[no-any-return]
    check_address(manifest.update_url)
    try:
        document = parse_yaml(fetch_text(manifest.update_url, FEED_BYTES, FEED_S), ("artifacts",))
    except (OSError, ValueError, YamlRejected) as exc:
        raise UserError(f"the update feed {manifest.update_url} cannot be read: {exc}") from exc
    version, needs = document.scalars.get("version", ""), document.scalars.get("min_hermes", "")
    artifacts = document.values.get("artifacts")
    commit = str(artifacts.get("git") or "") if isinstance(artifacts, dict) else ""
    if refusal := hermes_refusal(needs):
        return report("blocked", f"version {version} {refusal}", version)  # type: ignore[no-any-return]
    if not version or version == manifest.version:
        return report("current", f"up to date by its feed ({manifest.version})", version)  # type: ignore[no-any-return]
    how = f" at {commit[:12]}" if COMMIT.fullmatch(commit) else ""
    text = f"update {manifest.version or 'no version'} -> {version}{how}: `hermes plugins update {manifest.key}`"
    return report("update", text, version)  # type: ignore[no-any-return]


def run_trust_update_url(args: argparse.Namespace) -> int:
    """Record the update feed of a plugin after the operator agreed."""
    here = InstalledPlugins()
    manifest = here.find(args.name)
    if not manifest.update_url:
        raise UserError(f"{manifest.key} has no update_url in its manifest")
    check_address(manifest.update_url)
    entry = here.trust.entry(manifest)
    old = entry.origin.get("update_url") or "none"
    print(printable(f"{manifest.key}: {old} -> {manifest.update_url}"))
    unasked = f"`hermes plugins trust-update-url {manifest.key} --yes` does it"
    if not confirmed("Ask this address for updates?", "trusted", unasked, yes=args.yes):
        return EXIT_FAILED
    here.trust.note_origin(manifest, {**entry.origin, "update_url": manifest.update_url})
    here.trust.save()
    print(f"`hermes plugins check-updates` asks {manifest.update_url} from now on.")
    return EXIT_OK
