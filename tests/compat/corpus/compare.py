"""Compare what a run registered here with what it registered with the peer. Pure functions over two records."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from compat.corpus.lists import Run
from hermes_agent.hooks import OWN_HOOKS

__all__ = ["differences", "expected_failure", "expected_without_env", "refusals", "unserved"]

IGNORED = {
    "memory.cli": {"description", "help"},
    "tools": {"schema", "params", "required", "description_sha", "from_plugin", "via_ctx"},
    "platforms": {"source"},
    "model_providers": {"cls_module"},
    "plugins": {"enabled", "error", "kind", "requires_env", "source"},
}
"""Fields that are no part of what a plugin registers, by section or part of one.

A tool's schema is compared by its hash. The peer passes over a memory plugin's own words for its terminal command.
"""
PEERS_GAPS = frozenset({"cron", "memory", "registrations", "terminal_env"})
"""Sections that the peer's context of a plugin has no method for: ours may have more in them."""
MEMORY_GAPS = frozenset({"cli_commands", "hooks", "skills", "tools"})
"""Sections that the peer's context of a memory plugin ignores; ours is the same context for every plugin."""
ADDRESS = re.compile(r" at 0x[0-9a-f]+")
"""Part of a default value's text; ours has none (`describe.signature`)."""
PLACES = re.compile(r"\$VENVS/[^/]+/bin/python")
"""The peer's interpreter, as the oracle writes it; `record` writes ours as `$PYTHON`."""
SHORT = 160
"""Longest value in a difference, in characters."""
SKIPPED = frozenset({"host_modules", "plugins"})


def differences(peer: Mapping[str, Any], ours: Mapping[str, Any], *, exact: bool = False) -> list[str]:
    """Return a line for each difference; none when ours is the same.

    Args:
        peer: the section `registered` of an oracle's run.
        ours: what `record.registered` gave.
        exact: `peer` was recorded here, so nothing may be there in addition.
    """
    found: list[str] = []
    for section in sorted((set(peer) | set(ours)) - SKIPPED):
        gap = section in PEERS_GAPS or ("memory" in peer and section in MEMORY_GAPS)
        if section not in peer and gap and not exact:
            continue
        ignored = IGNORED.get(section, set())
        found += _differ(section, peer.get(section, {}), ours.get(section, {}), ignored)
    found += _plugins(peer.get("plugins", {}), ours.get("plugins", {}))
    return found


def expected_without_env(answer: Mapping[str, Any], plugin: str) -> list[str]:
    """Return what is wrong with a run whose variables are missing: the promised line, and nothing registered."""
    registered = {k: v for k, v in answer["registered"].items() if k not in SKIPPED and v}
    found = [f"{section} is registered although variables are missing" for section in sorted(registered)]
    promised = f"Plugin {plugin} disabled (missing: "
    if not any(line.startswith(promised) for line in answer["log"]):
        found.append(f"the line `{promised}…)` is missing")
    return found


def unserved(peer: Mapping[str, Any], answer: Mapping[str, Any]) -> list[str]:
    """Return a line for each name of the host that the run wanted and did not get, and that the peer gave it."""
    given = set(peer.get("host_modules", ()))
    return [f"import of {name} failed" for name in answer["refused"] if name in given]


def refusals(expected: Sequence[str], answer: Mapping[str, Any]) -> list[str]:
    """Return a line for each name of the host that a run wants and does not get, and of which the record knows not."""
    found = [f"import of {name} failed" for name in answer["refused"] if name not in expected]
    return found + [f"import of {name} is served: record it" for name in expected if name not in answer["refused"]]


def expected_failure(answer: Mapping[str, Any], run: Run) -> list[str]:
    """Return what is wrong with a run that is known to fail: it loads, or it fails for another reason."""
    found = []
    for key, there in run.registered["plugins"].items():
        here = answer["registered"]["plugins"].get(key, {"enabled": False, "error": "it was not found"})
        if here["enabled"]:
            found.append(f"plugin {key} loads now: record it")
        elif here["error"] != there["error"]:
            found.append(f"plugin {key} fails for another reason: {here['error']}")
    return found


def _plugins(peer: Mapping[str, Any], ours: Mapping[str, Any]) -> Iterator[str]:
    """Compare who was loaded: what the peer ran must run here."""
    for key, there in peer.items():
        here = ours.get(key)
        if here is None:
            yield f"plugin {key} was not found"
        elif there["enabled"] and not here["enabled"]:
            yield f"plugin {key} does not run: {here['error']}"


def _differ(where: str, peer: Any, ours: Any, ignored: set[str]) -> list[str]:
    if isinstance(peer, Mapping) and isinstance(ours, Mapping):
        found = []
        for key in sorted({*peer, *ours} - ignored):
            place = f"{where}.{key}"
            below = ignored | IGNORED.get(place, set())
            if key not in ours:
                found.append(f"{place} is missing")
            elif key not in peer and where == "hooks" and key in OWN_HOOKS:
                continue  # a hook that the peer does not have
            elif key not in peer:
                found.append(f"{place} is too much")
            else:
                found += _differ(place, peer[key], ours[key], below)
        return found
    if isinstance(peer, list) and isinstance(ours, list) and len(peer) == len(ours):
        pairs = enumerate(zip(peer, ours, strict=True))
        return [line for i, (there, here) in pairs for line in _differ(f"{where}.{i}", there, here, ignored)]
    if peer == ours:
        return []
    there, here = PLACES.sub("$PYTHON", ADDRESS.sub("", repr(peer))), repr(ours)
    if there == here:
        return []
    start = max(0, _common(there, here) - 20)
    return [f"{where}: {_short(there, start)} there, {_short(here, start)} here"]


def _common(there: str, here: str) -> int:
    """Return how many characters they begin with in common."""
    return next((i for i, (a, b) in enumerate(zip(there, here, strict=False)) if a != b), min(len(there), len(here)))


def _short(text: str, start: int) -> str:
    """Return a long text from where it differs on."""
    if len(text) <= SHORT:
        return text
    return f"{'…' if start else ''}{text[start : start + SHORT]}{'…' if start + SHORT < len(text) else ''}"
