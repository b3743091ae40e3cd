"""Upstream's wheel: downloaded and unpacked once, never committed."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from compat.corpus.install import CACHE, CannotInstall

VERSION = "0.19.0"
PREFIX = "plugins/"


def bundled_plugins(cache: Path = CACHE) -> Path:
    """Return the folder with the plugins that the wheel carries.

    Raises:
        CannotInstall: pip could not download it; the text is its last line.
    """
    place = cache / f"upstream-{VERSION}"
    if not place.is_dir():
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache, prefix="part-") as part:
            command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", part]
            done = subprocess.run(
                [*command, f"hermes-agent=={VERSION}"], capture_output=True, text=True, timeout=600, check=False
            )
            wheels = list(Path(part).glob("*.whl"))
            if done.returncode != 0 or not wheels:
                raise CannotInstall((done.stderr.strip().splitlines() or [f"pip ended with {done.returncode}"])[-1])
            with zipfile.ZipFile(wheels[0]) as archive:
                names = [name for name in archive.namelist() if name.startswith(PREFIX)]
                archive.extractall(Path(part) / "whole", names)
            (Path(part) / "whole").rename(place)
    return place / PREFIX
