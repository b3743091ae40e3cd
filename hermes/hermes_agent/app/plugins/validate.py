"""`hermes plugins validate`: the checks of one plugin before it is published.

The plugin is loaded in the sandbox of `hermes plugins check`; the manifest and the source are read. Source: plugin
contract of 0.23 §11.3.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from hermes_agent.app.plugins.check import report_on
from hermes_agent.app.plugins.scan import scan_plugin, verdict_of
from hermes_agent.app.plugins.terminal_io import printable
from hermes_agent.config.bounded_yaml import YamlRejected, read_yaml
from hermes_agent.core.errors import EXIT_FAILED, EXIT_OK, UserError
from hermes_agent.core.lazy_types import LazyNamedTuple
from hermes_agent.plugins.isolation.hosted_context import REFUSED
from hermes_agent.plugins.manifest import (
    KNOWN_KEYS,
    MANIFEST_NAMES,
    PACKAGE_MANIFEST,
    InvalidManifest,
    PluginManifest,
    read_manifest,
)
from hermes_agent.plugins.requirements import hermes_refusal, parse_clauses

KINDS = {"provides_tools": "tools", "provides_hooks": "hooks"}


class ValidationCheck(LazyNamedTuple):
    """One check of a plugin."""

    name: str
    ok: bool
    detail: str = ""


def run_validate(args: argparse.Namespace) -> int:
    """Print each check; return exit status 1 if one failed."""
    folder = Path(args.path).expanduser().resolve()
    checks, warnings = validate(folder, sandbox=not args.no_sandbox)
    ok = all(check.ok for check in checks)
    refused = refused_methods(folder)
    if args.json:
        isolation = {"ready": not refused, "refused": refused}
        found = {"ok": ok, "checks": [check._asdict() for check in checks], "warnings": warnings}
        print(json.dumps({**found, "isolation": isolation}, indent=2, ensure_ascii=False))
        return EXIT_OK if ok else EXIT_FAILED
    for check in checks:
        print(printable(f"{'✓' if check.ok else '✗'} {check.name}{': ' if check.detail else ''}{check.detail}"))
    for warning in warnings:
        print(printable(f"warning: {warning}"))
    print(f"plugins.isolation: host {'refuses ' + ', '.join(refused) if refused else 'is possible'}")
    return EXIT_OK if ok else EXIT_FAILED


def validate(folder: Path, *, sandbox: bool) -> tuple[list[ValidationCheck], list[str]]:
    """Return the checks of a plugin's folder, and the warnings.

    Raises:
        UserError: the folder has no manifest.
    """
    file = next((folder / name for name in MANIFEST_NAMES if (folder / name).is_file()), None)
    if file is None:
        raise UserError(f"{folder} has no plugin.yaml", hint="A directory plugin has plugin.yaml at its root.")
    try:
        manifest = read_manifest(str(file), source="user")
    except InvalidManifest as exc:
        return [ValidationCheck("manifest", False, f"{file.name}: {exc}")], []
    checks = [ValidationCheck("manifest", not manifest.notes, "; ".join(manifest.notes)), _check_versions(manifest)]
    warnings = [*_unknown_fields(file, manifest), *_private_imports(folder)]
    report = report_on(folder, sandbox=sandbox)
    checks += _check_load(manifest, folder, report)
    warnings += [text for text in report.get("warnings", ()) if "provides_tools" not in text]
    findings = scan_plugin(folder)
    dangerous = [str(each) for each in findings if each.level == "dangerous"]
    checks.append(ValidationCheck("scan", verdict_of(findings) != "dangerous", "; ".join(dangerous)))
    warnings += [str(each) for each in findings if each.level == "caution"]
    return checks, warnings


def refused_methods(folder: Path) -> list[str]:
    """Return the methods in the source that a plugin in a process of its own is refused."""
    text = "\n".join(_sources(folder).values())
    return [name for name in REFUSED if re.search(rf"\.{name}\s*\(", text)]


def _check_versions(manifest: PluginManifest) -> ValidationCheck:
    _, unreadable = parse_clauses(manifest.requires_hermes)
    why = f"cannot be parsed: {', '.join(unreadable)}" if unreadable else hermes_refusal(manifest.requires_hermes)
    return ValidationCheck("requires_hermes", not why, why)


def _check_load(manifest: PluginManifest, folder: Path, report: Mapping[str, Any]) -> Iterator[ValidationCheck]:
    mine = next((row for row in report.get("plugins", ()) if Path(row["path"]).resolve() == folder), None)
    errors = [text for text in report.get("errors", ()) if "provides_tools" not in text]
    yield ValidationCheck("load", mine is not None and not errors, "; ".join(errors) or ("" if mine else "not found"))
    names = [f"{c['text']} {', '.join(c['owners'])}" for c in report.get("conflicts", ())]
    yield ValidationCheck("names", not names, "; ".join(names))
    for field, kind in KINDS.items() if mine is not None and not errors else ():
        if mine is None or kind not in mine:
            continue
        declared, registered = set(getattr(manifest, field)), set(mine[kind])
        missing = sorted(registered - declared) if field == "provides_tools" or declared else []
        unused = sorted(declared - registered)
        texts = [f"registers {', '.join(missing)}, which {field} does not name"] if missing else []
        texts += [f"{field} names {', '.join(unused)}, which it does not register"] if unused else []
        yield ValidationCheck(field, not texts, "; ".join(texts))


def _unknown_fields(file: Path, manifest: PluginManifest) -> Iterator[str]:
    if file.name == PACKAGE_MANIFEST:
        return
    try:
        unknown = sorted(set(read_yaml(str(file), ()).lines) - KNOWN_KEYS)
    except (YamlRejected, OSError):  # it was read a moment ago
        return
    if unknown:
        yield f"{manifest.key}: unknown manifest fields: {', '.join(unknown)}"


def _private_imports(folder: Path) -> Iterator[str]:
    """Yield a warning for each private name of hermes-agent that the source imports."""
    pattern = re.compile(r"^\s*from\s+((?:agent|gateway|hermes_cli|hermes_state|tools|cron|providers)[\w.]*)\s+import"
                         r"\s+\(?([^#\n)]*)", re.MULTILINE)  # fmt: skip
    for name, text in sorted(_sources(folder).items()):
        for found in pattern.finditer(text):
            private = [word.strip().split()[0] for word in found[2].split(",") if word.strip().startswith("_")]
            if private:
                yield f"{name} imports private names of {found[1]}: {', '.join(private)}"


def _sources(folder: Path) -> dict[str, str]:
    files = [file for file in sorted(folder.rglob("*.py"))[:500] if file.is_file() and file.stat().st_size < 2**20]
    return {str(file.relative_to(folder)): file.read_text(encoding="utf-8", errors="replace") for file in files}
