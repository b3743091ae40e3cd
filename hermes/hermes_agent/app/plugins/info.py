"""`hermes plugins info`, `reload` and `explain`, and the texts of `hermes tools explain`.

`info` shows what is known of a plugin without loading it, and its usage in the running daemon. `reload` makes the
daemon load changed plugins again. `explain` says why a plugin or a tool is available or not.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from hermes_agent.app.cli.command import loaded_host, print_json
from hermes_agent.app.plugins.catalog_commands import show_entry
from hermes_agent.app.plugins.home import InstalledPlugins
from hermes_agent.app.plugins.terminal_io import printable, registers_lines, table, title
from hermes_agent.compat.generation import NEWER, import_generation
from hermes_agent.config import hermes_home, load
from hermes_agent.contracts.tool import TOOL, ToolEntry
from hermes_agent.core.errors import EXIT_FAILED, EXIT_OK, UserError
from hermes_agent.core.lazy_types import LazyNamedTuple
from hermes_agent.core.registry import BUILTIN, describe_owner
from hermes_agent.core.text import nearest_name
from hermes_agent.credentials import Credentials
from hermes_agent.hooks.catalog import FIRED
from hermes_agent.plugins.activation import HOST, IN_PROCESS, UnknownPluginName, make_value_check
from hermes_agent.plugins.capabilities import granted_names, is_granted, is_known_capability
from hermes_agent.plugins.discovery import RejectedPlugin
from hermes_agent.plugins.grants import GrantState, mode_of
from hermes_agent.plugins.isolation.process_state import ProcessState, record_of, visible_paths
from hermes_agent.plugins.isolation.process_state import read_state as read_process_state
from hermes_agent.plugins.manifest import PluginManifest
from hermes_agent.plugins.plugin_record import LoadedPlugin
from hermes_agent.plugins.plugin_state import OWN_PROCESS, read_state, report_installed, report_loaded
from hermes_agent.plugins.usage_account import PluginUsage, account_lines
from hermes_agent.server import KEY_NAME, file_key, read_settings
from hermes_agent.service.daemon_state import ask_daemon_http, lock_holder, read_note
from hermes_agent.tools import ToolRegistry
from hermes_agent.tools.arguments import repair_name
from hermes_agent.tools.tool_search import SEARCH_HINT, SEARCH_TOOLS
from hermes_agent.tools.toolsets import Toolsets

RELOAD_LIMIT_S = 600.0
"""Longest wait for the answer, in seconds; each plugin also has its own `plugins.load_timeout_s`."""


def run_reload(args: argparse.Namespace) -> int:
    """Print the outcome for each plugin; return exit status 1 if one failed to load."""
    status, answer = request_daemon("POST", "/v1/plugins/reload", {"name": args.name} if args.name else None)
    if status not in (200, 409):
        raise UserError(str((answer.get("error") or {}).get("message") or f"the daemon answered with status {status}"))
    for one in answer.get("plugins", ()):
        print(f"{one['key']}: {one['outcome']}" + (f": {one['reason']}" if one["reason"] else ""))
    return EXIT_OK if status == 200 else EXIT_FAILED


def request_daemon(
    method: str, path: str, body: Any = None, *, timeout_s: float = RELOAD_LIMIT_S
) -> tuple[int, dict[str, Any]]:
    """Send an HTTP request to the daemon of this home, with its API key; return status and JSON answer.

    Raises:
        UserError: no daemon runs, or it does not answer.
    """
    home = hermes_home()
    if lock_holder(home) is None:
        raise UserError(
            f"no daemon runs with the home {home}",
            hint="Plugins are loaded when it starts: `hermes gateway run`. In a conversation: `/plugins reload`.",
        )
    address = read_note(home, "http")
    if address is None:
        raise UserError("the daemon serves no HTTP", hint="Send it SIGHUP: it loads changed plugins then, too.")
    try:
        return ask_daemon_http(address, _key(home), method, path, body, timeout_s=timeout_s)
    except (OSError, ValueError) as exc:
        raise UserError(f"the daemon at {address} did not answer: {exc}") from exc


def _key(home: Path) -> str | None:
    """Return the API key of the server, or None; the key file is not created."""
    configured = read_settings(load(home).settings, Credentials(home, os.environ)).key
    return configured or (file_key(home) if (home / KEY_NAME).exists() else None)


USAGE_LIMIT_S = 5.0
"""Longest wait for the daemon, in seconds; without its answer `info` shows everything else."""


class DaemonUsage(LazyNamedTuple):
    """Usage of a plugin in the running daemon."""

    usage: PluginUsage | None
    reason: str = ""
    """Why `usage` is None."""

    def to_json(self) -> dict[str, Any]:
        """Return `account` (usage or null) and `account_missing` (the reason) as JSON types."""
        return {"account": self.usage and self.usage.to_json(), "account_missing": self.reason}


def load_usage(key: str) -> DaemonUsage:
    """Return the usage of a plugin since the daemon of this home started."""
    try:
        status, answer = request_daemon("GET", "/v1/plugins", timeout_s=USAGE_LIMIT_S)
    except UserError as error:
        return DaemonUsage(None, error.message)
    plugins = answer.get("plugins")
    if status != 200 or not isinstance(plugins, list):
        return DaemonUsage(None, f"the daemon answered with status {status}")
    for one in plugins:
        if isinstance(one, dict) and one.get("key") == key and isinstance(one.get("account"), dict):
            return DaemonUsage(_parse_usage(one["account"]))
    return DaemonUsage(None, "the daemon that runs does not know this plugin; it looks for new ones when it starts")


def usage_rows(accounted: DaemonUsage) -> list[tuple[str, str]]:
    """Return the usage as table rows, or one row that says why it is unknown."""
    if accounted.usage is None:
        return [("account", f"none: {accounted.reason}")]
    return [("account", line) for line in account_lines(accounted.usage) or ["nothing was called since the start"]]


def _parse_usage(account: Mapping[str, Any]) -> PluginUsage:
    """Return the usage in a JSON object; values of a wrong type are ignored."""
    known: dict[str, Any] = {}
    for field in fields(PluginUsage):
        value, default = account.get(field.name), field.default
        if isinstance(value, str if isinstance(default, str) else int | float):
            known[field.name] = value
    return PluginUsage(**known)


Rows = Sequence[tuple[str, str]]


def run_info(args: argparse.Namespace) -> int:
    """Print what is known about a plugin."""
    here = InstalledPlugins()
    try:
        manifest = here.find(args.name)
    except UserError:
        if show_entry(here, args.name, as_json=args.json):
            return EXIT_OK
        raise
    about, accounted = describe(here, manifest), load_usage(manifest.key)
    if args.json:
        print(json.dumps(about | accounted.to_json(), indent=2, ensure_ascii=False))
    else:
        print(title(manifest))
        print("\n".join(info_lines(about, usage_rows(accounted))))
    return EXIT_OK


FACTS = ("requires_hermes", "api_version", "license", "homepage", "update_url")
LISTS = (
    "requires_plugins",
    "python_dependencies",
    "provides_middleware",
    "provides_locales",
    "tags",
    "emits",
    "listens",
)
"""Manifest fields since version 0.20 that are shown."""


def describe(here: InstalledPlugins, manifest: PluginManifest) -> dict[str, Any]:
    """Return what is known about a plugin as JSON types, for `--json`."""
    gate, verdict = here.activation(manifest)
    entry = here.trust.entry(manifest)
    report = report_installed(manifest, gate, verdict, read_state(here.home))
    registers = report.registers or entry.registers
    has, settings = make_value_check(here.secrets), here.settings.entry(manifest)
    declared = filter(is_known_capability, map(str, manifest.capabilities))
    return {
        "key": manifest.key,
        "name": manifest.name,
        "version": manifest.shown_version,
        **{name: getattr(manifest, name) for name in ("description", "author", "kind", "portable")},
        "contract": _contract(manifest),
        "package": _package(here, manifest),
        **{name: getattr(manifest, name) for name in ("source", "path", "distribution", "replaces")},
        "status": report.status,
        "reason": report.reason,
        "origin": dict(entry.origin),
        "pin": _pin(here, manifest, verdict),
        "registers": dict(registers),
        "hooks_never_fired": [hook for hook in registers.get("hooks", []) if hook not in FIRED],
        "provides_tools": list(manifest.provides_tools),
        "provides_hooks": list(manifest.provides_hooks),
        "requires_env": {name: has(name) for name in manifest.env_names},
        "problems": list(report.problems),
        "notes": [*manifest.notes, *(note for note in report.notes if note not in manifest.notes)],
        "settings": sorted(settings),
        "isolation": _isolation(here, manifest),
        "imports": import_generation(manifest.path, manifest.source),
        "capabilities": {name: bool(is_granted(settings, name)) for name in declared},
        **{name: getattr(manifest, name) for name in FACTS},
        **{name: list(getattr(manifest, name)) for name in LISTS},
    }


def _isolation(here: InstalledPlugins, manifest: PluginManifest) -> dict[str, Any]:
    """Return where the plugin runs, and the state of its own process, if it has one."""
    if not here.settings.is_isolated(manifest):
        return {"mode": IN_PROCESS}
    state = read_process_state(record_of(here.home, manifest.key))
    granted = {
        kind: granted_names({"plugins": {"entries": here.settings.entries}}, manifest, f"files.{kind}")
        for kind in ("read", "write")
    }
    files = {kind: sorted(set(visible_paths(here.home, names)[0].values())) for kind, names in granted.items()}
    process = None if state is None else state.to_json()
    return {"mode": HOST, "process": process, "files": files, "memory_mb": here.settings.memory_mb}


def _isolation_text(isolation: Mapping[str, Any]) -> str:
    if isolation["mode"] == IN_PROCESS:
        return ""
    found = isolation["process"]
    return f"{OWN_PROCESS}: {ProcessState(**found) if found else 'it does not run'}"


def _contract(manifest: PluginManifest) -> str:
    """Return the generation of the plugin contract that a plugin is written for, as far as it shows it."""
    if manifest.portable:
        return "Agent Plugins 1.0"
    later = manifest.manifest_version > 1 or manifest.capabilities or manifest.requires_plugins
    found = import_generation(manifest.path, manifest.source) or (NEWER if later else "")
    return f"hermes-agent {found}" if found else ""


def _package(here: InstalledPlugins, manifest: PluginManifest) -> dict[str, Any]:
    """Return the skills and servers of a portable package; empty for other plugins."""
    if not manifest.portable:
        return {}
    from hermes_agent.plugins.portable import read_content  # only a package needs it

    content = read_content(Path(manifest.path), here.home / "plugin-data" / manifest.skill_namespace)
    return {
        "namespace": manifest.skill_namespace,
        "skills": [skill.name for skill in content.skills],
        "servers": {one.name: one.block.get("url") or one.block["command"] for one in content.servers},
        "problems": list(content.problems),
    }


def _package_rows(package: Mapping[str, Any]) -> list[tuple[str, str]]:
    if not package:
        return []
    rows = [("skills", ", ".join(f"{package['namespace']}:{name}" for name in package["skills"]) or "none")]
    rows += [("MCP server", f"{name}: {place}") for name, place in package["servers"].items()]
    return rows + [("left out", text) for text in package["problems"]]


def _manifest_rows(about: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the rows for manifest fields since version 0.20, where the plugin uses them."""
    rows = [(key.replace("_", " "), str(about[key])) for key in FACTS if about.get(key)]
    for key in LISTS:
        names = [str(each.get("id", each)) if isinstance(each, Mapping) else str(each) for each in about.get(key, ())]
        rows += [(key.replace("_", " "), ", ".join(names))] if names else []
    granted = about.get("capabilities") or {}
    rows += [("capability", f"{name}: {'granted' if has else 'not granted'}") for name, has in granted.items()]
    return rows


def info_lines(about: Mapping[str, Any], extra: Rows = ()) -> list[str]:
    """Return the lines that `info` prints below the title.

    Args:
        about: result of `describe`.
        extra: additional rows (name, text), such as the usage of the plugin.
    """
    status = about["status"] + (f": {about['reason']}" if about["reason"] else "")
    rows: list[tuple[str, str]] = [
        ("status", status),
        ("source", f"{about['source']}, {about['distribution'] or about['path']}"),
        ("kind", "portable package (plugin.json)" if about["portable"] else about["kind"]),
        ("contract", about["contract"]),
        ("isolation", _isolation_text(about["isolation"])),
        *_package_rows(about["package"]),
        *_manifest_rows(about),
        ("replaces", about["replaces"]),
        ("from", _origin(about["origin"])),
        ("pinned", _pin_text(about["pin"])),
    ]
    if about["registers"]:
        rows += registers_lines(about["registers"])
    else:
        rows.append(("registers", "not known before it was loaded"))
    rows.append(
        ("needs", ", ".join(f"{n} ({'set' if there else 'missing'})" for n, there in about["requires_env"].items()))
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
    catalog = origin.get("catalog")
    commit += f", {catalog.get('tier')} entry of the catalogue" if isinstance(catalog, Mapping) else ""
    commit += ", removed from the catalogue and allowed" if origin.get("allow_removed") else ""
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


class Explanation(LazyNamedTuple):
    """Whether a tool or plugin is available, and why."""

    is_available: bool
    """True if the tool or plugin can be used."""
    lines: list[str]
    """The answer in one line, followed by the reasons."""

    def __str__(self) -> str:
        return "\n".join([self.lines[0], *(f"  {line}" for line in self.lines[1:])])


class ToolRow(LazyNamedTuple):
    """One tool in the list."""

    name: str
    toolset: str
    owner: str
    """Key of a plugin, or `builtin`."""
    state: str
    """`shown`, or why the model does not get the tool."""


def tool_rows(tools: ToolRegistry, toolsets: Toolsets, platform: str) -> list[ToolRow]:
    """Return the registered tools, sorted by name, with their state on a platform."""
    return [
        ToolRow(
            name, entry.toolset, tools.owner(name) or "", _explain_hidden(tools, toolsets, entry, platform) or "shown"
        )
        for name, entry in sorted(tools.items())
    ]


def explain_tool(
    name: str, tools: ToolRegistry, toolsets: Toolsets, records: Sequence[LoadedPlugin], platform: str
) -> Explanation:
    """Explain whether the model gets a tool on a platform, its owner, and other claims to its name."""
    entry = tools.get(name)
    if entry is None:
        return Explanation(False, list(_explain_absent_tool(name, tools, records)))
    hidden = _explain_hidden(tools, toolsets, entry, platform)
    lines = [f"tool `{name}` is {'not shown to the model: ' + hidden if hidden else 'shown to the model'}"]
    owner = tools.owner(name) or ""
    lines.append(f"toolset `{entry.toolset}`, registered by {describe_owner(owner)}{_owner_place(owner, records)}")
    if hidden and entry.requires_env:
        lines.append(f"it says that it needs: {', '.join(map(str, entry.requires_env))}")
    replaced = tools.replaced(name)
    if replaced is not None:
        lines.append(f"it replaces the tool of {describe_owner(replaced.owner)} (override=True, allow_tool_override)")
    lines += _other_claims(name, records)
    return Explanation(not hidden, lines)


def _explain_hidden(tools: ToolRegistry, toolsets: Toolsets, entry: ToolEntry, platform: str) -> str:
    cannot = SEARCH_HINT if entry.name in SEARCH_TOOLS else "its check_fn says that it cannot work now"
    usable = "" if tools.is_usable(entry) else cannot
    return toolsets.why_hidden(entry.name, platform) or usable


def _owner_place(owner: str, records: Sequence[LoadedPlugin]) -> str:
    manifest = next((r.manifest for r in records if r.manifest.key == owner), None)
    return "" if manifest is None or owner == BUILTIN else f" ({manifest.source}: {manifest.path})"


def _other_claims(name: str, records: Sequence[LoadedPlugin]) -> Iterator[str]:
    for record in records:
        for problem in record.problems:
            if problem.kind == TOOL.label and problem.name == name:
                yield f"plugin `{record.manifest.key}` also claims the name and goes without it: {problem.remedy}"


def _explain_absent_tool(name: str, tools: ToolRegistry, records: Sequence[LoadedPlugin]) -> Iterator[str]:
    declaring = [r for r in records if name in r.manifest.provides_tools]
    wanted = list(_other_claims(name, records))
    if declaring or wanted:
        yield f"tool `{name}` is not there"
        for record in declaring:
            key = record.manifest.key
            if record.enabled:
                yield f"plugin `{key}` names it in provides_tools and does not register it"
            else:
                yield f"plugin `{key}` registers it and does not run: {record.failure}"
        yield from wanted
        return
    why = tools.why_absent(name)
    if why:
        yield f"tool `{name}` is not there"
        yield why
        return
    known = {*tools.names(), *(tool for r in records for tool in r.manifest.provides_tools)}
    near = repair_name(name, sorted(known)) or nearest_name(name, sorted(known))
    yield f"there is no tool `{name}`" + (f" (did you mean `{near}`?)" if near else "")
    yield "`hermes tools list` shows those that are there"


def explain_plugin(
    name: str,
    records: Sequence[LoadedPlugin],
    rejected: Sequence[RejectedPlugin],
    unknown: Sequence[UnknownPluginName],
    tally: PluginUsage,
) -> Explanation:
    """Explain whether a plugin runs, and why not."""
    record = next((r for r in records if name in r.manifest.answers_to), None)
    refused = [r for r in rejected if name in (r.name, r.name.rpartition("/")[2])]
    if record is None:
        return _explain_unknown_plugin(name, records, refused, unknown)
    manifest = record.manifest
    report = report_loaded(record)
    first = f"plugin `{manifest.key}` runs" if record.enabled else f"plugin `{manifest.key}` does not run"
    lines = [first, f"{manifest.source}: {_plugin_place(manifest)}"]
    if report.error:
        lines.append(f"{report.status}: {report.reason}")
    if report.remedy:
        lines.append(f"what to do: {report.remedy}")
    if report.stale:
        lines.append(f"a newer version could not be loaded: {report.stale}")
    if manifest.replaces:
        lines.append(f"it replaces the bundled plugin {manifest.replaces}")
    lines += [f"goes without: {text}" for text in report.problems]
    lines += [f"note: {note}" for note in report.notes]
    lines += [f"not used, for this one has the name: {r.path}" for r in refused if r.rival]
    lines += [f"so far: {line}" for line in account_lines(tally)]
    return Explanation(record.enabled, lines)


def _explain_unknown_plugin(
    name: str, records: Sequence[LoadedPlugin], refused: Sequence[RejectedPlugin], unknown: Sequence[UnknownPluginName]
) -> Explanation:
    if refused:
        reasons = [f"{r.source}: {r.path}: {r.reason}" for r in refused]
        return Explanation(False, [f"plugin `{name}` cannot be used", *reasons])
    folder = next((r.manifest for r in records if r.manifest.folder == name), None)
    if folder is not None:
        return Explanation(False, [f"{name} is the folder of plugin `{folder.key}`: ask for `{folder.key}`"])
    named = [f"plugins.enabled names it: {u.text}" for u in unknown if u.name == name]
    near = nearest_name(name, sorted({n for r in records for n in r.manifest.answers_to}))
    meant = f" (did you mean `{near}`?)" if near else ""
    return Explanation(
        False, [f"there is no plugin `{name}`{meant}", *named, "`hermes plugins list` shows those that are there"]
    )


def _plugin_place(manifest: PluginManifest) -> str:
    return f"{manifest.path} ({manifest.distribution})" if manifest.distribution else manifest.path


def run_explain(args: argparse.Namespace) -> int:
    """Print whether a plugin runs, and why not; return exit status 1 if it does not run."""
    with loaded_host() as host:
        plugins = host.plugins
        record = plugins.find(args.name)
        tally = host.account.usage_of(record.manifest.key if record else "")
        said = explain_plugin(args.name, plugins.records, plugins.rejected, plugins.unknown, tally)
    if args.json:
        print_json({"name": args.name, "is_available": said.is_available, "why": list(said.lines)})
    else:
        print(said)
    return EXIT_OK if said.is_available else EXIT_FAILED
