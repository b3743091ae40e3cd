"""`hermes plugins info`: everything that is known of one plugin, without loading it, and what it did in the daemon."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from typing import Any

from hermes_agent.app.cli.plugins.accounting import load_usage, usage_rows
from hermes_agent.app.cli.plugins.ground import InstalledPlugins
from hermes_agent.app.cli.plugins.showing import printable, registers_lines, table, title
from hermes_agent.core.errors import EXIT_OK
from hermes_agent.hooks.names import FIRED
from hermes_agent.plugins.gate import make_value_check
from hermes_agent.plugins.manifest import PluginManifest
from hermes_agent.plugins.state import last_load, read_state
from hermes_agent.plugins.trust import GrantState, mode_of

__all__ = ["describe", "info_lines", "run_info"]

Rows = Sequence[tuple[str, str]]


def run_info(args: argparse.Namespace) -> int:
    """Print what is known of a plugin."""
    here = InstalledPlugins()
    manifest = here.find(args.name)
    about, accounted = describe(here, manifest), load_usage(manifest.key)
    if args.json:
        print(json.dumps(about | accounted.to_json(), indent=2, ensure_ascii=False))
    else:
        print(title(manifest))
        print("\n".join(info_lines(about, usage_rows(accounted))))
    return EXIT_OK


def describe(here: InstalledPlugins, manifest: PluginManifest) -> dict[str, Any]:
    """Return the plugin as JSON types: what `--json` prints."""
    gate, verdict = here.activation(manifest)
    entry = here.trust.entry(manifest)
    last = last_load(read_state(here.home), manifest)
    registers: Mapping[str, list[str]] = last.get("registers") or entry.registers
    failed = gate.load and bool(last.get("error"))
    where = f" ({last['where']})" if last.get("where") else ""
    has = make_value_check(here.secrets)
    return {
        "key": manifest.key,
        "name": manifest.name,
        "version": manifest.shown_version,
        "description": manifest.description,
        "author": manifest.author,
        "kind": manifest.kind,
        "source": manifest.source,
        "path": manifest.path,
        "distribution": manifest.distribution,
        "replaces": manifest.replaces,
        "status": "failed" if failed else gate.status,
        "reason": f"{last['error']}{where}" if failed else gate.reason,
        "origin": dict(entry.origin),
        "pin": _pin(here, manifest, verdict),
        "registers": dict(registers),
        "hooks_never_fired": [hook for hook in registers.get("hooks", []) if hook not in FIRED],
        "provides_tools": list(manifest.provides_tools),
        "provides_hooks": list(manifest.provides_hooks),
        "requires_env": {name: has(name) for name in manifest.env_names},
        "problems": list(last.get("problems", ())),
        "notes": [*manifest.notes, *(n for n in last.get("notes", ()) if n not in manifest.notes)],
        "settings": sorted(here.settings.entry(manifest)),
    }


def info_lines(about: Mapping[str, Any], extra: Rows = ()) -> list[str]:
    """Return what `info` prints below the title.

    Args:
        about: what `describe` gave.
        extra: further rows (name, text), such as an account of what the plugin did.
    """
    status = about["status"] + (f": {about['reason']}" if about["reason"] else "")
    rows: list[tuple[str, str]] = [
        ("status", status),
        ("source", f"{about['source']}, {about['distribution'] or about['path']}"),
        ("kind", about["kind"]),
        ("replaces", about["replaces"]),
        ("from", _origin(about["origin"])),
        ("pinned", _pin_text(about["pin"])),
    ]
    if about["registers"]:
        rows += registers_lines(about["registers"])
    else:
        rows.append(("registers", "not known before it was loaded"))
    rows.append(
        ("wants", ", ".join(f"{n} ({'set' if there else 'missing'})" for n, there in about["requires_env"].items()))
    )
    rows.append(("settings", ", ".join(f"plugins.entries.{about['key']}.{name}" for name in about["settings"])))
    rows += [("problem", f"goes without {text}") for text in about["problems"]]
    rows += [("note", text) for text in about["notes"]]
    return table([*rows, *((name, printable(text)) for name, text in extra)])


def _pin(here: InstalledPlugins, manifest: PluginManifest, verdict: GrantState) -> dict[str, Any]:
    entry = here.trust.entry(manifest)
    now = here.trust.judge(manifest, here.settings) if verdict.state == "free" else verdict
    return {
        "state": now.state,
        "mode": mode_of(manifest, here.settings),
        "files": len(entry.files),
        **{name: entry.grant.get(name, "") for name in ("hash", "at", "by", "version")},
        "changes": {name: list(paths) for name, paths in now.changes._asdict().items()},
    }


def _origin(origin: Mapping[str, Any]) -> str:
    if not origin:
        return ""
    ref = f"@{origin['ref']}" if origin.get("ref") else ""
    subdir = f"#{origin['subdir']}" if origin.get("subdir") else ""
    commit = f", commit {origin['commit'][:12]}" if origin.get("commit") else ""
    return f"{origin.get('source', '')}{ref}{subdir}{commit}, installed {origin.get('installed_at', '')}"


def _pin_text(pin: Mapping[str, Any]) -> str:
    match pin["state"]:
        case "free":
            return ""
        case "dev":
            return "no: plugins.entries.*.trust is dev"
        case "new":
            return "not yet: it is when it is enabled"
    changed = " (changed since)" if pin["state"] == "changed" else ""
    return f"{pin['files']} files, sha256 {pin['hash'][:16]}…, by {pin['by']} on {pin['at']}{changed}"
