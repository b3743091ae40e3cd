"""What an adapter stores: copies of sent files, read positions, seen messages, threads, token locks.

A command that is still running could replace a file of the working directory by a link before an adapter opens it.
So the adapter gets a copy, read through descriptors, in a folder where commands cannot write.

A token lock lets one process use a token, across processes and homes. It is a file with the pid and start time of its
holder, so that the lock of an ended process does not count. It contains a hash of the token, never the token.
Source: plugin contract §11.2, §11.3.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import logging
import os
import re
import stat
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hermes_agent.config import hermes_home
from hermes_agent.core.caches import LruDict
from hermes_agent.system.files import PRIVATE, JsonFile, hold_directory, open_beneath, write_atomic
from hermes_agent.system.locks import FileLock
from hermes_agent.system.process_tree import process_stat

__all__ = [
    "FOLDER",
    "MessageDeduplicator",
    "ReadPositions",
    "ThreadParticipationTracker",
    "acquire_scoped_lock",
    "adapter_file",
    "copy_sent_file",
    "get_process_start_time",
    "pid_exists",
    "read_process_cmdline",
    "release_scoped_lock",
]


logger = logging.getLogger(__name__)

FOLDER = "sent"
"""Below `HERMES_HOME/cache`."""
PIECE_BYTES = 1 << 24


def copy_sent_file(path: str) -> str | None:
    """Return the path of a copy of a file that may be sent, or `path` if commands cannot write there.

    Args:
        path: a real path, as `validate_media_delivery_path` returns it.

    Returns:
        None if the file is missing, not a regular file or not readable; the reason is logged.
    """
    cache = hermes_home().resolve() / "cache"
    if Path(path).is_relative_to(cache):
        return path
    directory, name = os.path.split(path)
    place = cache / FOLDER / os.urandom(8).hex()
    try:
        with hold_directory(directory, make=False) as above:
            source = open_beneath(above, name, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY)
        try:
            place.mkdir(mode=0o700, parents=True)
            _copy(source, place / name)
        finally:
            os.close(source)
    except OSError as exc:
        logger.warning("file not sent: %s cannot be copied: %s", path, exc.strerror or exc)
        return None
    return str(place / name)


def _copy(source: int, target: Path) -> None:
    if not stat.S_ISREG(os.fstat(source).st_mode):
        raise OSError(errno.EINVAL, "not a regular file")
    handle = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, PRIVATE)
    try:
        while os.sendfile(handle, source, None, PIECE_BYTES):  # from its offset to its end
            pass
    finally:
        os.close(handle)


def adapter_file(platform: str, identity: str) -> JsonFile:
    """Return the file `HOME/gateway/<platform>_<identity>.json` with the state of an adapter.

    Args:
        identity: the account; characters that do not suit a file name become `_`.
    """
    return JsonFile(hermes_home() / "gateway" / f"{platform}_{re.sub(r'[^A-Za-z0-9@._-]+', '_', identity)}.json")


WRITE_EVERY_S = 5.0
MAX_CHATS = 500


class ReadPositions:
    """The read position of each chat; those of the chats with the latest messages are kept.

    They are stored in `HOME/gateway/<platform>_<identity>.json` a few seconds late. Messages that are fetched after a
    restart may therefore be duplicates; the inbox drops them.
    """

    def __init__(self, platform: str, identity: str) -> None:
        self._file = adapter_file(platform, identity)
        self._marks: dict[str, str] = {
            str(chat): str(mark) for chat, mark in (self._file.read().get("marks") or {}).items()
        }
        self._written, self._is_changed = 0.0, False

    def items(self) -> list[tuple[str, str]]:
        """Return the pairs of chat and position."""
        return list(self._marks.items())

    def get(self, chat: str) -> str | None:
        """Return the position of a chat, or None."""
        return self._marks.get(chat)

    def put(self, chat: str, mark: str) -> None:
        """Set the position of a chat."""
        self._marks.pop(chat, None)
        self._marks[chat] = mark
        while len(self._marks) > MAX_CHATS:
            del self._marks[next(iter(self._marks))]
        self._is_changed = True
        if time.monotonic() - self._written >= WRITE_EVERY_S:
            self.write()

    def write(self) -> None:
        """Write the changes to the disk.

        Raises:
            OSError: the file cannot be written.
        """
        if self._is_changed:
            with self._file.change() as state:
                state["marks"] = self._marks
            self._written, self._is_changed = time.monotonic(), False


class MessageDeduplicator:
    """Remembers the messages of the last minutes, because services deliver some of them twice.

    Args:
        max_size: number of remembered messages; the oldest are dropped first.
        ttl_seconds: how long a message is remembered.
    """

    def __init__(self, max_size: int = 2000, ttl_seconds: float = 300) -> None:
        self._ttl_s = ttl_seconds
        self._seen: LruDict[str, float] = LruDict(max_size)
        self._lock = threading.Lock()

    def is_duplicate(self, msg_id: str) -> bool:
        """Return whether a message was seen before, and remember it; a message without an id is always new."""
        if not msg_id:
            return False
        with self._lock:
            if self._knows(msg_id):
                return True
            self._seen[msg_id] = time.monotonic()
            return False

    def contains(self, msg_id: str) -> bool:
        """Return whether a message was seen, without remembering it."""
        with self._lock:
            return bool(msg_id) and self._knows(msg_id)

    def discard(self, msg_id: str) -> None:
        """Forget a message, so that it is processed again."""
        with self._lock:
            self._seen.pop(msg_id, None)

    def clear(self) -> None:
        """Forget all messages."""
        with self._lock:
            self._seen.clear()

    def _knows(self, msg_id: str) -> bool:
        seen = self._seen.get(msg_id)
        if seen is not None and time.monotonic() - seen >= self._ttl_s:
            del self._seen[msg_id]
            return False
        return seen is not None


class ThreadParticipationTracker:
    """The threads in which the agent takes part, stored in `HOME/<platform>_threads.json`.

    Args:
        max_tracked: number of stored threads; the oldest are dropped first.
    """

    def __init__(self, platform_name: str, max_tracked: int = 500) -> None:
        self._platform = re.sub(r"[^A-Za-z0-9_-]+", "_", platform_name)
        self._max_tracked = max_tracked
        self._threads: dict[str, None] = dict.fromkeys(_read_threads(self._path))

    @property
    def _path(self) -> Path:
        return hermes_home() / f"{self._platform}_threads.json"

    def mark(self, thread_id: str) -> None:
        """Add a thread."""
        if thread_id in self._threads:
            return
        self._threads[thread_id] = None
        while len(self._threads) > self._max_tracked:
            del self._threads[next(iter(self._threads))]
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            write_atomic(self._path, json.dumps(list(self._threads)))
        except OSError as exc:
            logger.warning(
                "threads: cannot write %s, the thread is lost at the end of the process: %s", self._path, exc
            )

    def clear(self) -> None:
        """Forget all threads in this process."""
        self._threads.clear()

    def __contains__(self, thread_id: object) -> bool:
        return thread_id in self._threads


def _read_threads(path: Path) -> list[str]:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return []
    except (OSError, ValueError) as exc:
        logger.warning("threads: cannot read %s, its threads are ignored: %s", path, exc)
        return []
    return [str(item) for item in value] if isinstance(value, list) else []


_PROC = Path("/proc")


def acquire_scoped_lock(
    scope: str, identity: str, metadata: dict[str, Any] | None = None
) -> tuple[bool, dict[str, Any] | None]:
    """Lock `identity` for this process, among all processes of this user.

    Args:
        scope: the kind of the locked thing (`telegram-bot-token`).
        metadata: stored in the lock, for processes that do not get it.

    Returns:
        Whether this process has the lock, and the previous record: that of the other holder if it does not.
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
    """Release the lock; a lock of another process stays."""
    with _record(scope, identity) as file:
        present = _read_record(file)
        if present is not None and _is_ours(present):
            _write(file, "")


def pid_exists(pid: int) -> bool:
    """Return whether a process with that number exists, of any user."""
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
    """Return the start time of a process in clock ticks since boot, or None if it is unknown."""
    status = process_stat(pid)
    return None if status is None else status.started


def read_process_cmdline(pid: int) -> str | None:
    """Return the command line of a process, its words separated by spaces; None if it is unknown."""
    try:
        raw = (_PROC / str(pid) / "cmdline").read_bytes()
    except OSError:
        return None
    return " ".join(raw.decode("utf-8", "replace").strip("\0").split("\0")) or None


@contextlib.contextmanager
def _record(scope: str, identity: str) -> Iterator[int]:
    """Open the file of a lock exclusively, for a few microseconds."""
    name = f"{re.sub(r'[^A-Za-z0-9_.-]+', '_', scope)[:80] or 'lock'}-{_hash(identity)}.lock"
    with FileLock(_folder() / name, names_holder=False) as lock:
        yield lock.fd


def _folder() -> Path:
    """Return the folder of the locks: one for all homes of a user, which cannot share a token."""
    named, state = os.environ.get("HERMES_GATEWAY_LOCK_DIR"), os.environ.get("XDG_STATE_HOME")
    base = Path(state) if state else Path.home() / ".local" / "state"
    place = Path(named) if named else base / "hermes" / "gateway-locks"
    try:
        place.mkdir(parents=True, exist_ok=True, mode=0o700)
        if os.access(place, os.W_OK):
            return place
    except OSError as exc:
        logger.debug("locks: %s is not usable: %s", place, exc)
    inner = hermes_home() / "gateway-locks"  # the service can write to its home only
    inner.mkdir(parents=True, exist_ok=True, mode=0o700)
    return inner


def _hash(identity: str) -> str:
    return hashlib.sha256(identity.encode("utf-8", "surrogateescape")).hexdigest()[:16]


def _read_record(file: int) -> dict[str, Any] | None:
    text = os.pread(file, 65_536, 0)
    try:
        value = json.loads(text) if text.strip() else None
    except ValueError:  # truncated by a crash
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
