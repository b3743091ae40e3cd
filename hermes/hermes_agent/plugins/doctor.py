"""Why each plugin runs or does not, and everything around plugins that is wrong; nothing is loaded.

A config that cannot be used is one finding among others: what its files say is read as far as it goes.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

from hermes_agent.config import home_paths, load
from hermes_agent.config.bounded_yaml import YamlRejected, read_yaml
from hermes_agent.config.yamlfile import read_file
from hermes_agent.core.errors import ConfigError
from hermes_agent.plugins.discovery import SKIPPED, Discovery, RejectedPlugin, discover, is_on, is_plugin_folder
from hermes_agent.plugins.gate import Activation, PluginSettings, SecretLookup, make_value_check, unknown_names
from hermes_agent.plugins.installing.needs import missing_packages, requirement_hint
from hermes_agent.plugins.listing import NOT_PINNED
from hermes_agent.plugins.manifest import MANIFEST_NAMES, PluginManifest
from hermes_agent.plugins.memory_folder import add_every_memory_folder
from hermes_agent.plugins.state import last_load, read_state
from hermes_agent.plugins.trust import GrantStore, activation_with_grant

__all__ = ["Diagnosis", "run_plugin_checks", "pip_dependencies", "read_settings"]

Level = Literal["ok", "idle", "note", "wrong"]


class Diagnosis(NamedTuple):
    """One line."""

    level: Level
    """`ok`: it runs; `idle`: it does not, and is not meant to; `note`: worth knowing; `wrong`: to be put right."""
    subject: str
    """Key of a plugin, a path, or the name of a setting."""
    text: str
    remedy: str = ""


def run_plugin_checks(home: Path, environ: Mapping[str, str], cwd: Path, secrets: SecretLookup) -> list[Diagnosis]:
    """Return every finding: settings first, then plugins by key, then what is no usable plugin."""
    settings, found_in_config = read_settings(home)
    lines = list(found_in_config)
    if is_on(environ.get("HERMES_SAFE_MODE")):
        lines.append(Diagnosis("note", "HERMES_SAFE_MODE", "is set: no plugin is looked for", "Unset it."))
    found = discover(home, environ, cwd)
    add_every_memory_folder(found, home, settings.memory)
    lines += _names(settings, found)
    state, trust = read_state(home), GrantStore(home)
    for key in sorted(found.plugins):
        lines += _plugin(found.plugins[key], settings, secrets, state, trust, home)
    lines += [_rejected(r) for r in sorted(found.rejected, key=lambda r: (r.name, r.path))]
    lines += _misplaced(home / "plugins", found)
    return lines


def read_settings(home: Path) -> tuple[PluginSettings, list[Diagnosis]]:
    """Return the settings, and what is wrong with the config."""
    try:
        return PluginSettings.of(load(home).values), []
    except ConfigError as exc:
        findings = [Diagnosis("wrong", "config", line.strip()) for line in exc.message.splitlines() if line.strip()]
        if exc.hint:
            findings[-1] = findings[-1]._replace(remedy=exc.hint)
    where = home_paths(home)
    values: dict[str, Any] = {}
    for file in (where.editable, where.declared):
        document = read_file(file).value if file is not None else None
        if isinstance(document, dict):
            values.update(document)
    return PluginSettings.of(values), findings


def _names(settings: PluginSettings, found: Discovery) -> Iterator[Diagnosis]:
    for unknown in unknown_names(settings, found):
        yield Diagnosis("wrong", "plugins.enabled", unknown.text)
    for field, names in (("disabled", settings.disabled), ("entries", tuple(settings.entries))):
        for unknown in unknown_names(PluginSettings(enabled=names), found):
            yield Diagnosis("wrong" if unknown.nearest else "note", f"plugins.{field}", unknown.text)
    if settings.memory and not any(
        settings.selects_memory(m) or settings.memory == m.name for m in found.plugins.values()
    ):
        text = f"`{settings.memory}` is no plugin that is there"
        yield Diagnosis("note", "memory.provider", text, "A plugin of another name may still register it.")


def _plugin(
    manifest: PluginManifest,
    settings: PluginSettings,
    secrets: SecretLookup,
    state: dict[str, Any],
    trust: GrantStore,
    home: Path,
) -> Iterator[Diagnosis]:
    gate, verdict = activation_with_grant(manifest, settings, make_value_check(secrets), trust)
    key, last = manifest.key, last_load(state, manifest)
    where, check = f" ({last['where']})" if last.get("where") else "", f"`hermes plugins check {manifest.path}`"
    if not gate.load:
        yield Diagnosis(
            "wrong" if gate.missing or verdict.reason else "idle", key, gate.reason, _remedy(manifest, gate)
        )
    elif manifest.source != "entrypoint" and not Path(manifest.path, "__init__.py").is_file():
        yield Diagnosis("wrong", key, f"No __init__.py in {manifest.path}", "It must have one with `register(ctx)`.")
    elif last.get("error"):
        yield Diagnosis("wrong", key, f"failed: {last['error']}{where}", last.get("remedy") or check)
    else:
        yield Diagnosis("ok", key, NOT_PINNED if verdict.state == "dev" else "enabled, and no failure is recorded")
    for text in last.get("problems", ()) if gate.load else ():
        yield Diagnosis("wrong", key, f"goes without {text}")
    if gate.load or gate.missing:
        missing = missing_packages(pip_dependencies(manifest))
        if missing:
            text = f"wants Python packages that are not installed: {', '.join(missing)}"
            yield Diagnosis("wrong", key, text, requirement_hint(missing, home))
    notes = (*manifest.notes, *(n for n in last.get("notes", ()) if gate.load and n not in manifest.notes))
    yield from (Diagnosis("note", key, note) for note in notes)
    if manifest.replaces:
        yield Diagnosis("note", key, f"{manifest.path} replaces the plugin that came with the agent")


def _remedy(manifest: PluginManifest, gate: Activation) -> str:
    return f"`hermes config set {gate.missing[0]} VALUE` stores it." if gate.missing else ""


def pip_dependencies(manifest: PluginManifest) -> list[str]:
    for name in MANIFEST_NAMES if manifest.source != "entrypoint" else ():
        file = Path(manifest.path, name)
        if file.is_file():
            try:
                value = read_yaml(str(file), ("pip_dependencies",)).values.get("pip_dependencies")
            except (YamlRejected, OSError):  # it was readable a moment ago
                return []
            return [str(item) for item in value if isinstance(item, str)] if isinstance(value, list) else []
    return []


def _rejected(rejected: RejectedPlugin) -> Diagnosis:
    remedy = "Remove one of them, or change `name` in one plugin.yaml." if rejected.rival else ""
    return Diagnosis("wrong", rejected.name, f"{rejected.path} is not used: {rejected.reason}", remedy)


def _misplaced(root: Path, found: Discovery) -> Iterator[Diagnosis]:
    """Find folders that were meant to be plugins and are not seen as such."""
    used = {os.path.realpath(m.path) for m in found.plugins.values()}
    for folder in _folders(root):
        if is_plugin_folder(folder) or os.path.realpath(folder) in used:
            continue
        inner = list(_folders(folder))
        if any(is_plugin_folder(below) for below in inner):  # a category
            continue
        deeper = next((p for below in inner for p in _folders(below) if is_plugin_folder(p)), None)
        if deeper is not None:
            text = f"no plugin.yaml, depth cap reached: {deeper.relative_to(root)} has one"
            yield Diagnosis("wrong", str(folder), text, f"Move {deeper} to {root / deeper.name}.")
        elif (folder / "__init__.py").is_file():
            yield Diagnosis("wrong", str(folder), "has no plugin.yaml", "Write one with `name: …`.")


def _folders(place: Path) -> Iterable[Path]:
    try:
        return sorted(p for p in place.iterdir() if p.is_dir() and p.name not in SKIPPED)
    except OSError:  # not there, or not readable: discovery says so
        return []
