"""Discovery of plugins: their sources in order, both folder layouts, and conflicts about a key.

Discovery imports no plugin and decides nothing: `activation` decides which plugins run.

The memory plugin that `memory.provider` names may be missing in a general scan. A bundled memory is read only if it is
selected. For a memory in the home, upstream's loader needs no manifest: it looks for a folder
`HOME/plugins/<memory.provider>` with an `__init__.py` that mentions a memory. Source: plugin contract §1.1, §1.2,
§1.14.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from hermes_agent.core.lazy_types import LazyNamedTuple
from hermes_agent.plugins.entry_points import (
    GROUPS,
    EntryPoint,
    IndexMismatch,
    PluginIndex,
    find_entry_points,
    find_index,
)
from hermes_agent.plugins.manifest import (
    MANIFEST_NAMES,
    InvalidManifest,
    PluginManifest,
    guess_kind,
    name_problem,
    read_manifest,
)
from hermes_agent.system.installation import BUNDLED_PLUGINS

logger = logging.getLogger(__name__)

BUNDLED, DECLARED, ENTRYPOINT, USER, PROJECT = "bundled", "declared", "entrypoint", "user", "project"
PLATFORMS = "platforms"
"""Folder of the bundled root that is scanned as a root of its own: its keys have no prefix `platforms/`."""
MODEL_PROVIDERS = "model-providers"
"""Folder of the bundled root that is no category: `models.bundled` reads its profiles on demand."""
SPEECH = "speech"
"""Folder of the bundled root that is no category: `media.service` reads the provider that `tts.provider` or
`stt.provider` names.
"""
TERMINAL = "terminal"
"""Folder of the bundled root that is no category: `workspace.backend_selection` reads the backend that
`terminal.backend` names.
"""
MEMORY = "memory"
"""Folder of the bundled root that is no category: a memory is read if `memory.provider` names it (`add_memory_folder`).
"""
SKIPPED = frozenset(
    {
        *(".git", ".staging", ".removed"),
        *(".claude-plugin", ".codex-plugin", ".cursor-plugin", ".devin-plugin", ".kimi-plugin"),
    }
)
"""Folders without plugins, besides names in double underscores. `hermes plugins` uses the second and third for
unfinished installations and removed plugins; the others belong to other programs.
"""


_CATEGORIES = {"exclusive": "memory/", "model-provider": "model-providers/"}
"""Prefix of an entry point's key, by kind; the same as for a folder."""


ReadManifest = Callable[..., PluginManifest]


class PluginRoot(LazyNamedTuple):
    """A directory that contains plugins or categories of plugins."""

    source: str
    path: Path


class RejectedPlugin(LazyNamedTuple):
    """A folder or entry point that is no usable plugin."""

    name: str
    """Key of the plugin, or the name of its folder if the manifest cannot be read."""
    source: str
    path: str
    reason: str
    rival: str = ""
    """Path of the plugin that has the key; empty if the plugin itself is invalid."""


class Discovery:
    """The plugins that a scan found.

    Args:
        read: reads a manifest, as `read_manifest` does.
    """

    def __init__(self, read: ReadManifest = read_manifest) -> None:
        self.read = read
        self.plugins: dict[str, PluginManifest] = {}
        """Manifests by key, in load order: a key keeps the position of its first occurrence."""
        self.rejected: list[RejectedPlugin] = []
        self.index = ""
        """The `plugins.json` used for bundled and declared plugins; empty if the directories were scanned."""
        self.index_ignored = ""
        """Why an existing `plugins.json` was not used; empty if it was used or does not exist."""

    def add_dependency(self, path: str) -> None:
        """Record that the result depends on this file or directory."""

    def add(self, manifest: PluginManifest) -> None:
        """Add a plugin; a later source replaces a bundled plugin, otherwise the first plugin of a key stays."""
        present = self.plugins.get(manifest.key)
        if present is None:
            self.plugins[manifest.key] = manifest
        elif present.source == BUNDLED and manifest.source != BUNDLED:
            logger.warning(
                "the %s plugin `%s` (%s) replaces the bundled one", manifest.source, manifest.key, manifest.path
            )
            self.plugins[manifest.key] = manifest._replace(replaces=present.path)
        elif os.path.realpath(present.path) != os.path.realpath(manifest.path):  # else: one plugin, found twice
            reason = f"`{manifest.key}` is already the {present.source} plugin {_describe_place(present)}"
            self.reject(
                RejectedPlugin(
                    manifest.key, manifest.source, _describe_place(manifest), reason, rival=_describe_place(present)
                )
            )

    def reject(self, rejected: RejectedPlugin) -> None:
        """Record a plugin that cannot be used, and log a conflict about its key."""
        if rejected.rival:
            logger.warning("the plugin at %s is not used: %s", rejected.path, rejected.reason)
        self.rejected.append(rejected)


def is_on(value: str | None) -> bool:
    """Return whether an environment variable is switched on: 1, true, yes or on."""
    return (value or "").strip().lower() in ("1", "true", "yes", "on")


def plugin_roots(home: Path, environ: Mapping[str, str], cwd: Path) -> dict[str, list[PluginRoot]]:
    """Return the directories to scan, by source, in order.

    `HERMES_BUNDLED_PLUGINS` is a `:`-separated list: the bundled directory (empty: that of the package), then the
    directories that a build declared.
    """
    bundled, *declared = environ.get("HERMES_BUNDLED_PLUGINS", "").split(":")
    own = Path(bundled) if bundled else BUNDLED_PLUGINS
    project = is_on(environ.get("HERMES_ENABLE_PROJECT_PLUGINS"))
    return {
        BUNDLED: [PluginRoot(BUNDLED, own), PluginRoot(BUNDLED, own / PLATFORMS)],
        DECLARED: [PluginRoot(DECLARED, Path(path)) for path in declared if path],
        USER: [PluginRoot(USER, home / "plugins")],
        PROJECT: [PluginRoot(PROJECT, cwd / ".hermes" / "plugins")] if project else [],
        ENTRYPOINT: [],
    }


def discover(
    home: Path,
    environ: Mapping[str, str],
    cwd: Path,
    *,
    path: Sequence[str] | None = None,
    extra: Iterable[PluginRoot] = (),
    read: ReadManifest = read_manifest,
) -> Discovery:
    """Scan every source.

    Args:
        path: directories of installed packages; None means `sys.path`.
        extra: additional roots, after the declared ones.
        read: replaces `read_manifest`.
    """
    found = Discovery(read)
    if is_on(environ.get("HERMES_SAFE_MODE")):
        logger.info("HERMES_SAFE_MODE=1 — plugin discovery skipped")
        return found
    index = _open_index(found, environ)
    for source, roots in plugin_roots(home, environ, cwd).items():
        if source == PROJECT and not roots:
            logger.debug("plugins of the project are not looked for: HERMES_ENABLE_PROJECT_PLUGINS is not set")
        if source == ENTRYPOINT:
            _take_entry_points(found, _entry_points(index, path))
        if index is not None and source in (BUNDLED, DECLARED):
            _take_indexed(found, index, source)
        else:
            for root in roots:
                _scan(found, root)
        if source == DECLARED:
            for root in extra:
                _scan(found, root)
    return found


def index_roots(environ: Mapping[str, str]) -> list[tuple[str, str]]:
    """Return source and path of each directory that an index covers, in the order of the scan."""
    roots = plugin_roots(Path(), environ, Path())
    return [(root.source, str(root.path)) for source in (BUNDLED, DECLARED) for root in roots[source]]


def scan_sources(found: Discovery, environ: Mapping[str, str], sources: Iterable[str]) -> None:
    """Scan those of the sources that do not depend on the home and the working directory."""
    roots = plugin_roots(Path(), environ, Path())
    for source in sources:
        for root in roots[source]:
            _scan(found, root)


def _open_index(found: Discovery, environ: Mapping[str, str]) -> PluginIndex | None:
    roots = index_roots(environ)
    file = find_index(environ, [path for source, path in roots if source == DECLARED])
    if file is None:
        return None
    try:
        index = PluginIndex.read(file, roots)
    except IndexMismatch as exc:
        found.index_ignored = f"the plugin index {file} is not used: {exc}"
        logger.warning("%s; the plugins are looked for (`hermes plugins index` writes a new one)", found.index_ignored)
        return None
    found.index = file
    logger.debug("bundled and declared plugins from the index %s", file)
    return index


def _take_indexed(found: Discovery, index: PluginIndex, source: str) -> None:
    for each in index.found(source):
        if each.manifest is None:
            found.reject(RejectedPlugin(each.name, source, each.path, each.reason))
        else:
            _log_found(each.manifest)
            found.add(each.manifest)


def _entry_points(index: PluginIndex | None, path: Sequence[str] | None) -> list[EntryPoint]:
    known = None if index is None else index.entry_points(sys.path if path is None else path)
    return find_entry_points(path) if known is None else known


def entry_point_key(group: str, name: str) -> str:
    """Return the key of an entry point; its prefix separates plugins, memories and model providers."""
    return f"{_CATEGORIES.get(GROUPS[group], '')}{name}"


def _take_entry_points(found: Discovery, points: list[EntryPoint]) -> None:
    for point in points:
        problem = name_problem(point.name)
        if problem is not None:
            found.reject(RejectedPlugin(point.name, ENTRYPOINT, point.value, f"{point.distribution}: {problem}"))
            continue
        manifest = PluginManifest(
            name=point.name,
            requires_env=[],
            provides_tools=[],
            provides_hooks=[],
            key=entry_point_key(point.group, point.name),
            kind=GROUPS[point.group],
            source=ENTRYPOINT,
            path=point.value,
            distribution=point.distribution,
            capabilities=list(point.capabilities),
        )
        _log_found(manifest)
        found.add(manifest)
    logger.debug("entry points: %d plugin(s)", len(points))


def _scan(found: Discovery, root: PluginRoot) -> None:
    found.add_dependency(str(root.path))
    if _manifest_file(str(root.path)) is not None:  # the directory itself is a plugin
        _take(found, root, str(root.path), "")
        return
    folders = _folders(found, root, str(root.path))
    manifests = 0
    for folder in folders:
        directory = f"{root.path}/{folder}"
        found.add_dependency(directory)
        if _manifest_file(directory) is not None:
            _take(found, root, directory, "")
            manifests += 1
        elif not (root.source == BUNDLED and folder in (PLATFORMS, MODEL_PROVIDERS, MEMORY, SPEECH, TERMINAL)):
            manifests += _scan_category(found, root, folder)
    logger.debug("scanned %s (%s): %d folder(s), %d manifest(s)", root.path, root.source, len(folders), manifests)


def _scan_category(found: Discovery, root: PluginRoot, category: str) -> int:
    """Scan the folders of a category and return the number of manifests."""
    manifests = 0
    for folder in _folders(found, root, f"{root.path}/{category}"):
        directory = f"{root.path}/{category}/{folder}"
        found.add_dependency(directory)
        if _manifest_file(directory) is not None:
            _take(found, root, directory, category)
            manifests += 1
        else:
            logger.debug("skip %s: no plugin.yaml, depth cap reached", directory)
    return manifests


def _take(found: Discovery, root: PluginRoot, directory: str, category: str) -> None:
    file = _manifest_file(directory)
    if file is None:
        return
    found.add_dependency(file)
    try:
        manifest = found.read(file, source=root.source, category=category)
    except InvalidManifest as exc:
        logger.warning("Failed to parse %s: %s", file, exc)
        logger.debug("traceback of %s", file, exc_info=exc)
        folder = os.path.basename(directory)  # noqa: PTH119
        name = f"{category}/{folder}" if category else folder
        if guess_kind(directory) == "exclusive" and name_problem(folder) is None:
            # upstream's loader of memories reads no manifest, and some published manifests are no YAML
            note = f"{os.path.basename(file)}: {exc}; passed over"  # noqa: PTH119
            _add(
                found,
                PluginManifest(folder, source=root.source, path=directory, kind="exclusive", key=name, notes=(note,)),
            )
            return
        found.reject(RejectedPlugin(name, root.source, directory, f"{os.path.basename(file)}: {exc}"))  # noqa: PTH119
        return
    _add(found, manifest)


def _add(found: Discovery, manifest: PluginManifest) -> None:
    _log_found(manifest)
    found.add(manifest)


def _folders(found: Discovery, root: PluginRoot, directory: str) -> list[str]:
    """Return the folders of `directory`, sorted; links are followed, and a dangling link is reported."""
    folders: list[str] = []
    try:
        with os.scandir(directory) as entries:
            for entry in entries:
                if entry.name in SKIPPED or (entry.name.startswith("__") and entry.name.endswith("__")):
                    continue
                if entry.is_dir():
                    folders.append(entry.name)
                elif entry.is_symlink() and not os.path.exists(entry.path):  # noqa: PTH110
                    _note_dangling(found, root, entry.path)
    except FileNotFoundError:
        return []
    except OSError as exc:
        logger.warning("Skipping unreadable plugin directory %s: %s", directory, exc)
        return []
    return sorted(folders)


def _note_dangling(found: Discovery, root: PluginRoot, link: str) -> None:
    reason = f"the link leads to {os.readlink(link)}, which is not there"  # noqa: PTH115
    logger.warning("the plugin at %s is not used: %s", link, reason)
    found.reject(RejectedPlugin(os.path.basename(link), root.source, link, reason))  # noqa: PTH119


def is_plugin_folder(directory: Path) -> bool:
    """Return whether a manifest is at the root of `directory`."""
    return _manifest_file(str(directory)) is not None


def _manifest_file(directory: str) -> str | None:
    for name in MANIFEST_NAMES:
        file = f"{directory}/{name}"
        if os.path.lexists(file):
            return file
    return None


def _log_found(manifest: PluginManifest) -> None:
    logger.debug(
        "manifest key=%s name=%s kind=%s source=%s path=%s",
        manifest.key,
        manifest.name,
        manifest.kind,
        manifest.source,
        manifest.path,
    )


def _describe_place(manifest: PluginManifest) -> str:
    return f"{manifest.distribution} ({manifest.path})" if manifest.distribution else manifest.path


def bundled_memories() -> dict[str, Path]:
    """Return the folders of the bundled memories by name."""
    roots = [root.path / MEMORY for root in plugin_roots(Path(), os.environ, Path())[BUNDLED][:1]]
    folders = [
        folder for root in roots if root.is_dir() for folder in sorted(root.iterdir()) if is_plugin_folder(folder)
    ]
    return {folder.name: folder for folder in folders}


def add_memory_folder(found: Discovery, home: Path, name: str) -> None:
    """Add the memory that `memory.provider` names, unless the name means a plugin that was found.

    Args:
        name: the setting. Nothing is added if it is empty or the name of a plugin that was found.
    """
    name = name.removeprefix(f"{MEMORY}/")
    if not name or name_problem(name) is not None or os.sep in name or is_on(os.environ.get("HERMES_SAFE_MODE")):
        return
    bundled = bundled_memories().get(name)
    if bundled is not None:  # a bundled memory comes first, as in upstream's loader
        manifest = read_manifest(str(bundled / "plugin.yaml"), source=BUNDLED, category=MEMORY)
        others = {k: m for k, m in found.plugins.items() if k != manifest.key}
        found.plugins.clear()
        found.plugins.update({manifest.key: manifest, **others})
        return
    if name in _known_names(found):
        return
    for folder in (home / "plugins" / name, home / "plugins" / MEMORY / name):
        if guess_kind(str(folder)) == "exclusive":
            logger.warning("memory plugin %s: it has no manifest", name)
            found.add(_read_memory_manifest(folder))
            return


def add_every_memory_folder(found: Discovery, home: Path, name: str) -> None:
    """Add the memories of the home without a manifest and the selected bundled one, for a plugin list.

    Args:
        name: `memory.provider`.
    """
    if is_on(os.environ.get("HERMES_SAFE_MODE")):
        return
    for root in (home / "plugins", home / "plugins" / MEMORY):
        try:
            folders = sorted(folder for folder in root.iterdir() if folder.is_dir())
        except OSError:  # there is no such folder, or the scan has already reported it
            continue
        taken = _known_names(found)
        for folder in folders:
            usable = name_problem(folder.name) is None and folder.name not in taken
            if usable and not is_plugin_folder(folder) and guess_kind(str(folder)) == "exclusive":
                found.add(_read_memory_manifest(folder))
    add_memory_folder(found, home, name)


def _known_names(found: Discovery) -> set[str]:
    """Return the names of the plugins that were found."""
    return {name for m in found.plugins.values() for name in (*m.answers_to, m.folder)}


def _read_memory_manifest(folder: Path) -> PluginManifest:
    name, notes = folder.name, ("it has no manifest",)
    return PluginManifest(name=name, source=USER, path=str(folder), kind="exclusive", key=name, notes=notes)
