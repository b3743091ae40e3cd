"""Why a tool or a plugin is there, or is not: what `hermes tools explain` and `hermes plugins explain` say."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from hermes_agent.config.nearness import nearest_name
from hermes_agent.contracts.tool import TOOL, ToolEntry
from hermes_agent.core.registry import BUILTIN, describe_owner
from hermes_agent.plugins.account import PluginUsage, account_lines
from hermes_agent.plugins.discovery import RejectedPlugin
from hermes_agent.plugins.gate import UnknownPluginName
from hermes_agent.plugins.manifest import PluginManifest
from hermes_agent.plugins.record import LoadedPlugin
from hermes_agent.tools import ToolRegistry
from hermes_agent.tools.names import repair_name
from hermes_agent.tools.search import SEARCH_HINT, SEARCH_TOOLS
from hermes_agent.tools.toolsets import Toolsets

__all__ = ["Explanation", "ToolRow", "explain_plugin", "explain_tool", "tool_rows"]


class Explanation(NamedTuple):
    """The answer."""

    is_available: bool
    """Whether it is there to be used."""
    lines: list[str]
    """The answer in one line, then the reasons."""

    def __str__(self) -> str:
        return "\n".join([self.lines[0], *(f"  {line}" for line in self.lines[1:])])


class ToolRow(NamedTuple):
    """A tool in the list."""

    name: str
    toolset: str
    owner: str
    """A plugin's key, or `builtin`."""
    state: str
    """`shown`, or why the model is not shown it."""


def tool_rows(tools: ToolRegistry, toolsets: Toolsets, platform: str) -> list[ToolRow]:
    """Return every registered tool, sorted by name, and whether it is shown on a platform."""
    return [
        ToolRow(
            name, entry.toolset, tools.owner(name) or "", _explain_hidden(tools, toolsets, entry, platform) or "shown"
        )
        for name, entry in sorted(tools.items())
    ]


def explain_tool(
    name: str, tools: ToolRegistry, toolsets: Toolsets, records: Sequence[LoadedPlugin], platform: str
) -> Explanation:
    """Say whether the model is shown the tool on a platform, whose it is, and who went without the name."""
    entry = tools.get(name)
    if entry is None:
        return Explanation(False, list(_explain_absent_tool(name, tools, records)))
    hidden = _explain_hidden(tools, toolsets, entry, platform)
    lines = [f"tool `{name}` is {'not shown to the model: ' + hidden if hidden else 'shown to the model'}"]
    owner = tools.owner(name) or ""
    lines.append(f"toolset `{entry.toolset}`, registered by {describe_owner(owner)}{_owner_place(owner, records)}")
    if hidden and entry.requires_env:
        lines.append(f"it says that it needs: {', '.join(map(str, entry.requires_env))}")
    replaced = tools.snapshot()[name].replaced
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
                yield f"plugin `{record.manifest.key}` wanted the name too and goes without: {problem.remedy}"


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
                yield f"plugin `{key}` brings it and does not run: {record.failure}"
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
    """Say whether the plugin runs, and why not."""
    record = next((r for r in records if name in r.manifest.answers_to), None)
    refused = [r for r in rejected if name in (r.name, r.name.rpartition("/")[2])]
    if record is None:
        return _explain_unknown_plugin(name, records, refused, unknown)
    manifest = record.manifest
    first = f"plugin `{manifest.key}` runs" if record.enabled else f"plugin `{manifest.key}` does not run"
    lines = [first, f"{manifest.source}: {_plugin_place(manifest)}"]
    if record.error:
        lines.append(f"{record.status}: {record.failure}")
    if record.remedy:
        lines.append(f"what to do: {record.remedy}")
    if record.stale:
        lines.append(f"a newer version could not be loaded: {record.stale}")
    if manifest.replaces:
        lines.append(f"it replaces the bundled plugin {manifest.replaces}")
    lines += [f"goes without: {problem.full}" for problem in record.problems]
    lines += [f"note: {note}" for note in record.notes]
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
