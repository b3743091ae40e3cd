"""What there is to run: the plugins of the lists, their pinned files, their runs and what is expected of each."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

__all__ = ["DATA", "LATER", "Plugin", "Run", "Service", "Setting", "plugins"]

DATA = Path(__file__).resolve().parents[2] / "data" / "corpus"
LATER = "contract23"
"""Plugins of the contract of 0.20 to 0.23, of an index (`.txt`) and of repositories (`.toml`)."""
LISTS = (("open.txt", "oracle"), ("callable.txt", "callable"), (f"{LATER}.txt", LATER))
"""Each list with the folder that says what is expected; for the first it is what upstream did."""


@dataclass(frozen=True)
class Service:
    """Turns of a memory plugin or a model provider with a stand-in for its service."""

    run: str
    """The run that it is made of."""
    kind: str = ""
    """Which of `services.SERVICES`; empty: it is a program, or nothing beside the plugin."""
    env: Mapping[str, str] = field(default_factory=dict)
    """Here and in `config`, `{url}` stands for the stand-in's address, `{home}` for the run's home directory."""
    config: Mapping[str, Any] = field(default_factory=dict)
    programs: Mapping[str, str] = field(default_factory=dict)
    prepare: str = ""
    """Python that runs before the agent starts: what its vendor's own support for tests has to do."""
    write: tuple[str, Mapping[str, Any]] | None = None
    """The tool, with its arguments, that the model calls when it is told something."""
    read: tuple[str, Mapping[str, Any]] | None = None
    """The one that it calls when it is asked."""
    recalls: bool = True
    """Whether the plugin brings what it knows without being asked for it."""


@dataclass(frozen=True)
class Setting:
    """What a plugin needs around it, from `circumstances.toml`; nothing for most."""

    folder: str = ""
    """Its plugin folder inside the installed files, where no manifest tells."""
    installer: tuple[tuple[str, ...], ...] = ()
    """The commands of its own installer."""
    env: Mapping[str, str] = field(default_factory=dict)
    """Made-up values that need a certain form."""
    files: Mapping[str, str] = field(default_factory=dict)
    """Files below the run's home directory, with their text."""
    programs: Mapping[str, str] = field(default_factory=dict)
    """Stand-ins for other vendors' programs, as scripts: there in the `:configured` runs alone."""
    service: Service | None = None
    """A further run, `service`: turns with a stand-in for what it speaks to."""


@dataclass(frozen=True)
class Run:
    """One way of installing and configuring a plugin."""

    plugin: str
    mode: str
    """`entrypoint`, `dir`, `dir-memory`, `installer`; `:configured` after it: with made-up credentials."""
    enabled: tuple[str, ...]
    env: tuple[str, ...]
    memory_provider: str
    loads: bool
    """Whether it is expected to load."""
    registered: Mapping[str, Any]
    refused: tuple[str, ...] | None = None
    """Names of the host that the run asks for and does not get; None: that is not compared."""
    reason: str = ""
    """Why it does not load: part of the error that is expected."""
    without_env: bool = False
    """The first half of a run whose manifest asks for variables: they are missing."""

    @property
    def layout(self) -> str:
        """The mode without its conditions."""
        return self.mode.partition(":")[0]

    @property
    def configured(self) -> bool:
        """Whether credentials are there."""
        return self.mode.endswith(":configured")


@dataclass(frozen=True)
class Repository:
    """A plugin that is a folder of a repository."""

    name: str
    """Owner and name, with a slash between them."""
    commit: str
    folder: str
    source: str
    """Hash of the folder's source."""
    place: Path | None
    """The folder; None if it is not there."""


@dataclass(frozen=True)
class Plugin:
    """A published plugin at one version."""

    name: str
    version: str
    listing: str
    """The file that lists it."""
    runs: tuple[Run, ...]
    setting: Setting
    lock: Path
    """Its files and those of its dependencies, with their hashes."""
    repository: Repository | None = None
    """Where it is, if it is on no package index."""


def plugins(names: Iterable[str] = (), *, data: Path = DATA, later: Path | None = None) -> list[Plugin]:
    """Return the plugins of the lists.

    Args:
        names: these alone; a part of a name will do.
        later: the folder with the repositories of `contract23.toml`.

    Raises:
        SystemExit: no plugin has such a name.
    """
    table = tomllib.loads((data / "circumstances.toml").read_text(encoding="utf-8"))
    found: list[Plugin] = []
    for listing, expectations in LISTS:
        for line in (data / listing).read_text(encoding="utf-8").split():
            name, _, version = line.partition("==")
            setting = _setting(table.get(name, {}))
            found.append(Plugin(name, version, listing, _runs(data, expectations, name), setting, _lock(data, name)))
    repositories = tomllib.loads((data / f"{LATER}.toml").read_text(encoding="utf-8"))
    for name, raw in repositories.items():
        place = later / raw["repository"].replace("/", "+") / raw["folder"] if later is not None else None
        there = place if place is not None and place.is_dir() else None
        repository = Repository(raw["repository"], raw["commit"], raw["folder"], raw["source"], there)
        runs, setting = _runs(data, LATER, name), _setting(table.get(name, {}))
        version = raw["commit"][:12]
        found.append(Plugin(name, version, f"{LATER}.toml", runs, setting, _lock(data, name), repository))
    wanted = list(names)
    for name in wanted:
        if not any(name in p.name for p in found):
            raise SystemExit(f"no plugin of the lists is named {name}: see {data / 'open.txt'}")
    return [p for p in found if not wanted or any(name in p.name for name in wanted)]


def _runs(data: Path, expectations: str, name: str) -> tuple[Run, ...]:
    expected = json.loads((data / expectations / f"{name}.json").read_text(encoding="utf-8"))
    return tuple(_run(name, raw) for raw in expected["runs"])


def _lock(data: Path, name: str) -> Path:
    return data / "locks" / f"{name}.txt"


def _run(plugin: str, raw: Mapping[str, Any]) -> Run:
    return Run(
        plugin,
        raw["mode"],
        tuple(raw["enabled"]),
        tuple(raw["env"]),
        raw["memory_provider"] or "",
        raw["loads"],
        raw["registered"] or {},
        tuple(raw["refused"]) if "refused" in raw else None,
        raw.get("reason", ""),
    )


def _setting(raw: Mapping[str, Any]) -> Setting:
    return Setting(
        raw.get("folder", ""),
        tuple(tuple(command) for command in raw.get("installer", ())),
        raw.get("env", {}),
        raw.get("files", {}),
        raw.get("programs", {}),
        Service(**raw["service"]) if "service" in raw else None,
    )
