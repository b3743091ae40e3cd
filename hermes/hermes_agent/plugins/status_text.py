"""Texts about plugins: `/plugins`, the lines of the banner, and why a plugin's names are missing.

Source: plugin contract §1.12, §13 row 15.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Protocol

from hermes_agent.adapters.registry import PLATFORM, PlatformState
from hermes_agent.commands import normalise_name
from hermes_agent.contracts.command import FOR_OPERATORS, SlashCommand
from hermes_agent.contracts.kind import Kind
from hermes_agent.contracts.tool import Registrar
from hermes_agent.core.errors import CommandFailed, UserError
from hermes_agent.core.lazy_types import LazyNamedTuple
from hermes_agent.core.text import nearest_name
from hermes_agent.plugins.activation import UnknownPluginName
from hermes_agent.plugins.discovery import RejectedPlugin
from hermes_agent.plugins.grants import PINNED_SOURCES, GrantStore
from hermes_agent.plugins.plugin_record import LoadedPlugin
from hermes_agent.plugins.plugin_state import PluginReport, report_loaded, report_rejected
from hermes_agent.plugins.usage_account import PluginUsage, account_lines

_SIGNS = {"enabled": "✓", "not enabled": "○"}
NONE = (
    "No plugins installed.\n"
    "  Install one: hermes plugins install owner/repo\n"
    "  Or drop a plugin directory into {home}/plugins/, and enable it: hermes plugins enable NAME"
)


def plugins_text(
    records: Iterable[LoadedPlugin],
    rejected: Sequence[RejectedPlugin],
    unknown: Sequence[UnknownPluginName],
    home: str,
    platforms: Mapping[str, PlatformState] = MappingProxyType({}),
    remarks: Sequence[str] = (),
) -> str:
    """Return the text of `/plugins`.

    Args:
        home: shown as the place of plugins.
        platforms: state of each registered platform by name.
        remarks: remarks that concern all plugins.
    """
    ordered = sorted(records, key=lambda r: r.manifest.key)
    shown = [r for r in ordered if r.manifest.source != "bundled"]
    bundled = len(ordered) - len(shown)
    lines: list[str] = []
    if shown or rejected:
        lines.append(f"Plugins ({len(shown) + len(rejected)}):")
        for record in shown:
            lines += _plugin_lines(record, platforms)
        lines += [f"  ✗ {r.name} [{r.status}] — {r.reason}" for r in map(report_rejected, rejected)]
    else:
        lines.append(NONE.format(home=home))
    lines += [f"  ! plugins.enabled: {u.text}" for u in unknown]
    lines += [f"  ! {remark}" for remark in remarks]
    if bundled:
        lines.append(f"  (+{bundled} bundled — see: hermes plugins list)")
    if any(r.status == "not enabled" for r in shown):
        lines.append("  Enable/disable: hermes plugins enable/disable <name>")
    return "\n".join(lines)


def plugin_text(
    record: LoadedPlugin,
    tally: PluginUsage,
    platforms: Mapping[str, PlatformState] = MappingProxyType({}),
    *,
    suspended: str = "",
) -> str:
    """Return the text of `/plugins NAME`: the plugin's line, its registrations and its usage.

    Args:
        suspended: why its hooks are suspended; empty if they are not.
    """
    manifest = record.manifest
    lines = [*_plugin_lines(record, platforms), f"      {manifest.source}: {manifest.path}"]
    if suspended:
        lines.append(f"      ! {suspension_line(manifest.key, suspended)}")
    if manifest.description:
        lines.append(f"      {manifest.description}")
    if record.process is not None:
        lines.append(f"      own process: {record.process.state}")
    for noun, names in (
        ("tools", record.tools_registered),
        ("hooks", record.hooks_registered),
        ("commands", [*record.commands_registered, *record.cli_commands_registered]),
    ):
        if names:
            lines.append(f"      {noun}: {', '.join(names)}")
    lines += [f"      note: {note}" for note in record.notes]
    lines += [f"      so far: {line}" for line in account_lines(tally)]
    return "\n".join(lines)


def suspension_line(key: str, why: str) -> str:
    """Return one line that says that the plugin's hooks are suspended, and what to do."""
    return (
        f"the hooks of plugin `{key}` are suspended until the next start, its guards block: {why}. "
        f"If it may take longer, raise plugins.entries.{key}.hook_timeout_s"
    )


def _plugin_lines(record: LoadedPlugin, platforms: Mapping[str, PlatformState]) -> list[str]:
    report = report_loaded(record)
    words = [_SIGNS.get(report.status, "✗"), report.key]
    if report.version:
        words.append(f"v{report.version}")
    if report.status != "enabled":
        words.append(f"[{report.status}]")
    if report.is_dev:
        words.append("[dev: not pinned]")
    counts = _counts(report)
    if counts:
        words.append(f"({counts})")
    line = "  " + " ".join(words)
    if report.reason:
        line += f" — {report.reason}"
    waiting = [
        f"      {kind.label} `{name}`: {_describe_provider(kind, platforms.get(name))}"
        for kind, name in record.providers_registered
        if not kind.is_used or kind is PLATFORM
    ]
    if report.stale:
        waiting.insert(0, f"      ! a newer version could not be loaded: {report.stale}")
    if report.remedy:
        waiting.insert(0, f"      → {report.remedy}")
    return [line, *waiting, *(f"      without {text}" for text in report.problems)]


def _describe_provider(kind: Kind, platform: PlatformState | None) -> str:
    """Return the state of a provider as text; for a platform also whether it is enabled, and why."""
    if kind is not PLATFORM or platform is None:
        return "registered; this release has no consumer"
    return f"registered, {'enabled' if platform.enabled else 'not enabled'} ({platform.reason})"


def _counts(report: PluginReport) -> str:
    counts = {kind: len(names) for kind, names in report.registers.items()}
    counts["commands"] = counts.get("commands", 0) + counts.get("cli_commands", 0)
    kinds = ("tools", "hooks", "middleware", "commands", "providers", "skills")
    return ", ".join(f"{counts[kind]} {kind}" for kind in kinds if counts.get(kind))


def banner_lines(records: Iterable[LoadedPlugin]) -> list[str]:
    """Return `calculator: calculate, unit_convert` for each plugin with tools, in load order."""
    return [f"{r.manifest.name}: {', '.join(r.tools_registered)}" for r in records if r.enabled and r.tools_registered]


def is_missed(record: LoadedPlugin) -> bool:
    """Return whether the plugin should run by the operator's settings but does not."""
    lacks = record.status == "disabled" and (record.error or "").startswith("Plugin ")
    return lacks or record.status in ("failed", "changed")


def missed_lines(records: Iterable[LoadedPlugin], unknown: Iterable[UnknownPluginName]) -> list[str]:
    """Return a line for each plugin that should run but does not, be it installed or not."""
    missed = [explain_not_running(record) for record in records if is_missed(record)]
    return [*(f"plugins.enabled: {each.text}" for each in unknown), *missed]


def start_hints(
    records: Iterable[LoadedPlugin], rejected: Sequence[RejectedPlugin], unknown: Sequence[UnknownPluginName]
) -> list[str]:
    """Return a line for each problem with a plugin that is reported at the start."""
    lines = [f"plugins.enabled: {u.text}" for u in unknown]
    lines += [f"plugin `{r.name}` ({r.path}) is not used: {r.reason}" for r in rejected]
    for record in records:
        key = record.manifest.key
        if is_missed(record):
            lines.append(explain_not_running(record))
        elif record.status == "not enabled" and record.manifest.source != "bundled":
            lines.append(_how_to_enable(record))
        if record.stale:
            lines.append(f"plugin `{key}`: a newer version could not be loaded: {record.stale}")
        lines += [f"plugin `{key}` goes without a {p.kind}: {p.full}" for p in record.problems]
    return lines


def _how_to_enable(record: LoadedPlugin) -> str:
    key = record.manifest.key
    if record.error and record.error.startswith("not enabled in config"):
        return f"plugin `{key}` is there and not enabled: hermes plugins enable {key}"
    return f"plugin `{key}` does not run: {record.error}"


def explain_absence(kind: str, name: str, records: Iterable[LoadedPlugin], trust: GrantStore) -> str:
    """Return why the plugin that last registered `name` does not run, or "" if there is none.

    Args:
        kind: `tools`, `commands`, `cli_commands` or `skills`, as in `LoadedPlugin.registers`.
        trust: the grants, which record what each plugin registered at its last load.
    """
    wanted = normalise_name(name).replace("_", "-") if kind == "commands" else name
    for record in records:
        if record.enabled or record.manifest.source not in PINNED_SOURCES:
            continue
        brought = trust.entry(record.manifest).registers.get(kind, ())
        if wanted in brought or (kind == "commands" and wanted in [each.replace("_", "-") for each in brought]):
            return explain_not_running(record)
    return ""


def explain_not_running(record: LoadedPlugin) -> str:
    """Return a line that says that a plugin does not run, with the reason and the remedy."""
    key = record.manifest.key
    if record.status == "failed":
        report = report_loaded(record)
        remedy = f"; {report.remedy}" if report.remedy else ""
        return f"plugin `{key}` failed to load: {report.reason}{remedy}"
    if record.status == "disabled" and record.error and record.error.startswith("Plugin "):
        return record.error
    return f"plugin `{key}` does not run: {record.error}"


def refused_plugin_text(name: str, records: Iterable[LoadedPlugin], rejected: Iterable[RejectedPlugin]) -> str:
    """Return the text of `/plugins NAME` for a plugin that is refused.

    Raises:
        UserError: there is no plugin of this name; the text has the nearest one.
    """
    refused = next((each for each in rejected if each.name == name), None)
    if refused is not None:
        return f"  ✗ {refused.name} [refused] — {refused.reason}"
    near = nearest_name(name, sorted({n for record in records for n in record.manifest.answers_to}))
    meant = f" (did you mean `{near}`?)" if near else ""
    raise UserError(f"There is no plugin `{name}`{meant}. `/plugins` lists the plugins.")


class PluginReports(Protocol):
    """The texts about the plugins of a process (`PluginManager`)."""

    def reload(self, name: str | None = None) -> list[str]:
        """Load changed plugins again and return a line for each."""
        ...

    def status_text(self) -> str:
        """Return the list of plugins."""
        ...

    def plugin_text(self, name: str) -> str:
        """Return the description of a plugin.

        Raises:
            UserError: there is no plugin of this name.
        """
        ...


class PluginsCommandDeps(LazyNamedTuple):
    """Services of `/plugins`."""

    plugins: PluginReports


def register(ctx: Registrar, deps: PluginsCommandDeps) -> None:
    """Register `/plugins`."""
    ctx.register_slash_command(
        SlashCommand(
            "plugins",
            partial(_run_plugins_command, deps.plugins),
            "List plugins and their state, describe one, or load changed ones again",
            "[NAME | reload [NAME]]",
            where=FOR_OPERATORS,
            right="known",
        )
    )


def _run_plugins_command(plugins: PluginReports, raw_args: str) -> str:
    word, _, rest = raw_args.strip().partition(" ")
    try:
        if word == "reload":
            return "\n".join(f"  {line}" for line in plugins.reload(rest.strip() or None)) or "There are no plugins."
        return plugins.plugin_text(raw_args.strip()) if word else plugins.status_text()
    except UserError as error:
        raise CommandFailed(str(error)) from error
