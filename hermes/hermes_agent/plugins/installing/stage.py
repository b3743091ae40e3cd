"""Fetch a plugin into a staging folder and read what it says about itself; nothing of it is run."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from hermes_agent.config.bounded_yaml import BoundedDocument, YamlRejected, read_yaml
from hermes_agent.core.errors import UserError
from hermes_agent.plugins.installing.git import fetch_git
from hermes_agent.plugins.installing.source import ARCHIVES, PluginSource
from hermes_agent.plugins.installing.unpack import copy_tree, unpack
from hermes_agent.plugins.manifest import MANIFEST_NAMES, InvalidManifest, PluginManifest, read_manifest

__all__ = ["MANIFEST_VERSION", "STAGING", "StagedPlugin", "fetch", "is_python_package", "read_staged", "staging"]

STAGING = ".staging"
"""Below `plugins/` of the home, so that the last step is a rename; discovery leaves it out."""
MANIFEST_VERSION = 1
LEFTOVER_S = 24 * 3600
"""Age at which a staging folder that nobody removed is removed by the next one."""
PACKAGE_FILES = ("pyproject.toml", "setup.py", "PKG-INFO")
MANIFEST_FIELDS = ("pip_dependencies", "permissions")


class StagedPlugin(NamedTuple):
    """A plugin that was fetched and may be put in its place."""

    manifest: PluginManifest
    """Its path is the staged folder, its source `user`."""
    origin: dict[str, Any]
    """What the record of the plugin will say about where it came from."""
    document: BoundedDocument
    """The manifest's text: `pip_dependencies`, `permissions`."""

    @property
    def dependencies(self) -> list[str]:
        """The Python packages that the manifest names."""
        value = self.document.values.get("pip_dependencies")
        return [str(item) for item in value if isinstance(item, str)] if isinstance(value, list) else []

    @property
    def permissions(self) -> dict[str, list[str]]:
        """What the manifest says that the plugin touches (`network`, `files`, …); nothing holds it to that."""
        value = self.document.values.get("permissions")
        if not isinstance(value, dict):
            return {}
        return {str(k): [str(x) for x in (v if isinstance(v, list) else [v])] for k, v in value.items()}


@contextlib.contextmanager
def staging(home: Path) -> Iterator[Path]:
    """Give an empty folder on the file system of the plugins; it is gone afterwards.

    Raises:
        UserError: it cannot be made.
    """
    root = home / "plugins" / STAGING
    place = root / f"{os.getpid()}-{os.urandom(4).hex()}"
    try:
        place.mkdir(mode=0o700, parents=True)
    except OSError as exc:
        raise UserError(f"cannot write to {home / 'plugins'}: {exc.strerror}") from exc
    try:
        _remove_leftovers(root)
        yield place
    finally:
        shutil.rmtree(place, ignore_errors=True)
        with contextlib.suppress(OSError):  # somebody else stages something
            root.rmdir()


def fetch(
    source: PluginSource, place: Path, tell: Callable[[bytes], None] | None = None
) -> tuple[Path, dict[str, Any]]:
    """Fetch the source below `place`; return the folder that it names, and its origin.

    Raises:
        UserError: it cannot be fetched, or has no such folder.
    """
    fetched, target = place / "fetched", place / "plugin" / _basename(source)
    origin = source.as_origin()
    match source.kind:
        case "git":
            origin["commit"] = fetch_git(source, fetched, tell)
        case "archive":
            with Path(source.location).open("rb") as file:
                origin["sha256"] = hashlib.file_digest(file, "sha256").hexdigest()
            unpack(Path(source.location), fetched)
        case "directory":
            fetched = Path(source.location)
        case "pip":
            raise ValueError("a Python package is not fetched as a folder")
    folder = _plugin_folder(fetched, source)
    copy_tree(folder, target, source.label)
    return target, origin


def is_python_package(folder: Path) -> bool:
    """Say whether the folder is no directory plugin but a Python project."""
    has_manifest = any((folder / name).is_file() for name in MANIFEST_NAMES)
    return not has_manifest and any((folder / name).is_file() for name in PACKAGE_FILES)


def read_staged(folder: Path, origin: Mapping[str, Any], shown: str) -> StagedPlugin:
    """Read the manifest of a fetched plugin.

    Args:
        shown: the source, for the refusals.

    Raises:
        UserError: there is none, it cannot be used, or is of a version that this release does not know.
    """
    file = next((folder / name for name in MANIFEST_NAMES if (folder / name).is_file()), None)
    if file is None:
        raise UserError(f"{shown} has no plugin.yaml", hint=_nearby(folder))
    try:
        manifest = read_manifest(str(file), source="user")
        document = read_yaml(str(file), MANIFEST_FIELDS)
    except (InvalidManifest, YamlRejected) as exc:
        raise UserError(f"the plugin.yaml of {shown} cannot be used: {exc}") from exc
    written = document.scalars.get("manifest_version", "")
    if written and not (written.isdigit() and int(written) <= MANIFEST_VERSION):
        line = document.lines["manifest_version"]
        raise UserError(
            f"the plugin.yaml of {shown} says `manifest_version: {written}` (line {line}); "
            f"this release reads version {MANIFEST_VERSION}",
            hint="Update hermes-agent, or install an older version of the plugin with --ref.",
        )
    return StagedPlugin(manifest, dict(origin), document)


def _plugin_folder(fetched: Path, source: PluginSource) -> Path:
    folder = fetched / source.subdir if source.subdir else fetched
    if not folder.resolve().is_relative_to(fetched.resolve()) or not folder.is_dir():
        raise UserError(f"{source.label}: there is no folder {source.subdir!r}", hint=_nearby(fetched))
    inside = [path for path in folder.iterdir() if path.name != ".git"]
    if source.kind == "archive" and len(inside) == 1 and inside[0].is_dir():  # everything lies in one folder
        return inside[0]
    return folder


def _basename(source: PluginSource) -> str:
    """Return the name of the folder that the source names: a manifest without a name takes it."""
    name = (source.subdir or source.location).rstrip("/").rpartition("/")[2].rpartition(":")[2]
    ending = next((e for e in (".git", *sorted(ARCHIVES, key=len, reverse=True)) if name.lower().endswith(e)), "")
    return name[: len(name) - len(ending)] or "plugin"


def _nearby(folder: Path) -> str:
    """Return a hint that names the plugins below a folder."""
    found = sorted(
        str(path.parent.relative_to(folder))
        for pattern in ("*/plugin.y*ml", "*/*/plugin.y*ml")
        for path in folder.glob(pattern)
    )
    if not found:
        return "A directory plugin has plugin.yaml and __init__.py at its root."
    return f"There are plugins in: {', '.join(found[:10])}. Name one of them behind `#` (or `/` for owner/repo)."


def _remove_leftovers(root: Path) -> None:
    for old in root.iterdir():
        with contextlib.suppress(OSError):  # another process removes it as well
            if time.time() - old.stat().st_mtime > LEFTOVER_S:
                shutil.rmtree(old, ignore_errors=True)
