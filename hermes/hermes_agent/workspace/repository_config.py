"""The settings of a repository: read as git reads them, and written again. Imports the standard library alone."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

__all__ = ["named_paths", "parse_settings", "paths_around", "format_settings"]

MOST_BYTES = 1_000_000
_SECTION = re.compile(r"\s*\[\s*([A-Za-z0-9.-]+)")
_VALUE = re.compile(r"(?:^|\])\s*(hookspath|path)\s*=\s*\"?([^\"#;\n]+)", re.IGNORECASE)


def parse_settings(text: str) -> list[tuple[str, str | None]] | None:
    """Return the settings of a config as git reads them; None where it cannot."""
    try:
        done = subprocess.run(
            ["git", "config", "--file", "-", "--no-includes", "--list", "-z"],
            input=text.encode("latin-1"), capture_output=True, timeout=10, check=False, cwd="/",
            env={"PATH": os.environ.get("PATH", os.defpath), "GIT_CONFIG_NOSYSTEM": "1", "HOME": "/nonexistent"},
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return None
    if done.returncode:
        return None
    entries = done.stdout.decode("latin-1").split("\0")[:-1]
    parts = (entry.partition("\n") for entry in entries)
    return [(key, value if divided else None) for key, divided, value in parts]


def format_settings(pairs: list[tuple[str, str | None]]) -> bytes:
    """Return a config with these settings."""
    lines = []
    for key, value in pairs:
        section, _, rest = key.partition(".")
        sub, _, name = rest.rpartition(".")
        quoted = sub.replace("\\", "\\\\").replace('"', '\\"')
        text = (value or "").replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\t", "\\t")
        lines.append(f'[{section} "{quoted}"]' if sub else f"[{section}]")
        lines.append(f"\t{name}" if value is None else f'\t{name} = "{text}"')
    return "".join(f"{line}\n" for line in lines).encode("latin-1")


def named_paths(text: str, work: str, git: str) -> Iterator[tuple[str, str]]:
    """Yield what a config takes hooks and further settings from, with its kind.

    Args:
        work: the directory that a path of hooks counts from.
        git: the directory of the config, which that of an included file counts from.
    """
    section = ""
    for line in text.splitlines():
        if found := _SECTION.match(line):
            section = found[1].lower()
        if (value := _VALUE.search(line)) is None:
            continue
        name, path = value[1].lower(), value[2].strip()
        if name == "hookspath" and section == "core":
            place = os.path.join(work, path)  # noqa: PTH118 - text
            yield place, "hooks"
            if place.endswith("/_"):  # the hooks that these call lie above
                yield place[:-2], "hooks"
        elif name == "path" and section in ("include", "includeif"):
            yield os.path.join(git, path), "named"  # noqa: PTH118


def paths_around(root: str) -> Iterator[tuple[str, str]]:
    """Yield what lies below a directory and steers a repository above it, or whose config is elsewhere."""
    for work in (root, *(str(parent) for parent in Path(root).parents)):
        for git in _git_directories(work):
            for path, kind in named_paths(_text(f"{git}/config"), work, git):
                full = os.path.normpath(path)
                if full.startswith(f"{root}/"):
                    yield full[len(root) + 1 :], kind
    home = os.path.expanduser("~")  # noqa: PTH111
    for file in (f"{home}/.gitconfig", f"{home}/.config/git/config"):
        for path, kind in named_paths(_text(file), root, os.path.dirname(file)):  # noqa: PTH120
            full = os.path.normpath(os.path.expanduser(path))  # noqa: PTH111
            if full.startswith(f"{root}/"):
                yield full[len(root) + 1 :], kind


def _git_directories(work: str) -> Iterator[str]:
    """Yield the directories with the config of the repository that has its work tree here."""
    if os.path.isdir(f"{work}/.git"):  # noqa: PTH112
        yield f"{work}/.git"
        return
    link = _text(f"{work}/.git")
    if link.startswith("gitdir:"):
        git = os.path.join(work, link.removeprefix("gitdir:").strip())  # noqa: PTH118
        yield git
        if common := _text(f"{git}/commondir").strip():
            yield os.path.normpath(os.path.join(git, common))  # noqa: PTH118


def _text(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:  # noqa: PTH123
            return file.read(MOST_BYTES)
    except (OSError, ValueError):
        return ""
