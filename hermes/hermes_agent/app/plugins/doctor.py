"""`hermes plugins doctor`: one line for each plugin and for each problem with plugins.

No plugin is loaded. An invalid config is one finding among others: its files are read as far as possible. This module
also finds the environment variables and Python packages that a plugin requires but that are missing.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import sysconfig
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from hermes_agent.app.cli.command import Diagnosis, activity, print_lines
from hermes_agent.app.manifest_cache import quiet_or_debug
from hermes_agent.app.plugins.home import LazySecrets
from hermes_agent.config import hermes_home, home_paths, load
from hermes_agent.config.bounded_yaml import YamlRejected, read_yaml
from hermes_agent.config.effective import is_generated
from hermes_agent.config.yaml_reader import read_file
from hermes_agent.core.errors import EXIT_FAILED, EXIT_OK, ConfigError
from hermes_agent.core.lazy_types import LazyNamedTuple
from hermes_agent.core.secrecy import looks_like_secret_name
from hermes_agent.plugins.activation import (
    Activation,
    PluginProcessSettings,
    PluginSettings,
    SecretLookup,
    make_value_check,
    unknown_names,
)
from hermes_agent.plugins.discovery import (
    SKIPPED,
    Discovery,
    RejectedPlugin,
    add_every_memory_folder,
    discover,
    is_on,
    is_plugin_folder,
)
from hermes_agent.plugins.grants import GrantStore, activation_with_grant
from hermes_agent.plugins.isolation.process_state import UNIT_HINT, record_of, unit_socket
from hermes_agent.plugins.isolation.process_state import read_state as read_process_state
from hermes_agent.plugins.manifest import MANIFEST_NAMES, PluginManifest
from hermes_agent.plugins.plugin_state import NOT_PINNED, OWN_PROCESS, read_state, report_installed
from hermes_agent.system.installation import missing_packages

NIX_PACKAGES = "services.hermes-agent.extraPythonPackages"
_DISTRIBUTION = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


class RequiredVariable(LazyNamedTuple):
    """An entry of `requires_env`. Source: plugin contract §1.6."""

    name: str
    description: str = ""
    url: str = ""
    """Page on which the user gets a value."""
    secret: bool = True
    """True if the value is not shown while the user types it."""


def missing_variables(manifest: PluginManifest, secrets: SecretLookup) -> list[RequiredVariable]:
    """Return the variables of `requires_env` that have no value."""
    has = make_value_check(secrets)
    found = [_variable(entry) for entry in manifest.requires_env]
    return [v for v in dict.fromkeys(found) if not has(v.name)]


def _variable(entry: Any) -> RequiredVariable:
    if not isinstance(entry, dict):
        return RequiredVariable(str(entry), secret=looks_like_secret_name(str(entry)))
    name = str(entry["name"])
    declared = entry.get("secret", entry.get("password"))
    secret = looks_like_secret_name(name) if declared is None else bool(declared)
    text = entry.get("description") or entry.get("prompt") or ""
    return RequiredVariable(name, str(text), str(entry.get("url") or ""), secret)


def requirement_hint(requirements: list[str], home: Path) -> str:
    """Return the command or the Nix setting that adds Python packages to the agent's environment."""
    if pip_refusal(home) is not None:
        names = " ".join(f"ps.{m[0]}" for text in requirements if (m := _DISTRIBUTION.match(text.strip())))
        return f"{NIX_PACKAGES} = ps: [ {names} ];" if _is_nix(home) else _pip_line(requirements, "a writable Python")
    return _pip_line(requirements, sys.executable)


def pip_refusal(home: Path) -> str | None:
    """Return why pip must not install packages into the agent's environment, or None if it may."""
    if _is_nix(home):
        return f"this agent is declared by Nix: add it to {NIX_PACKAGES} (a directory: extraPlugins) and rebuild"
    library = Path(sysconfig.get_path("purelib"))
    if not _is_writable(library):
        return f"{library} cannot be written: install it with what installed hermes-agent"
    marker = Path(sysconfig.get_path("stdlib")) / "EXTERNALLY-MANAGED"
    if sys.prefix == sys.base_prefix and marker.exists():
        return (
            f"{sys.prefix} belongs to the system's package manager: install the agent into a venv (README.md, Install)"
        )
    return None


def _is_nix(home: Path) -> bool:
    where = home_paths(home)
    return where.declared is not None or is_generated(where.effective) or sys.prefix.startswith("/nix/store/")


def _is_writable(folder: Path) -> bool:
    import tempfile  # only needed before an install

    try:
        with tempfile.TemporaryFile(dir=folder):
            return True
    except OSError:
        return False


def _pip_line(requirements: list[str], python: str) -> str:
    return f"{python} -m pip install {' '.join(_quoted(r) for r in requirements)}"


def _quoted(text: str) -> str:
    return text if re.fullmatch(r"[\w.=-]+", text) else f"'{text}'"


def run_plugin_checks(home: Path, environ: Mapping[str, str], cwd: Path, secrets: SecretLookup) -> list[Diagnosis]:
    """Return all findings: settings, then plugins by key, then rejected plugins and misplaced folders."""
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
    """Return the settings, and the findings about the config."""
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
    report = report_installed(manifest, gate, verdict, state)
    key, check = report.key, f"`hermes plugins check {manifest.path}`"
    if not gate.load:
        yield Diagnosis(
            "wrong" if gate.missing or verdict.reason else "idle", key, gate.reason, _remedy(manifest, gate)
        )
    elif manifest.source != "entrypoint" and not Path(manifest.path, "__init__.py").is_file():
        yield Diagnosis("wrong", key, f"No __init__.py in {manifest.path}", "It must have one with `register(ctx)`.")
    elif report.status == "failed":
        yield Diagnosis("wrong", key, f"failed: {report.reason}", report.remedy or check)
    else:
        yield Diagnosis("ok", key, NOT_PINNED if verdict.state == "dev" else "enabled, and no failure is recorded")
    for text in report.problems:
        yield Diagnosis("wrong", key, f"goes without {text}")
    if gate.load and settings.is_isolated(manifest):
        yield _process(home, key, settings)
    if gate.load or gate.missing:
        missing = missing_packages(pip_dependencies(manifest))
        if missing:
            text = f"needs Python packages that are not installed: {', '.join(missing)}"
            yield Diagnosis("wrong", key, text, requirement_hint(missing, home))
    notes = (*manifest.notes, *(note for note in report.notes if note not in manifest.notes))
    yield from (Diagnosis("note", key, note) for note in notes)
    if manifest.replaces:
        yield Diagnosis("note", key, f"{manifest.path} replaces the plugin that came with the agent")


def _process(home: Path, key: str, settings: PluginSettings) -> Diagnosis:
    """Return the finding about the plugin's own process, and what confines it."""
    state = read_process_state(record_of(home, key))
    if state is not None and state.status == "running":
        return Diagnosis("ok", key, f"{OWN_PROCESS}: {state}")
    if state is not None:
        return Diagnosis("wrong", key, f"{OWN_PROCESS}: {state}", "`hermes logs` has its last lines.")
    host = PluginProcessSettings.of(settings.host)
    if host.launcher:
        way = f"`plugins.host.launcher` ({host.launcher[0]}) would confine it"
    elif (path := unit_socket(host.sockets, key)) is not None:
        way = f"a systemd unit would confine it ({path})"
    else:
        from hermes_agent.workspace.paths import PathRules  # only for a plugin that no agent runs
        from hermes_agent.workspace.sandbox.bubblewrap import BubblewrapSandbox

        problem = BubblewrapSandbox(PathRules(str(home), str(Path.home())), path=os.environ.get("PATH")).problem
        if problem:
            remedy = f"Install bubblewrap and allow user namespaces; a system service needs a unit: {UNIT_HINT}"
            return Diagnosis("wrong", key, f"{OWN_PROCESS}, which nothing here confines: {problem}", remedy.format(key))
        way = f"bubblewrap would confine it; a system service needs a unit: {UNIT_HINT.format(key)}"
    return Diagnosis("note", key, f"{OWN_PROCESS}, which no running agent has started; {way}")


def _remedy(manifest: PluginManifest, gate: Activation) -> str:
    return f"`hermes config set {gate.missing[0]} VALUE` stores it." if gate.missing else ""


def pip_dependencies(manifest: PluginManifest) -> list[str]:
    for name in MANIFEST_NAMES if manifest.source != "entrypoint" else ():
        file = Path(manifest.path, name)
        if file.is_file():
            try:
                value = read_yaml(str(file), ("pip_dependencies",)).values.get("pip_dependencies")
            except (YamlRejected, OSError):  # changed since discovery read it
                return []
            return [str(item) for item in value if isinstance(item, str)] if isinstance(value, list) else []
    return []


def _rejected(rejected: RejectedPlugin) -> Diagnosis:
    remedy = "Remove one of them, or change `name` in one plugin.yaml." if rejected.rival else ""
    return Diagnosis("wrong", rejected.name, f"{rejected.path} is not used: {rejected.reason}", remedy)


def _misplaced(root: Path, found: Discovery) -> Iterator[Diagnosis]:
    """Yield findings for folders that look like plugins but that discovery does not find."""
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
    except OSError:  # missing or unreadable: discovery reports it
        return []


def run_doctor(args: argparse.Namespace) -> int:
    """Print the findings; return exit status 1 if one of them is `wrong`."""
    quiet_or_debug(os.environ)
    home = hermes_home()
    with activity("checking the plugins"):
        lines = run_plugin_checks(home, os.environ, Path.cwd(), LazySecrets(home))
    if args.json:
        print(json.dumps([line._asdict() for line in lines], indent=2, ensure_ascii=False))
    else:
        print_lines(lines, width=max((len(line.subject) for line in lines if len(line.subject) <= 40), default=0))
        if not lines:
            print(f"No plugins. Those of this home go to {home}/plugins/.")
    return EXIT_FAILED if any(line.level == "wrong" for line in lines) else EXIT_OK
