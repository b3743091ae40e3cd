"""What is said next: lines that were typed while the agent worked, and what plugins push. From any thread."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

__all__ = ["MAX_QUEUED", "QueuedInput", "InputQueue"]

MAX_QUEUED = 32


class QueuedInput(NamedTuple):
    """One input."""

    text: str
    is_typed: bool = True
    """By the person; a plugin's text is never taken for a command."""


class InputQueue:
    """A bounded queue.

    Args:
        on_plugin: called, in the thread that pushes, when a plugin has pushed something.
    """

    def __init__(self, on_plugin: Callable[[], None]) -> None:
        self._on_plugin = on_plugin
        self._items: deque[QueuedInput] = deque()
        self._lock = threading.Lock()

    def add_typed(self, line: str) -> bool:
        """Let a line of the person wait; false when too much waits."""
        with self._lock:
            if len(self._items) >= MAX_QUEUED:
                return False
            self._items.append(QueuedInput(line))
            return True

    def add_injected(self, text: str) -> bool:
        """Let a plugin's text come next, after those of plugins that wait already; false when too much waits."""
        with self._lock:
            if len(self._items) >= MAX_QUEUED:
                return False
            place = next((i for i, said in enumerate(self._items) if said.is_typed), len(self._items))
            self._items.insert(place, QueuedInput(text, is_typed=False))
        self._on_plugin()
        return True

    def take(self) -> QueuedInput | None:
        """Return what comes next, or None."""
        with self._lock:
            return self._items.popleft() if self._items else None

    def __len__(self) -> int:
        return len(self._items)
