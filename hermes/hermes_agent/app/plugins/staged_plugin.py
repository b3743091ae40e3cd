"""Staged plugins: fetch one, read its manifest, preview its registrations, move it into place.

The preview loads the plugin in the sandbox (`app.plugins.check_report`), without anything of the user. The final step
is a rename, so that no reader sees half a plugin; the previous version is kept aside.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from hermes_agent.app.cli.command import activity
from hermes_agent.app.plugins.check import read_outcome
from hermes_agent.app.plugins.check_report import check_in_sandbox
from hermes_agent.app.plugins.sources import ARCHIVES, GitProgram, PluginSource, copy_tree, fetch_git, unpack
from hermes_agent.config.bounded_yaml import BoundedDocument, YamlRejected, read_yaml
from hermes_agent.core.errors import UserError
from hermes_agent.core.lazy_types import LazyNamedTuple
from hermes_agent.plugins.discovery import BUNDLED, Discovery
from hermes_agent.plugins.manifest import MANIFEST_NAMES, InvalidManifest, PluginManifest, read_manifest
from hermes_agent.plugins.requirements import hermes_refusal

logger = logging.getLogger(__name__)

STAGING = ".staging"
"""Folder in `plugins/` of the home, so that the final step is a rename; discovery skips it."""
LEFTOVER_S = 24 * 3600
"""Age, in seconds, at which the next install removes an abandoned staging folder."""
PACKAGE_FILES = ("pyproject.toml", "setup.py", "PKG-INFO")
MANIFEST_FIELDS = ("pip_dependencies", "permissions")


class StagedPlugin(LazyNamedTuple):
    """A fetched plugin that can be moved into place."""

    manifest: PluginManifest
    """The manifest; its path is the staged folder, its source `user`."""
    origin: dict[str, Any]
    """Origin of the plugin, for the grant store."""
    document: BoundedDocument
    """Fields that the manifest object lacks: `pip_dependencies`, `permissions`."""

    @property
    def dependencies(self) -> list[str]:
        """Return the Python packages in `pip_dependencies`."""
        value = self.document.values.get("pip_dependencies")
        return [str(item) for item in value if isinstance(item, str)] if isinstance(value, list) else []

    @property
    def permissions(self) -> dict[str, list[str]]:
        """Return what the plugin declares to use (`network`, `files`, …); this is not enforced."""
        value = self.document.values.get("permissions")
        if not isinstance(value, dict):
            return {}
        return {str(k): [str(x) for x in (v if isinstance(v, list) else [v])] for k, v in value.items()}


@contextlib.contextmanager
def staging(home: Path) -> Iterator[Path]:
    """Yield an empty folder on the file system of the plugins; remove it at the end.

    Raises:
        UserError: the folder cannot be created.
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
        with contextlib.suppress(OSError):  # another process uses it
            root.rmdir()


def fetch(
    source: PluginSource, place: Path, tell: Callable[[bytes], None] | None = None
) -> tuple[Path, dict[str, Any]]:
    """Fetch a source into `place`; return the folder of the plugin, and its origin.

    Args:
        tell: receives the output of the program that fetches.

    Raises:
        UserError: the source cannot be fetched, or lacks the requested folder.
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


def remote_commit(source: PluginSource) -> str:
    """Return the present commit of a git source without fetching it.

    Raises:
        UserError: git is not installed, or it fails, or the source has no such branch or tag.
    """
    program = shutil.which("git")
    if program is None:
        raise UserError("the program git is not there", hint="Install git, and try again.")
    git = GitProgram(program, Path.cwd(), limit_s=30.0)
    lines = git("ls-remote", "--", source.location, source.ref or "HEAD", why=source).splitlines()
    if not lines:
        raise UserError(f"{source.label} is not there any more")
    return lines[-1].split()[0]  # of an annotated tag, the last line is its commit


def is_python_package(folder: Path) -> bool:
    """Return True if the folder is a Python project and not a directory plugin."""
    has_manifest = any((folder / name).is_file() for name in MANIFEST_NAMES)
    return not has_manifest and any((folder / name).is_file() for name in PACKAGE_FILES)


def read_staged(folder: Path, origin: Mapping[str, Any], shown: str) -> StagedPlugin:
    """Read the manifest of a fetched plugin.

    Args:
        shown: the source, for error messages.

    Raises:
        UserError: the manifest is missing or invalid, or requires an unsupported version of hermes-agent.
    """
    file = next((folder / name for name in MANIFEST_NAMES if (folder / name).is_file()), None)
    if file is None:
        raise UserError(f"{shown} has no plugin.yaml", hint=_nearby(folder))
    try:
        manifest = read_manifest(str(file), source="user")
        document = read_yaml(str(file), MANIFEST_FIELDS)
    except (InvalidManifest, YamlRejected) as exc:
        raise UserError(f"the plugin.yaml of {shown} cannot be used: {exc}") from exc
    refusal = hermes_refusal(manifest.requires_hermes)
    if refusal:
        raise UserError(f"{shown}: {refusal}", hint="Install another version of the plugin with --ref.")
    return StagedPlugin(manifest, dict(origin), document)


def _plugin_folder(fetched: Path, source: PluginSource) -> Path:
    folder = fetched / source.subdir if source.subdir else fetched
    if not folder.resolve().is_relative_to(fetched.resolve()) or not folder.is_dir():
        raise UserError(f"{source.label}: there is no folder {source.subdir!r}", hint=_nearby(fetched))
    inside = [path for path in folder.iterdir() if path.name != ".git"]
    if (
        source.kind == "archive" and len(inside) == 1 and inside[0].is_dir()
    ):  # the archive has a single top-level folder
        return inside[0]
    return folder


def _basename(source: PluginSource) -> str:
    """Return the folder name that the source implies; a manifest without a name uses it."""
    name = (source.subdir or source.location).rstrip("/").rpartition("/")[2].rpartition(":")[2]
    ending = next((e for e in (".git", *sorted(ARCHIVES, key=len, reverse=True)) if name.lower().endswith(e)), "")
    return name[: len(name) - len(ending)] or "plugin"


def _nearby(folder: Path) -> str:
    """Return a hint that lists the plugins below a folder."""
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
        with contextlib.suppress(OSError):  # another process may remove it at the same time
            if time.time() - old.stat().st_mtime > LEFTOVER_S:
                shutil.rmtree(old, ignore_errors=True)


EXAMPLE = ".example"
REMOVED = ".removed"
"""Folder in `plugins/` of the home for removed and replaced plugins; discovery skips it."""
_EXCHANGE = 2
"""RENAME_EXCHANGE of renameat2(2)."""
_AT_FDCWD = -100


def target_folder(home: Path, manifest: PluginManifest) -> Path:
    """Return the folder into which a plugin is installed; its name has no `/` (`manifest.name_problem`)."""
    return home / "plugins" / manifest.name


def name_collision(manifest: PluginManifest, target: Path, found: Discovery) -> tuple[str, str, bool] | None:
    """Return the conflict of a new plugin's name with an existing plugin or file, or None.

    Returns:
        The message with both owners, the remedy, and whether `--force` may replace the existing plugin. A bundled
        plugin is not a conflict, since a plugin of the same name may replace it.
    """
    present = found.plugins.get(manifest.name)
    if present is not None and present.source != BUNDLED:
        if present.source == "user" and os.path.realpath(present.path) == os.path.realpath(target):
            text = f"`{manifest.name}` is installed already: {present.path}"
            return text, f"`hermes plugins update {manifest.name}` renews it; --force replaces it.", True
        where = present.distribution or present.path
        text = f"`{manifest.name}` is already the {present.source} plugin {where}; the new one would go to {target}"
        return text, _remedy(present), False
    if os.path.lexists(target):
        held = next((m.key for m in found.plugins.values() if os.path.realpath(m.path) == os.path.realpath(target)), "")
        what = f"plugin `{held}`" if held else "something that is no plugin"
        return f"{target} is taken by {what}", f"Move {target} away.", False
    return None


def _remedy(present: PluginManifest) -> str:
    match present.source:
        case "declared":
            return "Take it out of services.hermes-agent.extraPlugins, or change `name` in one plugin.yaml."
        case "entrypoint":
            return f"Uninstall {present.distribution}, or change `name` in the plugin.yaml."
        case "user":
            return f"`hermes plugins remove {present.key}` removes it; or change `name` in one plugin.yaml."
        case _:
            return "Change `name` in one plugin.yaml."


def free_removed_folder(home: Path, name: str) -> Path:
    """Return an unused path in `plugins/.removed` for a plugin that is removed or replaced."""
    root = home / "plugins" / REMOVED
    stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime())
    number, place = 2, root / f"{name.replace('/', '__')}-{stamp}"
    while os.path.lexists(place):
        number, place = number + 1, root / f"{name.replace('/', '__')}-{stamp}-{number}"
    root.mkdir(mode=0o700, parents=True, exist_ok=True)
    return place


def put_in_place(staged: Path, target: Path, aside: Path) -> bool:
    """Rename the staged folder to `target`, and move an existing target to `aside`.

    Return True if a target existed. If the kernel can exchange two names, the plugin exists at every moment; otherwise
    it is missing for a short time.

    Raises:
        UserError: a rename fails; the existing target is unchanged.
    """
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        if not os.path.lexists(target):
            staged.rename(target)
            return False
        if target.is_symlink() or not _exchange(staged, target):
            target.rename(aside)
            try:
                staged.rename(target)
            except OSError:
                aside.rename(target)
                raise
        else:
            staged.rename(aside)
    except OSError as exc:
        raise UserError(f"{target} cannot be put in place: {exc.strerror}") from exc
    return True


def _exchange(one: Path, other: Path) -> bool:
    import ctypes  # only needed here

    try:
        rename = ctypes.CDLL(None, use_errno=True).renameat2
    except (OSError, AttributeError):  # a C library without it
        return False
    done: int = rename(_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), _EXCHANGE)
    return done == 0


def copy_examples(folder: Path) -> list[str]:
    """Copy each `NAME.example` at the plugin's root to a missing `NAME`; return the new names."""
    made = []
    for example in sorted(folder.glob(f"*{EXAMPLE}")):
        own = example.with_name(example.name.removesuffix(EXAMPLE))
        if example.is_file() and own.name and not os.path.lexists(own):
            shutil.copyfile(example, own)
            made.append(own.name)
    return made


def copy_own_files(old: Path, staged: Path, own: Iterable[str]) -> None:
    """Copy files of the user, and files that the plugin wrote, from the old folder to the staged one.

    Args:
        own: relative paths of these files; those that the new version also has are skipped.
    """
    for name in own:
        source, target = old / name, staged / name
        if source.is_file() and not os.path.lexists(target):
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target)


LIMIT_S = 120.0
_NO_NAMES = frozenset({"requires_env", "provides_tools"})


class RegistrationPreview(LazyNamedTuple):
    """Result of loading a plugin in the sandbox."""

    loaded: bool
    registers: Mapping[str, list[str]]
    """Registered names by kind; empty if the plugin was not loaded."""
    problems: tuple[str, ...]
    """Why it was not loaded, and registrations that would be refused."""


def preview_registrations(key: str, *, directory: Path | None) -> RegistrationPreview:
    """Load a plugin in the sandbox and return what it registers.

    Args:
        key: key of the plugin.
        directory: folder of a directory plugin; None for an installed entry point.
    """
    try:
        with activity(f"trying {key} in the sandbox"):
            looked = check_in_sandbox([str(directory)] if directory else [], limit_s=LIMIT_S)
        logger.debug("plugin %s was tried in the sandbox, and printed %r", key, looked.output)
        if looked.outcome is None:
            return RegistrationPreview(False, {}, (looked.output.strip()[-500:] or looked.how,))
        report = json.loads(read_outcome(looked.outcome).document(strict=False))
    except UserError as exc:
        return RegistrationPreview(False, {}, (exc.message,))
    return _read(report, key, directory)


def _read(report: Mapping[str, Any], key: str, directory: Path | None) -> RegistrationPreview:
    mine = [p for p in report["plugins"] if p["key"] == key and directory in (None, Path(p["path"]))]
    problems = [text for text in report["errors"] if f"`{key}`" in text]
    problems += [
        f"{conflict['text']} {', '.join(o for o in conflict['owners'] if o != key)}"
        for conflict in report["conflicts"]
        if key in conflict["owners"]
    ]
    failed = not mine or any(
        "failed to load" in text or "did not finish" in text or "ended" in text for text in problems
    )
    registers = {} if failed else {k: v for k, v in mine[0].items() if isinstance(v, list) and v and k not in _NO_NAMES}
    if not mine and not problems:
        problems = [*report["errors"]] or ["the check did not find it"]
    return RegistrationPreview(not failed, registers, tuple(problems))
