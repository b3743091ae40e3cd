"""One process for one token: locks that hold across processes and homes. Source: plugin contract §11.2, §11.3.

A lock is a file with the pid and the start time of its holder, so that the lock of a process that is gone, or whose
pid is another's now, does not count. It never holds what it locks (a token), only a hash of it.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import logging
import os
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hermes_agent.config import hermes_home

__all__ = ["acquire_scoped_lock", "get_process_start_time", "pid_exists", "read_process_cmdline", "release_scoped_lock"]

logger = logging.getLogger(__name__)

_PROC = Path("/proc")


def acquire_scoped_lock(
    scope: str, identity: str, metadata: dict[str, Any] | None = None
) -> tuple[bool, dict[str, Any] | None]:
    """Lock `identity` for this process, among all of this user's processes.

    Args:
        scope: what kind of thing it is (`telegram-bot-token`).
        metadata: kept in the lock for whoever is refused.

    Returns:
        Whether it is ours now, and the record that was there: the other holder's when it is not.
    """
    with _record(scope, identity) as file:
        present = _read_record(file)
        if present is not None and not _is_ours(present) and _is_alive(present):
            return False, present
        record = {
            "pid": os.getpid(),
            "start_time": get_process_start_time(os.getpid()),
            "scope": scope,
            "identity_hash": _hash(identity),
            "metadata": dict(metadata or {}),
            "updated_at": time.time(),
        }
        _write(file, json.dumps(record, default=str))
        return True, present


def release_scoped_lock(scope: str, identity: str) -> None:
    """Give the lock back; another process's is left alone."""
    with _record(scope, identity) as file:
        present = _read_record(file)
        if present is not None and _is_ours(present):
            _write(file, "")


def pid_exists(pid: int) -> bool:
    """Say whether there is a process of that number, whoever's it is."""
    if pid <= 0:
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError) as exc:
        return isinstance(exc, PermissionError)
    return True


def get_process_start_time(pid: int) -> int | None:
    """Return when a process started, in clock ticks since boot; None when it cannot be told."""
    try:
        text = (_PROC / str(pid) / "stat").read_text(encoding="utf-8", errors="replace")
        return int(text.rpartition(")")[2].split()[19])
    except (OSError, ValueError, IndexError):
        return None


def read_process_cmdline(pid: int) -> str | None:
    """Return the command line of a process, its words with blanks between; None when it cannot be told."""
    try:
        raw = (_PROC / str(pid) / "cmdline").read_bytes()
    except OSError:
        return None
    return " ".join(raw.decode("utf-8", "replace").strip("\0").split("\0")) or None


@contextlib.contextmanager
def _record(scope: str, identity: str) -> Iterator[int]:
    """Open the lock's file, alone: whoever else looks at it waits for these few microseconds."""
    name = f"{re.sub(r'[^A-Za-z0-9_.-]+', '_', scope)[:80] or 'lock'}-{_hash(identity)}.lock"
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
    file = os.open(_folder() / name, flags, 0o600)
    try:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield file
    finally:
        os.close(file)


def _folder() -> Path:
    """Return where the locks lie: one place for all homes of a user, so that two homes cannot share a token."""
    named, state = os.environ.get("HERMES_GATEWAY_LOCK_DIR"), os.environ.get("XDG_STATE_HOME")
    base = Path(state) if state else Path.home() / ".local" / "state"
    place = Path(named) if named else base / "hermes" / "gateway-locks"
    try:
        place.mkdir(parents=True, exist_ok=True, mode=0o700)
        if os.access(place, os.W_OK):
            return place
    except OSError as exc:
        logger.debug("%s cannot be used for locks: %s", place, exc)
    inner = hermes_home() / "gateway-locks"  # a service that may write nothing but its home
    inner.mkdir(parents=True, exist_ok=True, mode=0o700)
    return inner


def _hash(identity: str) -> str:
    return hashlib.sha256(identity.encode("utf-8", "surrogateescape")).hexdigest()[:16]


def _read_record(file: int) -> dict[str, Any] | None:
    text = os.pread(file, 65_536, 0)
    try:
        value = json.loads(text) if text.strip() else None
    except ValueError:  # cut off by a crash: nobody's
        return None
    return value if isinstance(value, dict) else None


def _write(file: int, text: str) -> None:
    os.ftruncate(file, 0)
    os.pwrite(file, text.encode(), 0)


def _is_ours(record: dict[str, Any]) -> bool:
    return record.get("pid") == os.getpid() and record.get("start_time") == get_process_start_time(os.getpid())


def _is_alive(record: dict[str, Any]) -> bool:
    pid, started = record.get("pid"), record.get("start_time")
    if not isinstance(pid, int) or not pid_exists(pid):
        return False
    now = get_process_start_time(pid)
    return started is None or now is None or started == now
