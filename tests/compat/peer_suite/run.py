"""Extract upstream's tests from a checkout or git directory, and run each file in a process of its own."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from compat.corpus.world import offline

CHILD = Path(__file__).with_name("child.py")
COMMIT = "306e2d231"
"""Commit of upstream's repository that the list is about; its plugin host is that of 0.19.0."""
SUPPORT = ("conftest.py", "__init__.py", "conformance.py")
"""Names of files beside the tests that they import."""
AT_A_TIME = 2
LIMIT_S = 600


class NotFound(Exception):
    """The folder has no tests of upstream; the text says what is missing."""


@dataclass(frozen=True)
class Outcome:
    """What came of one test."""

    test: str
    result: str
    """`passed`, `failed`, `skipped` or `ended`: the process died."""
    cause: str = ""


def extract(source: Path, files: Sequence[str], root: Path) -> None:
    """Write the tests and what they import below `root/tests`.

    Args:
        source: a checkout, or a git directory, from which `COMMIT` is taken.

    Raises:
        NotFound: a file is not there.
    """
    git = _git_directory(source)
    if git is not None:
        listed = _git(git, "ls-tree", "-r", "--name-only", COMMIT, "tests").decode().splitlines()
        wanted = [name for name in listed if _is_wanted(name, files)]
        # no `tarfile`: Python 3.11.2 of Debian 12 has no filter, later ones warn without
        subprocess.run(["tar", "-C", root, "-xf", "-"], input=_git(git, "archive", COMMIT, *wanted), check=True)
    else:
        for file in (path for path in (source / "tests").rglob("*.py") if path.is_file()):
            name = file.relative_to(source).as_posix()
            if _is_wanted(name, files):
                place = root / name
                place.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(file, place)
    missing = [name for name in files if not (root / "tests" / name).is_file()]
    if missing:
        raise NotFound(f"{source} has no tests/{missing[0]} ({len(missing)} files of the list are missing)")


def run_files(root: Path, files: Sequence[str]) -> Iterator[tuple[str, list[Outcome]]]:
    """Yield each file with the outcomes of its tests; several files run in parallel."""
    with ThreadPoolExecutor(AT_A_TIME) as pool:
        yield from zip(files, pool.map(lambda name: run_file(root, name), files), strict=True)


def run_file(root: Path, name: str) -> list[Outcome]:
    """Run one file, in a home of its own and without a network."""
    place = root / "runs" / name.replace("/", "-")
    (place / "home").mkdir(parents=True)
    answer = place / "answer.json"
    environ = {
        "HOME": str(place / "home"),
        "LANG": "C.UTF-8",
        "PATH": os.environ.get("PATH", os.defpath),
        "PYTHONDONTWRITEBYTECODE": "1",
        "TMPDIR": os.environ.get("TMPDIR", "/tmp"),
    }
    command = [*offline(), sys.executable, str(CHILD), str(root), name, str(answer)]
    try:
        done = subprocess.run(
            command, env=environ, stdin=subprocess.DEVNULL, capture_output=True, timeout=LIMIT_S, check=False
        )
    except subprocess.TimeoutExpired:
        return [Outcome("*", "ended", f"it did not end within {LIMIT_S} s")]
    if not answer.exists():
        said = done.stderr.decode(errors="replace").strip().splitlines()[-1:]
        return [Outcome("*", "ended", f"the process ended with {done.returncode}: {''.join(said)}")]
    found = json.loads(answer.read_text(encoding="utf-8"))
    return [Outcome(test, each["outcome"], each.get("cause", "")) for test, each in found.items()]


def _git_directory(source: Path) -> Path | None:
    for place in (source / ".git", source):
        if (place / "HEAD").is_file() and (place / "objects").is_dir():
            return place
    return None


def _git(git: Path, *arguments: str) -> bytes:
    done = subprocess.run(["git", f"--git-dir={git}", *arguments], capture_output=True, check=False)
    if done.returncode != 0:
        raise NotFound(f"{git}: git {arguments[0]} {COMMIT}: {done.stderr.decode(errors='replace').strip()}")
    return done.stdout


def _is_wanted(name: str, files: Sequence[str]) -> bool:
    inside = name.removeprefix("tests/")
    return inside in files or name.rpartition("/")[2] in SUPPORT
