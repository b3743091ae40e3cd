"""The settings of a repository: read as git reads them, and written again. Imports the standard library alone."""

from __future__ import annotations

import os
import subprocess

__all__ = ["pairs_of", "written"]


def pairs_of(text: str) -> list[tuple[str, str | None]] | None:
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


def written(pairs: list[tuple[str, str | None]]) -> bytes:
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
