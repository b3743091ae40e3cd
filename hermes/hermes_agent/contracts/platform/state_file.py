"""Small JSON files below the home that several processes change: an adapter in the daemon, a command beside it."""

from __future__ import annotations

import contextlib
import fcntl
import json
import logging
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hermes_agent.config import hermes_home
from hermes_agent.io.files import PRIVATE, write_atomic

__all__ = ["adapter_file", "change_json", "read_json"]

logger = logging.getLogger(__name__)


def adapter_file(platform: str, identity: str) -> Path:
    """Return the file `HOME/gateway/<platform>_<identity>.json`, where an adapter keeps how far it got.

    Args:
        identity: the account; characters that a file name should not have become `_`.
    """
    return hermes_home() / "gateway" / f"{platform}_{re.sub(r'[^A-Za-z0-9@._-]+', '_', identity)}.json"


def read_json(path: Path) -> dict[str, Any]:
    """Return the JSON object of a file; an empty one when it is not there, or is broken (then the log says so)."""
    try:
        return _object(path)
    except (OSError, ValueError) as exc:
        logger.warning("%s is not used: %s", path, exc)
        return {}


@contextlib.contextmanager
def change_json(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the object of a file, alone among all processes, and write it back (0600) when it was changed.

    Folders above it are made, 0700. A change that raises writes nothing. A broken file is kept beside it as
    `<name>.broken`, so that what it held is not lost with the next write.

    Raises:
        OSError: the file cannot be locked, read or written.
    """
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
    # a lock file beside it: the file itself is replaced by each write
    lock = os.open(path.with_name(f".{path.name}.lock"), flags, PRIVATE)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        value = _parsed(path)
        before = json.dumps(value)
        yield value
        if json.dumps(value) != before:
            write_atomic(path, json.dumps(value, ensure_ascii=False, indent=2), mode=PRIVATE)
    finally:
        os.close(lock)


def _object(path: Path) -> dict[str, Any]:
    """Return the object of a file, an empty one when there is no file.

    Raises:
        OSError: it cannot be read.
        ValueError: it holds no object.
    """
    try:
        value = json.loads(path.read_bytes())
    except FileNotFoundError:
        return {}
    if not isinstance(value, dict):
        raise ValueError("it holds no JSON object")
    return value


def _parsed(path: Path) -> dict[str, Any]:
    try:
        return _object(path)
    except ValueError as exc:
        aside = path.with_name(f"{path.name}.broken")
        logger.warning("%s is not used, and kept as %s: %s", path, aside.name, exc)
        path.replace(aside)
        return {}
