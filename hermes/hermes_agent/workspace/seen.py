"""What each task has seen of files, so that a change by somebody else is not written over unseen."""

from __future__ import annotations

import os
import threading
from collections import OrderedDict

__all__ = ["SeenFiles"]

MOST = 4_096
"""Files that are remembered; the one that was looked at longest ago is forgotten."""


class SeenFiles:
    """Safe for threads."""

    def __init__(self) -> None:
        self._files: OrderedDict[tuple[str, str], tuple[int, int, int]] = OrderedDict()
        self._lock = threading.Lock()

    def note(self, task_id: str, path: str, status: os.stat_result | None = None) -> None:
        """Note that the task knows the file as it is now, or as `status` says."""
        print_ = _fingerprint(path) if status is None else (status.st_mtime_ns, status.st_size, status.st_ino)
        with self._lock:
            if print_ is None:
                self._files.pop((task_id, path), None)
                return
            self._files[task_id, path] = print_
            self._files.move_to_end((task_id, path))
            while len(self._files) > MOST:
                self._files.popitem(last=False)

    def is_changed(self, task_id: str, path: str) -> bool:
        """Say whether a file is different from what the task saw; false for one that it never saw."""
        with self._lock:
            known = self._files.get((task_id, path))
        return known is not None and known != _fingerprint(path)


def _fingerprint(path: str) -> tuple[int, int, int] | None:
    try:
        status = os.stat(path)  # noqa: PTH116 - the path may not be text
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino
