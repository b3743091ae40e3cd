"""What `hermes plugins check` found: as text for people, as JSON for `plugins.json`."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any, Literal

from hermes_agent.contracts.platform.entry import PLATFORM
from hermes_agent.core.registry import BUILTIN
from hermes_agent.plugins.discovery import Discovery, RejectedPlugin
from hermes_agent.plugins.loader import NOT_INSTALLED
from hermes_agent.plugins.record import LoadedPlugin, RegistrationProblem

__all__ = ["CheckFinding", "PluginCheckReport", "describe_plugin", "load_findings", "rejection_finding"]

VERSION = 1
PREFIX = "hermes-agent: "


@dataclass(frozen=True, slots=True)
class CheckFinding:
    """One thing that is wrong, or odd."""

    level: Literal["error", "warning"]
    kind: str
    """`plugin`, `tool`, `slash command`, `terminal command` (a conflict), or `manifest`, `failed`, `unknown`, …"""
    text: str
    """One sentence; a conflict's ends with a colon, its owners follow."""
    owners: tuple[str, ...] = ()
    """Plugins that it is about."""
    details: tuple[str, ...] = ()
    """Further lines: each owner with its path."""
    hint: str = ""
    name: str = ""
    """What is fought for, in a conflict."""

    @property
    def is_conflict(self) -> bool:
        """Whether two want one name."""
        return bool(self.name)

    def render(self, level: str) -> str:
        """Return the text as it is printed; the first line begins with `level`."""
        lines = [f"{level}: {PREFIX}{self.text}", *(f"  {detail}" for detail in self.details)]
        if self.hint:
            lines.append(f"hint: {self.hint}")
        return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class PluginCheckReport:
    """Everything that a check found."""

    plugins: tuple[dict[str, Any], ...]
    findings: tuple[CheckFinding, ...]

    def errors(self, *, strict: bool) -> list[CheckFinding]:
        """Return what makes the check fail; with `strict` warnings do."""
        return _ordered(f for f in self.findings if strict or f.level == "error")

    def warnings(self, *, strict: bool) -> list[CheckFinding]:
        """Return the rest."""
        return [] if strict else _ordered(f for f in self.findings if f.level == "warning")

    def render(self, *, strict: bool) -> str:
        """Return every finding as text, errors first; empty when there is none."""
        errors = [finding.render("error") for finding in self.errors(strict=strict)]
        return "\n".join(errors + [finding.render("warning") for finding in self.warnings(strict=strict)])

    def document(self, *, strict: bool) -> str:
        """Return `plugins.json`: the same for the same plugins, whatever the order they were found in."""
        errors = self.errors(strict=strict)
        value = {
            "version": VERSION,
            "plugins": sorted(self.plugins, key=lambda p: (p["key"], p["path"])),
            "conflicts": [_conflict(f) for f in errors if f.is_conflict],
            "errors": [f.text for f in errors if not f.is_conflict],
            "warnings": [f.text for f in self.warnings(strict=strict)],
        }
        return json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False) + "\n"

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON types, for `from_json`."""
        return {"plugins": list(self.plugins), "findings": [asdict(f) for f in self.findings]}

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> PluginCheckReport:
        """Read what `to_json` gave."""
        findings = (
            CheckFinding(**{**f, "owners": tuple(f["owners"]), "details": tuple(f["details"])})
            for f in value["findings"]
        )
        return cls(tuple(value["plugins"]), tuple(findings))


def _ordered(findings: Iterable[CheckFinding]) -> list[CheckFinding]:
    return sorted(findings, key=lambda f: (f.kind, f.name, f.owners, f.text))


def _conflict(finding: CheckFinding) -> dict[str, Any]:
    return {"kind": finding.kind, "name": finding.name, "owners": list(finding.owners), "text": finding.text}


def describe_plugin(record: LoadedPlugin) -> dict[str, Any]:
    """Return the plugin as it stands in `plugins.json`."""
    manifest = record.manifest
    return {
        "key": manifest.key,
        "name": manifest.name,
        "version": manifest.shown_version,
        "source": manifest.source,
        "path": manifest.path,
        "kind": manifest.kind,
        "requires_env": sorted(manifest.env_names),
        "tools": sorted(record.tools_registered),
        "hooks": sorted(record.hooks_registered),
        "commands": sorted(record.commands_registered),
        "cli_commands": sorted(record.cli_commands_registered),
        "provides_tools": sorted(manifest.provides_tools),
        "platforms": sorted(name for kind, name in record.providers_registered if kind == PLATFORM),
        "providers": sorted(f"{kind.name}:{name}" for kind, name in record.providers_registered),
    }


def rejection_finding(rejected: RejectedPlugin, found: Discovery) -> CheckFinding:
    """Return the finding for something that is no usable plugin."""
    if not rejected.rival:
        text = f"the plugin at {rejected.path} cannot be used: {rejected.reason}"
        return CheckFinding("error", "manifest", text, (rejected.name,))
    details = (rejected.rival, rejected.path)
    text = f"two plugins are both called `{rejected.name}`:"
    hint = "Leave one out, or change `name` in one plugin.yaml."
    return CheckFinding("error", "plugin", text, (rejected.name, rejected.name), details, hint, rejected.name)


def load_findings(records: list[LoadedPlugin]) -> list[CheckFinding]:
    """Return what is wrong with the plugins that were loaded, or were not."""
    by_key = {record.manifest.key: record for record in records}
    findings: list[CheckFinding] = []
    for record in records:
        key = record.manifest.key
        if record.status == "failed":
            findings.append(_failure(record))
        findings += [_problem(record, problem, by_key) for problem in record.problems]
        findings += [CheckFinding("warning", "note", f"plugin `{key}`: {note}", (key,)) for note in record.notes]
        if record.manifest.replaces:
            text = f"plugin `{key}` ({record.manifest.path}) replaces the bundled one ({record.manifest.replaces})"
            findings.append(CheckFinding("warning", "note", text, (key,)))
        if record.enabled and record.manifest.provides_tools:
            findings += _mismatch(record)
    return findings


def _failure(record: LoadedPlugin) -> CheckFinding:
    """Return the finding for a plugin that did not load, with the remedy where it is known."""
    key, error = record.manifest.key, record.error or ""
    place = (f"at {record.where}",) if record.where else ()
    hint = ""
    match = NOT_INSTALLED.fullmatch(error)
    if match is not None and match[1] not in ("hermes_agent", "hermes_plugins"):
        package = match[1]
        hint = f"`{package}` is not installed beside the agent: add it to extraPythonPackages."
    return CheckFinding("error", "failed", f"plugin `{key}` failed to load: {error}", (key,), place, hint)


def _problem(record: LoadedPlugin, problem: RegistrationProblem, by_key: dict[str, LoadedPlugin]) -> CheckFinding:
    key, path = record.manifest.key, record.manifest.path
    mine = f"plugin `{key}` ({path})"
    if problem.owner == BUILTIN:
        text = f"plugin `{key}` registers the {problem.kind} `{problem.name}`, which is the agent's own:"
        return CheckFinding(
            "error", problem.kind, text, (key, BUILTIN), (mine,), _sentence(problem.remedy), problem.name
        )
    if not problem.owner:  # the name itself is wrong
        text = f"plugin `{key}`: {problem.text}"
        return CheckFinding("error", "failed", text, (key,), (mine,), _sentence(problem.remedy))
    other = by_key.get(problem.owner)
    theirs = f"plugin `{problem.owner}` ({other.manifest.path})" if other else f"`{problem.owner}`"
    owners = tuple(sorted((problem.owner, key)))
    text = f"two plugins register the {problem.kind} `{problem.name}`:"
    hint = f"Disable one of them (plugins.disabled), or {problem.remedy}."
    return CheckFinding("error", problem.kind, text, owners, tuple(sorted((theirs, mine))), hint, problem.name)


def _mismatch(record: LoadedPlugin) -> list[CheckFinding]:
    key, declared = record.manifest.key, set(record.manifest.provides_tools)
    registered = set(record.tools_registered) | {p.name for p in record.problems if p.kind == "tool"}
    texts = []
    if declared - registered:
        names = ", ".join(sorted(declared - registered))
        texts.append(f"plugin `{key}`: provides_tools names {names}, which it does not register")
    if registered - declared:
        names = ", ".join(sorted(registered - declared))
        texts.append(f"plugin `{key}` registers {names}, which provides_tools does not name")
    return [CheckFinding("warning", "provides_tools", text, (key,)) for text in texts]


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."
