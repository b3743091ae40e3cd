"""Checks of config files and homes: validation, keys of plugins, keys without effect."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import field
from pathlib import Path
from typing import Any

from hermes_agent.config.dotenv import parse_env
from hermes_agent.config.home import home_paths
from hermes_agent.config.load import check_document, read_layers
from hermes_agent.config.schema import (
    OPEN,
    USED,
    KeyPath,
    Node,
    child,
    leaves,
    load_schema,
    parse_path,
    render_path,
    resolve,
    walk,
)
from hermes_agent.config.yaml_document import (
    ENV_HINT,
    HINT,
    ConfigDocument,
    ConfigFinding,
    FindingLevel,
    format_findings,
    in_order,
)
from hermes_agent.config.yaml_reader import decode_file, read_file
from hermes_agent.core.lazy_types import lazy_dataclass


def count_keys(value: dict[str, Any]) -> int:
    """Return the number of values in a config; a list counts as one."""
    return len({tuple(part for part in path if isinstance(part, str)) for path, _ in walk(value)} - {()})


def plugin_keys(document: ConfigDocument, schema: Node | None = None) -> list[ConfigFinding]:
    """Return a note for each undeclared key in a place where plugins keep theirs.

    Args:
        schema: the whole schema; None is `schema.json`.
    """
    return [
        _note(document, path, _describe_owner(path, owner))
        for path, owner in _undeclared(document.value, load_schema() if schema is None else schema, ())
    ]


def keys_without_effect(document: ConfigDocument) -> list[ConfigFinding]:
    """Return a finding for each key that is accepted and has no effect, or that has another name now.

    A block without any effect has one finding. The finding is a note. It is a warning if the key requests protection,
    and an error if nothing may run without that protection. A former name is a warning.
    """
    return [
        _note(
            document, path, f"no effect: `{render_path(path)}`. {node['x-effect']}", _LEVELS[node.get("x-protects", "")]
        )
        if "x-renamed" not in node
        else _note(
            document, path, f"`{render_path(path)}` {_renamed(document.value, path, node['x-renamed'])}", "warning"
        )
        for path, node in _idle(_hooks_by_event(document.value), load_schema(), ())
    ]


def _renamed(value: Any, path: KeyPath, present: str) -> str:
    """Return what became of a former key, after its path."""
    new = render_path((*path[:-1], present))
    for part in path[:-1]:
        value = value[part]
    if value.get(present) is not None:
        return f"is the former name of `{new}`, and the value there is used: remove it"
    return f"is called `{new}` now; the value is used: rename it"


_LEVELS: dict[str, FindingLevel] = {"": "note", "warn": "warning", "refuse": "error"}


def _note(document: ConfigDocument, path: KeyPath, message: str, level: FindingLevel = "note") -> ConfigFinding:
    spot = document.position(path)
    return ConfigFinding(
        document.name, spot.line if spot else None, spot.column if spot else None, render_path(path), message, level
    )


def _describe_owner(path: KeyPath, owner: str) -> str:
    if owner:
        return f"no effect: `{render_path(path)}`. Plugin `{owner}` declares no such key"
    return f"not ours, kept for plugins: `{render_path(path)}`{_declared_elsewhere(path)}"


def _declared_elsewhere(path: KeyPath) -> str:
    """Return a hint if a key of this name is declared in one other place: its indentation may be wrong."""
    places = [place for place, _ in leaves() if place[-1] == path[-1] and "<name>" not in place]
    return f" (did you mean `{render_path(places[0])}`?)" if len(places) == 1 else ""


def _undeclared(value: Any, node: Node, path: KeyPath) -> Iterator[tuple[KeyPath, str]]:
    node = resolve(node)
    if not isinstance(value, dict):
        return
    for key, item in value.items():
        sub = child(node, key)
        if sub is OPEN:
            if node.get("x-open"):
                yield (*path, key), node.get("x-owner", "")
        elif sub is not None:
            yield from _undeclared(item, sub, (*path, key))


def _idle(value: Any, node: Node, path: KeyPath, above: Node | None = None) -> Iterator[tuple[KeyPath, Node]]:
    """Yield the values without effect, with their schemas.

    Args:
        above: the schema of a block without effect that holds `value`. Only its keys that request protection are
            yielded, since the block is one finding.
    """
    for key, item in value.items():
        sub = child(node, key)
        if sub is None or sub is OPEN or item in (None, [], {}):
            continue
        if "x-renamed" in sub and above is None:
            yield (*path, key), sub
            continue
        sentence = sub.get("x-effect", above["x-effect"] if above else USED)
        if sentence == USED:
            yield from _idle(item, sub, (*path, key)) if isinstance(item, dict) else ()
        elif isinstance(item, dict) and "properties" in sub:
            inner = list(_idle(item, sub, (*path, key), {"x-effect": sentence}))
            protecting = [below for below in inner if "x-protects" in below[1]]
            yield from protecting or (
                [((*path, key), {**sub, "x-effect": sentence})] if inner and above is None else inner
            )
        elif item not in sub.get("x-idle", ()):
            yield (*path, key), {**sub, "x-effect": sentence}


def _hooks_by_event(value: dict[str, Any]) -> dict[str, Any]:
    """Return the values with `hooks` as a mapping if it is a list of mappings with `event`."""
    hooks = value.get("hooks")
    if not isinstance(hooks, list):
        return value
    return {**value, "hooks": {str(hook.get("event")): [hook] for hook in hooks if isinstance(hook, dict)}}


@lazy_dataclass(slots=True)
class ConfigReport:
    """The result of a check."""

    subject: str
    """What was checked, in words."""
    errors: list[ConfigFinding] = field(default_factory=list)
    notes: list[ConfigFinding] = field(default_factory=list)
    keys: int = 0
    """Number of values, where a list counts as one; of variables for a `.env` file."""
    unit: str = "key"
    hint: str = HINT
    """What to do about errors."""
    variables: dict[str, str] = field(default_factory=dict, repr=False)
    """The variables of a `.env` file, which are secrets."""

    @property
    def is_valid(self) -> bool:
        """Whether there is no error."""
        return not self.errors

    def as_json(self) -> dict[str, object]:
        """Return `{subject, valid, keys, findings: [{file, line, column, key_path, message, level}]}`."""
        findings = [finding._asdict() for finding in (*in_order(self.errors), *in_order(self.notes))]
        return {"subject": self.subject, "valid": self.is_valid, "keys": self.keys, "findings": findings}

    def __str__(self) -> str:
        if self.errors:
            return format_findings(self.errors, self.hint)
        count = f"1 {self.unit}" if self.keys == 1 else f"{self.keys} {self.unit}s"
        return "\n".join([*map(str, in_order(self.notes)), f"{self.subject} is valid ({count})"])


def check_file(path: Path, *, strict: bool = False, label: str = "", schema: Node | None = None) -> ConfigReport:
    """Check one file without a home: a `.env` file by its name, any other file as a config.

    Variables (`${NAME}`) are assumed to be set, since they belong to the machine that uses the config.

    Args:
        strict: undeclared keys are errors.
        label: replaces the path in the findings, which then have no lines.
        schema: the whole schema with the options of plugins; None is `schema.json`.
    """
    name = label or str(path)
    found = _check_env(path, name) if _is_env(path) else _check_yaml(path, name, strict=strict, schema=schema)
    if label:
        for findings in (found.errors, found.notes):
            findings[:] = [finding._replace(line=None, column=None) for finding in findings]
    return found


def check_home(
    home: Path,
    *,
    strict: bool = False,
    environ: Mapping[str, str] | None = None,
    schema: Node | None = None,
) -> ConfigReport:
    """Check each layer and the `.env` file of a home.

    Args:
        environ: the variables; None means the environment of the process.
        strict, schema: as for `check_file`.
    """
    where = home_paths(home, environ)
    env = _check_env(where.env, str(where.env), may_be_absent=True)
    surrounding = os.environ if environ is None else environ
    found = ConfigReport(f"the config of {home}", env.errors, env.notes)

    def look_up(name: str) -> str | None:
        return surrounding.get(name, env.variables.get(name))

    for _, document in read_layers(where):
        _, errors = check_document(document, look_up, schema=schema)
        _take(errors, found)
        _survey(document, found, strict=strict, schema=schema)
    return found


def _is_env(path: Path) -> bool:
    return path.suffix == ".env" or path.name.startswith(".env")


def _check_yaml(path: Path, name: str, *, strict: bool, schema: Node | None) -> ConfigReport:
    document = read_file(path, name)
    found = ConfigReport(name)
    if not document.exists:
        document.findings.append(ConfigFinding(name, None, None, "", "there is no such file"))
    _, errors = check_document(document, lambda _: None, at_build=True, schema=schema)
    _take(errors, found)
    _survey(document, found, strict=strict, schema=schema)
    return found


def _take(errors: list[ConfigFinding], found: ConfigReport) -> None:
    """Add findings to a report.

    Findings about the settings of a plugin are notes, since the plugin runs nevertheless.
    """
    for finding in errors:
        parts = parse_path(finding.key_path)[:4] if finding.key_path else ()
        if parts[:2] == ("plugins", "entries") and parts[3:] in (("settings",), ("config",)):
            found.notes.append(finding._replace(level="warning"))
        else:
            found.errors.append(finding)


def _survey(document: ConfigDocument, found: ConfigReport, *, strict: bool, schema: Node | None) -> None:
    found.keys += count_keys(document.value)
    idle = keys_without_effect(document)
    found.errors += [finding for finding in idle if finding.level == "error"]
    found.notes += [finding for finding in idle if finding.level != "error"]
    foreign = plugin_keys(document, schema)
    if not strict:
        found.notes += foreign
        return
    known = {(finding.file, finding.key_path) for finding in found.errors}
    found.errors += [
        note._replace(level="error", message=f"{note.message.replace(', kept for plugins', '')}; --strict refuses it")
        for note in foreign
        if (note.file, note.key_path) not in known
    ]


def _check_env(path: Path, name: str, *, may_be_absent: bool = False) -> ConfigReport:
    found = ConfigReport(name, unit="variable", hint=ENV_HINT)
    text = decode_file(path, name)
    if text is None:
        if not may_be_absent:
            found.errors.append(ConfigFinding(name, None, None, "", "there is no such file"))
    elif isinstance(text, ConfigFinding):
        found.errors.append(text)
    else:
        parsed = parse_env(text, name)
        found.keys, found.variables = len(parsed.values), parsed.values
        found.errors += [finding for finding in parsed.findings if finding.level == "error"]
        found.notes += [finding for finding in parsed.findings if finding.level == "note"]
    return found
