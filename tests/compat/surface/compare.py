"""Comparison of upstream's recorded names with what is served, and the page that lists both.

A served name has to be of upstream's kind, accept the calls that upstream's accepts, and, as a class, have its bases,
methods and attributes. Every difference stands in `differences.toml` with its reason; a row there without a difference
is stale. A name that is not served has a reason in `declined.toml`.
"""

from __future__ import annotations

import importlib
import json
import textwrap
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from compat.surface.describe import describe
from hermes_agent.compat import import_hook
from hermes_agent.testing import plugin_host

ROOT = Path(__file__).resolve().parents[3]
DATA = ROOT / "tests" / "data" / "surface"
RECORD, IMPORTED, DIFFERENCES = DATA / "upstream.json", DATA / "imported.txt", DATA / "differences.toml"
PAGE = ROOT / "docs" / "plugins" / "surface.md"
WIDTH = 118


@dataclass
class Surface:
    """The result of a comparison."""

    served: dict[str, list[str]] = field(default_factory=dict)
    """By module: names."""
    declined: dict[str, dict[str, list[str]]] = field(default_factory=dict)
    """By module: names by reason."""
    undecided: list[str] = field(default_factory=list)
    differences: dict[str, list[str]] = field(default_factory=dict)
    """By `module.name`: what is not as upstream has it."""

    @property
    def counts(self) -> tuple[int, int]:
        """The numbers of served and of declined names."""
        declined = sum(len(names) for module in self.declined.values() for names in module.values())
        return sum(map(len, self.served.values())), declined


def record() -> dict[str, dict[str, dict[str, Any]]]:
    """Return upstream's names as they were recorded: by module and name."""
    loaded: dict[str, dict[str, dict[str, Any]]] = json.loads(RECORD.read_text(encoding="utf-8"))
    return loaded


def known_differences() -> dict[str, str]:
    """Return the reason of each accepted difference by `module.name`."""
    return {str(k): str(v) for k, v in tomllib.loads(DIFFERENCES.read_text(encoding="utf-8")).items()}


def imported_names() -> list[tuple[str, str]]:
    """Return module and name of what plugins of repositories import; the name is "" for a whole module."""
    lines = IMPORTED.read_text(encoding="utf-8").splitlines()
    rows = [line.partition(":") for line in lines if line and not line.startswith("#")]
    return [(module, name) for module, _, name in rows]


def compare() -> Surface:
    """Compare the record with what a host of this process serves."""
    surface = Surface()
    served = import_hook.served()
    was_installed = import_hook.installed()
    with plugin_host():
        import_hook.install()
        try:
            for module, names in sorted(record().items()):
                here = served[module].names if module in served else {}
                for name, theirs in sorted(names.items()):
                    if name in here:
                        surface.served.setdefault(module, []).append(name)
                        value = getattr(importlib.import_module(module), name)
                        if found := list(_differences(theirs, value)):
                            surface.differences[f"{module}.{name}"] = found
                    elif (why := import_hook.decision(f"{module}.{name}")) is None:
                        surface.undecided.append(f"{module}.{name}")
                    else:
                        surface.declined.setdefault(module, {}).setdefault(why, []).append(name)
        finally:
            if not was_installed:
                import_hook.uninstall()
    return surface


def _differences(theirs: Mapping[str, Any], value: Any) -> Iterable[str]:
    ours = describe(value)
    if theirs["kind"] != ours["kind"] and theirs["kind"] not in {base.__name__ for base in type(value).__mro__}:
        yield f"{ours['kind']}, not {theirs['kind']}"
    yield from _calls("", theirs.get("parameters"), ours.get("parameters"))
    if theirs["kind"] != "class" or ours["kind"] != "class":
        return
    for what in ("bases", "methods", "attributes"):
        known = {*ours[what], *(ours["methods"] if what == "attributes" else ours["attributes"])}
        missing = [name for name in theirs[what] if name not in known]
        if missing:
            yield f"without the {what} {', '.join(missing)}"
    for name, parameters in theirs["methods"].items():
        if name in ours["methods"]:
            yield from _calls(f"{name}: ", parameters, ours["methods"][name])


def _calls(where: str, theirs: str | None, ours: str | None) -> Iterable[str]:
    """Yield why a call that upstream accepts would fail."""
    if theirs is None or ours is None:
        return
    wanted, given = (text.split(", ") if text else [] for text in (theirs, ours))
    names = {word.strip("*=") for word in given}
    takes_any = any(word.startswith("**") for word in given)
    for word in wanted:
        name = word.rstrip("=")
        if not word.startswith("*") and name not in names and not takes_any:
            yield f"{where}no parameter {name}"
    for at, (word, own) in enumerate(zip(_positional(wanted), _positional(given), strict=False), 1):
        if word.rstrip("=") != own.rstrip("=") and word.rstrip("=") in names:
            yield f"{where}parameter {at} is {own.rstrip('=')}, not {word.rstrip('=')}"
        elif word.endswith("=") and not own.endswith("=") and word == f"{own}=":
            yield f"{where}{own} is required"
    known = {word.rstrip("=") for word in wanted}
    for own in given:
        if not own.startswith("*") and not own.endswith("=") and own not in known:
            yield f"{where}{own} is required"


def _positional(words: Iterable[str]) -> list[str]:
    found: list[str] = []
    for word in words:
        if word.startswith("*"):
            break
        found.append(word)
    return found


def page(surface: Surface) -> str:
    """Return the page `docs/plugins/surface.md`."""
    served, declined = surface.counts
    reasons = known_differences()
    lines = [
        "# Upstream's names",
        "",
        *_wrapped(
            "Published plugins import names of upstream's own modules. This page lists the public names of every"
            " module of hermes-agent 0.19.0 that a published plugin imports, or that its guides and the"
            " [contract](contract.md) name. `python -m compat.surface --write` in `tests/` makes it from the record"
            " of the published program and from what is served."
        ),
        "",
        *_wrapped(
            f"{served} names are served: they are there, of the same kind, and take the same calls. {declined} are"
            " declined. Their import fails with the reason that stands here:"
        ),
        "",
        "```text",
        "ImportError: cannot import name 'NAME' from 'MODULE' (hermes-agent does not serve it: REASON)",
        "```",
        "",
        "## Differences",
        "",
        *_wrapped("These served names differ from upstream's in their form:"),
        "",
    ]
    for name in sorted(surface.differences):
        lines += _wrapped(f"- `{name}`: {reasons.get(name, '')}", indent="  ")
    lines += ["", "## Modules", ""]
    for module in sorted({*surface.served, *surface.declined}):
        lines += [f"### `{module}`", ""]
        if names := surface.served.get(module):
            lines += [*_wrapped(f"Served: {_listed(names)}."), ""]
        groups = surface.declined.get(module, {})
        for why, names in groups.items():
            lines += _wrapped(f"- Declined: {_listed(names)}. Reason: {why}.", indent="  ")
        lines += [""] if groups else []
    return "\n".join(lines).rstrip("\n") + "\n"


def _listed(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _wrapped(text: str, indent: str = "") -> list[str]:
    return textwrap.wrap(text, WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
