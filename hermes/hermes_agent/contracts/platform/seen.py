"""What an adapter remembers of messages and threads. Source: plugin contract §11.2, §11.3."""

from __future__ import annotations

import json
import logging
import re
import threading
import time
from collections import OrderedDict
from pathlib import Path

from hermes_agent.config import hermes_home
from hermes_agent.io.files import write_atomic

__all__ = ["MessageDeduplicator", "ThreadParticipationTracker"]

logger = logging.getLogger(__name__)


class MessageDeduplicator:
    """Knows the messages of the last minutes: services deliver some of them twice.

    Args:
        max_size: how many are remembered; the oldest are forgotten first.
        ttl_seconds: for how long.
    """

    def __init__(self, max_size: int = 2000, ttl_seconds: float = 300) -> None:
        self._max_size, self._ttl_s = max_size, ttl_seconds
        self._seen: OrderedDict[str, float] = OrderedDict()
        self._lock = threading.Lock()

    def is_duplicate(self, msg_id: str) -> bool:
        """Say whether a message was seen before, and remember it; one without an id never was."""
        if not msg_id:
            return False
        with self._lock:
            if self._knows(msg_id):
                return True
            self._seen[msg_id] = time.monotonic()
            while len(self._seen) > self._max_size:
                self._seen.popitem(last=False)
            return False

    def contains(self, msg_id: str) -> bool:
        """Say whether a message was seen, without remembering it."""
        with self._lock:
            return bool(msg_id) and self._knows(msg_id)

    def discard(self, msg_id: str) -> None:
        """Forget a message: it is to be worked on again."""
        with self._lock:
            self._seen.pop(msg_id, None)

    def clear(self) -> None:
        """Forget all."""
        with self._lock:
            self._seen.clear()

    def _knows(self, msg_id: str) -> bool:
        seen = self._seen.get(msg_id)
        if seen is not None and time.monotonic() - seen >= self._ttl_s:
            del self._seen[msg_id]
            return False
        return seen is not None


class ThreadParticipationTracker:
    """The threads that the agent takes part in, kept in `HOME/<platform>_threads.json`.

    Args:
        max_tracked: how many are kept; the oldest are forgotten first.
    """

    def __init__(self, platform_name: str, max_tracked: int = 500) -> None:
        self._platform = re.sub(r"[^A-Za-z0-9_-]+", "_", platform_name)
        self._max_tracked = max_tracked
        self._threads: dict[str, None] = dict.fromkeys(_read_threads(self._path))

    @property
    def _path(self) -> Path:
        return hermes_home() / f"{self._platform}_threads.json"

    def mark(self, thread_id: str) -> None:
        """Remember that the agent takes part in a thread."""
        if thread_id in self._threads:
            return
        self._threads[thread_id] = None
        while len(self._threads) > self._max_tracked:
            del self._threads[next(iter(self._threads))]
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            write_atomic(self._path, json.dumps(list(self._threads)))
        except OSError as exc:
            logger.warning("cannot write %s, the thread is known until the process ends: %s", self._path, exc)

    def clear(self) -> None:
        """Forget all, in this process."""
        self._threads.clear()

    def __contains__(self, thread_id: object) -> bool:
        return thread_id in self._threads


def _read_threads(path: Path) -> list[str]:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return []
    except (OSError, ValueError) as exc:
        logger.warning("cannot read %s, its threads are forgotten: %s", path, exc)
        return []
    return [str(item) for item in value] if isinstance(value, list) else []
