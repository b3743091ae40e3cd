"""The run's directory in /run, locked while the run lasts; what killed runs left is swept."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path

from run_in_systemd.cgroups import end_cgroup
from run_in_systemd.plan import NAME

__all__ = ["run_directory"]

STATE = Path("/run") / NAME


@contextlib.contextmanager
def run_directory() -> Iterator[Path]:
    """Make a directory of our own, and remove it with the cgroup that its file `cgroup` names."""
    STATE.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = STATE / uuid.uuid4().hex[:10]
    # Another run's sweep must not see the directory before it is locked.
    with open(STATE / ".sweep", "w") as sweep:
        fcntl.flock(sweep, fcntl.LOCK_EX)
        _sweep()
        path.mkdir(mode=0o700)
        lock = _lock(path)
    assert lock is not None
    try:
        yield path
    finally:
        _drop(path)
        os.close(lock)


def _sweep() -> None:
    for path in sorted(p for p in STATE.iterdir() if p.is_dir()):
        lock = _lock(path)
        if lock is not None:  # nobody holds it: that run was killed
            _drop(path)
            os.close(lock)


def _lock(path: Path) -> int | None:
    try:
        fd = os.open(path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        return None
    return fd


def _drop(path: Path) -> None:
    with contextlib.suppress(FileNotFoundError):
        end_cgroup((path / "cgroup").read_text().strip())
    shutil.rmtree(path, ignore_errors=True)
