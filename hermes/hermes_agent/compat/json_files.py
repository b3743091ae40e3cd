"""Upstream's functions that replace a file as a whole. Source: plugin contract §11.2, §11.3."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from hermes_agent.io.files import write_atomic

__all__ = ["atomic_json_write", "atomic_replace"]


def atomic_json_write(
    path: str | Path, data: Any, *, indent: int = 2, mode: int | None = None, **dump_kwargs: Any
) -> None:
    """Write `data` as JSON; a reader sees the old file or the new one, never a part. Folders above it are made.

    Args:
        mode: permissions; None keeps those of the present file.
        dump_kwargs: passed on to `json.dumps`.

    Raises:
        TypeError: `data` cannot be written as JSON; the file is as it was.
    """
    text = json.dumps(data, indent=indent, **{"ensure_ascii": False, **dump_kwargs})
    place = Path(path)
    place.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(place, text, mode=mode)


def atomic_replace(tmp_path: str | Path, target: str | Path) -> str:
    """Put the file at `tmp_path` in the place of `target`, through links, and return the path that was replaced."""
    place = os.path.realpath(target)
    os.replace(tmp_path, place)  # noqa: PTH105 - the arguments may be text
    return place
