"""Facts of a release, and differences of two: contract, packages, settings, state, plugins.

A release describes itself (`hermes self describe --json`). The code of another tree or wheel runs for this in a process
of its own, in a home that it does not change.
"""

from __future__ import annotations

import contextlib
import email
import importlib
import json
import re
import subprocess
import sys
import tempfile
import tomllib
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from hermes_agent import __version__
from hermes_agent.core.errors import EXIT_USAGE, UserError
from hermes_agent.core.lazy_types import LazyNamedTuple
from hermes_agent.core.text import shorten
from hermes_agent.plugins.closure import requirement
from hermes_agent.system.installation import NAME, missing_packages, read_extras

SCHEMA_MODULES = (
    "cron.job_store", "delivery.tables", "gateway.chat_routes", "policy.taint_store", "sessions.commits",
    "sessions.search", "sessions.transcript", "sessions.turn_journal", "sessions.usage",
)  # fmt: skip
"""Modules that declare tables of `state.db`."""
PROBE_S = 120.0
"""Time limit for the code of another release, in seconds."""
_EXTRA = re.compile(r"""\s*;\s*extra\s*==\s*["'][\w-]+["']""")


class ReleaseSource(LazyNamedTuple):
    """A source tree or a wheel of the program."""

    path: Path
    requirements: tuple[str, ...]
    """Required packages, without those of extras."""
    extras: Mapping[str, Sequence[str]]
    """Required packages of each extra."""

    def with_extras(self) -> str:
        """Return what pip installs: the path, with each extra of which this installation has the packages.

        The extras are the release's: a package that the present version requires may belong to an extra there.
        """
        names = [name for name, requirements in self.extras.items() if not missing_packages(requirements)]
        return f"{self.path}[{','.join(names)}]" if names else str(self.path)

    @property
    def is_wheel(self) -> bool:
        """True for a wheel, False for a source tree."""
        return self.path.is_file()


def describe_release() -> dict[str, Any]:
    """Return the facts of this release, as JSON values."""
    from hermes_agent.compat import CONTRACT_LEVEL
    from hermes_agent.config.schema import leaves, render_path, resolve
    from hermes_agent.plugins.requirements import SERVED_RANGE
    from hermes_agent.store import Schema

    schemas: dict[str, dict[str, int]] = {}
    for name in SCHEMA_MODULES:
        for value in vars(importlib.import_module(f"hermes_agent.{name}")).values():
            if isinstance(value, Schema):
                schemas[value.owner] = {"version": value.version, "readable_from": value.readable_from}
    return {
        "version": __version__,
        "contract": {"level": CONTRACT_LEVEL, "served": SERVED_RANGE},
        "python": f"{sys.version_info[0]}.{sys.version_info[1]}",
        "config": {render_path(path): resolve(node).get("default") for path, node in leaves()},
        "state": schemas,
    }


def find_source(path: Path) -> ReleaseSource:
    """Return the source at a path.

    Raises:
        UserError: it is neither a tree nor a wheel of this program.
    """
    path = path.expanduser().resolve()
    try:
        if path.is_dir():
            project = tomllib.loads((path / "pyproject.toml").read_text(encoding="utf-8"))["project"]
            name, requirements = str(project["name"]), tuple(map(str, project.get("dependencies", ())))
            found = {str(key): list(map(str, texts)) for key, texts in project.get("optional-dependencies", {}).items()}
        else:
            with zipfile.ZipFile(path) as wheel:
                file = next(each for each in wheel.namelist() if each.endswith(".dist-info/METADATA"))
                metadata = email.message_from_string(wheel.read(file).decode("utf-8"))
            name = str(metadata["Name"])
            declared = list(map(str, metadata.get_all("Requires-Dist") or ()))
            found = read_extras(declared)
            requirements = tuple(text for text in declared if not _EXTRA.search(text))
    except (OSError, KeyError, StopIteration, ValueError, zipfile.BadZipFile) as exc:
        raise UserError(
            f"{path} is neither a source tree nor a wheel of {NAME}: {exc or type(exc).__name__}",
            hint="Name a checkout, or a wheel: hermes update PATH",
            exit_status=EXIT_USAGE,
        ) from exc
    if name.replace("_", "-").lower() != NAME:
        raise UserError(f"{path} is the program {name!r}, not {NAME}", exit_status=EXIT_USAGE)
    return ReleaseSource(path, requirements, found)


@contextlib.contextmanager
def staged_code(source: ReleaseSource) -> Iterator[Sequence[str]]:
    """Yield the command that runs the code of a source with this interpreter, without installing it."""
    with tempfile.TemporaryDirectory(prefix="hermes-update-") as place:
        root = source.path / "hermes"
        if source.is_wheel:
            root = Path(place)
            with zipfile.ZipFile(source.path) as wheel:
                wheel.extractall(root)
        code = "import sys; sys.path.insert(0, sys.argv.pop(1)); from hermes_agent.app.main import main; "
        code += "sys.exit(main(sys.argv[1:]))"
        yield [sys.executable, "-I", "-B", "-c", code, str(root)]


def ask_program(command: Sequence[str], *arguments: str) -> Any:
    """Return the JSON that a program prints, or None if it prints none."""
    try:
        done = subprocess.run(
            [*command, *arguments],
            capture_output=True,
            text=True,
            timeout=PROBE_S,
            check=False,
            stdin=subprocess.DEVNULL,
        )
        return json.loads(done.stdout)
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return None


def plugin_states(command: Sequence[str]) -> dict[str, str] | None:
    """Return the status of each plugin of the home by its key; None if the program does not list them."""
    rows = ask_program(command, "plugins", "list", "--json")
    return None if not isinstance(rows, list) else {str(row["key"]): _state(row) for row in rows}


def _state(row: Mapping[str, Any]) -> str:
    return ": ".join(filter(None, [str(row.get("status", "")), str(row.get("reason", ""))]))


def own_command() -> list[str]:
    """Return the command that runs this program."""
    return [sys.executable, "-P", "-m", "hermes_agent"]


# --- differences ---------------------------------------------------------------------------------------------


def compare_facts(before: Mapping[str, Any], after: Mapping[str, Any], values: Mapping[str, Any]) -> Iterator[str]:
    """Yield a line for each difference between two releases.

    Args:
        values: the operator's settings by key.
    """
    yield f"version   {before['version']} → {after['version']}"
    old, new = before.get("contract") or {}, after.get("contract") or {}
    served = f"{old.get('served')} → {new.get('served')}" if old != new else f"{new.get('served')}, unchanged"
    yield f"contract  {served}"
    yield from _compare_settings(before.get("config") or {}, after.get("config") or {}, values)
    yield from _compare_state(before.get("state") or {}, after.get("state") or {})


def _compare_settings(old: Mapping[str, Any], new: Mapping[str, Any], values: Mapping[str, Any]) -> Iterator[str]:
    lines = [f"config    + {key} (default {_shown(new[key])})" for key in sorted(new.keys() - old.keys())]
    for key in sorted(old.keys() - new.keys()):
        lines.append(f"config    - {key}{' (your config sets it)' if key in values else ''}")
    for key in sorted(key for key in old.keys() & new.keys() if old[key] != new[key]):
        own = f"; your config sets {_shown(values[key])}" if key in values else ""
        lines.append(f"config    ~ {key}: default {_shown(old[key])} → {_shown(new[key])}{own}")
    yield from lines or ["config    unchanged"]


def _compare_state(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[str]:
    lines = []
    for owner in sorted({*old, *new}):
        before, after = old.get(owner, {}).get("version", 0), new.get(owner, {}).get("version", 0)
        if before != after:
            reads = new.get(owner, {}).get("readable_from", 0) <= before
            note = "this release can still read it" if reads else "this release cannot read it: the restore point can"
            lines.append(f"state     {owner}: version {before} → {after} ({note})")
    yield from lines or ["state     unchanged"]


def compare_requirements(old: Sequence[str], new: Sequence[str]) -> Iterator[str]:
    """Yield a line for each required package that is added, removed, or needed in another version."""
    before, after = dict(map(requirement, old)), dict(map(requirement, new))
    lines = [f"packages  + {name} {after[name]}".rstrip() for name in sorted(after.keys() - before.keys())]
    lines += [f"packages  - {name}" for name in sorted(before.keys() - after.keys())]
    for name in sorted(before.keys() & after.keys()):
        if set(before[name].split(",")) != set(after[name].split(",")):
            lines.append(f"packages  ~ {name} {before[name]} → {after[name]}")
    yield from lines or ["packages  unchanged"]


def compare_plugins(old: Mapping[str, str] | None, new: Mapping[str, str] | None) -> Iterator[str]:
    """Yield a line for each plugin that has another status, such as one that would need a grant."""
    if old is None or new is None:
        yield "plugins   unknown: the other release cannot list them before it is installed"
        return
    lines = []
    for key in sorted({*old, *new}):
        before, after = old.get(key, "not there"), new.get(key, "not there")
        if before != after:
            grant = f" (`hermes plugins grant {key}`)" if "grant" in after and "grant" not in before else ""
            lines.append(f"plugins   {key}: {before} → {after}{grant}")
    yield from lines or ["plugins   unchanged"]


def _shown(value: Any) -> str:
    return shorten(json.dumps(value, ensure_ascii=False), 60)


def unreadable_owners(found: Mapping[str, tuple[int, int]], facts: Mapping[str, Any]) -> list[str]:
    """Return the owners of tables in `state.db` that a release is too old to read.

    Args:
        found: version of the tables by owner, and the oldest version that can use them.
    """
    known = facts.get("state") or {}
    return [owner for owner, (_, reader) in found.items() if owner in known and known[owner]["version"] < reader]
