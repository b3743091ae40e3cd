"""`hermes plugins grant`: show what changed in a plugin since it was granted, and grant it as it is now."""

from __future__ import annotations

import argparse

from hermes_agent.app.cli.plugins.asking import confirmed
from hermes_agent.app.cli.plugins.ground import InstalledPlugins
from hermes_agent.core.errors import EXIT_FAILED, EXIT_OK
from hermes_agent.plugins.manifest import PluginManifest
from hermes_agent.plugins.trust import PINNED_SOURCES, GrantState

__all__ = ["run_grant"]


def run_grant(args: argparse.Namespace) -> int:
    """Show the difference, ask, pin."""
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
    from hermes_agent.plugins.trust_copies import difference  # hashlib, difflib

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
