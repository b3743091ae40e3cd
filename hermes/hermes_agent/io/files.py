"""Files that are whole or not there: atomic writes with a mode of their own."""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path

__all__ = ["PRIVATE", "write_atomic"]

PRIVATE = 0o600


def write_atomic(path: Path, data: str | bytes, *, mode: int | None = None) -> None:
    """Replace the file at `path` by `data`; a reader sees the old file or the new one, never a part.

    A symbolic link is followed: its target is replaced. The directory must exist.

    Args:
        mode: permission bits; None keeps those of the present file, or takes 0644 for a new one.
    """
    target = path.resolve()
    if mode is None:
        mode = (target.stat().st_mode & 0o7777) if target.exists() else 0o644
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data.encode() if isinstance(data, str) else data)
            file.flush()
            os.fsync(file.fileno())
        Path(name).chmod(mode)
        Path(name).replace(target)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            Path(name).unlink()
        raise
