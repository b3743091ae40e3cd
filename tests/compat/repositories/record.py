"""What the published program did with each plugin, as a file of the repository keeps it, and the comparison with it."""

from __future__ import annotations

import hashlib
import json
import os
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from compat.corpus.lists import DATA
from compat.repositories.find import RepositoryPlugin
from compat.repositories.run import normal

__all__ = [
    "RECORD",
    "compared",
    "digest",
    "digest_of",
    "host_errors",
    "known_differences",
    "loads",
    "raised",
    "read",
    "summary",
    "written",
]

RECORD = DATA / "repositories.json"
SHOWN = 80
"""How much of an answer is kept beside its hash, in characters."""
HOST = "/hermes/hermes_agent/"
"""Part of the path of each of the host's own files."""


def read(file: Path = RECORD) -> dict[str, Any]:
    """Return the record, by the keys of the plugins."""
    found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return found


def written(record: Mapping[str, Any]) -> str:
    """Return the record as it is stored: a line for each call."""
    rows = []
    for key, entry in sorted(record.items()):
        calls, sections = (_rows(entry[name]) for name in ("calls", "registered"))
        rest = {k: v for k, v in entry.items() if k not in ("calls", "registered")}
        head = json.dumps(rest, sort_keys=True)[1:-1]
        rows.append(f' {json.dumps(key)}: {{{head},\n  "registered": {{\n{sections}}},\n  "calls": {{\n{calls}}}}}')
    return "{\n" + ",\n".join(rows) + "\n}\n"


def _rows(found: Mapping[str, Any]) -> str:
    return ",\n".join(f"   {json.dumps(k)}: {json.dumps(v, sort_keys=True)}" for k, v in sorted(found.items()))


def digest(plugin: RepositoryPlugin, place: Path) -> str:
    """Return a hash of the plugin's source, to tell its versions apart."""
    return digest_of(place / plugin.repository / plugin.folder)


def digest_of(root: Path) -> str:
    """Return a hash of the source in a folder."""
    found = hashlib.sha256()
    for here, folders, files in os.walk(root):
        folders[:] = sorted(name for name in folders if name not in (".git", "__pycache__", "node_modules"))
        for name in sorted(files):
            if name.endswith((".py", ".yaml", ".yml", ".toml")):
                found.update(name.encode() + b"\0" + (Path(here) / name).read_bytes())
    return found.hexdigest()[:16]


def summary(answer: Mapping[str, Any], base: Mapping[str, Any]) -> dict[str, Any]:
    """Return what is compared of a probe's answer: what the plugin added, and the answer of each call."""
    registered: dict[str, Any] = {}
    for section, entries in answer.get("registered", {}).items():
        empty = base["registered"].get(section, {})
        added = {k: v for k, v in entries.items() if k not in empty or empty[k] != v}
        if section == "toolsets":  # those of the agent have other tools in each program
            added = {k: _tools_of_plugin(v, empty.get(k, ()), registered.get("tools", {})) for k, v in entries.items()}
            added = {k: tools for k, tools in added.items() if tools}
        if added:
            registered[section] = json.loads(normal(added))
    for command in registered.get("commands", {}).values():
        command.pop("argument_mode", None)  # a field of the contract of 0.23
    for plugin in registered.get("plugins", {}).values():
        plugin["error"] = bool(plugin["error"])  # each program has its own words
        if "memory" in registered or plugin["kind"] == "model-provider":
            plugin.update(enabled=True, error=False)  # the published program lists these without loading them
    if "memory" in registered:
        registered.pop("cli_commands", None)  # it keeps a memory's command apart
    calls = {what: normal({k: v for k, v in said.items() if k != "frames"}) for what, said in answer["calls"].items()}
    return {"registered": registered, "calls": {what: _short(text) for what, text in calls.items()}}


def _tools_of_plugin(tools: list[str], empty: Sequence[str], added: Mapping[str, Any]) -> list[str]:
    """Return the tools of a toolset that a plugin added or replaced."""
    return [tool for tool in tools if tool in added or tool not in empty]


def _short(text: str) -> str:
    return f"{hashlib.sha256(text.encode()).hexdigest()[:12]} {text[:SHOWN]}"


def raised(answer: Mapping[str, Any]) -> list[str]:
    """Return the errors that stand in a program's log."""
    return sorted({json.loads(normal(line["raised"])) for line in answer.get("log", ()) if "raised" in line})


def loads(entry: Mapping[str, Any]) -> bool:
    """Return whether the published program loads the plugin."""
    registered = entry["registered"]
    if any({**registered.get("memory", {}), **registered.get("model_providers", {})}.values()):
        return True
    if "memory" in registered:
        return False
    return any(plugin["enabled"] for plugin in registered.get("plugins", {}).values())


def host_errors(answer: Mapping[str, Any], known: list[str]) -> list[str]:
    """Return the errors in our log that come from the host's own code and that the other log lacks."""
    found = []
    for line in answer.get("log", ()):
        text = json.loads(normal(line.get("raised", "")))
        if line["text"].startswith("Hook '"):  # what a plugin's own callback raised
            continue
        if text and text not in known and HOST in (line["frames"] or [""])[-1]:
            found.append(f"log: {line['text'][:200]}: {text[:200]}")
    return found


def known_differences() -> dict[str, dict[str, str]]:
    """Return the calls and registrations that are known to be otherwise, by plugin, each with the reason."""
    return tomllib.loads(RECORD.with_suffix(".toml").read_text(encoding="utf-8"))


def compared(there: Mapping[str, Any], here: Mapping[str, Any], known: Mapping[str, str] | None = None) -> list[str]:
    """Return a line for each difference: registrations, then calls; what varied in the record is left out.

    Args:
        known: what is known to be otherwise: calls, and registrations as `registered PLACE`.
    """
    known = known or {}
    fields = {f"registered {place}": text for place, text in _fields("", there["registered"], here["registered"])}
    found = [text for place, text in fields.items() if place not in known]
    found += [_stale(what) for what in known if what.startswith("registered ") and what not in fields]
    varies = set(there.get("varies", ()))
    for what in sorted({*there["calls"], *here["calls"]} - varies):
        peer, ours = there["calls"].get(what), here["calls"].get(what)
        if what in known:
            found += [_stale(f"call {what}")] if peer == ours else []
        elif peer is None or ours is None:
            found.append(f"call {what}: {'not there' if peer is None else 'not here'}")
        elif peer != ours:
            found.append(f"call {what}: {peer[13:]} there, {ours[13:]} here")
    return found


def _stale(what: str) -> str:
    return f"{what}: it is the same, so repositories.toml is stale"


def _fields(where: str, there: Any, here: Any) -> Iterator[tuple[str, str]]:
    """Yield each place that differs, and a line about it."""
    if isinstance(there, Mapping) and isinstance(here, Mapping):
        for name in sorted({*there, *here}):
            place = f"{where}.{name}" if where else name
            if name not in here or name not in there:
                yield place, f"{place} is {'missing' if name not in here else 'too much'}"
            else:
                yield from _fields(place, there[name], here[name])
    elif there != here:
        yield where, f"{where}: {str(there)[:160]} there, {str(here)[:160]} here"
