"""The published program in several versions: installed once into a cache, and used to make homes."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import venv
from pathlib import Path
from typing import Any

from compat.corpus.install import CACHE

VERSIONS = ("0.13.0", "0.15.2", "0.17.0", "0.19.0")
"""The versions that a package index has and whose state differs."""
LATEST = VERSIONS[-1]
MAKER = Path(__file__).with_name("maker.py")
LIMIT_S = 900


class CannotInstallProgram(Exception):
    """pip could not; most often there is no network."""


def _pip(python: Path, *words: str) -> None:
    command = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    if done.returncode:
        raise CannotInstallProgram(done.stderr.strip().splitlines()[-1:])


def installed_program() -> Path:
    """Return a folder with an interpreter that has the latest version, and a folder for each older one."""
    place = CACHE / f"published-homes-{sys.version_info.major}.{sys.version_info.minor}"
    if not place.is_dir():
        CACHE.mkdir(parents=True, exist_ok=True)
        part = Path(tempfile.mkdtemp(dir=CACHE, prefix="part-"))
        try:
            venv.create(part / "venv", with_pip=True, symlinks=True)
            python = part / "venv" / "bin" / "python"
            _pip(python, f"hermes-agent=={LATEST}")
            for version in VERSIONS[:-1]:  # beside the dependencies of the latest one
                _pip(python, "--no-deps", "--target", str(part / version), f"hermes-agent=={version}")
            part.rename(place)
        finally:
            shutil.rmtree(part, ignore_errors=True)
    return place


def make_home(home: Path, version: str = LATEST, *, keep_wal: bool = False, **wanted: Any) -> None:
    """Make a home with a version of the published program; the keywords are those of `maker.py`."""
    program = installed_program()
    environ = {"PATH": os.defpath, "HOME": str(home.parent), "HERMES_HOME": str(home), "PYTHONDONTWRITEBYTECODE": "1"}
    if version != LATEST:
        environ["PYTHONPATH"] = str(program / version)
    if keep_wal:
        environ["KEEP_WAL"] = "1"
    command = [str(program / "venv" / "bin" / "python"), str(MAKER), json.dumps(wanted)]
    done = subprocess.run(
        command, env=environ, cwd=home.parent, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
