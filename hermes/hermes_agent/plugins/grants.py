"""Grants of plugins: the granted content is pinned, and changed content does not run.

This concerns plugins in directories of the home and of a project. Bundled plugins, plugins that Nix declares and
plugins of installed packages are not pinned: their origin vouches for them.

`hermes plugins install`, `update` and `grant` grant the content, `enable` does if the plugin has no pin, and so does
the first start after the operator named the plugin in the config. `docs/plugins/trust.md` describes grants in full.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

from hermes_agent.core.errors import UserError
from hermes_agent.core.lazy_types import LazyNamedTuple
from hermes_agent.plugins.activation import Activation, PluginSettings, decide_activation
from hermes_agent.plugins.manifest import PluginManifest
from hermes_agent.plugins.pinned_files import (
    PinChanges,
    PinnedFile,
    TooManyFiles,
    compare_with_pins,
    content_hash,
    pin_files,
)
from hermes_agent.plugins.removed_list import RemovedPlugin, find_removed, read_removed
from hermes_agent.system.files import PRIVATE, write_atomic
from hermes_agent.system.locks import hold_lock

logger = logging.getLogger(__name__)

TRUST_NAME = "plugins_trust.json"
FORMAT = 1


class GrantFileError(Exception):
    """The grant file exists but cannot be used; the text says why."""


class GrantEntry(LazyNamedTuple):
    """The stored information about the plugin at one place."""

    key: str
    files: Mapping[str, PinnedFile] = MappingProxyType({})
    """Every pinned file by relative path; empty if nothing is pinned."""
    grant: Mapping[str, Any] = MappingProxyType({})
    """`hash`, `at` (ISO time), `by` (`install`, `enable`, `grant`, `update`, `first start`), `version`."""
    registers: Mapping[str, Any] = MappingProxyType({})
    """Names that the plugin registered when it was last loaded, by kind."""
    origin: Mapping[str, Any] = MappingProxyType({})
    """`kind`, `source`, `ref`, `commit`, `subdir`, `sha256`, `installed_at`, and where they apply `catalog`,
    `pinned`, `allow_removed`, `update_url`; empty for a manual installation."""

    @property
    def hash(self) -> str:
        """The granted content hash; empty without a grant."""
        return str(self.grant.get("hash", ""))


def entry_name(home: Path, manifest: PluginManifest) -> str:
    """Return the name of the plugin's entry; a path in the home is relative, so that the home may move."""
    if manifest.source == "entrypoint":
        return f"entrypoint:{manifest.key}"
    root = f"{home}/"
    return manifest.path.removeprefix(root) if manifest.path.startswith(root) else os.path.abspath(manifest.path)  # noqa: PTH100


def read_entries(home: Path) -> dict[str, GrantEntry]:
    """Return the entries by place; empty if there is no file.

    Raises:
        GrantFileError: the file cannot be read or has another format.
    """
    path = home / TRUST_NAME
    try:
        value = json.loads(path.read_bytes())
        return {str(place): _entry(raw) for place, raw in value["plugins"].items()}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as exc:
        reason = exc.strerror if isinstance(exc, OSError) else "it is damaged"
        raise GrantFileError(f"{path} cannot be used: {reason}") from exc


def write_entries(home: Path, changes: Mapping[str, GrantEntry | None]) -> None:
    """Set the entries of `changes` and remove those that are None; other entries stay.

    A damaged file is replaced by a new one.

    Raises:
        UserError: another process holds the file, or the home cannot be written.
        OSError: the file cannot be written.
    """
    path = home / TRUST_NAME
    with hold_lock(path):
        try:
            entries = read_entries(home)
        except GrantFileError:
            entries = {}
        for place, entry in changes.items():
            if entry is None:
                entries.pop(place, None)
            else:
                entries[place] = entry
        plugins = {place: _as_json(entry) for place, entry in sorted(entries.items())}
        write_atomic(path, json.dumps({"format": FORMAT, "plugins": plugins}) + "\n", mode=PRIVATE)


def _entry(raw: Mapping[str, Any]) -> GrantEntry:
    return GrantEntry(
        str(raw["key"]),
        {
            str(name): PinnedFile(str(values[0]), *map(int, values[1:5]))
            for name, values in raw.get("files", {}).items()
        },
        dict(raw.get("grant", {})),
        dict(raw.get("registers", {})),
        dict(raw.get("origin", {})),
    )


def _as_json(entry: GrantEntry) -> dict[str, Any]:
    return {
        "key": entry.key,
        "files": {name: list(pinned) for name, pinned in entry.files.items()},
        "grant": dict(entry.grant),
        "registers": dict(entry.registers),
        "origin": dict(entry.origin),
    }


PINNED_SOURCES = ("user", "project")
State = Literal["free", "dev", "pinned", "new", "changed"]


class GrantState(LazyNamedTuple):
    """Result of the comparison of a plugin's present files with its pins."""

    state: State
    """`free`: its source is not pinned; `dev`: not pinned by the operator's setting; `new`: nothing is granted yet."""
    reason: str = ""
    """Why the plugin may not run; empty if it may."""
    changes: PinChanges = PinChanges()


def mode_of(manifest: PluginManifest, settings: PluginSettings) -> str:
    """Return `plugins.entries.<id>.trust`: `pinned` (default), `code` or `dev`."""
    mode = settings.entry(manifest).get("trust", "pinned")
    return mode if mode in ("code", "dev") else "pinned"


class GrantStore:
    """The pins of one home. The file is read at the first access and written by `save` only."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._entries: dict[str, GrantEntry] | None = None
        self._removed: tuple[RemovedPlugin, ...] | None = None
        self._unreadable = ""
        self._fresh: dict[str, GrantEntry] = {}
        self._granted: dict[str, GrantEntry] = {}
        """Entries by place that changed since the last `save`."""

    @property
    def entries(self) -> Mapping[str, GrantEntry]:
        """Every entry by place."""
        if self._entries is None:
            try:
                self._entries = read_entries(self._home)
            except GrantFileError as exc:
                self._entries, self._unreadable = {}, str(exc)
        return self._entries

    def entry(self, manifest: PluginManifest) -> GrantEntry:
        """Return the stored information about the plugin at its place."""
        return self.entries.get(entry_name(self._home, manifest)) or GrantEntry(manifest.key)

    def judge(self, manifest: PluginManifest, settings: PluginSettings) -> GrantState:
        """Compare the plugin's files with the granted ones."""
        if manifest.source not in PINNED_SOURCES:
            return GrantState("free")
        mode = mode_of(manifest, settings)
        if mode == "dev":
            return GrantState("dev")
        entry = self.entry(manifest)
        if self._unreadable:
            return GrantState("changed", f"{self._unreadable} ({_remedy(manifest)})")
        try:
            if not entry.files:
                return self._judge_unknown(manifest)
            changes, touched = compare_with_pins(manifest.path, entry.files, code_only=mode == "code")
        except (OSError, TooManyFiles) as exc:
            return GrantState("changed", _unreadable_state(manifest, exc))
        if changes:
            text = f"changed since it was granted: {changes.text} ({_remedy(manifest)})"
            return GrantState("changed", text, changes)
        if touched:
            self._note(manifest, entry._replace(files={**entry.files, **touched}))
        return GrantState("pinned")

    def _judge_unknown(self, manifest: PluginManifest) -> GrantState:
        """Judge a plugin without a pin at its place: a granted plugin may have moved, or it is another one."""
        namesakes = {p: e for p, e in self.entries.items() if e.key == manifest.key and e.files}
        if not namesakes:
            return GrantState("new")
        for place, entry in namesakes.items():
            changes, _ = compare_with_pins(manifest.path, entry.files)
            if not changes:
                logger.debug("plugin `%s` is the one that was granted at %s", manifest.key, place)
                return GrantState("pinned")
        place = next(iter(namesakes))
        text = f"not granted: the `{manifest.key}` that was granted is another, at {place} ({_remedy(manifest)})"
        return GrantState("changed", text)

    def pin(self, manifest: PluginManifest, *, by: str, registers: Mapping[str, Any] | None = None) -> GrantEntry:
        """Grant the present content of the plugin; `save` writes it.

        Args:
            by: the operator's action, for the record.
            registers: the names that it registers, if known.

        Raises:
            UserError: the plugin cannot be pinned.
        """
        try:
            files = pin_files(manifest.path)
        except (OSError, TooManyFiles) as exc:
            raise UserError(f"plugin `{manifest.key}`: {_unreadable_state(manifest, exc)}") from exc
        entry = self.entry(manifest)._replace(key=manifest.key, files=files, grant=_grant(files, manifest, by))
        if registers is not None:
            entry = entry._replace(registers=registers)
        self._note(manifest, entry)
        self._granted[manifest.path] = entry
        return entry

    def learn(self, manifest: PluginManifest, registers: Mapping[str, Any]) -> None:
        """Record what the plugin registered, for the comparison at its next grant and for `explain_absence`."""
        entry = self.entry(manifest)
        if manifest.source in PINNED_SOURCES and dict(entry.registers) != dict(registers):
            self._note(manifest, entry._replace(registers=registers))

    def keep(self, registered: Iterable[tuple[PluginManifest, Mapping[str, Any]]]) -> None:
        """Record what each running plugin registered and write changes; log if the home cannot be written."""
        for manifest, registers in registered:
            self.learn(manifest, registers)
        try:
            self.save()
        except UserError as exc:
            logger.warning("%s; changes of these plugins will not be noticed", exc)

    def removal(self, manifest: PluginManifest) -> RemovedPlugin | None:
        """Return why the catalogue removed the plugin, unless the operator allowed it (`--allow-removed`)."""
        if self._removed is None:
            self._removed = read_removed(self._home)
        if not self._removed or manifest.source in ("bundled", "declared"):
            return None
        origin = self.entry(manifest).origin
        if origin.get("allow_removed") is True:
            return None
        return find_removed(self._removed, (manifest.key, manifest.name), str(origin.get("source") or ""))

    def note_origin(self, manifest: PluginManifest, origin: Mapping[str, Any]) -> None:
        """Record the origin of the plugin; `save` writes it."""
        self._note(manifest, self.entry(manifest)._replace(origin=origin))

    def save(self) -> None:
        """Write the changed entries.

        Raises:
            UserError: the home cannot be written.
        """
        if not self._fresh:
            return
        try:
            write_entries(self._home, self._fresh)
        except OSError as exc:
            raise UserError(f"the pins of plugins cannot be written: {exc.strerror}: {exc.filename}") from exc
        if self._granted:
            from hermes_agent.plugins.grant_copies import keep_copies  # hashlib, difflib: only after a grant

            needed = {pinned.sha256 for entry in self.entries.values() for pinned in entry.files.values()}
            for directory, entry in self._granted.items():
                keep_copies(self._home, directory, entry.files, needed)
        self._fresh, self._granted = {}, {}

    def forget(self, place: str) -> None:
        """Remove the entry of a place at once."""
        write_entries(self._home, {place: None})
        self._entries = None

    def _note(self, manifest: PluginManifest, entry: GrantEntry) -> None:
        place = entry_name(self._home, manifest)
        self._entries = {**self.entries, place: entry}
        self._fresh[place] = entry


def activation_with_grant(
    manifest: PluginManifest, settings: PluginSettings, has_env: Callable[[str], bool], trust: GrantStore
) -> tuple[Activation, GrantState]:
    """Return the decision whether the plugin runs, which includes its grant, and the state of the grant."""
    gate = decide_activation(manifest, settings, has_env)
    if not gate.load:
        return gate, GrantState("free")
    removal = trust.removal(manifest)
    if removal is not None:
        return Activation(False, "failed", removal.text), GrantState("free")
    verdict = trust.judge(manifest, settings)
    return (Activation(False, "changed", verdict.reason) if verdict.reason else gate), verdict


def _grant(files: Mapping[str, PinnedFile], manifest: PluginManifest, by: str) -> dict[str, Any]:
    from datetime import UTC, datetime  # a start that pins nothing does not need it

    at = datetime.now(UTC).isoformat(timespec="seconds")
    return {"hash": content_hash(files), "at": at, "by": by, "version": manifest.version}


def _remedy(manifest: PluginManifest) -> str:
    return f"run `hermes plugins grant {manifest.key}` to see and allow it"


def _unreadable_state(manifest: PluginManifest, exc: Exception) -> str:
    reason = f"{exc.filename}: {exc.strerror}" if isinstance(exc, OSError) else str(exc)
    way = f"`plugins.entries.{manifest.key}.trust: dev` does without"
    return f"its files cannot be compared with a grant: {reason} ({way})"
