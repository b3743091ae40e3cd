"""Install a plugin with its dependencies into a folder of its own, once: pinned, and checked by hash."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from compat.corpus.lists import DATA, Plugin

__all__ = ["CACHE", "CannotInstall", "installed", "without_entry_points"]

CACHE = DATA.parents[2] / ".cache" / "compat"
OF_ONE_PLATFORM = "  # of one platform"
LIMIT_S = 900


class CannotInstall(Exception):
    """pip could not; most often there is no network."""


def installed(plugin: Plugin, cache: Path = CACHE) -> Path:
    """Return the folder with the plugin's packages.

    Raises:
        CannotInstall: pip failed; the text is its last line.
    """
    lock = plugin.lock.read_text(encoding="utf-8")
    stamp = hashlib.sha256(lock.encode()).hexdigest()[:8]
    if not lock:
        nothing = cache / "nothing"
        nothing.mkdir(parents=True, exist_ok=True)
        return nothing
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    place = cache / f"{plugin.name}-{plugin.version}-{stamp}-{version}"
    if not place.is_dir():
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache, prefix="part-") as part:
            sites = _install(lock, Path(part))
            whole = Path(part) / "whole"
            for site in sites:  # two halves may bring parts of one namespace package
                shutil.copytree(site, whole, symlinks=True, dirs_exist_ok=True)
            try:
                whole.rename(place)
            except OSError:  # two lists may name one plugin: the other run was first
                if not place.is_dir():
                    raise
    return place


def without_entry_points(site: Path, plugin: Plugin, view: Path) -> Path:
    """Make `view` show everything in `site` but the plugin's entry points, as if its folder were all of it."""
    view.mkdir()
    for item in site.iterdir():
        name = item.name.partition("-")[0].replace("_", "-").lower()
        if item.name.endswith(".dist-info") and name == plugin.name.lower():
            shutil.copytree(item, view / item.name, ignore=shutil.ignore_patterns("entry_points.txt"))
        else:
            (view / item.name).symlink_to(item)
    return view


def _install(lock: str, part: Path) -> list[Path]:
    """Install the lock's files below `part`: in two calls, as pip checks all of a call's hashes or none."""
    sites = []
    lines = lock.splitlines()
    checked = [line for line in lines if not line.endswith(OF_ONE_PLATFORM)]
    pinned = [line.partition(" ")[0] for line in lines if line.endswith(OF_ONE_PLATFORM)]
    for names, options in ((checked, ["--require-hashes"]), (pinned, ["--prefer-binary"])):
        if not names:
            continue
        site = part / options[0]
        sites.append(site)
        file = part / "requirements.txt"
        file.write_text("\n".join(names) + "\n", encoding="utf-8")
        # a plugin that asks for a later Python is tried all the same: what it really needs shows
        command = [
            "install",
            "--quiet",
            "--disable-pip-version-check",
            "--no-deps",
            "--ignore-requires-python",
            *options,
        ]
        done = subprocess.run(
            [sys.executable, "-m", "pip", *command, "--target", str(site), "-r", str(file)],
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            env=os.environ | {"PIP_NO_INPUT": "1"},
            check=False,
        )
        if done.returncode != 0:
            said = [line for line in done.stderr.splitlines() if line.startswith("ERROR")] or done.stderr.splitlines()
            raise CannotInstall(said[-1] if said else f"pip ended with {done.returncode}")
    return sites
