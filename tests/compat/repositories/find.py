"""Find the plugins in a folder with repositories, and say how each is installed."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

__all__ = ["RepositoryPlugin", "find_plugins"]

PASSED_OVER = {
    "node_modules",
    "tests",
    "test",
    ".git",
    "vendor",
    "venv",
    ".venv",
    "templates",
    "fixtures",
    "__pycache__",
}
"""Folders that have no plugin of the repository itself."""
MANIFESTS = ("plugin.yaml", "plugin.yml")
GROUP = "hermes_agent.plugins"


@dataclass(frozen=True)
class RepositoryPlugin:
    """A plugin in a repository, with how it is installed."""

    repository: str
    """Owner and name with a plus sign between them."""
    folder: str
    """Path in the repository; a full stop for its root."""
    mode: str
    """`dir`, `dir-memory`, `dir-provider` or `entrypoint`."""
    name: str
    """What `plugins.enabled` or `memory.provider` says."""
    env: tuple[str, ...] = ()
    """Variables that its manifest names."""
    entry_points: tuple[str, ...] = ()
    """Lines of its group; none for a folder."""
    paths: tuple[str, ...] = ()
    """Folders of the repository that its modules lie in, for an entry point."""

    @property
    def key(self) -> str:
        """The name of its record."""
        return f"{self.repository}:{self.folder.replace('/', '_')}{'' if self.mode != 'entrypoint' else '!'}"


def find_plugins(place: Path) -> list[RepositoryPlugin]:
    """Return the plugins of every repository in a folder, in the order of their keys."""
    found = [p for repository in sorted(place.iterdir()) if repository.is_dir() for p in _of_repository(repository)]
    return sorted(found, key=lambda plugin: plugin.key)


def _of_repository(repository: Path) -> Iterator[RepositoryPlugin]:
    folders: list[str] = []
    for here, folder_names, file_names in os.walk(repository):
        folder_names[:] = sorted(n for n in folder_names if n not in PASSED_OVER)
        manifest = next((Path(here) / n for n in MANIFESTS if n in file_names), None)
        if manifest is not None and "__init__.py" in file_names:
            folder = str(Path(here).relative_to(repository))
            folders.append(folder)
            yield _of_folder(repository, folder, _manifest(manifest))
    yield from _entry_points(repository)


def _of_folder(repository: Path, folder: str, manifest: Mapping[str, Any]) -> RepositoryPlugin:
    fallback = repository.name.partition("+")[2] if folder == "." else Path(folder).name
    name = str(manifest.get("name") or fallback)
    source = (repository / folder / "__init__.py").read_text(encoding="utf-8", errors="replace")
    mode = "dir"
    if manifest.get("kind") == "model-provider":
        mode = "dir-provider"
    elif "register_memory_provider" in source or "MemoryProvider" in source:
        mode = "dir-memory"
    asked = [*_names(manifest.get("requires_env")), *_names(manifest.get("optional_env"))]
    return RepositoryPlugin(repository.name, folder, mode, name, tuple(dict.fromkeys(asked)))


def _names(value: Any) -> list[str]:
    items = value if isinstance(value, list) else []
    return [str(item.get("name")) if isinstance(item, Mapping) else str(item) for item in items]


def _entry_points(repository: Path) -> Iterator[RepositoryPlugin]:
    for here, folder_names, file_names in os.walk(repository):
        folder_names[:] = sorted(n for n in folder_names if n not in PASSED_OVER)
        if "pyproject.toml" not in file_names:
            continue
        try:
            read = tomllib.loads((Path(here) / "pyproject.toml").read_text(encoding="utf-8"))
        except (tomllib.TOMLDecodeError, UnicodeDecodeError):
            continue
        points = read.get("project", {}).get("entry-points", {}).get(GROUP, {})
        if points:
            folder = str(Path(here).relative_to(repository))
            lines = tuple(f"{name} = {value}" for name, value in points.items())
            paths = tuple(
                str((Path(here) / p).relative_to(repository)) for p in ("", "src") if (Path(here) / p).is_dir()
            )
            yield RepositoryPlugin(repository.name, folder, "entrypoint", next(iter(points)), (), lines, paths)


def _manifest(file: Path) -> Mapping[str, Any]:
    try:
        read = yaml.safe_load(file.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError):
        return {}
    return read if isinstance(read, dict) else {}
