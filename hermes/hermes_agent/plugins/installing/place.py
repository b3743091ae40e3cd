"""Put a staged plugin in its place: nobody sees half of it, and what was there before is not lost."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterable
from pathlib import Path

from hermes_agent.core.errors import UserError
from hermes_agent.plugins.discovery import BUNDLED, Discovery
from hermes_agent.plugins.manifest import PluginManifest

__all__ = ["copy_examples", "copy_own_files", "name_collision", "put_in_place", "free_removed_folder", "target_folder"]

EXAMPLE = ".example"
REMOVED = ".removed"
"""Below `plugins/` of the home: what was removed or replaced; discovery leaves it out."""
_EXCHANGE = 2
"""RENAME_EXCHANGE of renameat2(2)."""
_AT_FDCWD = -100


def target_folder(home: Path, manifest: PluginManifest) -> Path:
    """Return the folder that a plugin of this name is installed to. A name has no `/` (`manifest.name_problem`)."""
    return home / "plugins" / manifest.name


def name_collision(manifest: PluginManifest, target: Path, found: Discovery) -> tuple[str, str, bool] | None:
    """Say who has the plugin's name already.

    Returns:
        What is in the way with both owners named, the remedy, and whether `--force` may replace it; None when the
        name is free. A bundled plugin may be replaced by its namesake and is not in the way.
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
    """Return a free place for a plugin that is taken away; nothing is deleted."""
    root = home / "plugins" / REMOVED
    stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime())
    number, place = 2, root / f"{name.replace('/', '__')}-{stamp}"
    while os.path.lexists(place):
        number, place = number + 1, root / f"{name.replace('/', '__')}-{stamp}-{number}"
    root.mkdir(mode=0o700, parents=True, exist_ok=True)
    return place


def put_in_place(staged: Path, target: Path, aside: Path) -> bool:
    """Rename the staged folder to `target`; what was there goes to `aside`. Return whether something was there.

    Where the kernel can exchange two names there is no moment without the plugin; elsewhere there is a short one.

    Raises:
        UserError: it cannot be renamed; the old one is where it was.
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
    import ctypes  # only here

    try:
        rename = ctypes.CDLL(None, use_errno=True).renameat2
    except (OSError, AttributeError):  # a C library without it
        return False
    done: int = rename(_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), _EXCHANGE)
    return done == 0


def copy_examples(folder: Path) -> list[str]:
    """Copy each `NAME.example` at the plugin's root to NAME where there is none; return the names."""
    made = []
    for example in sorted(folder.glob(f"*{EXAMPLE}")):
        own = example.with_name(example.name.removesuffix(EXAMPLE))
        if example.is_file() and own.name and not os.path.lexists(own):
            shutil.copyfile(example, own)
            made.append(own.name)
    return made


def copy_own_files(old: Path, staged: Path, own: Iterable[str]) -> None:
    """Copy what belongs to the person, or was written by the plugin itself, from the old folder to the staged one.

    Args:
        own: relative paths; one that the new plugin brings itself is left out.
    """
    for name in own:
        source, target = old / name, staged / name
        if source.is_file() and not os.path.lexists(target):
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target)
